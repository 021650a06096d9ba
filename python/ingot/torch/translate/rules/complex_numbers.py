"""Operators on complex tensors. A complex tensor [...] is a real one [..., 2] in the graph: real and imaginary parts
side by side, as they lie in PyTorch's memory.

These rules serve every call with a complex operand or result. Those of operators that only move elements hand the real
tensor to the operator's ordinary rule, with dims counted from the front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ingot.torch.translate.registry import complex_rule, find_rule, rule
from ingot.torch.translate.rules.elementwise import atan2
from ingot.torch.translate.values import (
    PARTS,
    Number,
    Size,
    Tensor,
    Unsupported,
    axis_of,
    expression,
    is_complex,
    parts_of,
    whole_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _sizes(e: Emitter, x: Tensor) -> list[Size]:
    return [e.size(x, i) for i in range(x.rank)]


def _kind(e: Emitter) -> torch.dtype:
    """The type of the parts of the result."""
    dtype: torch.dtype = e.out.dtype
    return PARTS.get(dtype, dtype)


# Real and imaginary parts


def _as_parts(e: Emitter, x: Tensor | Number, kind: torch.dtype) -> Tensor:
    """[..., 2] of any operand: of a real one the second part is 0."""
    if not isinstance(x, Tensor):
        number = complex(x) if isinstance(x, (int, float, complex)) else None
        if number is None:
            raise Unsupported("a complex tensor and a number that is not known before the graph runs")
        return e.cast(e.constant(np.array([number.real, number.imag], np.float64)), kind)
    if is_complex(x.dtype):
        return e.cast(parts_of(x), kind)
    return _join(e, e.unsqueeze(e.cast(x, kind), -1), e.fill([*_sizes(e, x), 1], 0, kind))


def _split(e: Emitter, x: Tensor) -> tuple[Tensor, Tensor]:
    """[..., 2] as two tensors [..., 1]."""
    found = e.ops("Split", [x], [x.dtype] * 2, axis=x.rank - 1, num_outputs=2)
    real, imaginary = (Tensor(part.name, x.dtype, (*x.dims[:-1], 1)) for part in found)
    return real, imaginary


def _join(e: Emitter, real: Tensor, imaginary: Tensor) -> Tensor:
    """Two tensors [..., 1] as [..., 2]."""
    shape = None if real.shape is None else (*real.shape[:-1], 2)
    return e.op("Concat", real, imaginary, axis=-1, shape=shape)


def _part(e: Emitter, x: Tensor, which: int) -> Tensor:
    """The real (0) or the imaginary part (1) of a complex tensor."""
    return e.op("Gather", parts_of(x), e.number(which, torch.int64), axis=x.rank, shape=x.shape)


def _signs(e: Emitter, x: Tensor, real: int, imaginary: int) -> Tensor:
    return e.mul(x, e.cast(e.constant(np.array([real, imaginary], np.float32)), x.dtype))


@complex_rule(aten.view_as_real.default)
def _view_as_real(e: Emitter, x: Tensor) -> Tensor:
    return parts_of(x)


@complex_rule(aten.view_as_complex.default)
def _view_as_complex(e: Emitter, x: Tensor) -> Tensor:
    return whole_of(x)


@complex_rule(aten.real.default)
def _real(e: Emitter, x: Tensor) -> Tensor:
    return _part(e, x, 0)


@complex_rule(aten.imag.default)
def _imag(e: Emitter, x: Tensor) -> Tensor:
    return _part(e, x, 1)


@complex_rule(aten.complex.default)
def _complex(e: Emitter, real: Tensor, imaginary: Tensor) -> Tensor:
    shape = e.out.shape
    return whole_of(_join(e, *(e.unsqueeze(e.expand(part, shape), -1) for part in (real, imaginary))))


@complex_rule(aten.polar.default)
def _polar(e: Emitter, length: Tensor, angle: Tensor) -> Tensor:
    direction = [e.unsqueeze(e.op(f, angle, shape=angle.shape), -1) for f in ("Cos", "Sin")]
    return whole_of(e.mul(e.unsqueeze(length, -1), _join(e, *direction)))


@complex_rule(
    aten._to_copy.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.other,
    aten.to.prim_dtype,
    torch.ops.prims.convert_element_type.default,
)
def _to(e: Emitter, x: Tensor, *_: Any, **__: Any) -> Tensor:
    if not is_complex(e.out.dtype):
        return e.cast(_part(e, x, 0), e.out.dtype)
    return whole_of(_as_parts(e, x, _kind(e)))


@complex_rule(aten._conj.default, aten._conj_physical.default, aten.conj.default, aten.conj_physical.default)
def _conj(e: Emitter, x: Tensor) -> Tensor:
    return whole_of(_signs(e, parts_of(x), 1, -1)) if is_complex(x.dtype) else x


@complex_rule(aten.abs.default)
def _abs(e: Emitter, x: Tensor) -> Tensor:
    return e.reduce("ReduceL2", parts_of(x), [x.rank], False)


@complex_rule(aten.angle.default)
def _angle(e: Emitter, x: Tensor) -> Tensor:
    out, e.out = e.out, torch.empty(0, dtype=PARTS[x.dtype])
    try:
        angle = atan2(e, _part(e, x, 1), _part(e, x, 0))
    finally:
        e.out = out
    return Tensor(angle.name, angle.dtype, x.shape)


# Arithmetic


def _scaled(e: Emitter, op: str, x: Tensor, real: Tensor | Number) -> Tensor:
    """op, which is Mul or Div, of a complex tensor and a real operand."""
    kind = _kind(e)
    factor = e.tensor(real, kind)
    return whole_of(e.op(op, _as_parts(e, x, kind), e.unsqueeze(factor, -1) if factor.rank else factor))


def _is_real(x: Tensor | Number) -> bool:
    return not is_complex(x.dtype) if isinstance(x, Tensor) else not isinstance(x, complex)


def _times(e: Emitter, x: Tensor, y: Tensor) -> Tensor:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i, of operands [..., 2]."""
    (a, b), (c, d) = _split(e, x), _split(e, y)
    return _join(e, e.sub(e.mul(a, c), e.mul(b, d)), e.add(e.mul(a, d), e.mul(b, c)))


