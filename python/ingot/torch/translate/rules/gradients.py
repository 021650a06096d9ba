"""Gradients that PyTorch has kernels of its own for: of convolutions, pools and attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.rules.attention import scores_of
from ingot.torch.translate.rules.convolution import spread
from ingot.torch.translate.rules.pooling import average_matrix, window_of
from ingot.torch.translate.values import Size, Tensor, Unsupported, is_static, same_size, static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


def _cut(e: Emitter, x: Tensor, sizes: Sequence[Size], axes: Sequence[int], shape: Sequence[Size]) -> Tensor:
    """The first elements of these axes."""
    return e.op("Slice", x, e.ints([0] * len(axes)), e.ints(sizes), e.ints(axes), shape=shape)


# Convolutions


def _spread_out(e: Emitter, grad: Tensor, weight: Tensor, like: Tensor, attrs: dict[str, Any]) -> Tensor:
    """What each element of a convolution's input (which has the shape of `like`) contributed to: the transposed
    convolution. Where strides skip elements at the end, these are there too."""
    axes = range(2, like.rank)
    strides = attrs["strides"]
    if all(s == 1 for s in strides):
        mirrored = _mirrored(e, weight, attrs) if attrs.get("group", 1) != 1 else None
        if mirrored is not None:
            return e.op("Conv", grad, mirrored[0], shape=like.shape, **mirrored[1])
        return e.op("ConvTranspose", grad, weight, shape=like.shape, **attrs)
    wide = e.op("ConvTranspose", grad, weight, output_padding=[s - 1 for s in strides], **attrs)
    return _cut(e, wide, [e.size(like, i) for i in axes], list(axes), like.dims)


def _mirrored(e: Emitter, weight: Tensor, attrs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]] | None:
    """The filter and the attributes with which a plain convolution does what a transposed one of stride 1 does: in
    groups, the plain one has the faster kernels. [O, C/g, ...] becomes [C, O/g, ...] with its ends exchanged."""
    n, groups = weight.rank - 2, attrs["group"]
    out, inside, *kernel = (static(size, "the size of a filter") for size in weight.dims)
    pads = [d * (k - 1) - p for d, k, p in zip(attrs["dilations"] * 2, kernel * 2, attrs["pads"], strict=True)]
    if min(pads) < 0:
        return None
    axes = list(range(2, weight.rank))
    ends = e.ints([-1] * n), e.ints([-(2**63 - 1)] * n), e.ints(axes), e.ints([-1] * n)
    turned = e.op("Slice", weight, *ends, shape=weight.shape)
    parts = e.reshape(turned, [groups, out // groups, inside, *kernel])
    parts = e.transpose(parts, [0, 2, 1, *range(3, parts.rank)])
    return e.reshape(parts, [groups * inside, out // groups, *kernel]), {**attrs, "pads": pads}


def _weight_gradient(e: Emitter, x: Tensor, grad: Tensor, weight: Tensor, attrs: dict[str, Any]) -> Tensor:
    """The convolution of x with grad as the filter, summed over the batch: strides and dilations change places, and so
    do channels and batch. In groups, the batch of each group's channels stands where channels do: [C/g, g N, ...]."""
    turn = [1, 0, *range(2, x.rank)]
    swapped = {**attrs, "strides": attrs["dilations"], "dilations": attrs["strides"]}
    moved, groups = e.transpose(x, turn), attrs["group"]
    if groups != 1:
        batch, channels, *spatial = _sizes(e, x)
        parts = e.reshape(moved, [groups, static(channels, "the number of channels") // groups, batch, *spatial])
        parts = e.transpose(parts, [1, 0, *range(2, parts.rank)])
        moved = e.reshape(parts, [parts.dims[0], e.product([groups, batch]), *spatial])
    found = e.op("Conv", moved, e.transpose(grad, turn), **swapped)
    shape = [weight.dims[i] for i in turn]
    return e.transpose(_cut(e, found, shape[2:], turn[2:], shape), turn)


@rule(aten.convolution_backward.default)
def _convolution_backward(
    e: Emitter,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    n = weight.rank - 2
    attrs: dict[str, Any] = {"strides": spread(stride, n), "dilations": spread(dilation, n), "group": groups}
    attrs["pads"] = spread(padding, n) * 2
    results: list[Tensor | None] = [None, None, None]
    if wanted[0]:
        results[0] = e.op("Conv", grad, weight, **attrs) if transposed else _spread_out(e, grad, weight, x, attrs)
    if wanted[1]:
        whole, window = (grad, x) if transposed else (x, grad)
        results[1] = _weight_gradient(e, whole, window, weight, attrs)
    if wanted[2]:
        results[2] = e.reduce("ReduceSum", grad, [0, *range(2, grad.rank)], False)
    return results


# Pools


def _planes(e: Emitter, x: Tensor, n: int) -> Tensor:
    """[..., spatial] as [planes, 1, spatial]."""
    sizes = _sizes(e, x)
    return e.reshape(x, [e.product(sizes[: x.rank - n]), 1, *sizes[x.rank - n :]])


def _divisors(
    x: Tensor, n: int, window: Sequence[Any], ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Any:
    """What the sum of each window was divided by: a number, or a tensor of the spatial shape."""
    kernel, _, padding = window
    if divisor is not None:
        return float(divisor)
    if not ceil_mode and (count_include_pad or not any(padding)):
        return float(math.prod(kernel))
    spatial = x.dims[x.rank - n :]
    if not is_static(spatial):
        raise Unsupported("windows that reach over an edge which is not known before the graph runs")
    pool: Any = getattr(torch.nn.functional, f"avg_pool{n}d")
    ones = torch.ones(1, 1, *map(int, spatial))
    mean = pool(ones, *window, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    total = pool(ones, *window, ceil_mode=ceil_mode, count_include_pad=True, divisor_override=1)
    return total / mean


def _avg_pool_backward(n: int) -> Any:
    def translate(
        e: Emitter,
        grad: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        attrs = window_of(kernel, stride, padding, n)
        window = (attrs["kernel_shape"], attrs["strides"], attrs["pads"][:n])
        by = _divisors(x, n, window, ceil_mode, count_include_pad, divisor_override)
        divisor = e.cast(e.constant(by), x.dtype) if isinstance(by, torch.Tensor) else e.number(by, x.dtype)
        shares = _planes(e, Tensor(e.div(grad, _rank(e, divisor, grad.rank)).name, x.dtype, grad.shape), n)
        ones = e.cast(e.constant(np.ones([1, 1, *attrs["kernel_shape"]], np.float32)), x.dtype)
        attrs = {"strides": attrs["strides"], "pads": attrs["pads"], "dilations": [1] * n}
        return e.reshape(_spread_out(e, shares, ones, _planes(e, x, n), attrs), _sizes(e, x))

    return translate


def _rank(e: Emitter, x: Tensor, rank: int) -> Tensor:
    """A tensor [1, 1, ...] to be broadcast to this rank."""
    return e.squeeze(x, 0) if x.rank > rank else x


for _n, _target in ((2, aten.avg_pool2d_backward.default), (3, aten.avg_pool3d_backward.default)):
    rule(_target)(_avg_pool_backward(_n))


@rule(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default)
def _adaptive_avg_pool_backward(e: Emitter, grad: Tensor, x: Tensor) -> Tensor:
    """Along each axis, the product with the transposed matrix of averages; of one window it is an equal share."""
    n = 2 if "2d" in str(e.node.target) else 3
    for axis in range(x.rank - n, x.rank):
        out, size = grad.dims[axis], x.dims[axis]
        shape = [*grad.dims[:axis], size, *grad.dims[axis + 1 :]]
        if same_size(out, 1):
            share = e.div(grad, e.number(e.size(x, axis), x.dtype))
            grad = e.expand(Tensor(share.name, x.dtype, grad.shape), shape)
        elif not same_size(out, size):
            matrix = average_matrix(static(size, "the size of the pooled dim"), static(out, "the size of the gradient"))
            weights = e.cast(e.constant(matrix), x.dtype)
            order = [*(i for i in range(x.rank) if i != axis), axis]
            moved = e.op("MatMul", e.transpose(grad, order), weights, shape=[shape[i] for i in order])
            grad = e.transpose(moved, [order.index(i) for i in range(x.rank)])
    return grad


def _back_to_places(e: Emitter, grad: Tensor, x: Tensor, places: Tensor, n: int) -> Tensor:
    """Each gradient is added where the maximum was; places count within a plane."""
    planes = e.product(_sizes(e, x)[: x.rank - n])
    zeros = e.fill([planes, e.product(_sizes(e, x)[x.rank - n :])], 0, x.dtype)
    flat = [e.op("Reshape", t, e.ints([planes, -1])) for t in (places, grad)]
    found = e.op("ScatterElements", zeros, *flat, axis=1, reduction="add", shape=zeros.shape)
    return e.reshape(found, _sizes(e, x))


@rule(aten.max_pool2d_with_indices_backward.default)
def _max_pool2d_backward(e: Emitter, grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return _back_to_places(e, grad, x, rest[-1], 2)


@rule(aten.max_pool3d_with_indices_backward.default)
def _max_pool3d_backward(e: Emitter, grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return _back_to_places(e, grad, x, rest[-1], 3)


@rule(aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_pool2d_backward(e: Emitter, grad: Tensor, x: Tensor, places: Tensor) -> Tensor:
    return _back_to_places(e, grad, x, places, 2)


@rule(aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_pool3d_backward(e: Emitter, grad: Tensor, x: Tensor, places: Tensor) -> Tensor:
    return _back_to_places(e, grad, x, places, 3)


# Attention


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def _attention_backward(
    e: Emitter,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> list[Tensor]:
    """With S = scale q k' + mask and P = exp(S - logsumexp): dv = P' g, and of S it is P (g v' - sum(g out))."""
    if dropout_p != 0:
        raise Unsupported("attention with dropout")
    kind = logsumexp.dtype
    scores, factor = scores_of(e, q, k, attn_mask, is_causal, scale, kind)
    wide = [e.cast(t, kind) for t in (grad, q, k, v, out)]
    grad, wide_q, wide_k, wide_v, out = wide
    weights = e.op("Exp", e.sub(scores, e.unsqueeze(logsumexp, -1)))
    own = e.op("ReduceSum", e.mul(grad, out), e.ints([-1]), keepdims=1)
    delta = e.mul(weights, e.sub(e.op("MatMul", grad, _turned(e, wide_v)), own))
    delta = e.mul(delta, e.number(factor, kind))
    results = (
        e.op("MatMul", delta, wide_k),
        e.op("MatMul", e.op("Transpose", delta, perm=[0, 1, 3, 2]), wide_q),
        e.op("MatMul", e.op("Transpose", weights, perm=[0, 1, 3, 2]), grad),
    )
    return [e.cast(r, t.dtype) for r, t in zip(results, (q, k, v), strict=True)]


def _turned(e: Emitter, x: Tensor) -> Tensor:
    return e.transpose(x, [0, 1, 3, 2])
