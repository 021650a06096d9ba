"""Operators that put tensors together, repeat, turn and pad them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Number, Scalar, Size, Tensor, Unsupported, axis_of, expression, static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


@rule(aten.cat.default, aten.concat.default, aten.concatenate.default)
def _cat(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    # Of old, PyTorch takes a tensor of no elements and rank 1 anywhere.
    parts = [x for x in tensors if not (x.rank == 1 and expression(x.dims[0]) == 0)] or list(tensors[:1])
    return e.concat([e.cast(x, e.out.dtype) for x in parts], axis_of(dim, parts[0].rank))


@rule(aten.stack.default)
def _stack(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    axis = axis_of(dim, len(e.out.shape))
    return e.concat([e.unsqueeze(e.cast(x, e.out.dtype), axis) for x in tensors], axis)


@rule(aten.repeat.default, aten.tile.default)
def _repeat(e: Emitter, x: Tensor, repeats: Sequence[Size]) -> Tensor:
    missing = len(repeats) - x.rank
    if missing > 0:
        x = e.reshape(x, [1] * missing + _sizes(e, x))
    elif missing < 0:
        repeats = [1] * -missing + list(repeats)
    return e.op("Tile", x, e.ints(repeats)) if x.rank else x


@rule(aten.repeat_interleave.self_int)
def _repeat_interleave(
    e: Emitter, x: Tensor, repeats: Size, dim: int | None = None, *, output_size: Size | None = None
) -> Tensor:
    if dim is None:
        x = e.reshape(x, [e.product(_sizes(e, x))])
    axis = axis_of(dim or 0, x.rank)
    sizes = _sizes(e, x)
    spread = e.expand(e.unsqueeze(x, axis + 1), [*sizes[: axis + 1], repeats, *sizes[axis + 1 :]])
    return e.reshape(spread, [*sizes[:axis], e.product([sizes[axis], repeats]), *sizes[axis + 1 :]])


@rule(aten.flip.default)
def _flip(e: Emitter, x: Tensor, dims: Sequence[int]) -> Tensor:
    if not dims or x.rank == 0:
        return x
    axes, count = [axis_of(d, x.rank) for d in dims], len(dims)
    ends = [-(2**63 - 1)] * count
    return e.op("Slice", x, e.ints([-1] * count), e.ints(ends), e.ints(axes), e.ints([-1] * count))


@rule(aten.roll.default)
def _roll(e: Emitter, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    shifts = [shifts] if not isinstance(shifts, (list, tuple)) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        flat = e.reshape(x, [e.product(_sizes(e, x))])
        return e.reshape(_roll_axis(e, flat, shifts[0], 0), _sizes(e, x))
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_axis(e, x, shift, axis_of(dim, x.rank))
    return x


def _roll_axis(e: Emitter, x: Tensor, shift: Size, axis: int) -> Tensor:
    """x[(i - shift) mod n] along an axis."""
    size = expression(x.dims[axis])
    if isinstance(size, int) and isinstance(shift, int):
        cut = -shift % size if size else 0
        if cut == 0:
            return x
        ends = [(cut, 2**63 - 1), (0, cut)]
        parts = [e.op("Slice", x, e.ints([a]), e.ints([b]), e.ints([axis])) for a, b in ends]
        return e.op("Concat", *parts, axis=axis, shape=x.shape)
    count = e.arange(e.size(x, axis))
    moved = e.op("Mod", e.sub(count, e.number(shift, torch.int64)), e.number(e.size(x, axis), torch.int64))
    return e.op("Gather", x, moved, axis=axis, shape=x.shape)


def _padded(e: Emitter, x: Tensor, pad: Sequence[Size], mode: str, value: Number = 0) -> Tensor:
    """pad as PyTorch lists it: the last dim first, before and after."""
    if all(isinstance(p, int) and p == 0 for p in pad):
        return x
    count = len(pad) // 2
    lead = x.rank - count
    before = [0] * lead + [pad[2 * (count - 1 - i)] for i in range(count)]
    after = [0] * lead + [pad[2 * (count - 1 - i) + 1] for i in range(count)]
    fill = e.number(value, x.dtype) if mode == "constant" else None
    if x.dtype is torch.bool and mode == "constant":
        padded = e.op("Pad", e.cast(x, torch.uint8), e.ints(before + after), e.number(int(value), torch.uint8))
        return e.cast(padded, torch.bool)
    return e.op("Pad", x, e.ints(before + after), fill, mode=mode)


@rule(aten.constant_pad_nd.default)
def _constant_pad(e: Emitter, x: Tensor, pad: Sequence[Size], value: Number = 0) -> Tensor:
    return _padded(e, x, pad, "constant", value)


@rule(aten.pad.default)
def _pad(e: Emitter, x: Tensor, pad: Sequence[Size], mode: str = "constant", value: Number | None = None) -> Tensor:
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return _padded(e, x, pad, names[mode], 0 if value is None else value)


@rule(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def _reflection_pad(e: Emitter, x: Tensor, pad: Sequence[Size]) -> Tensor:
    return _padded(e, x, pad, "reflect")


@rule(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def _replication_pad(e: Emitter, x: Tensor, pad: Sequence[Size]) -> Tensor:
    return _padded(e, x, pad, "edge")


def _triangle(e: Emitter, x: Tensor, diagonal: Size, upper: int) -> Tensor:
    if x.dtype is torch.bool:
        return e.cast(_triangle(e, e.cast(x, torch.uint8), diagonal, upper), torch.bool)
    return e.op("Trilu", x, e.number(diagonal, torch.int64), upper=upper)


@rule(aten.tril.default)
def _tril(e: Emitter, x: Tensor, diagonal: Size = 0) -> Tensor:
    return _triangle(e, x, diagonal, 0)


@rule(aten.triu.default)
def _triu(e: Emitter, x: Tensor, diagonal: Size = 0) -> Tensor:
    return _triangle(e, x, diagonal, 1)


@rule(aten.pixel_shuffle.default)
def _pixel_shuffle(e: Emitter, x: Tensor, factor: int) -> Tensor:
    return _image(e, x, lambda y: e.op("DepthToSpace", y, blocksize=factor, mode="CRD"))


@rule(aten.pixel_unshuffle.default)
def _pixel_unshuffle(e: Emitter, x: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = _sizes(e, x)
    h, w = static(h, "the height"), static(w, "the width")
    blocks = e.reshape(x, [*lead, c, h // factor, factor, w // factor, factor])
    n = len(lead)
    moved = e.transpose(blocks, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return e.reshape(moved, [*lead, e.product([c, factor * factor]), h // factor, w // factor])


def _image(e: Emitter, x: Tensor, work: Any) -> Tensor:
    """work on [N, C, H, W], for any number of leading dims."""
    if x.rank == 4:
        result: Tensor = work(x)
        return result
    sizes = _sizes(e, x)
    result = work(e.reshape(x, [e.product(sizes[:-3]), *sizes[-3:]]))
    return e.op("Reshape", result, e.ints(e.out.shape))


@rule(aten.col2im.default)
def _col2im(
    e: Emitter,
    x: Tensor,
    size: Sequence[Size],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    single = x.rank == 2
    columns = e.unsqueeze(x, 0) if single else x
    attrs: dict[str, Any] = {"dilations": list(dilation), "pads": [*padding, *padding], "strides": list(stride)}
    image = e.op("Col2Im", columns, e.ints(size), e.ints(kernel), **attrs)
    return e.op("Squeeze", image, e.ints([0])) if single else image


@rule(aten.meshgrid.default, aten.meshgrid.indexing)
def _meshgrid(e: Emitter, tensors: Sequence[Tensor], indexing: str = "ij") -> list[Tensor]:
    rank = len(tensors)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    results = []
    for x, axis, out in zip(tensors, order, e.out, strict=True):
        flat = x if x.rank == 1 else e.unsqueeze(x, 0)
        shape = [1] * axis + [flat.dims[0]] + [1] * (rank - axis - 1)
        results.append(e.expand(e.reshape(flat, shape), out.shape))
    return results


@rule(aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor)
def _repeat_interleave_each(e: Emitter, *_: Any, **__: Any) -> Scalar:
    raise Unsupported("a number of repetitions for each element")
