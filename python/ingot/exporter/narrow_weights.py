"""Weights of 4 and 8 bits in groups, as one operator: torch.ops.ingot.dequantize_weight is ONNX's DequantizeLinear of a
constant. 4-bit numbers lie one to a byte here; in files they are packed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.torch.recurrent import library

library.define("dequantize_weight(Tensor q, Tensor scale, Tensor? zero, int axis, int group, int bits) -> Tensor")


def _compute(q: Tensor, scale: Tensor, zero: Tensor | None, axis: int, group: int, bits: int) -> Tensor:
    """group: numbers along the axis with one scale; 0: one scale for each index of the axis."""

    def spread(of_groups: Tensor) -> Tensor:
        if group == 0:
            return of_groups.reshape([-1 if dim == axis else 1 for dim in range(q.dim())])
        return of_groups.repeat_interleave(group, axis).narrow(axis, 0, q.shape[axis])

    steps = q.float() if zero is None else q.float() - spread(zero).float()
    return steps * spread(scale)


def _shape(q: Tensor, scale: Tensor, zero: Tensor | None, axis: int, group: int, bits: int) -> Tensor:
    return torch.empty_like(q, dtype=torch.float32)


library.impl("dequantize_weight", _compute, "CPU")
torch.library.register_fake("ingot::dequantize_weight", _shape, lib=library)


def dequantize_weight(q: Tensor, scale: Tensor, zero: Tensor | None, axis: int, group: int, bits: int) -> Tensor:
    real: Tensor = torch.ops.ingot.dequantize_weight(q, scale, zero, axis, group, bits)
    return real
