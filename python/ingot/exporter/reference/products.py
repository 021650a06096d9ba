"""Linear and convolutions: static, dynamic, weight-only; packed or as torchao's tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ingot.errors import UnsupportedError
from ingot.exporter.reference.dynamic import EPS, dynamic_quantize
from ingot.exporter.reference.mode import Grid, ReferenceMode, grid_of, handles
from ingot.exporter.weights import ActivationRule, HalfWeight, QuantizedWeight, decomposed

Act = Any


def dynamic(mode: ReferenceMode, x: Tensor, reduce_range: bool) -> Tensor:
    """u8 over the whole tensor, with the smallest range that holds it and zero: ONNX's DynamicQuantizeLinear.

    PyTorch's x86 kernels may keep to 7 bits (reduce_range), which saves theirs from overflowing, and not ours: only if
    the mode is told to do the same.
    """
    if reduce_range and mode.keep_reduce_range and torch.backends.quantized.engine != "qnnpack":
        scale, zero_point = decomposed.choose_qparams.tensor(x, 0, 127, EPS, torch.uint8)
        q = decomposed.quantize_per_tensor.tensor(x, scale, zero_point, 0, 127, torch.uint8)
    else:
        q, scale, zero_point = dynamic_quantize(x)
    result: Tensor = decomposed.dequantize_per_tensor.tensor(q, scale, zero_point, 0, 255, torch.uint8)
    return result


def dynamic_by(rule: ActivationRule, x: Tensor) -> Tensor:
    """torchao's rules: s8, for each row or the whole; around zero with half the range as 127.5 steps, or affine."""
    if rule.pre_scale is not None:
        x = x * rule.pre_scale
    if rule.scale is not None:
        zero_point = rule.zero_point if rule.zero_point is not None else torch.zeros((), dtype=torch.int64)
        scale, zero_point = rule.scale.to(torch.float32).reshape(()), zero_point.to(torch.int64).reshape(())
        q = decomposed.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8)
        fixed: Tensor = decomposed.dequantize_per_tensor.tensor(q, scale, zero_point, -128, 127, torch.int8)
        return fixed
    dims = [-1] if rule.per_row else list(range(x.dim()))
    if rule.symmetric:
        scale = torch.clamp(torch.amax(torch.abs(x), dim=dims, keepdim=True) / 127.5, min=EPS)
        zero_point = torch.zeros_like(scale)
    else:
        low = torch.clamp(torch.amin(x, dim=dims, keepdim=True), max=0.0)
        high = torch.clamp(torch.amax(x, dim=dims, keepdim=True), min=0.0)
        scale = torch.clamp((high - low) / 255.0, min=EPS)
        zero_point = torch.clamp(-128.0 - torch.round(low / scale), -128.0, 127.0)
    q = torch.clamp(torch.round(x / scale) + zero_point, -128.0, 127.0).to(torch.int8)
    return (q.to(torch.float32) - zero_point) * scale if not rule.symmetric else q.to(torch.float32) * scale


def _linear(x: Tensor, weight: QuantizedWeight | HalfWeight) -> Tensor:
    return F.linear(x, weight.real(), weight.bias)


def _convolution(x: Tensor, weight: QuantizedWeight, rank: int) -> Tensor:
    shape = weight.convolution
    if shape is None:
        raise UnsupportedError("a packed convolution without its strides")
    values = weight.real()
    if values.dim() == rank + 3:  # one-dimensional, kept as two-dimensional of height 1
        values = values.squeeze(2)
    stride, padding, dilation = (tuple(v[-rank:]) for v in (shape.stride, shape.padding, shape.dilation))
    if shape.transposed:
        call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        more = tuple(shape.output_padding[-rank:])
        return call(x, values, weight.bias, stride, padding, more, shape.groups, dilation)
    conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return conv(x, values, weight.bias, stride, padding, dilation, shape.groups)


def _activation_grid(mode: ReferenceMode, x: Tensor, scale: Any, zero_point: Any) -> Grid:
    """Products keep the type of their operand."""
    grid = mode.grid(x)
    return grid_of(scale, zero_point, grid.dtype if grid else torch.uint8)


