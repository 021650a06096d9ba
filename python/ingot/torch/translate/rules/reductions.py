"""Sums, extremes and statistics along dims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Number, Scalar, Size, Tensor, Unsupported, axis_of, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten
Dims = int | list[int] | tuple[int, ...] | None


def _axes(x: Tensor, dim: Dims) -> list[int]:
    """All dims for None and, as PyTorch has it, for none."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(x.rank))
    return [axis_of(d, x.rank) for d in ([dim] if isinstance(dim, int) else dim) if x.rank]


@rule(aten.sum.default)
def _sum_all(e: Emitter, x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _sum(e, x, None)


@rule(aten.sum.dim_IntList)
def _sum(e: Emitter, x: Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return e.reduce("ReduceSum", e.cast(x, e.out.dtype), _axes(x, dim), keepdim)


@rule(aten.mean.default)
def _mean_all(e: Emitter, x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _mean(e, x, None)


@rule(aten.mean.dim)
def _mean(e: Emitter, x: Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return e.reduce("ReduceMean", e.cast(x, e.out.dtype), _axes(x, dim), keepdim)


@rule(aten.prod.default)
def _prod_all(e: Emitter, x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return e.reduce("ReduceProd", e.cast(x, e.out.dtype), _axes(x, None), False)


@rule(aten.prod.dim_int)
def _prod(e: Emitter, x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return e.reduce("ReduceProd", e.cast(x, e.out.dtype), _axes(x, dim), keepdim)


def _extreme(op: str) -> Callable[..., Tensor]:
    def translate(e: Emitter, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        return e.reduce(op, x, _axes(x, dim), keepdim)

    return translate


rule(aten.amax.default, aten.max.default)(_extreme("ReduceMax"))
rule(aten.amin.default, aten.min.default)(_extreme("ReduceMin"))


@rule(aten.aminmax.default)
def _aminmax(e: Emitter, x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> list[Tensor]:
    return [e.reduce(op, x, _axes(x, dim), keepdim) for op in ("ReduceMin", "ReduceMax")]


def _extreme_with_place(op: str, place: str) -> Callable[..., list[Tensor]]:
    def translate(e: Emitter, x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
        values = e.reduce(op, x, _axes(x, dim), keepdim)
        return [values, _place(e, place, x, dim, keepdim)]

    return translate


rule(aten.max.dim)(_extreme_with_place("ReduceMax", "ArgMax"))
rule(aten.min.dim)(_extreme_with_place("ReduceMin", "ArgMin"))


def _place(e: Emitter, op: str, x: Tensor, dim: int, keepdim: bool) -> Tensor:
    if x.rank == 0:
        return e.number(0, torch.int64)
    if x.dtype is torch.bool:
        x = e.cast(x, torch.uint8)
    return e.op(op, x, dtype=torch.int64, axis=axis_of(dim, x.rank), keepdims=int(keepdim))


def _argument(op: str) -> Callable[..., Tensor]:
    def translate(e: Emitter, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if dim is not None or x.rank == 0:
            return _place(e, op, x, dim or 0, keepdim)
        flat = e.reshape(x, [e.product([e.size(x, i) for i in range(x.rank)])])
        found = _place(e, op, flat, 0, False)
        return e.op("Reshape", found, e.ints([1] * x.rank)) if keepdim else found

    return translate


rule(aten.argmax.default)(_argument("ArgMax"))
rule(aten.argmin.default)(_argument("ArgMin"))


def _truth(op: str) -> Callable[..., Tensor]:
    def translate(e: Emitter, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        result = e.reduce(op, e.cast(x, torch.bool), _axes(x, dim), keepdim)
        return e.cast(result, e.out.dtype)

    return translate


rule(aten.any.default, aten.any.dim, aten.any.dims)(_truth("ReduceMax"))
rule(aten.all.default, aten.all.dim, aten.all.dims)(_truth("ReduceMin"))


@rule(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def _count_nonzero(e: Emitter, x: Tensor, dim: Dims = None) -> Tensor:
    return e.reduce("ReduceSum", e.cast(e.cast(x, torch.bool), torch.int64), _axes(x, dim), False)


# Variance


def _variance(e: Emitter, x: Tensor, dim: Dims, correction: Number, keepdim: bool) -> tuple[Tensor, Tensor]:
    """sum((x - mean)^2) / max(0, n - correction), and the mean."""
    axes = _axes(x, dim)
    mean = e.reduce("ReduceMean", x, axes, True)
    off = e.sub(x, mean)
    square = Tensor(e.mul(off, off).name, x.dtype, x.shape)
    if correction == 0:
        variance = e.reduce("ReduceMean", square, axes, keepdim)
    else:
        total = e.reduce("ReduceSum", square, axes, keepdim)
        variance = e.div(total, _degrees(e, e.product([e.size(x, a) for a in axes]), correction, x.dtype))
    return variance, mean if keepdim else e.squeeze(mean, *axes)


def _degrees(e: Emitter, count: Size, correction: Number, dtype: torch.dtype) -> Tensor:
    if isinstance(count, int):
        return e.number(float(max(0, count - correction)), dtype)
    left = e.sub(e.number(count, dtype), e.number(correction, dtype))
    return e.op("Max", left, e.number(0, dtype))


def _correction(given: Number | None) -> Number:
    if isinstance(given, Scalar):
        raise Unsupported("a correction that is not known")
    return 1 if given is None else given


@rule(aten.var.correction)
def _var(e: Emitter, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Tensor:
    return _variance(e, x, dim, _correction(correction), keepdim)[0]


@rule(aten.std.correction)
def _std(e: Emitter, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Tensor:
    return e.op("Sqrt", _var(e, x, dim, correction=correction, keepdim=keepdim))


@rule(aten.var_mean.correction)
def _var_mean(
    e: Emitter, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> list[Tensor]:
    return list(_variance(e, x, dim, _correction(correction), keepdim))


@rule(aten.std_mean.correction)
def _std_mean(
    e: Emitter, x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> list[Tensor]:
    variance, mean = _variance(e, x, dim, _correction(correction), keepdim)
    return [e.op("Sqrt", variance), mean]


@rule(aten.var.dim)
def _var_dim(e: Emitter, x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return _variance(e, x, dim, int(unbiased), keepdim)[0]


@rule(aten.std.dim)
def _std_dim(e: Emitter, x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return e.op("Sqrt", _var_dim(e, x, dim, unbiased, keepdim))


@rule(aten.var.default)
def _var_all(e: Emitter, x: Tensor, unbiased: bool = True) -> Tensor:
    return _var_dim(e, x, None, unbiased)


@rule(aten.std.default)
def _std_all(e: Emitter, x: Tensor, unbiased: bool = True) -> Tensor:
    return _std_dim(e, x, None, unbiased)


# Norms and logarithms


@rule(aten.logsumexp.default)
def _logsumexp(e: Emitter, x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    return e.reduce("ReduceLogSumExp", e.cast(x, e.out.dtype), _axes(x, dim), keepdim)


@rule(aten.linalg_vector_norm.default)
def _vector_norm(
    e: Emitter,
    x: Tensor,
    ord: Number = 2,  # noqa: A002
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x, axes = e.cast(x, e.out.dtype), _axes(x, dim)
    if ord in (1, 2):
        return e.reduce(f"ReduceL{int(ord)}", x, axes, keepdim)
    size = Tensor(e.op("Abs", x).name, x.dtype, x.shape)
    if math.isinf(ord):
        return e.reduce("ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdim)
    if ord == 0:
        return e.reduce("ReduceSum", e.cast(e.cast(x, torch.bool), x.dtype), axes, keepdim)
    power = Tensor(e.op("Pow", size, e.number(ord, x.dtype)).name, x.dtype, x.shape)
    return e.op("Pow", e.reduce("ReduceSum", power, axes, keepdim), e.number(1 / ord, x.dtype))


@rule(aten._cdist_forward.default)
def _cdist(e: Emitter, a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Distances between the rows of a and those of b."""
    off = e.sub(e.unsqueeze(a, a.rank - 1), e.unsqueeze(b, b.rank - 2))
    return _vector_norm(e, Tensor(off.name, a.dtype, (*e.out.shape, a.dims[-1])), p, -1)


@rule(aten.norm.ScalarOpt_dim)
def _norm(e: Emitter, x: Tensor, p: Number | None, dim: Dims, keepdim: bool = False) -> Tensor:
    return _vector_norm(e, x, 2 if p is None else p, dim, keepdim)


@rule(aten.norm.Scalar)
def _norm_all(e: Emitter, x: Tensor, p: Number = 2) -> Tensor:
    return _vector_norm(e, x, p)


def _softmax(op: str) -> Callable[..., Tensor]:
    def translate(e: Emitter, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
        x = e.cast(x, e.out.dtype)
        return e.op(op, x, axis=axis_of(dim, x.rank)) if x.rank else _of_number(e, op, x)

    return translate


def _of_number(e: Emitter, op: str, x: Tensor) -> Tensor:
    return e.squeeze(e.op(op, e.unsqueeze(x, 0), axis=0, shape=(1,)), 0)


rule(aten.softmax.int, aten._softmax.default)(_softmax("Softmax"))
rule(aten.log_softmax.int, aten._log_softmax.default)(_softmax("LogSoftmax"))


@rule(aten._safe_softmax.default)
def _safe_softmax(e: Emitter, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros where everything is minus infinity, in the words Ingot's attention knows."""
    x = e.cast(x, e.out.dtype)
    plain = e.op("Softmax", x, axis=axis_of(dim, x.rank))
    largest = e.reduce("ReduceMax", x, [axis_of(dim, x.rank)], True)
    hidden = e.compare("Equal", largest, e.number(float("-inf"), x.dtype))
    return e.where(hidden, e.number(0, x.dtype), plain)


def _running(op: str) -> Callable[..., Tensor]:
    def translate(e: Emitter, x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        x = e.cast(x, e.out.dtype)
        if x.rank == 0:
            return x
        narrow = is_integer(x.dtype) and x.dtype.itemsize < 4
        wide = e.cast(x, torch.int64) if narrow else x
        return e.cast(e.op(op, wide, e.number(axis_of(dim, x.rank), torch.int64)), x.dtype)

    return translate


rule(aten.cumsum.default)(_running("CumSum"))
rule(aten.cumprod.default)(_running("CumProd"))
