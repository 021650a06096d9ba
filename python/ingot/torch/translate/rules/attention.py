"""Attention, as the one operator that Ingot makes one kernel of."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, Unsupported, expression, static

if TYPE_CHECKING:
    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _attention(
    e: Emitter,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    if dropout != 0:
        raise Unsupported("attention with dropout")
    if mask is not None and mask.dtype is not torch.bool:
        mask = e.cast(mask, q.dtype)
    if mask is not None and expression(mask.dims[-1]) == 1 and expression(k.dims[-2]) != 1:
        mask = e.expand(mask, [*mask.dims[:-1], e.size(k, k.rank - 2)])
    if mask is not None and mask.rank == 1:
        mask = e.unsqueeze(mask, 0)
    attrs: dict[str, Any] = {"is_causal": int(is_causal)}
    if scale is not None:
        attrs["scale"] = float(scale)
    lead = q.rank - 4
    if lead == 0:
        return e.op("Attention", q, k, v, mask, **attrs)
    if lead < 0:
        q, k, v = (e.unsqueeze(x, *range(-lead)) for x in (q, k, v))
        mask = mask if mask is None or mask.rank < 3 else e.unsqueeze(mask, *range(4 - mask.rank))
        y = e.op("Attention", q, k, v, mask, shape=(*q.dims[:-1], v.dims[-1]), **attrs)
        return e.squeeze(y, *range(-lead))
    # Further leading dims are batches too.
    shape = [e.size(q, i) for i in range(q.rank - 1)] + [e.size(v, v.rank - 1)]
    if mask is not None and mask.rank > 2:
        wide: list[Size] = [*shape[:-2], *mask.dims[-2:]]
        mask = _flattened(e, e.expand(mask, wide), lead)
    y = e.op("Attention", *(_flattened(e, x, lead) for x in (q, k, v)), mask, **attrs)
    return e.op("Reshape", y, e.ints(shape))


def _flattened(e: Emitter, x: Tensor, lead: int) -> Tensor:
    sizes = [e.size(x, i) for i in range(x.rank)]
    return e.reshape(x, [e.product(sizes[: lead + 1]), *sizes[lead + 1 :]])


@rule(aten.scaled_dot_product_attention.default)
def _sdpa(
    e: Emitter,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return _attention(e, q, k, v, attn_mask, dropout_p, is_causal, scale)


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash(
    e: Emitter,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> list[Any]:
    if not any(user.target is operator.getitem and user.args[1] == 1 for user in e.node.users):
        return [_attention(e, q, k, v, attn_mask, dropout_p, is_causal, scale), None]
    if dropout_p != 0:
        raise Unsupported("attention with dropout")
    # The second result, for the gradient: what the weights were divided by.
    kind = e.out[1].dtype
    scores, _ = scores_of(e, q, k, attn_mask, is_causal, scale, kind)
    total = e.op("ReduceLogSumExp", scores, e.ints([-1]), keepdims=1)
    weights = e.op("Exp", e.sub(scores, total))
    y = e.op("MatMul", weights, e.cast(v, kind))
    return [e.cast(y, q.dtype), e.op("Squeeze", total, e.ints([-1]))]


def scores_of(
    e: Emitter, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, dtype: torch.dtype
) -> tuple[Tensor, float]:
    """scale q k' + mask of tensors of rank 4, and that scale."""
    factor = 1 / math.sqrt(static(q.dims[-1], "the size of a head")) if scale is None else float(scale)
    q, k = e.cast(q, dtype), e.cast(k, dtype)
    scores = e.mul(e.op("MatMul", q, e.transpose(k, [0, 1, 3, 2])), e.number(factor, dtype))
    never = e.number(float("-inf"), dtype)
    if mask is not None and mask.dtype is torch.bool:
        scores = e.where(mask, scores, never)
    elif mask is not None:
        scores = e.add(scores, e.cast(mask, dtype))
    if is_causal:
        rows, columns = (e.arange(e.size(x, x.rank - 2)) for x in (q, k))
        scores = e.where(e.compare("GreaterOrEqual", e.unsqueeze(rows, 1), columns), scores, never)
    return scores, factor


@rule(aten._scaled_dot_product_attention_math_for_mps.default, aten._scaled_dot_product_attention_math.default)
def _math(
    e: Emitter,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> list[Any]:
    return [_attention(e, q, k, v, attn_mask, dropout_p, is_causal, scale), Unsupported("the weights of attention")]
