"""Convolutions of one, two and three dims, plain and transposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter
    from ingot.torch.translate.values import Tensor

aten = torch.ops.aten
Sizes = int | list[int]


def spread(value: Any, count: int) -> list[int]:
    """One number for all dims, or one for each."""
    numbers = [static(v, "a parameter of a window") for v in (value if isinstance(value, (list, tuple)) else [value])]
    return numbers * count if len(numbers) == 1 else numbers


def _convolution(
    e: Emitter,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool = False,
    output_padding: Any = 0,
) -> Tensor:
    n = weight.rank - 2
    single = x.rank == n + 1
    if single:
        x = e.unsqueeze(x, 0)
    attrs: dict[str, Any] = {
        "strides": spread(stride, n),
        "dilations": spread(dilation, n),
        "group": groups,
    }
    if isinstance(padding, str):
        attrs["pads"] = [0] * (2 * n) if padding == "valid" else _same(weight, attrs["dilations"])
    else:
        attrs["pads"] = spread(padding, n) * 2
    if transposed:
        attrs["output_padding"] = spread(output_padding, n)
    y = e.op("ConvTranspose" if transposed else "Conv", x, weight, bias, **attrs)
    return e.op("Squeeze", y, e.ints([0])) if single else y


def _same(weight: Tensor, dilations: Sequence[int]) -> list[int]:
    """What keeps the size; an odd one comes after."""
    kernel = [static(s, "the size of the filter") for s in weight.dims[2:]]
    total = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


@rule(aten.convolution.default)
def _general(
    e: Emitter,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    return _convolution(e, x, weight, bias, stride, padding, dilation, groups, transposed, output_padding)


@rule(aten._convolution.default)
def _general_old(e: Emitter, *args: Any) -> Tensor:
    return _general(e, *args[:9])


@rule(
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
)
def _conv(
    e: Emitter,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    return _convolution(e, x, weight, bias, stride, padding, dilation, groups)


@rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def _conv_transpose(
    e: Emitter,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    return _convolution(e, x, weight, bias, stride, padding, dilation, groups, True, output_padding)
