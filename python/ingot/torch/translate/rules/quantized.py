"""Numbers as integers with a scale: what PyTorch's quantization of captured programs writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Number, Tensor, Unsupported, axis_of

if TYPE_CHECKING:
    from ingot.torch.translate.emitter import Emitter

# By name: the operators exist once torch.ao has been imported, which takes a second that others need not spend.
_LIBRARY = "quantized_decomposed"
_STORED = (torch.int8, torch.uint8, torch.int16, torch.uint16)
Parameter = Tensor | Number


def _parameter(e: Emitter, value: Parameter, dtype: torch.dtype) -> Tensor:
    """A scale or zero point, of rank 0."""
    x = e.tensor(value, dtype)
    return e.op("Reshape", x, e.ints([]), shape=()) if x.rank else x


def _quantize(
    e: Emitter, x: Tensor, scale: Tensor, zero: Tensor | None, low: Number, high: Number, axis: int
) -> Tensor:
    dtype = e.out.dtype
    if dtype not in _STORED:
        raise Unsupported(f"quantization to {dtype}")
    q = e.op("QuantizeLinear", e.cast(x, torch.float32), scale, zero, dtype=dtype, axis=axis)
    info = torch.iinfo(dtype)
    if low > info.min or high < info.max:
        q = e.op("Clip", q, e.number(low, dtype), e.number(high, dtype))
    return q


def _dequantize(e: Emitter, q: Tensor, scale: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    if q.dtype in _STORED:
        x = e.op("DequantizeLinear", q, scale, zero, dtype=torch.float32, axis=axis)
    else:
        raise Unsupported(f"quantized numbers of {q.dtype}")
    return e.cast(x, e.out.dtype)


def _bounds(low: Parameter, high: Parameter) -> tuple[Number, Number]:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        raise Unsupported("quantization between bounds that are not known")
    return low, high


@rule(*(f"{_LIBRARY}.quantize_per_tensor.{o}" for o in ("default", "tensor", "tensor2")))
def _quantize_per_tensor(
    e: Emitter, x: Tensor, scale: Parameter, zero: Parameter, low: Parameter, high: Parameter, dtype: torch.dtype
) -> Tensor:
    low, high = _bounds(low, high)
    return _quantize(e, x, _parameter(e, scale, torch.float32), _parameter(e, zero, dtype), low, high, 0)


@rule(*(f"{_LIBRARY}.dequantize_per_tensor.{o}" for o in ("default", "tensor", "tensor2")))
def _dequantize_per_tensor(
    e: Emitter, q: Tensor, scale: Parameter, zero: Parameter, low: Any, high: Any, dtype: torch.dtype, **_: Any
) -> Tensor:
    return _dequantize(e, q, _parameter(e, scale, torch.float32), _parameter(e, zero, q.dtype), 0)


@rule(f"{_LIBRARY}.quantize_per_channel.default")
def _quantize_per_channel(
    e: Emitter, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: Number, high: Number, dtype: torch.dtype
) -> Tensor:
    low, high = _bounds(low, high)
    axis = axis_of(axis, x.rank)
    return _quantize(e, x, e.cast(scales, torch.float32), e.cast(zeros, dtype), low, high, axis)


@rule(f"{_LIBRARY}.dequantize_per_channel.default")
def _dequantize_per_channel(
    e: Emitter, q: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any, **__: Any
) -> Tensor:
    zero = None if zeros is None else e.cast(zeros, q.dtype)
    return _dequantize(e, q, e.cast(scales, torch.float32), zero, axis_of(axis, q.rank))


def _range(e: Emitter, x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element, zero among them."""
    axes, zero = list(range(x.rank)), e.number(0, x.dtype)
    low, high = (e.reduce(op, x, axes, False) for op in ("ReduceMin", "ReduceMax"))
    return e.op("Min", low, zero), e.op("Max", high, zero)


def _parameters(e: Emitter, scale: Tensor, zero: Tensor) -> list[Tensor]:
    one = e.ints([1])
    scale, zero = e.cast(scale, torch.float64), e.cast(zero, torch.int64)
    return [e.op("Reshape", scale, one), e.op("Reshape", zero, one)]


@rule(f"{_LIBRARY}.choose_qparams.tensor")
def _choose_qparams(e: Emitter, x: Tensor, qmin: int, qmax: int, eps: float, dtype: torch.dtype) -> list[Tensor]:
    low, high = _range(e, e.cast(x, torch.float32))
    scale = e.div(e.sub(high, low), e.number(qmax - qmin, torch.float32))
    scale = e.op("Max", scale, e.number(eps, torch.float32))
    zero = e.sub(e.number(qmin, torch.float32), e.op("Round", e.div(low, scale)))
    zero = e.op("Clip", zero, e.number(qmin, torch.float32), e.number(qmax, torch.float32))
    return _parameters(e, scale, zero)


@rule(f"{_LIBRARY}.choose_qparams_symmetric.tensor")
def _choose_qparams_symmetric(
    e: Emitter, x: Tensor, qmin: int, qmax: int, eps: float, dtype: torch.dtype
) -> list[Tensor]:
    low, high = _range(e, e.cast(x, torch.float32))
    largest = e.op("Max", e.op("Neg", low), high)
    scale = e.div(largest, e.number((qmax - qmin) / 2, torch.float32))
    scale = e.op("Max", scale, e.number(eps, torch.float32))
    return _parameters(e, scale, e.number(128 if dtype is torch.uint8 else 0, torch.float32))


@rule("ingot.dynamic_quantize.default")
def _dynamic_quantize(e: Emitter, x: Tensor) -> list[Tensor]:
    types = [torch.uint8, torch.float32, torch.uint8]
    return list(e.ops("DynamicQuantizeLinear", [e.cast(x, torch.float32)], types))


@rule(f"{_LIBRARY}.dequantize_per_channel_group.default")
def _dequantize_in_groups(
    e: Emitter, q: Tensor, scales: Tensor, zeros: Tensor | None, low: int, high: int, dtype: Any, group: int, out: Any
) -> Tensor:
    zero = None if zeros is None else e.cast(zeros, q.dtype)
    scale = e.cast(scales, torch.float32)
    x = e.op("DequantizeLinear", q, scale, zero, dtype=torch.float32, axis=q.rank - 1, block_size=group)
    return e.cast(x, e.out.dtype)


@rule("ingot.dequantize_weight.default")
def _dequantize_weight(
    e: Emitter, q: Tensor, scale: Tensor, zero: Tensor | None, axis: int, group: int, bits: int
) -> Tensor:
    """Constants of 4 bits have been packed where they were defined."""
    blocks: dict[str, Any] = {"block_size": group} if group else {}
    return e.op("DequantizeLinear", q, scale, zero, dtype=torch.float32, axis=axis, **blocks)
