"""Reading elements by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, Unsupported, axis_of, same_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def index_tensor(e: Emitter, index: Tensor) -> Tensor:
    return index if index.dtype is torch.int32 else e.cast(index, torch.int64)


def from_front(e: Emitter, index: Tensor) -> Tensor:
    """Indices of which none may be negative, as most operators of PyTorch want; ONNX counts these from the back."""
    index = index_tensor(e, index)
    if not e.checks_indices:
        return index
    beyond = e.number(torch.iinfo(index.dtype).max, index.dtype)
    negative = e.compare("Less", index, e.number(0, index.dtype))
    return e.op("Where", negative, beyond, index, dtype=index.dtype, shape=index.shape)


@rule(aten.embedding.default)
def _embedding(e: Emitter, weight: Tensor, index: Tensor, *_: Any, **__: Any) -> Tensor:
    return e.op("Gather", weight, from_front(e, index), axis=0)


@rule(aten.index_select.default)
def _index_select(e: Emitter, x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.rank == 0:
        return x
    index = from_front(e, index)
    return e.op("Gather", x, index if index.rank else e.unsqueeze(index, 0), axis=axis_of(dim, x.rank))


@rule(aten.take.default)
def _take(e: Emitter, x: Tensor, index: Tensor) -> Tensor:
    flat = e.reshape(x, [e.product([e.size(x, i) for i in range(x.rank)])])
    return e.op("Gather", flat, index_tensor(e, index), axis=0)


@rule(aten.gather.default)
def _gather(e: Emitter, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    if index.rank == 0:
        x, index = (t if t.rank else e.unsqueeze(t, 0) for t in (x, index))
        return e.squeeze(e.op("GatherElements", x, from_front(e, index), axis=0, shape=(1,)), 0)
    if x.rank == 0:
        x = e.unsqueeze(x, 0)
    return e.op("GatherElements", trimmed(e, x, index, dim), from_front(e, index), axis=axis_of(dim, x.rank))


def trimmed(e: Emitter, x: Tensor, index: Tensor, dim: int | None) -> Tensor:
    """x cut to the sizes of the index but along dim: PyTorch reads only so far, ONNX wants them equal."""
    skip = None if dim is None else axis_of(dim, x.rank)
    axes = [i for i in range(x.rank) if i != skip and not same_size(x.dims[i], index.dims[i])]
    if not axes:
        return x
    ends = e.ints([e.size(index, i) for i in axes])
    shape = [index.dims[i] if i in axes else s for i, s in enumerate(x.dims)]
    return e.op("Slice", x, e.ints([0] * len(axes)), ends, e.ints(axes), shape=shape)


class Places:
    """The indices of x[indices], made plain: masks as numbers, all of one shape, and which axes they are for."""

    def __init__(self, e: Emitter, x: Tensor, indices: Sequence[Tensor | None]) -> None:
        self.axes: list[int] = []
        self.tensors: list[Tensor] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif index.dtype in (torch.bool, torch.uint8):
                for column in _positions(e, index):
                    self.axes.append(axis)
                    self.tensors.append(column)
                    axis += 1
            else:
                self.axes.append(axis)
                self.tensors.append(index_tensor(e, index))
                axis += 1
        self.rest = [i for i in range(x.rank) if i not in self.axes]
        self.adjacent = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.rank = max(t.rank for t in self.tensors)
        # Of a length that only the data tell.
        self.by_mask = any(t.dims == (None,) for t in self.tensors)
        if self.by_mask and not all(t.dims == (None,) for t in self.tensors):
            raise Unsupported("an index by a mask and by numbers at once")

    def where(self) -> int:
        """The first axis of the result that the indices make."""
        return self.axes[0] if self.adjacent else 0

    def shape(self, e: Emitter, result: Sequence[Size]) -> list[Size]:
        """The indices' common shape, given that of the result."""
        return list(result[self.where() : self.where() + self.rank])

    def stacked(self, e: Emitter, shape: Sequence[Size]) -> Tensor:
        """All indices as rows: [shape..., number of axes]."""
        rows = []
        for t in self.tensors:
            wide = e.expand(e.cast(t, torch.int64), shape)
            rows.append(e.unsqueeze(wide, wide.rank))
        return e.concat(rows, len(shape), [*shape, len(rows)])

    def order(self) -> list[int]:
        """Axes of [indices..., rest...] in the order the result has them."""
        first = self.where()
        n = self.rank
        return [*range(n, n + first), *range(n), *range(n + first, n + len(self.rest))]


