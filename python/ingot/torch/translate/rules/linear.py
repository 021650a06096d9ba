"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ingot.torch.translate.registry import rule

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
