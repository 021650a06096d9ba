"""Tensors made from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Number, Size, Tensor, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


@rule(aten.full.default)
def _full(e: Emitter, size: Sequence[Size], value: Number, **_: Any) -> Tensor:
    return e.fill(size, value, e.out.dtype)


@rule(aten.full_like.default)
def _full_like(e: Emitter, x: Tensor, value: Number, **_: Any) -> Tensor:
    return e.fill(_sizes(e, x), value, e.out.dtype)


@rule(aten.new_full.default)
def _new_full(e: Emitter, x: Tensor, size: Sequence[Size], value: Number, **_: Any) -> Tensor:
    return e.fill(size, value, e.out.dtype)


def _filled(value: int) -> None:
    name = "ones" if value else "zeros"

    @rule(getattr(aten, name).default)
    def _plain(e: Emitter, size: Sequence[Size], **_: Any) -> Tensor:
        return e.fill(size, value, e.out.dtype)

    @rule(getattr(aten, f"{name}_like").default)
    def _like(e: Emitter, x: Tensor, **_: Any) -> Tensor:
        return e.fill(_sizes(e, x), value, e.out.dtype)

    @rule(getattr(aten, f"new_{name}").default)
    def _new(e: Emitter, x: Tensor, size: Sequence[Size], **_: Any) -> Tensor:
        return e.fill(size, value, e.out.dtype)


_filled(0)
_filled(1)


@rule(aten.zero.default)
def _zero(e: Emitter, x: Tensor) -> Tensor:
    return e.fill(_sizes(e, x), 0, x.dtype)


@rule(aten.fill.Scalar, aten.fill.Tensor)
def _fill(e: Emitter, x: Tensor, value: Tensor | Number) -> Tensor:
    return e.expand(e.tensor(value, x.dtype), _sizes(e, x))


# What is not written yet may hold anything: zeros.
@rule(aten.empty.memory_format, aten.empty_strided.default)
def _empty(e: Emitter, size: Sequence[Size], *_: Any, **__: Any) -> Tensor:
    return e.fill(size, 0, e.out.dtype)


@rule(aten.empty_permuted.default)
def _empty_permuted(e: Emitter, size: Sequence[Size], *_: Any, **__: Any) -> Tensor:
    return e.fill(size, 0, e.out.dtype)


@rule(aten.empty_like.default)
def _empty_like(e: Emitter, x: Tensor, **_: Any) -> Tensor:
    return e.fill(_sizes(e, x), 0, e.out.dtype)


@rule(aten.new_empty.default, aten.new_empty_strided.default)
def _new_empty(e: Emitter, x: Tensor, size: Sequence[Size], *_: Any, **__: Any) -> Tensor:
    return e.fill(size, 0, e.out.dtype)


@rule(aten.arange.default)
def _arange(e: Emitter, end: Number, **kwargs: Any) -> Tensor:
    return _range(e, 0, end, 1)


@rule(aten.arange.start)
def _arange_start(e: Emitter, start: Number, end: Number, **kwargs: Any) -> Tensor:
    return _range(e, start, end, 1)


@rule(aten.arange.start_step)
def _arange_step(e: Emitter, start: Number, end: Number, step: Number = 1, **kwargs: Any) -> Tensor:
    return _range(e, start, end, step)


def _range(e: Emitter, start: Number, end: Number, step: Number) -> Tensor:
    dtype = e.out.dtype
    if all(isinstance(x, (int, float)) for x in (start, end, step)):
        return e.constant(torch.arange(start, end, step, dtype=dtype))
    kind = (
        dtype
        if dtype in (torch.float32, torch.float64)
        else torch.int64
        if not dtype.is_floating_point
        else torch.float32
    )
    return e.cast(e.op("Range", *(e.number(x, kind) for x in (start, end, step)), shape=tuple(e.out.shape)), dtype)


@rule(aten.linspace.default)
def _linspace(e: Emitter, start: Number, end: Number, steps: int, **_: Any) -> Tensor:
    if not all(isinstance(x, (int, float)) for x in (start, end, steps)):
        raise Unsupported("linspace with bounds that are not known")
    return e.constant(torch.linspace(start, end, steps, dtype=e.out.dtype))


@rule(aten.eye.default, aten.eye.m)
def _eye(e: Emitter, n: Size, m: Size = None, **_: Any) -> Tensor:
    rows, columns = e.arange(n), e.arange(n if m is None else m)
    return e.cast(e.compare("Equal", e.unsqueeze(rows, 1), columns), e.out.dtype)


@rule(aten.tril_indices.default, aten.triu_indices.default)
def _indices(e: Emitter, row: int, col: int, offset: int = 0, **_: Any) -> Tensor:
    raise Unsupported("indices of a triangle")


def _random(e: Emitter, *_: Any, **__: Any) -> Tensor:
    raise Unsupported("random numbers, which PyTorch's generator gives")


for _packet in (aten.rand, aten.randn, aten.randint, aten.randperm, aten.rand_like, aten.randn_like, aten.bernoulli):
    rule(_packet.default)(_random)
