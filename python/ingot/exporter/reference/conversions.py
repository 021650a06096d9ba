"""Into and out of the quantized world: quantize, dequantize, fake quantization, questions about a quantized tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.errors import UnsupportedError
from ingot.exporter.reference.mode import Grid, ReferenceMode, grid_of, handles, real
from ingot.exporter.weights import INTEGER_OF, QuantizedWeight, bounds, decomposed


@handles("quantize_per_tensor")
def quantize_per_tensor(mode: ReferenceMode, x: Tensor, scale: Any, zero_point: Any, dtype: torch.dtype) -> Tensor:
    if dtype not in INTEGER_OF or dtype == torch.qint32:
        raise UnsupportedError(f"activations of type {dtype}", "quint8 and qint8 are exported")
    return mode.quantized(x, grid_of(scale, zero_point, dtype))


@handles("quantize_per_channel")
def quantize_per_channel(
    mode: ReferenceMode, x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: torch.dtype
) -> Tensor:
    return _per_channel(x, scales, zero_points, axis, *bounds(INTEGER_OF[dtype]))


def _per_channel(x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, least: int, most: int) -> Tensor:
    dtype = torch.uint8 if least >= 0 else torch.int8
    zeros = zero_points.to(torch.int64)
    q = decomposed.quantize_per_channel(x, scales, zeros, axis, least, most, dtype)
    result: Tensor = decomposed.dequantize_per_channel(q, scales, zeros, axis, least, most, dtype)
    return result


@handles("fake_quantize_per_tensor_affine")
def fake_quantize(
    mode: ReferenceMode, x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    return _float(mode.quantized(x, _grid_between(scale, zero_point, quant_min, quant_max)))


@handles("fake_quantize_per_channel_affine")
def fake_quantize_per_channel(
    mode: ReferenceMode, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    _check_range(quant_min, quant_max)
    return _per_channel(x, scale, zero_point, axis, quant_min, quant_max)


@handles("fused_moving_avg_obs_fake_quant", "aten::_fused_moving_avg_obs_fq_helper")
def fused_fake_quantize(
    mode: ReferenceMode,
    x: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    if per_row_fake_quant:
        return fake_quantize_per_channel(mode, x, scale, zero_point, ch_axis, quant_min, quant_max)
    return fake_quantize(mode, x, scale.reshape(()), zero_point.reshape(()), quant_min, quant_max)


def _check_range(least: int, most: int) -> None:
    if not (-128 <= least < 0 < most <= 127 or 0 <= least < most <= 255):
        raise UnsupportedError(f"fake quantization to [{least}, {most}]", "8 bits or fewer are exported")


def _grid_between(scale: Any, zero_point: Any, least: int, most: int) -> Grid:
    _check_range(least, most)
    return grid_of(scale, zero_point, torch.uint8 if least >= 0 else torch.int8)


def _float(x: Tensor) -> Tensor:
    """The same values as a tensor of no grid."""
    result: Tensor = torch.ops.aten.alias(x)
    return result


@handles("dequantize")
def dequantize(mode: ReferenceMode, x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(dequantize(mode, one) for one in x)
    if isinstance(x, QuantizedWeight):
        return real(x)
    return _float(x) if mode.grid(x) is not None else x


@handles("is_quantized.get")
def is_quantized(mode: ReferenceMode, x: Any) -> Any:
    return True if mode.grid(x) is not None else NotImplemented


@handles("dtype.get")
def dtype(mode: ReferenceMode, x: Any) -> Any:
    grid = mode.grid(x)
    return NotImplemented if grid is None else torch.quint8 if grid.dtype == torch.uint8 else torch.qint8


@handles("q_scale")
def q_scale(mode: ReferenceMode, x: Any) -> Any:
    grid = mode.grid(x)
    return grid.scale if grid else NotImplemented


@handles("q_zero_point")
def q_zero_point(mode: ReferenceMode, x: Any) -> Any:
    grid = mode.grid(x)
    return grid.zero_point if grid else NotImplemented


@handles("int_repr")
def int_repr(mode: ReferenceMode, x: Any) -> Any:
    grid = mode.grid(x)
    if grid is None:
        return NotImplemented
    if isinstance(grid.scale, Tensor):
        return decomposed.quantize_per_tensor.tensor(x, grid.scale, grid.zero_point, *grid.bounds, grid.dtype)
    return decomposed.quantize_per_tensor.default(x, grid.scale, grid.zero_point, *grid.bounds, grid.dtype)