def _inverse(e: Emitter, x: Tensor) -> Tensor:
    """1 / (c + di) = (c - di) / (c c + d d), of an operand [..., 2] that is divided by its larger part first: squares
    of large numbers are none."""
    largest = e.reduce("ReduceMax", e.op("Abs", x, shape=x.shape), [x.rank - 1], True)
    small = e.div(x, largest)
    square = e.op("ReduceSumSquare", small, e.ints([-1]), keepdims=1)
    return Tensor(e.div(e.div(_signs(e, small, 1, -1), square), largest).name, x.dtype, x.shape)


@complex_rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(e: Emitter, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    if _is_real(x):
        x, y = y, x
    if _is_real(y) and isinstance(x, Tensor):
        return _scaled(e, "Mul", x, y)
    return whole_of(_times(e, _as_parts(e, x, _kind(e)), _as_parts(e, y, _kind(e))))


@complex_rule(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, aten.true_divide.Scalar)
def _div(e: Emitter, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    if _is_real(y) and isinstance(x, Tensor):
        return _scaled(e, "Div", x, y)
    inverse = _inverse(e, _as_parts(e, y, _kind(e)))
    if _is_real(x):
        return _scaled(e, "Mul", whole_of(inverse), x)
    return whole_of(_times(e, _as_parts(e, x, _kind(e)), inverse))


@complex_rule(aten.reciprocal.default)
def _reciprocal(e: Emitter, x: Tensor) -> Tensor:
    return whole_of(_inverse(e, parts_of(x)))


def _sum_of(e: Emitter, op: str, x: Tensor | Number, y: Tensor | Number, alpha: Number) -> Tensor:
    other = _as_parts(e, y, _kind(e))
    if isinstance(alpha, complex):
        other = _times(e, other, _as_parts(e, alpha, _kind(e)))
    elif alpha != 1:
        other = e.mul(other, e.number(alpha, _kind(e)))
    return whole_of(e.op(op, _as_parts(e, x, _kind(e)), other))


@complex_rule(aten.add.Tensor, aten.add.Scalar)
def _add(e: Emitter, x: Tensor | Number, y: Tensor | Number, alpha: Number = 1) -> Tensor:
    return _sum_of(e, "Add", x, y, alpha)


@complex_rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(e: Emitter, x: Tensor | Number, y: Tensor | Number, alpha: Number = 1) -> Tensor:
    return _sum_of(e, "Sub", x, y, alpha)


@complex_rule(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(e: Emitter, x: Tensor | Number, y: Tensor | Number, alpha: Number = 1) -> Tensor:
    return _sum_of(e, "Sub", y, x, alpha)


@rule(aten._neg_view.default)
def _neg_view(e: Emitter, x: Tensor) -> Tensor:
    """The imaginary part of a conjugate."""
    return e.op("Neg", x, shape=x.shape)


@complex_rule(aten.neg.default)
def _neg(e: Emitter, x: Tensor) -> Tensor:
    return whole_of(e.op("Neg", parts_of(x), shape=parts_of(x).shape))


@complex_rule(aten.exp.default)
def _exp(e: Emitter, x: Tensor) -> Tensor:
    """exp(a + bi) = exp(a) (cos b + i sin b)"""
    a, b = _split(e, parts_of(x))
    return whole_of(e.mul(e.op("Exp", a), _join(e, e.op("Cos", b), e.op("Sin", b))))


@complex_rule(aten.log.default)
def _log(e: Emitter, x: Tensor) -> Tensor:
    length, angle = e.op("Log", _abs(e, x), shape=x.shape), _angle(e, x)
    return whole_of(_join(e, e.unsqueeze(length, -1), e.unsqueeze(angle, -1)))


@complex_rule(aten.pow.Tensor_Scalar)
def _pow(e: Emitter, x: Tensor, exponent: Number) -> Tensor:
    if exponent not in (1, 2, 3, 4):
        raise Unsupported(f"the power {exponent} of complex numbers")
    result = base = parts_of(x)
    for _ in range(int(exponent) - 1):
        result = Tensor(_times(e, result, base).name, base.dtype, base.shape)
    return whole_of(result)


@complex_rule(aten.where.self)
def _where(e: Emitter, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    x, y = (_as_parts(e, t, _kind(e)) for t in (x, y))
    return whole_of(e.where(e.unsqueeze(condition, -1) if condition.rank else condition, x, y))


def _reduction(op: str) -> Callable[..., Tensor]:
    def translate(
        e: Emitter, x: Tensor, dims: int | Sequence[int] | None = None, keepdim: bool = False, **_: Any
    ) -> Tensor:
        dims = [dims] if isinstance(dims, int) else dims
        axes = sorted({axis_of(d, x.rank) for d in dims}) if dims else list(range(x.rank))
        return whole_of(e.reduce(op, _as_parts(e, x, _kind(e)), axes, keepdim))

    return translate


complex_rule(aten.sum.default, aten.sum.dim_IntList)(_reduction("ReduceSum"))
complex_rule(aten.mean.default, aten.mean.dim)(_reduction("ReduceMean"))


@complex_rule(aten.mm.default, aten.bmm.default)
def _product(e: Emitter, x: Tensor, y: Tensor) -> Tensor:
    """One real product. A row of x is [.., a, b, ..]; the row c + di of y becomes two, which meet a and b:
    [.., c, d, ..] and that times i, [.., -d, c, ..]."""
    rows = parts_of(y)
    c, d = _split(e, rows)
    turned = _join(e, Tensor(e.op("Neg", d).name, d.dtype, d.shape), c)
    both = e.concat([e.unsqueeze(t, y.rank - 1) for t in (rows, turned)], y.rank - 1)
    *lead, inner, columns = _sizes(e, y)
    wide = e.op("Reshape", both, e.ints([*lead, e.product([2, inner]), e.product([2, columns])]))
    *lead, height, inner = _sizes(e, x)
    flat = e.reshape(parts_of(x), [*lead, height, e.product([2, inner])])
    found = e.op("MatMul", flat, wide)
    return whole_of(e.op("Reshape", found, e.ints([*lead, height, columns, 2])))


# Fourier transforms


def _dft(
    e: Emitter, x: Tensor, axis: int, *, inverse: bool = False, onesided: bool = False, length: Size = None
) -> Tensor:
    """Along an axis of [..., 1] or [..., 2]; the inverse one is divided by the number of elements."""
    size = None if length is None else e.number(length, torch.int64)
    kept = None if onesided or x.shape is None else (*x.shape[:-1], 2)
    attrs = {"inverse": int(inverse), "onesided": int(onesided)}
    return e.op("DFT", x, size, e.number(axis, torch.int64), shape=kept, **attrs)


def _normalised(e: Emitter, x: Tensor, sizes: Sequence[Size], how: int, inverse: bool) -> Tensor:
    """how: 0 leaves the sums as they are, 1 divides by the root of the number of elements, 2 by the number."""
    count = e.product(sizes)
    power = (0.0, -0.5, -1.0)[how] + (1.0 if inverse else 0.0)  # of an inverse transform, 1 / count is in already
    if power == 0:
        return x
    number = expression(count)
    if isinstance(number, int):
        return e.mul(x, e.number(float(number) ** power, x.dtype))
    factor = e.number(count, x.dtype)
    factor = e.op("Sqrt", factor) if abs(power) == 0.5 else factor
    return e.mul(x, factor) if power > 0 else e.div(x, factor)


@complex_rule(aten._fft_c2c.default)
def _fft_c2c(e: Emitter, x: Tensor, dims: Sequence[int], how: int, forward: bool) -> Tensor:
    y = parts_of(x)
    axes = [axis_of(d, x.rank) for d in dims]
    for axis in axes:
        y = _dft(e, y, axis, inverse=not forward)
    return whole_of(_normalised(e, y, [e.size(x, a) for a in axes], how, not forward))


@complex_rule(aten._fft_r2c.default)
def _fft_r2c(e: Emitter, x: Tensor, dims: Sequence[int], how: int, onesided: bool) -> Tensor:
    axes = [axis_of(d, x.rank) for d in dims]
    y = _dft(e, e.unsqueeze(x, -1), axes[-1], onesided=onesided)
    for axis in axes[:-1]:
        y = _dft(e, y, axis)
    return whole_of(_normalised(e, y, [e.size(x, a) for a in axes], how, inverse=False))


@complex_rule(aten._fft_c2r.default)
def _fft_c2r(e: Emitter, x: Tensor, dims: Sequence[int], how: int, last: Size) -> Tensor:
    y = parts_of(x)
    axes = [axis_of(d, x.rank) for d in dims]
    for axis in axes[:-1]:
        y = _dft(e, y, axis, inverse=True)
    y = _dft(e, y, axes[-1], inverse=True, onesided=True, length=last)
    y = e.op("Squeeze", y, e.ints([x.rank]), shape=e.out.shape)
    return _normalised(e, y, [*(e.size(x, a) for a in axes[:-1]), last], how, inverse=True)


# Tensors made from nothing


@complex_rule(aten.full.default, aten.new_full.default, aten.full_like.default)
def _full(e: Emitter, *args: Any, **_: Any) -> Tensor:
    value = _as_parts(e, args[-1], _kind(e))
    return whole_of(e.expand(Tensor(value.name, value.dtype, (2,)), [*e.out.shape, 2]))


@complex_rule(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
)
def _zeros(e: Emitter, *_: Any, **__: Any) -> Tensor:
    return whole_of(e.fill([*e.out.shape, 2], 0, _kind(e)))


@complex_rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def _ones(e: Emitter, *_: Any, **__: Any) -> Tensor:
    return _full(e, 1)


@complex_rule(aten.scalar_tensor.default)
def _scalar(e: Emitter, value: Number, **_: Any) -> Tensor:
    return whole_of(Tensor(_as_parts(e, value, _kind(e)).name, _kind(e), (2,)))


@complex_rule(aten.copy.default)
def _copy(e: Emitter, x: Tensor, source: Tensor, *_: Any, **__: Any) -> Tensor:
    return whole_of(e.expand(_as_parts(e, source, _kind(e)), [*_sizes(e, x), 2]))


# What only moves elements


def _with_parts(value: Any) -> Any:
    """PyTorch's idea of a complex result as that of its parts."""
    return torch.view_as_real(value.resolve_conj()) if isinstance(value, torch.Tensor) and value.is_complex() else value


def _moved(*targets: Any, adapt: Callable[..., tuple[Any, ...]]) -> None:
    """By the operator's ordinary rule on [..., 2]. adapt(rank, *arguments after the tensor) gives its arguments."""

    def for_target(target: Any) -> None:
        @complex_rule(target)
        def translate(e: Emitter, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            inner = find_rule(target)
            assert inner is not None
            args = adapt(x.rank, *args, **kwargs)
            kind, out = _kind_of(e.out), e.out
            e.out = pytree.tree_map(_with_parts, out)
            args = tuple(_as_parts(e, a, kind) if isinstance(a, Tensor) and is_complex(a.dtype) else a for a in args)
            try:
                found = inner(e, _as_parts(e, x, kind), *args)
            finally:
                e.out = out
            return [whole_of(t) for t in found] if isinstance(found, (list, tuple)) else whole_of(found)

    for target in targets:
        for_target(target)


def _kind_of(out: Any) -> torch.dtype:
    first = next(t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor))
    return PARTS[first.dtype]


def _along(default: int = 0) -> Callable[..., tuple[Any, ...]]:
    """dim is the first argument."""
    return lambda rank, dim=default, *rest: (axis_of(dim, rank), *rest)


def _axes(rank: int, dims: int | Sequence[int], *rest: Any) -> tuple[Any, ...]:
    dims = [dims] if isinstance(dims, int) else dims
    return ([axis_of(d, rank) for d in dims], *rest)


def _rolled(rank: int, shifts: Any, dims: Any = ()) -> tuple[Any, ...]:
    if isinstance(dims, (list, tuple)) and not dims:
        raise Unsupported("a complex tensor rolled without dims")
    return shifts, *_axes(rank, dims)


def _padded(rank: int, pad: Sequence[Size], value: Number = 0) -> tuple[Any, ...]:
    if value != 0:
        raise Unsupported("a complex tensor padded with other numbers than 0")
    return ([0, 0, *pad], 0)


def _nothing(rank: int, *_: Any, **__: Any) -> tuple[Any, ...]:
    return ()


_moved(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    aten.squeeze.default,
    torch.ops.prims.clone.default,
    adapt=_nothing,
)
_moved(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_copy.default,
    aten.expand.default,
    aten.broadcast_to.default,
    adapt=lambda rank, shape, **_: ([*shape, 2],),
)
_moved(aten.repeat.default, adapt=lambda rank, counts: ([*counts, 1],))
_moved(aten.permute.default, adapt=lambda rank, dims: ([*(axis_of(d, rank) for d in dims), rank],))
_moved(aten.unsqueeze.default, adapt=lambda rank, dim: (axis_of(dim, rank + 1),))
_moved(
    aten.transpose.int,
    aten.swapaxes.default,
    adapt=lambda rank, a, b: (axis_of(a, rank), axis_of(b, rank)) if rank else (0, 0),
)
_moved(
    aten.slice.Tensor,
    aten.select.int,
    aten.unbind.int,
    aten.narrow.default,
    aten.index_select.default,
    aten.cumsum.default,
    adapt=_along(),
)
_moved(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.chunk.default,
    adapt=lambda rank, sizes, dim=0: (sizes, axis_of(dim, rank)),
)
_moved(aten.squeeze.dim, aten.squeeze.dims, aten.flip.default, adapt=_axes)
_moved(aten.roll.default, adapt=_rolled)
_moved(aten.constant_pad_nd.default, adapt=_padded)
_moved(aten.index.Tensor, adapt=lambda rank, indices: (indices,))
_moved(
    aten.slice_scatter.default,
    aten.select_scatter.default,
    adapt=lambda rank, source, dim=0, *rest: (source, axis_of(dim, rank), *rest),
)


@complex_rule(aten.t.default, aten.mT.default)
def _t(e: Emitter, x: Tensor) -> Tensor:
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if x.rank > 1 else list(range(x.rank))
    return whole_of(e.transpose(parts_of(x), [*order, x.rank]))


@complex_rule(aten.cat.default, aten.concat.default)
def _cat(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    axis = axis_of(dim, len(e.out.shape))
    return whole_of(e.concat([_as_parts(e, x, _kind(e)) for x in tensors], axis))


@complex_rule(aten.stack.default)
def _stack(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    axis = axis_of(dim, len(e.out.shape))
    return whole_of(e.concat([e.unsqueeze(_as_parts(e, x, _kind(e)), axis) for x in tensors], axis))
