"""Families of element-wise operators, with broadcasting, of all types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from differential.builder import (
    FLOATS,
    INTEGERS,
    MANTISSA,
    NUMBERS,
    PLAIN,
    SIGNED,
    UNSIGNED,
    Attrs,
    Builder,
    Family,
    NothingFitsError,
    Value,
    broadcast,
    numpy_type,
)
from onnx import TensorProto as T

if TYPE_CHECKING:
    from collections.abc import Callable

# Smooth functions: the bound of the result from that of the operand.
SMOOTH: dict[str, Callable[[float], float]] = {
    "Sigmoid": lambda b: 1,
    "Tanh": lambda b: 1,
    "Erf": lambda b: 1,
    "Sin": lambda b: 1,
    "Cos": lambda b: 1,
    "Atan": lambda b: 1.6,
    "Asinh": lambda b: math.asinh(b) + 1,
    "Softplus": lambda b: b + 1,
    "Softsign": lambda b: 1,
    "Elu": lambda b: b + 1,
    "Selu": lambda b: 2 * b + 2,
    "Celu": lambda b: b + 1,
    "HardSigmoid": lambda b: 1,
    "HardSwish": lambda b: b,
    "Mish": lambda b: b + 1,
    "Gelu": lambda b: b + 1,
    "LeakyRelu": lambda b: b,
}
SINCE = {"Gelu": 20, "Swish": 24}
# Of a bounded operand: what brings any float there, and the bound of the result.
GUARDED: dict[str, tuple[tuple[str, ...], float]] = {
    "Exp": (("Tanh",), 2.8),
    "Sinh": (("Tanh",), 1.2),
    "Cosh": (("Tanh",), 1.6),
    "Log": (("Cosh", "Tanh"), 0.5),
    "Sqrt": (("Cosh", "Tanh"), 1.3),
    "Reciprocal": (("Cosh", "Tanh"), 1),
    "Acosh": (("Exp", "Sigmoid"), 1.7),
    "Tan": (("Tanh",), 1.6),
    "Asin": (("Sin", "Tanh"), 1.6),
    "Acos": (("Sin", "Tanh"), 3.2),
    "Atanh": (("Sin", "Tanh"), 1.3),
}
BROAD_TYPES = {"Erf": NUMBERS[:1], "Mish": FLOATS[:1], "Celu": FLOATS[:1]}


def smooth(b: Builder) -> None:
    op = b.choice([op for op in SMOOTH if b.opset >= SINCE.get(op, 0)])
    v = b.take(FLOATS)
    attrs = {}
    if op in ("Elu", "Celu", "LeakyRelu"):
        attrs["alpha"] = b.choice((0.5, 0.1, 1.0))
    if op == "Gelu" and b.chance(0.5):
        attrs["approximate"] = "tanh"
    b.add(op, [v], v.dtype, v.shape, b.rounded(v), SMOOTH[op](v.bound), **attrs)


def guarded(b: Builder) -> None:
    op = b.choice(list(GUARDED))
    v = b.take(FLOATS)
    inner, bound = GUARDED[op]
    for guard in reversed(inner):
        v = b.add(guard, [v], v.dtype, v.shape, b.rounded(v), 3)
    b.add(op, [v], v.dtype, v.shape, b.rounded(v), bound)


def exact_unary(b: Builder) -> None:
    op = b.choice(("Abs", "Neg", "Relu", "Identity", "Sign"))
    types = {"Neg": FLOATS + SIGNED, "Relu": FLOATS + SIGNED, "Identity": (*PLAIN, T.STRING)}
    v = b.take(types.get(op, NUMBERS))
    if op == "Sign":
        b.add(op, [v], v.dtype, v.shape, b.decided(v), 1, 0)
    else:
        b.add(op, [v], v.dtype, v.shape, v.kind, v.bound, v.grain)


def jumping(b: Builder) -> None:
    """Functions that jump: of exact values mostly."""
    op = b.choice(("Floor", "Ceil", "Round", "ThresholdedRelu", "Shrink", "IsNaN", "IsInf"))
    v = b.take(FLOATS, where=lambda v: v.kind == "exact" or b.chance(0.1))
    if op in ("IsNaN", "IsInf"):
        b.add(op, [v], T.BOOL, v.shape, b.decided(v))
    elif op == "ThresholdedRelu":
        b.add(op, [v], v.dtype, v.shape, b.decided(v), v.bound, v.grain, alpha=0.5)
    elif op == "Shrink":
        grain = None if v.grain is None else max(v.grain, 2)
        kind = b.arithmetic(v.dtype, v.bound + 1, grain, v) if v.kind == "exact" else "wild"
        b.add(op, [v], v.dtype, v.shape, kind, v.bound + 1, grain, lambd=0.5, bias=0.25)
    else:
        b.add(op, [v], v.dtype, v.shape, b.decided(v), v.bound + 1, 0)


def partner(b: Builder, v: Value) -> Value:
    """Of the same type, and of a shape that broadcasts with v's."""

    def fits(other: Value) -> bool:
        try:
            return int(np.prod(broadcast(v.shape, other.shape))) <= 200000
        except ValueError:
            return False

    found = [o for o in b.pool if o.dtype == v.dtype and o.kind != "step" and fits(o)]
    if found and b.chance(0.5):
        return found[b.random.randrange(len(found))]
    shape = [n if b.chance(0.7) else 1 for n in v.shape][b.random.randint(0, v.rank) if b.chance(0.4) else 0 :]
    if b.chance(0.1):
        shape = [b.dim(), *([1] * (v.rank - len(shape))), *shape] if v.rank < 4 else shape
    return b.source(v.dtype, tuple(shape))


