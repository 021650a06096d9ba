"""Writing elements by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.rules.indexing import Places, from_front, trimmed
from ingot.torch.translate.values import MAX_INT, Number, Size, Tensor, Unsupported, axis_of, expression, is_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


def _scatter(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduction: str = "none") -> Tensor:
    if x.rank == 0:
        return e.squeeze(_scatter(e, *(_vector(e, x), 0, _vector(e, index), _vector(e, source)), reduction), 0)
    index, source = _vector(e, index), _vector(e, source)
    source = trimmed(e, source, index, None)
    return e.op(
        "ScatterElements",
        x,
        from_front(e, index),
        source,
        axis=axis_of(dim, x.rank),
        reduction=reduction,
        shape=x.shape,
    )


def _vector(e: Emitter, x: Tensor) -> Tensor:
    return x if x.rank else e.unsqueeze(x, 0)


@rule(aten.scatter.src)
def _scatter_src(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scatter(e, x, dim, index, source)


@rule(aten.scatter.value)
def _scatter_value(e: Emitter, x: Tensor, dim: int, index: Tensor, value: Number) -> Tensor:
    return _scatter(e, x, dim, index, e.fill(_sizes(e, index), value, x.dtype))


@rule(aten.scatter_add.default)
def _scatter_add(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scatter(e, x, dim, index, source, "add")


_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


@rule(aten.scatter.reduce)
def _scatter_with(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, *, reduce: str) -> Tensor:
    return _scatter(e, x, dim, index, source, _REDUCTIONS[reduce])


@rule(aten.scatter.value_reduce)
def _scatter_value_with(e: Emitter, x: Tensor, dim: int, index: Tensor, value: Number, *, reduce: str) -> Tensor:
    return _scatter(e, x, dim, index, e.fill(_sizes(e, index), value, x.dtype), _REDUCTIONS[reduce])


@rule(aten.scatter_reduce.two)
def _scatter_reduce(
    e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if reduce not in _REDUCTIONS:
        raise Unsupported(f"scatter_reduce by {reduce}")
    if not include_self:
        # What is written to at all starts from nothing.
        start = e.fill(_sizes(e, index), _neutral(reduce, x.dtype), x.dtype)
        x = _scatter(e, x, dim, index, start)
    return _scatter(e, x, dim, index, source, _REDUCTIONS[reduce])


def _neutral(reduce: str, dtype: torch.dtype) -> Number:
    if reduce in ("sum", "prod"):
        return int(reduce == "prod")
    if is_integer(dtype):
        info = torch.iinfo(dtype)
        return info.min if reduce == "amax" else info.max
    return float("-inf") if reduce == "amax" else float("inf")


# Along one axis, by a list of places


def _along(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduction: str) -> Tensor:
    axis = axis_of(dim, x.rank)
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    back = [order.index(i) for i in range(x.rank)]
    rows = e.unsqueeze(e.cast(_vector(e, index), torch.int64), 1)
    moved = e.transpose(x, order)
    result = e.op("ScatterND", moved, rows, e.transpose(source, order), reduction=reduction, shape=moved.shape)
    return e.transpose(result, back)


@rule(aten.index_add.default)
def _index_add(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    source = e.cast(source, x.dtype)
    if alpha != 1:
        source = Tensor(e.mul(source, e.number(alpha, x.dtype)).name, x.dtype, source.shape)
    return _along(e, x, dim, from_front(e, index), source, "add")


@rule(aten.index_copy.default)
def _index_copy(e: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _along(e, x, dim, from_front(e, index), source, "none")


@rule(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _index_fill(e: Emitter, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    axis, sizes = axis_of(dim, x.rank), _sizes(e, x)
    shape = [*sizes[:axis], e.size(_vector(e, index), 0), *sizes[axis + 1 :]]
    return _along(e, x, dim, index, e.expand(e.tensor(value, x.dtype), shape), "none")


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(
    e: Emitter, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    mask = indices[0] if len(indices) == 1 else None
    values = e.cast(values, x.dtype)
    if mask is not None and mask.dtype is torch.bool and not accumulate:
        if values.rank == 0 or (values.rank == 1 and expression(values.dims[0]) == 1):
            shape = [e.size(mask, i) for i in range(mask.rank)] + [1] * (x.rank - mask.rank)
            return e.where(e.reshape(mask, shape), values, x)
        if values.rank == 1 and mask.rank == x.rank:
            return _masked_scatter(e, x, mask, values)
    places = Places(e, x, indices)
    if places.by_mask:
        raise Unsupported("index_put of several values by a mask")
    shape = list(torch.broadcast_shapes(*(t.dims for t in places.tensors)))
    index = places.stacked(e, shape)
    first = places.where()
    before, after = ([x.dims[i] for i in part] for part in (places.rest[:first], places.rest[first:]))
    updates = e.expand(values, [*before, *shape, *after])
    order = places.order()
    updates = e.transpose(updates, [order.index(i) for i in range(len(order))])
    axes = [*places.axes, *places.rest]
    moved = e.transpose(x, axes)
    reduction = "add" if accumulate else "none"
    result = e.op("ScatterND", moved, index, updates, reduction=reduction, shape=moved.shape)
    return e.transpose(result, [axes.index(i) for i in range(x.rank)])


@rule(aten.masked_scatter.default)
def _masked_scatter(e: Emitter, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th place where the mask is set gets the n-th element of the source."""
    shape = _sizes(e, x)
    wide = e.expand(mask, torch.broadcast_shapes(x.dims, mask.dims))
    flat = e.op("Reshape", wide, e.ints([-1]))
    count = e.op("CumSum", e.cast(flat, torch.int64), e.number(0, torch.int64))
    place = e.op("Max", e.sub(count, e.number(1, torch.int64)), e.number(0, torch.int64))
    # With one more element, so that there is something to take where nothing is set.
    one = e.fill([1], 0, source.dtype)
    padded = e.concat([e.op("Reshape", source, e.ints([-1])), one], 0)
    taken = e.op("Gather", padded, place, axis=0)
    return e.where(wide, e.op("Reshape", taken, e.ints(shape)), x)


# Writing into a slice


@rule(aten.slice_scatter.default)
def _slice_scatter(
    e: Emitter, x: Tensor, source: Tensor, dim: int = 0, start: Size = None, end: Size = None, step: int = 1
) -> Tensor:
    axis = axis_of(dim, x.rank)
    start, end = 0 if start is None else start, MAX_INT if end is None else end
    source = e.expand(e.cast(source, x.dtype), source.dims)
    whole = isinstance(start, int) and start == 0 and step == 1 and isinstance(end, int) and end == MAX_INT
    if whole:
        return source
    numbers = e.arange(e.size(x, axis))
    chosen = e.op(
        "Slice", numbers, e.ints([start]), e.ints([end]), e.ints([0]), e.ints([step]), shape=(source.dims[axis],)
    )
    return _along(e, x, dim, chosen, source, "none")


@rule(aten.select_scatter.default)
def _select_scatter(e: Emitter, x: Tensor, source: Tensor, dim: int, index: Size) -> Tensor:
    axis = axis_of(dim, x.rank)
    place = e.ints([index])
    return _along(e, x, dim, Tensor(place.name, torch.int64, (1,)), e.unsqueeze(e.cast(source, x.dtype), axis), "none")
