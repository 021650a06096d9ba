"""Pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.rules.convolution import spread
from ingot.torch.translate.values import Size, Tensor, Unsupported, expression, same_size, static

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _batched(e: Emitter, x: Tensor, n: int, pool: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
    """pool on [N, C, ...], also for inputs without N."""
    if x.rank == n + 2:
        return pool(x)
    return [e.op("Squeeze", y, e.ints([0])) for y in pool(e.unsqueeze(x, 0))]


def window_of(kernel: Any, stride: Any, padding: Any, n: int) -> dict[str, Any]:
    kernel = spread(kernel, n)
    strides = spread(stride, n) if not isinstance(stride, (list, tuple)) or len(stride) else kernel
    return {"kernel_shape": kernel, "strides": strides, "pads": spread(padding, n) * 2}


def _inside(attrs: dict[str, Any], x: Tensor, n: int) -> dict[str, Any]:
    """With ceil_mode a window may be larger than the padded input, which it then covers once: cut to that size."""
    if not attrs["ceil_mode"]:
        return attrs
    kernel, strides = list(attrs["kernel_shape"]), list(attrs["strides"])
    for i, size in enumerate(x.dims[x.rank - n :]):
        number, step = expression(size), attrs.get("dilations", [1] * n)[i]
        if not isinstance(number, int):
            continue
        padded = number + attrs["pads"][i] + attrs["pads"][n + i]
        if padded < (kernel[i] - 1) * step + 1:
            kernel[i], strides[i] = (padded - 1) // step + 1, max(strides[i], padded)
    return {**attrs, "kernel_shape": kernel, "strides": strides}


def _max_pool(n: int, with_places: bool) -> Callable[..., Any]:
    def translate(
        e: Emitter,
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        attrs = window_of(kernel, stride, padding, n)
        attrs |= {"dilations": spread(dilation, n), "ceil_mode": int(ceil_mode)}
        attrs = _inside(attrs, x, n)
        places = [torch.int64] if with_places else []

        def pool(y: Tensor) -> list[Tensor]:
            found = e.ops("MaxPool", [y], [y.dtype, *places], **attrs)
            # ONNX counts through all planes, PyTorch within one.
            return [found[0], e.op("Mod", found[1], e.number(_plane(e, y, n), torch.int64))] if places else found

        results = _batched(e, x, n, pool)
        return results if with_places else results[0]

    return translate


def _plane(e: Emitter, x: Tensor, n: int) -> Size:
    return e.product([e.size(x, i) for i in range(x.rank - n, x.rank)])


for _n, _plain, _indexed in (
    (1, aten.max_pool1d.default, aten.max_pool1d_with_indices.default),
    (2, aten.max_pool2d.default, aten.max_pool2d_with_indices.default),
    (3, aten.max_pool3d.default, aten.max_pool3d_with_indices.default),
):
    rule(_plain)(_max_pool(_n, False))
    rule(_indexed)(_max_pool(_n, True))


def _avg_pool(n: int) -> Callable[..., Tensor]:
    def translate(
        e: Emitter,
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        attrs = window_of(kernel, stride, padding, n)
        attrs |= {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}
        if divisor_override is not None:
            attrs["count_include_pad"] = 1
            if ceil_mode:
                raise Unsupported("an average pool with a divisor and ceil_mode")
        attrs = _inside(attrs, x, n)

        def pool(y: Tensor) -> list[Tensor]:
            mean = e.op("AveragePool", y, **attrs)
            if divisor_override is None:
                return [mean]
            count = int(np.prod(attrs["kernel_shape"]))
            return [e.mul(mean, e.number(count / divisor_override, y.dtype))]

        return _batched(e, x, n, pool)[0]

    return translate


for _n, _target in ((1, aten.avg_pool1d.default), (2, aten.avg_pool2d.default), (3, aten.avg_pool3d.default)):
    rule(_target)(_avg_pool(_n))


def _adaptive_avg(e: Emitter, x: Tensor, size: Sequence[Size]) -> Tensor:
    n = len(size)
    axes = list(range(x.rank - n, x.rank))
    wanted = [expression(s) for s in size]
    if all(s == 1 for s in wanted):
        return e.reduce("ReduceMean", x, axes, True)
    for axis, out in zip(axes, size, strict=True):
        if not same_size(out, x.dims[axis]):
            x = _average_along(e, x, axis, static(out, "the size of the result"))
    return x


def average_matrix(size: int, out: int) -> Any:
    """[out, size]. Window i is [floor(i size / out), ceil((i + 1) size / out))."""
    matrix = np.zeros((out, size), np.float64)
    for i in range(out):
        first, last = i * size // out, -(-(i + 1) * size // out)
        matrix[i, first:last] = 1 / (last - first)
    return matrix.astype(np.float32)


def _average_along(e: Emitter, x: Tensor, axis: int, out: int) -> Tensor:
    """A product with the matrix of averages."""
    if out == 1:
        return e.reduce("ReduceMean", x, [axis], True)
    size = static(x.dims[axis], "the size of the pooled dim")
    shape = [*x.dims[:axis], out, *x.dims[axis + 1 :]]
    if size % out == 0:
        sizes = [e.size(x, i) for i in range(x.rank)]
        blocks = e.reshape(x, [*sizes[:axis], out, size // out, *sizes[axis + 1 :]])
        return e.reduce("ReduceMean", blocks, [axis + 1], False)
    weights = e.cast(e.constant(average_matrix(size, out)), x.dtype)
    if axis == x.rank - 1:
        return e.op("MatMul", x, e.transpose(weights, [1, 0]), shape=shape)
    if axis == x.rank - 2:
        return e.op("MatMul", weights, x, shape=shape)
    order = [i for i in range(x.rank) if i != axis] + [axis]
    moved = e.transpose(x, order)
    y = e.op("MatMul", moved, e.transpose(weights, [1, 0]), shape=[*moved.dims[:-1], out])
    return e.transpose(y, [order.index(i) for i in range(x.rank)])


@rule(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool3d.default,
)
def _adaptive_avg_pool(e: Emitter, x: Tensor, size: Sequence[Size]) -> Tensor:
    return _adaptive_avg(e, x, size)


@rule(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(e: Emitter, x: Tensor, size: Sequence[Size]) -> list[Tensor]:
    n = len(size)
    sizes = [static(s, "the size of the pooled dim") for s in x.dims[-n:]]
    outs = [static(s, "the size of the result") for s in size]
    if any(i % o for i, o in zip(sizes, outs, strict=True)):
        raise Unsupported("an adaptive maximum pool with windows of different sizes")
    kernel = [i // o for i, o in zip(sizes, outs, strict=True)]
    result: list[Tensor] = _max_pool(n, True)(e, x, kernel)
    return result
