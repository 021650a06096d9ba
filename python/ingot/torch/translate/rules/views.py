"""Operators that show the elements of one tensor in another order or shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import MAX_INT, Size, Tensor, Unsupported, axis_of, expression, same_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _target(e: Emitter, given: Sequence[Size]) -> list[Size]:
    """The shape asked for, complete: what the caller leaves open (-1) PyTorch has found already."""
    return [
        known if isinstance(asked, int) or isinstance(expression(known), int) else asked
        for asked, known in zip(given, e.out.shape, strict=True)
    ]


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


@rule(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten._reshape_copy.default)
def _view(e: Emitter, x: Tensor, shape: Sequence[Size]) -> Tensor:
    return e.reshape(x, _target(e, shape))


@rule(aten.view_as.default, aten.reshape_as.default)
def _view_as(e: Emitter, x: Tensor, other: Tensor) -> Tensor:
    return e.reshape(x, _sizes(e, other))


@rule(aten.flatten.using_ints)
def _flatten(e: Emitter, x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    if x.rank == 0:
        return e.unsqueeze(x, 0)
    first, last = axis_of(start, x.rank), axis_of(end, x.rank)
    sizes = _sizes(e, x)
    return e.reshape(x, [*sizes[:first], e.product(sizes[first : last + 1]), *sizes[last + 1 :]])


@rule(aten.unflatten.int)
def _unflatten(e: Emitter, x: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
    axis, own = axis_of(dim, x.rank), _sizes(e, x)
    return e.reshape(x, _target(e, [*own[:axis], *sizes, *own[axis + 1 :]]))


@rule(aten.unsqueeze.default)
def _unsqueeze(e: Emitter, x: Tensor, dim: int) -> Tensor:
    return e.unsqueeze(x, dim)


@rule(aten.squeeze.default)
def _squeeze_all(e: Emitter, x: Tensor) -> Tensor:
    return e.squeeze(x, *[i for i, size in enumerate(x.dims) if expression(size) == 1])


@rule(aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(e: Emitter, x: Tensor, dim: int | Sequence[int]) -> Tensor:
    dims = [dim] if isinstance(dim, int) else dim
    axes = {axis_of(d, x.rank) for d in dims}
    return e.squeeze(x, *[a for a in axes if a < x.rank and expression(x.dims[a]) == 1])


@rule(aten.permute.default)
def _permute(e: Emitter, x: Tensor, dims: Sequence[int]) -> Tensor:
    return e.transpose(x, [axis_of(d, x.rank) for d in dims])


@rule(aten.transpose.int, aten.swapaxes.default, aten.swapdims.default)
def _transpose(e: Emitter, x: Tensor, a: int, b: int) -> Tensor:
    perm = list(range(x.rank))
    if perm:
        i, j = axis_of(a, x.rank), axis_of(b, x.rank)
        perm[i], perm[j] = perm[j], perm[i]
    return e.transpose(x, perm)


@rule(aten.t.default, aten.numpy_T.default, aten.mT.default, aten.adjoint.default)
def _t(e: Emitter, x: Tensor) -> Tensor:
    return _transpose(e, x, -1, -2) if x.rank > 1 else x


@rule(aten.movedim.intlist, aten.movedim.int, aten.moveaxis.intlist, aten.moveaxis.int)
def _movedim(e: Emitter, x: Tensor, source: int | Sequence[int], to: int | Sequence[int]) -> Tensor:
    froms = [axis_of(d, x.rank) for d in ([source] if isinstance(source, int) else source)]
    tos = [axis_of(d, x.rank) for d in ([to] if isinstance(to, int) else to)]
    moved = dict(zip(tos, froms, strict=True))
    rest = iter([i for i in range(x.rank) if i not in froms])
    return e.transpose(x, [moved[i] if i in moved else next(rest) for i in range(x.rank)])


@rule(aten.expand.default, aten.broadcast_to.default)
def _expand(e: Emitter, x: Tensor, shape: Sequence[Size], *, implicit: bool = False) -> Tensor:
    lead = len(shape) - x.rank
    kept = [i >= lead and isinstance(s, int) and s == -1 for i, s in enumerate(shape)]
    return e.expand(x, [x.dims[i - lead] if kept[i] else s for i, s in enumerate(shape)])


@rule(aten.expand_as.default)
def _expand_as(e: Emitter, x: Tensor, other: Tensor) -> Tensor:
    return e.expand(x, _sizes(e, other))


@rule(aten.broadcast_tensors.default)
def _broadcast_tensors(e: Emitter, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [e.expand(x, out.shape) for x, out in zip(tensors, e.out, strict=True)]


@rule(aten.slice.Tensor)
def _slice(e: Emitter, x: Tensor, dim: int = 0, start: Size = None, end: Size = None, step: int = 1) -> Tensor:
    axis = axis_of(dim, x.rank)
    start = 0 if start is None else start
    end = MAX_INT if end is None else end
    size = e.out.shape[axis]
    whole = isinstance(start, int) and start == 0 and step == 1 and same_size(size, x.dims[axis])
    return x if whole else e.slice(x, axis, start, end, step, size)


@rule(aten.narrow.default)
def _narrow(e: Emitter, x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    axis = axis_of(dim, x.rank)
    if isinstance(start, int) and isinstance(length, int) and start >= 0:
        return e.slice(x, axis, start, start + length)
    first = e.size_tensor(start)
    if not isinstance(start, int) or start < 0:
        below = e.op("Less", first, e.ints([0]), dtype=torch.bool)
        first = e.where(below, e.add(first, e.size_tensor(e.size(x, axis))), first)
    return e.op("Slice", x, first, e.add(first, e.size_tensor(length)), e.ints([axis]))


@rule(aten.select.int)
def _select(e: Emitter, x: Tensor, dim: int, index: Size) -> Tensor:
    return e.op("Gather", x, e.number(index, torch.int64), axis=axis_of(dim, x.rank))


@rule(aten.unbind.int)
def _unbind(e: Emitter, x: Tensor, dim: int = 0) -> list[Tensor]:
    axis = axis_of(dim, x.rank)
    return [e.op("Gather", x, e.number(i, torch.int64), axis=axis) for i in range(len(e.out))]


@rule(aten.split.Tensor, aten.split_with_sizes.default, aten.split.sizes, aten.chunk.default)
def _split(e: Emitter, x: Tensor, sizes: Any, dim: int = 0) -> list[Tensor]:
    axis = axis_of(dim, x.rank)
    parts = [part.shape[axis] for part in e.out]
    if len(parts) == 1:
        return [x]
    given = list(sizes) if isinstance(sizes, (list, tuple)) else parts
    return e.ops("Split", [x, e.ints(given)], [x.dtype] * len(parts), axis=axis)


@rule(aten.tensor_split.indices, aten.tensor_split.sections)
def _tensor_split(e: Emitter, x: Tensor, _: Any, dim: int = 0) -> list[Tensor]:
    return _split(e, x, None, dim)


@rule(aten.diagonal.default)
def _diagonal(e: Emitter, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Elements (i, i + offset) by their numbers in the flattened two dims."""
    a, b = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    rest = [i for i in range(x.rank) if i not in (a, b)]
    moved = e.transpose(x, [*rest, a, b])
    sizes = _sizes(e, moved)
    flat = e.reshape(moved, [*sizes[:-2], e.product(sizes[-2:])])
    columns = e.number(sizes[-1], torch.int64)
    start = e.number(offset, torch.int64)
    if offset < 0:
        start = e.mul(e.number(-offset, torch.int64), columns)
    steps = e.arange(e.out.shape[-1])
    return e.op(
        "Gather", flat, e.add(start, e.mul(steps, e.add(columns, e.number(1, torch.int64)))), axis=flat.rank - 1
    )