def binary(b: Builder) -> None:
    op = b.choice(("Add", "Sub", "Mul", "Add", "Mul", "Max", "Min", "Sum", "Mean"))
    numbers = FLOATS if op in ("Sum", "Mean") else NUMBERS
    v = b.take(numbers)
    other = partner(b, v)
    shape = broadcast(v.shape, other.shape)
    operands = [v, other] if b.chance(0.5) else [other, v]
    grains = None if v.grain is None or other.grain is None else (v.grain, other.grain)
    if op in ("Max", "Min"):
        grain = max(grains) if grains else None
        b.add(op, operands, v.dtype, shape, b.worst(v, other), max(v.bound, other.bound), grain)
        return
    if op == "Mul":
        bound, grain = v.bound * other.bound, sum(grains) if grains else None
    else:
        bound, grain = v.bound + other.bound, max(grains) if grains else None
    kind = b.arithmetic(v.dtype, bound, grain, v, other)
    if op == "Mean":
        kind = b.rounded(v, other)
    b.add(op, operands, v.dtype, shape, kind, bound, grain)


def divisor(b: Builder, v: Value) -> Value:
    """Far from 0: a constant or an input of its own."""
    shape = tuple(n if b.chance(0.7) else 1 for n in v.shape)
    if v.dtype in FLOATS:
        array = b.choice((-1, 1)) * np.exp2(b.numbers.integers(-1, 3, shape).astype(np.float64))
        return b.source(v.dtype, shape, array=array.astype(numpy_type(v.dtype)), bound=4, grain=1)
    array = b.numbers.integers(1, 9, shape)
    if v.dtype in SIGNED and b.chance(0.5):
        array = -array
    return b.source(v.dtype, shape, array=array.astype(numpy_type(v.dtype)), bound=9)


def division(b: Builder) -> None:
    op = b.choice(("Div", "Div", "Mod", "Pow"))
    v = b.take(FLOATS if op == "Pow" else NUMBERS)
    if op == "Pow":
        exponent = b.choice((2.0, 3.0, 0.5, 1.0, 0.0))
        base = b.add("Abs", [v], v.dtype, v.shape, v.kind, v.bound, v.grain) if exponent == 0.5 else v
        if exponent == 0.5:
            base = b.add(
                "Cosh", [b.add("Tanh", [base], v.dtype, v.shape, b.rounded(v), 1)], v.dtype, v.shape, b.rounded(v), 1.6
            )
        power = b.constant(exponent, v.dtype)
        b.add(op, [base, power], v.dtype, v.shape, b.rounded(base), max(1.0, min(base.bound, 1e6)) ** 3)
        return
    w = divisor(b, v)
    shape = broadcast(v.shape, w.shape)
    if v.dtype in INTEGERS:
        attrs: Attrs = {"fmod": 1} if op == "Mod" and b.chance(0.4) else {}
        b.add(op, [v, w], v.dtype, shape, b.decided(v), max(v.bound, 9), **attrs)
    elif op == "Mod":
        b.add(op, [v, w], v.dtype, shape, b.decided(v), 4, None, fmod=1)
    else:  # by powers of 2
        grain = None if v.grain is None else v.grain + 2
        b.add(op, [v, w], v.dtype, shape, b.arithmetic(v.dtype, 2 * v.bound, grain, v), 2 * v.bound, grain)


