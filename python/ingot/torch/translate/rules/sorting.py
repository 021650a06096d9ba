"""Orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, axis_of

if TYPE_CHECKING:
    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _top(e: Emitter, x: Tensor, k: Size, dim: int, largest: bool, in_order: bool = True) -> list[Tensor]:
    if x.rank == 0:
        return [x, e.number(0, torch.int64)]
    narrow = x.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16)
    wide = e.cast(x, torch.int32) if narrow else x
    values, places = e.ops(
        "TopK",
        [wide, e.ints([k])],
        [wide.dtype, torch.int64],
        axis=axis_of(dim, x.rank),
        largest=int(largest),
        sorted=int(in_order),
    )
    return [e.cast(values, x.dtype), places]


@rule(aten.topk.default)
def _topk(
    e: Emitter,
    x: Tensor,
    k: Size,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> list[Tensor]:
    return _top(e, x, k, dim, largest, sorted)


@rule(aten.sort.default)
def _sort(e: Emitter, x: Tensor, dim: int = -1, descending: bool = False) -> list[Tensor]:
    return _top(e, x, e.size(x, axis_of(dim, x.rank)) if x.rank else 1, dim, descending)


@rule(aten.sort.stable)
def _sort_stable(
    e: Emitter, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Tensor]:
    return _sort(e, x, dim, descending)


@rule(aten.argsort.default)
def _argsort(e: Emitter, x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return _sort(e, x, dim, descending)[1]


@rule(aten.argsort.stable)
def _argsort_stable(
    e: Emitter, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Tensor:
    return _sort(e, x, dim, descending)[1]


@rule(aten.msort.default)
def _msort(e: Emitter, x: Tensor) -> Tensor:
    return _sort(e, x, 0)[0]


def _unique(e: Emitter, x: Tensor, axis: int | None, inverse: bool, counts: bool) -> list[Tensor]:
    narrow = x.dtype in (torch.bool, torch.uint8, torch.int16)
    wide = e.cast(x, torch.int32) if narrow else x
    attrs = {"sorted": 1} if axis is None else {"sorted": 1, "axis": axis}
    kinds = [wide.dtype, None, torch.int64, torch.int64]
    values, _, places, numbers = e.ops("Unique", [wide], kinds, **attrs)
    if axis is None:
        places = e.op("Reshape", places, e.ints([e.size(x, i) for i in range(x.rank)]))
    nothing = e.fill([0], 0, torch.int64)
    return [e.cast(values, x.dtype), places if inverse else nothing, numbers if counts else nothing]


@rule(aten._unique2.default)
def _unique_values(
    e: Emitter,
    x: Tensor,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Tensor]:
    return _unique(e, x, None, return_inverse, return_counts)


@rule(aten.unique_dim.default)
def _unique_rows(
    e: Emitter,
    x: Tensor,
    dim: int,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Tensor]:
    return _unique(e, x, axis_of(dim, x.rank), return_inverse, return_counts)
