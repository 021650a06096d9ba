"""generate(seed): a random case. `python generate.py SEED` prints it."""

from __future__ import annotations

import sys

import onnx
from differential import elementwise, movement, products, quantized, structure
from differential.builder import Builder, Case

ALL = {
    "elementwise": elementwise.FAMILIES,
    "movement": movement.FAMILIES,
    "products": products.FAMILIES,
    "quantized": quantized.FAMILIES,
    "structure": structure.FAMILIES,
}


def generate(seed: int) -> Case:
    """A graph of 1 to 12 families' choices, of all families or of one or two of them mainly."""
    b = Builder(seed)
    mainly = b.random.sample(list(ALL), b.random.choice((1, 2, 5)))
    families = {
        family: weight * (8 if group in mainly else 1)
        for group, members in ALL.items()
        for family, weight in members.items()
    }
    structure.grow(b, b.random.choice((1, 2, 4, 6, 8, 12)), families)
    return b.case(seed)


if __name__ == "__main__":
    case = generate(int(sys.argv[1]))
    print(onnx.printer.to_text(case.model))
    print({name: (a.dtype, a.shape) for name, a in case.inputs.items()})
