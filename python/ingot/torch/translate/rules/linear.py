"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import MAX_INT, Unsupported, static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter
    from ingot.torch.translate.values import Number, Tensor

aten = torch.ops.aten


@rule(aten.mm.default, aten.bmm.default, aten.matmul.default, aten.mv.default, aten.dot.default, aten.vdot.default)
def _matmul(e: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return e.op("MatMul", a, b)


@rule(aten.linear.default)
def _linear(e: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if weight.rank == 1:
        product = e.op("MatMul", x, weight)
    elif x.rank == 2:
        return e.op("Gemm", x, weight, bias, transB=1)
    else:
        product = e.op("MatMul", x, e.transpose(weight, [1, 0]))
    return product if bias is None else e.add(product, bias)


def _plus(e: Emitter, added: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta added + alpha product; of beta 0 nothing is left, of NaN neither."""
    if alpha != 1:
        product = e.mul(product, e.number(alpha, product.dtype))
    if beta == 0:
        return product
    if beta != 1:
        added = e.mul(added, e.number(beta, added.dtype))
    return e.add(product, added)


@rule(aten.addmm.default)
def _addmm(e: Emitter, added: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    if beta == 1 and alpha == 1:
        return e.op("Gemm", a, b, added)
    return _plus(e, added, e.op("MatMul", a, b), beta, alpha)


@rule(aten.baddbmm.default, aten.addmv.default)
def _baddbmm(e: Emitter, added: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _plus(e, added, e.op("MatMul", a, b), beta, alpha)


@rule(aten.addbmm.default)
def _addbmm(e: Emitter, added: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    product = e.op("MatMul", a, b, shape=[a.dims[0], a.dims[1], b.dims[2]])
    return _plus(e, added, e.reduce("ReduceSum", product, [0], False), beta, alpha)


@rule(aten.outer.default, aten.ger.default)
def _outer(e: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return e.mul(e.unsqueeze(e.cast(a, e.out.dtype), 1), e.cast(b, e.out.dtype))


@rule(aten.einsum.default)
def _einsum(e: Emitter, equation: str, tensors: Sequence[Tensor], *, path: object = None) -> Tensor:
    return e.op("Einsum", *tensors, dtype=e.out.dtype, equation=equation)


@rule("transformers.grouped_mm_fallback.default")
def _grouped_rows(e: Emitter, x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """Rows up to offs[i], from where the matrix before ended, times matrix i; rows behind the last are 0. Each matrix
    has a product of its own, over just its rows."""
    count = static(weight.dims[0], "the number of matrices")
    ends = e.cast(offs, torch.int64)
    bounds = [e.ints([0]), *(e.op("Slice", ends, e.ints([i]), e.ints([i + 1]), e.ints([0])) for i in range(count))]
    axis = e.ints([0])
    parts = [
        e.op(
            "MatMul",
            e.op("Slice", x, bounds[i], bounds[i + 1], axis),
            e.op("Gather", weight, e.number(i, torch.int64), axis=0),
        )
        for i in range(count)
    ]
    rest = e.op("Slice", e.fill([e.size(x, 0), weight.dims[2]], 0, x.dtype), bounds[-1], e.ints([MAX_INT]), axis)
    return e.concat([*parts, rest], 0)


@rule(aten._grouped_mm.default)
def _grouped_mm(
    e: Emitter,
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if offs is None or bias is not None or x.rank != 2 or weight.rank != 3 or e.out.dtype != x.dtype:
        raise Unsupported("grouped_mm of anything but rows in groups by matrices")
    return _grouped_rows(e, x, weight, offs)
