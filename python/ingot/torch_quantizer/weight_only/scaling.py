"""Scales for each input channel (AWQ): a column that meets large inputs is made larger before it is rounded, and its
input smaller by as much. With x the size of a channel's inputs the factor is x^a; that a is taken for which the results
of all layers that read the input change least on the data seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingot.torch_quantizer.weight_only.grid import Rounded

EXPONENTS = [i / 20 for i in range(20)]


def error_of(weight: Tensor, rounded: Tensor, hessian: Tensor) -> float:
    """How far results are off, squared: the trace of D H D^T."""
    off = weight - rounded
    return float(((off @ hessian) * off).sum())


def factors(
    size: Tensor, repeat: int, layers: Sequence[tuple[Tensor, Tensor]], rounding: Callable[[Tensor, Tensor], Rounded]
) -> Tensor:
    """A factor for each channel. size: of the inputs of each; repeat: columns of a channel; layers: weight matrices,
    each with its Hessian; rounding(weight * factor, factor): how they will be rounded."""
    best, least = torch.ones_like(size), torch.inf
    for exponent in EXPONENTS:
        found = size.clamp_min(1e-4 * float(size.max()) + 1e-12) ** exponent
        found = found / (found.max() * found.min()).sqrt()
        columns = found.repeat_interleave(repeat)
        error = sum(error_of(w, rounding(w * columns, columns).real() / columns, h) for w, h in layers)
        if error < least:
            best, least = found, error
    return best