@rule(aten.unfold.default)
def _unfold(e: Emitter, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.rank == 0:
        return e.unsqueeze(x, 0)
    axis = axis_of(dim, x.rank)
    starts = e.mul(e.arange(e.out.shape[axis]), e.number(step, torch.int64))
    index = e.add(e.op("Unsqueeze", starts, e.ints([1])), e.arange(size))
    windows = e.op("Gather", x, index, axis=axis, shape=[*x.dims[: axis + 1], size, *x.dims[axis + 1 :]])
    order = [i for i in range(x.rank + 1) if i != axis + 1]
    return e.transpose(windows, [*order, axis + 1])


@rule(aten.as_strided.default)
def _as_strided(
    e: Emitter, x: Tensor, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Tensor:
    """Only the ordinary view: the same elements in row-major order."""
    if not e.node.args[0].meta["val"].is_contiguous():
        raise Unsupported("as_strided of a tensor that is not row-major")
    expected: Any = 1
    for n, step in zip(reversed(e.out.shape), reversed(stride), strict=True):
        if expression(n) != 1 and expression(step) != expected:
            raise Unsupported("as_strided with strides that are not row-major")
        expected = expected * expression(n)
    if storage_offset not in (None, 0) or expected != math.prod(expression(n) for n in x.dims):
        raise Unsupported("as_strided of a part of a tensor")
    return e.reshape(x, _target(e, size))