ACTIVATIONS: dict[str, Act] = {"": lambda y: y, "_relu": torch.relu, "_tanh": torch.tanh}


def _register_linear(suffix: str, act: Act) -> None:
    @handles(f"quantized::linear{suffix}")
    def static(mode: ReferenceMode, x: Tensor, weight: QuantizedWeight, scale: Any, zero_point: Any) -> Tensor:
        return mode.quantized(act(_linear(x, weight)), _activation_grid(mode, x, scale, zero_point))

    if suffix == "_tanh":
        return

    @handles(f"quantized::linear{suffix}_dynamic")
    def at_run_time(
        mode: ReferenceMode, x: Tensor, weight: QuantizedWeight | HalfWeight, reduce_range: bool = False
    ) -> Any:
        operand = dynamic(mode, x, reduce_range) if isinstance(weight, QuantizedWeight) else x
        return act(_linear(operand, weight))

    @handles(f"quantized::linear{suffix}_dynamic_fp16")
    def half(mode: ReferenceMode, x: Tensor, weight: HalfWeight) -> Any:
        return act(_linear(x, weight))

    @handles(f"quantized::linear_with_input_q_dq_qweight_dq{suffix}_output_fp32")
    def to_float(mode: ReferenceMode, x: Tensor, scale: Any, zero_point: Any, weight: QuantizedWeight) -> Any:
        return act(_linear(mode.quantized(x, grid_of(scale, zero_point, torch.uint8)), weight))


@handles("quantized::linear_leaky_relu")
def linear_leaky_relu(
    mode: ReferenceMode, x: Tensor, weight: QuantizedWeight, scale: Any, zero_point: Any, negative_slope: float
) -> Tensor:
    y = F.leaky_relu(_linear(x, weight), negative_slope)
    return mode.quantized(y, _activation_grid(mode, x, scale, zero_point))


def _register_convolution(rank: int) -> None:
    for suffix in ("", "_relu"):
        act = ACTIVATIONS[suffix]

        # The oldest form names strides and the like once more; scale and zero point are the last two in both.
        @handles(f"quantized::conv{rank}d{suffix}")
        def static(mode: ReferenceMode, x: Tensor, weight: QuantizedWeight, *args: Any, act: Act = act) -> Tensor:
            return mode.quantized(act(_convolution(x, weight, rank)), _activation_grid(mode, x, *args[-2:]))

        @handles(f"quantized::conv{rank}d_add{suffix}")
        def added(
            mode: ReferenceMode, x: Tensor, other: Tensor, weight: QuantizedWeight, *args: Any, act: Act = act
        ) -> Tensor:
            y = act(_convolution(x, weight, rank) + other)
            return mode.quantized(y, _activation_grid(mode, x, *args[-2:]))

    @handles(f"quantized::conv_transpose{rank}d")
    def transposed(mode: ReferenceMode, x: Tensor, weight: QuantizedWeight, scale: Any, zero_point: Any) -> Tensor:
        return mode.quantized(_convolution(x, weight, rank), _activation_grid(mode, x, scale, zero_point))

    @handles(f"quantized::conv{rank}d_dynamic", f"quantized::conv_transpose{rank}d_dynamic")
    def at_run_time(mode: ReferenceMode, x: Tensor, weight: QuantizedWeight, reduce_range: bool = False) -> Tensor:
        return _convolution(dynamic(mode, x, reduce_range), weight, rank)


for _suffix, _act in ACTIVATIONS.items():
    _register_linear(_suffix, _act)
for _rank in (1, 2, 3):
    _register_convolution(_rank)


@handles("linear")
def linear(mode: ReferenceMode, x: Tensor, weight: Any, bias: Tensor | None = None) -> Any:
    """torchao's weights say how the other operand is quantized."""
    if not isinstance(weight, QuantizedWeight):
        return NotImplemented
    if weight.activation is not None:
        x = dynamic_by(weight.activation, x)
    return F.linear(x, weight.real(), bias)


@handles("quantized::matmul")
def matmul(mode: ReferenceMode, a: Tensor, b: Tensor, scale: Any, zero_point: Any) -> Tensor:
    return mode.quantized(torch.matmul(a, b), _activation_grid(mode, a, scale, zero_point))
