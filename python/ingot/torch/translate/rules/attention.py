"""Attention, as the one operator that Ingot makes one kernel of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, Unsupported, expression

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
    # The second result, for the gradient, has no use in a graph that is only run.
    return [_attention(e, q, k, v, attn_mask, dropout_p, is_causal, scale), Unsupported("the log-sum-exp of attention")]


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
