"""Rows of quantized tables. PyTorch's zero points of these are floats; see QuantizedWeight.offset."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ingot.errors import UnsupportedError
from ingot.exporter.reference.mode import ReferenceMode, handles
from ingot.exporter.weights import QuantizedWeight, bounds, decomposed


def rows(weight: QuantizedWeight, indices: Tensor) -> Tensor:
    least, most = bounds(weight.values.dtype)
    table = decomposed.dequantize_per_channel(
        weight.values, weight.scale, weight.zero_point, weight.axis, least, most, weight.values.dtype
    )
    taken = F.embedding(indices, table)
    return taken if weight.offset is None else taken + F.embedding(indices, weight.offset)


@handles("quantized::embedding_byte", "quantized::embedding_4bit")
def embedding(mode: ReferenceMode, weight: QuantizedWeight, indices: Tensor, pruned_weights: bool = False) -> Tensor:
    if pruned_weights:
        raise UnsupportedError("a quantized embedding with pruned rows")
    return rows(weight, indices)


@handles("quantized::embedding_bag_byte", "quantized::embedding_bag_4bit")
def embedding_bag(
    mode: ReferenceMode,
    weight: QuantizedWeight,
    indices: Tensor,
    offsets: Tensor | None = None,
    scale_grad_by_freq: bool = False,
    bag_mode: int = 0,
    pruned_weights: bool = False,
    per_sample_weights: Tensor | None = None,
    compressed_indices_mapping: Tensor | None = None,
    include_last_offset: bool = False,
) -> Tensor:
    """Sums over bags (these kernels know no other mode): one bag for each row of `indices`, or bags between offsets."""
    if pruned_weights or compressed_indices_mapping is not None:
        raise UnsupportedError("a quantized embedding bag with pruned rows")
    taken = rows(weight, indices)
    if per_sample_weights is not None:
        taken = taken * per_sample_weights.unsqueeze(-1)
    if indices.dim() == 2:
        return taken.sum(dim=1)
    if offsets is None:
        raise UnsupportedError("a quantized embedding bag with neither offsets nor rows of indices")
    starts = offsets[:-1] if include_last_offset else offsets
    # A row belongs to the last bag that starts at or before it: a matrix of bags x rows, for standard operators only.
    place = torch.arange(indices.shape[0], device=indices.device)
    ends = torch.cat([starts[1:], torch.full((1,), 2**62, dtype=starts.dtype)])
    inside = (place[None, :] >= starts[:, None]) & (place[None, :] < ends[:, None])
    return torch.matmul(inside.to(taken.dtype), taken)


@handles("embedding")
def table_of_torchao(mode: ReferenceMode, a: Any, b: Any, *args: Any, **named: Any) -> Any:
    """F.embedding(indices, weight) and torch.embedding(weight, indices)."""
    if isinstance(a, QuantizedWeight):
        return F.embedding(b, a.real()) if a.axis is None or a.block else rows(a, b)
    if isinstance(b, QuantizedWeight):
        return F.embedding(a, b.real()) if b.axis is None or b.block else rows(b, a)
    return NotImplemented