def compare(b: Builder) -> None:
    op = b.choice(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    types = NUMBERS if op != "Equal" else (*PLAIN, T.STRING) if b.opset >= 19 else PLAIN
    v = b.take(types, where=lambda v: v.kind == "exact" or b.chance(0.1))
    other = partner(b, v)
    b.add(op, [v, other], T.BOOL, broadcast(v.shape, other.shape), b.decided(v, other))


def logic(b: Builder) -> None:
    if b.chance(0.6):
        op = b.choice(("And", "Or", "Xor", "Not"))
        v = b.take((T.BOOL,))
    else:
        op = b.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
        v = b.take(INTEGERS)
    if op in ("Not", "BitwiseNot"):
        b.add(op, [v], v.dtype, v.shape, v.kind, 1e30)
        return
    other = partner(b, v)
    b.add(op, [v, other], v.dtype, broadcast(v.shape, other.shape), b.worst(v, other), 1e30)


def shift(b: Builder) -> None:
    v = b.take(UNSIGNED)
    by = b.source(v.dtype, v.shape, array=b.numbers.integers(0, 7, v.shape).astype(numpy_type(v.dtype)), bound=7)
    b.add("BitShift", [v, by], v.dtype, v.shape, v.kind, 1e30, direction=b.choice(("LEFT", "RIGHT")))


def where(b: Builder) -> None:
    v = b.take(PLAIN)
    other = partner(b, v)
    shape = broadcast(v.shape, other.shape)
    condition = b.source(T.BOOL, tuple(n if b.chance(0.7) else 1 for n in shape))
    grain = None if v.grain is None or other.grain is None else max(v.grain, other.grain)
    b.add("Where", [condition, v, other], v.dtype, shape, b.worst(v, other), max(v.bound, other.bound), grain)


def clip(b: Builder) -> None:
    v = b.take(NUMBERS)
    low, high = (b.constant(x, v.dtype) for x in ((0, 2) if v.dtype in UNSIGNED else (-1, 2)))
    operands = b.choice(([v, low, high], [v, low], [v, "", high]))
    b.add("Clip", operands, v.dtype, v.shape, v.kind, v.bound + 2, v.grain)


def prelu(b: Builder) -> None:
    v = b.take(FLOATS)
    slope = b.source(v.dtype, tuple(n if b.chance(0.6) else 1 for n in v.shape))
    grain = None if v.grain is None or slope.grain is None else v.grain + slope.grain
    bound = v.bound * max(1, slope.bound)
    b.add("PRelu", [v, slope], v.dtype, v.shape, b.arithmetic(v.dtype, bound, grain, v, slope), bound, grain)


def cast(b: Builder) -> None:
    """Between any two types; floats that become integers are small enough for it and have no fraction."""
    v = b.take(PLAIN)
    to = b.choice(PLAIN)
    grain, kind = v.grain, b.decided(v)
    if v.dtype in FLOATS and to in INTEGERS:
        if v.bound > 100 or (v.kind != "exact" and not b.chance(0.1)):
            raise NothingFitsError
        if to in UNSIGNED:
            v = b.add("Relu", [v], v.dtype, v.shape, v.kind, v.bound, v.grain)
    elif to in FLOATS:
        if v.dtype in FLOATS and v.kind != "exact":
            kind = b.rounded(v)
        on_grid = 0 if v.dtype not in FLOATS else v.grain
        fits = on_grid is not None and v.bound * 2.0**on_grid <= 2.0 ** MANTISSA[to]
        grain = on_grid if fits else None  # else rounded once, by everybody alike
    bound = max(v.bound, 1)
    if b.chance(0.15):
        like = b.source(to, (1,))
        b.add("CastLike", [v, like], to, v.shape, kind, bound, grain)
    else:
        b.add("Cast", [v], to, v.shape, kind, bound, grain, to=to)


FAMILIES: dict[Family, int] = {
    smooth: 6,
    guarded: 3,
    exact_unary: 4,
    jumping: 2,
    binary: 12,
    division: 3,
    compare: 3,
    logic: 3,
    shift: 1,
    where: 2,
    clip: 2,
    prelu: 1,
    cast: 5,
}