def _positions(e: Emitter, mask: Tensor) -> list[Tensor]:
    """Where a mask is set, an index for each of its axes."""
    found = e.op("NonZero", e.cast(mask, torch.bool), dtype=torch.int64)
    count = Tensor(found.name, torch.int64, (mask.rank, None))
    if mask.rank == 1:
        return [e.op("Squeeze", count, e.ints([0]), shape=(None,))]
    rows = e.ops("Split", [count], [torch.int64] * mask.rank, axis=0, num_outputs=mask.rank)
    return [e.op("Squeeze", row, e.ints([0]), shape=(None,)) for row in rows]


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(e: Emitter, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool and indices[0].rank == x.rank:
        return _masked_select(e, x, indices[0])
    if x.rank == 0:
        raise Unsupported("an index into a tensor of rank 0")
    places = Places(e, x, indices)
    if len(places.tensors) == 1:
        return e.op("Gather", x, places.tensors[0], axis=places.axes[0])
    shape = places.shape(e, e.out.shape)
    if places.by_mask:
        # All from one mask: of one length already.
        rows = [e.op("Unsqueeze", t, e.ints([1])) for t in places.tensors]
        index = e.op("Concat", *rows, axis=1)
    else:
        index = places.stacked(e, shape)
    moved = e.transpose(x, [*places.axes, *places.rest])
    found = e.op("GatherND", moved, index, shape=[*shape, *(x.dims[i] for i in places.rest)])
    return e.transpose(found, places.order())


@rule(aten.masked_select.default)
def _masked_select(e: Emitter, x: Tensor, mask: Tensor) -> Tensor:
    if len(x.dims) != len(mask.dims) or not all(map(same_size, x.dims, mask.dims)):
        shape = torch.broadcast_shapes(x.dims, mask.dims)
        x, mask = e.expand(x, shape), e.expand(mask, shape)
    return e.op("Compress", *(e.op("Reshape", t, e.ints([-1])) for t in (x, e.cast(mask, torch.bool))), axis=0)


@rule(aten.nonzero.default)
def _nonzero(e: Emitter, x: Tensor) -> Tensor:
    if x.rank == 0:
        raise Unsupported("nonzero of a tensor of rank 0")
    found = e.op("NonZero", e.cast(x, torch.bool), dtype=torch.int64)
    return e.op("Transpose", found, perm=[1, 0])


@rule(aten.nonzero_numpy.default, aten.where.default)
def _nonzero_numpy(e: Emitter, x: Tensor) -> list[Tensor]:
    if x.rank == 0:
        raise Unsupported("nonzero of a tensor of rank 0")
    return _positions(e, x)


def _search(e: Emitter, boundaries: Tensor, values: Tensor, right: bool) -> Tensor:
    """How many boundaries lie before each value: for sorted boundaries the place where it belongs."""
    wide = torch.promote_types(boundaries.dtype, values.dtype)
    b, v = e.cast(boundaries, wide), e.cast(values, wide)
    before = e.compare("LessOrEqual" if right else "Less", b, e.unsqueeze(v, v.rank))
    shape = [*values.dims, boundaries.dims[-1]]
    counted = e.cast(Tensor(before.name, torch.bool, tuple(shape)), torch.int64)
    return e.cast(e.reduce("ReduceSum", counted, [len(shape) - 1], False), e.out.dtype)


@rule(aten.bucketize.Tensor)
def _bucketize(
    e: Emitter, values: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _search(e, boundaries, values, right)


@rule(aten.searchsorted.Tensor)
def _searchsorted(
    e: Emitter,
    boundaries: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    if boundaries.rank != 1 or sorter is not None:
        raise Unsupported("searchsorted in more than one row, or through a sorter")
    return _search(e, boundaries, values, right or side == "right")


@rule(aten.one_hot.default)
def _one_hot(e: Emitter, x: Tensor, classes: int = -1) -> Tensor:
    if classes < 0:
        raise Unsupported("one_hot with a number of classes that the data decide")
    return e.cast(e.compare("Equal", e.unsqueeze(x, x.rank), e.arange(classes)), torch.int64)
