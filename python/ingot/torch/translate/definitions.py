"""Operators that PyTorch has only kernels for, defined here by others: plain functions of tensors, which are traced.

Where a rule says that it cannot translate a call, its definition here is tried. A definition may need sizes as numbers
(`fixed`): where they are free, the operator stays in eager.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ingot.torch.translate.values import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_Function = TypeVar("_Function", bound="Callable[..., Any]")

aten = torch.ops.aten
DEFINITIONS: dict[Any, Callable[..., Any]] = {}
# Of operators whose other results only gradients need: which are computed.
RESULTS: dict[Any, Collection[int]] = {}


def define(*targets: Any, results: Collection[int] = ()) -> Callable[[_Function], _Function]:
    """The decorated function defines these operators. results: those it computes, where it leaves others out."""

    def register(function: _Function) -> _Function:
        for target in targets:
            DEFINITIONS[target] = function
            if results:
                RESULTS[target] = results
        return function

    return register


def fixed(*sizes: Any) -> None:
    """An error unless all are numbers."""
    if any(isinstance(size, torch.SymInt) and not size.node.expr.is_number for size in sizes):
        raise Unsupported("a size that is not known before the graph runs")


# Orders


def _axis(x: Tensor, dim: int) -> int:
    return dim % max(int(x.dim()), 1)


@define(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = (t.narrow(dim, k - 1, 1) for t in torch.sort(x, dim))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@define(aten.median.dim)
def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle; NaN where there is one."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)
    if not x.is_floating_point():
        return values, places
    nans = x.isnan()
    some, first = nans.any(dim, keepdim), nans.to(torch.int32).argmax(dim, keepdim)
    return torch.where(some, math.nan, values), torch.where(some, first, places)


@define(aten.nanmedian.dim)
def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0 or not x.is_floating_point():
        return median(x, dim, keepdim)
    middle = ((~x.isnan()).sum(dim, keepdim=True) - 1).clamp_min(0) // 2  # NaN are sorted to the end
    values, places = (t.gather(dim, middle) for t in torch.sort(x, dim))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@define(aten.median.default)
def median_of_all(x: Tensor) -> Tensor:
    return median(x.reshape(-1), 0)[0]


@define(aten.nanmedian.default)
def nanmedian_of_all(x: Tensor) -> Tensor:
    return nanmedian(x.reshape(-1), 0)[0]


@define(aten.mode.default)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The value in most places, the smallest of several. Equal values stand together once they are sorted: runs are
    numbered and counted, and the last place of the longest one is taken."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(x, dim)
    new = values.narrow(dim, 1, x.shape[dim] - 1) != values.narrow(dim, 0, x.shape[dim] - 1)
    first = torch.zeros_like(new.narrow(dim, 0, 1)) if x.shape[dim] > 1 else torch.zeros_like(x, dtype=torch.bool)
    run = torch.cat([first, new], dim).to(torch.int64).cumsum(dim)
    lengths = torch.zeros_like(run).scatter_add(dim, run, torch.ones_like(run))
    last = (run <= lengths.argmax(dim, True)).to(torch.int64).sum(dim, True) - 1
    found = values.gather(dim, last), places.gather(dim, last)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


# What runs along an axis: with each step, every element takes in twice as many before it.


def _before(x: Tensor, dim: int, step: int, filler: Any) -> Tensor:
    """What stands `step` places before each element."""
    head = torch.full_like(x.narrow(dim, 0, step), filler)
    return torch.cat([head, x.narrow(dim, 0, x.shape[dim] - step)], dim)


def _steps(x: Tensor, dim: int) -> list[int]:
    fixed(x.shape[dim])
    return [2**i for i in range(max(int(x.shape[dim]) - 1, 0).bit_length())]


def _running_extreme(larger: bool) -> Callable[..., Any]:
    def define(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.dim() == 0:
            return x.clone(), torch.zeros((), dtype=torch.int64)
        dim = _axis(x, dim)
        along = [-1 if i == dim else 1 for i in range(x.dim())]
        values, places = x, torch.arange(x.shape[dim]).reshape(along).expand(x.shape)
        least: Any = -math.inf if larger else math.inf
        if not x.is_floating_point():
            info = torch.iinfo(torch.uint8 if x.dtype is torch.bool else x.dtype)
            least = (info.min if larger else info.max) if x.dtype is not torch.bool else not larger
        for step in _steps(x, dim):
            other, there = _before(values, dim, step, least), _before(places, dim, step, 0)
            better = other > values if larger else other < values
            if x.is_floating_point():
                better = (better & ~values.isnan()) | (other.isnan() & ~values.isnan())
            values, places = torch.where(better, other, values), torch.where(better, there, places)
        return values.clone(), places.clone()

    return define


define(aten.cummax.default)(_running_extreme(True))
define(aten.cummin.default)(_running_extreme(False))


@define(aten.logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    result = x
    for step in _steps(x, dim):
        other = _before(result, dim, step, -math.inf)
        top = torch.maximum(result, other)
        both = top + torch.log1p(torch.exp(torch.minimum(result, other) - top))
        result = torch.where(top.isinf(), top, both)
    return result.clone()


# Functions


@define(aten.erfinv.default, aten.special_erfinv.default)
def erfinv(x: Tensor) -> Tensor:
    """A rational function in each of two ranges, made exact by two steps of Newton's method."""
    y = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    y = y.to(torch.float64)
    square = y * y
    top = ((-0.140543331 * square + 0.914624893) * square - 1.645349621) * square + 0.886226899
    bottom = (((0.012229801 * square - 0.329097515) * square + 1.442710462) * square - 2.118377725) * square + 1
    tail = torch.sqrt(-torch.log((1 - y.abs()).clamp_min(1e-300) / 2))
    far = ((1.641345311 * tail + 3.429567803) * tail - 1.624906493) * tail - 1.970840454
    far = torch.sign(y) * far / ((1.6370678 * tail + 3.5438892) * tail + 1)
    result = torch.where(y.abs() <= 0.7, y * top / bottom, far)
    for _ in range(2):
        result = result - (torch.erf(result) - y) / (2 / math.sqrt(math.pi) * torch.exp(-result * result))
    result = torch.where(y.abs() == 1, y * math.inf, torch.where(y.abs() > 1, math.nan, result))
    return result.to(x.dtype if x.is_floating_point() else torch.float32)


# Tables


@define(
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
    aten.embedding_bag.default,
    aten.embedding_bag.padding_idx,
    results={0},
)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Any, ...]:
    """Rows of a table added up bag by bag (mode 0), averaged (1) or their maximum (2)."""
    starts = (offsets[:-1] if include_last_offset else offsets).to(torch.int64)
    marks = torch.zeros(indices.shape[0] + 1, dtype=torch.int64)
    bag = marks.scatter_add(0, starts, torch.ones_like(starts))[:-1].cumsum(0) - 1
    rows = aten.embedding.default(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    kept = (
        (indices != padding_idx)
        if padding_idx is not None and padding_idx >= 0
        else torch.ones_like(indices, dtype=torch.bool)
    )
    count = torch.zeros_like(starts).index_add(0, bag, kept.to(torch.int64)).unsqueeze(1)
    empty = torch.zeros([starts.shape[0], weight.shape[1]], dtype=weight.dtype)
    if mode == 2:
        rows = torch.where(kept.unsqueeze(1), rows, -math.inf)
        found = empty.scatter_reduce(0, bag.unsqueeze(1).expand(rows.shape), rows, "amax", include_self=False)
        return torch.where(count == 0, 0, found), None, None, None
    total = empty.index_add(0, bag, torch.where(kept.unsqueeze(1), rows, 0))
    return (total / count.clamp_min(1) if mode == 1 else total), None, None, None


@define(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # noqa: A002
    """What lies outside is not counted; the last bin holds the upper bound, too."""
    if x.dtype not in (torch.float32, torch.float64) or min >= max:
        raise Unsupported("histc of other types than float32 and float64, or with bounds that the data give")
    flat = x.reshape(-1)
    inside = (flat >= min) & (flat <= max)
    place = ((torch.where(inside, flat, min) - min) * (bins / (max - min))).to(torch.int64).clamp(0, bins - 1)
    return torch.zeros(bins, dtype=x.dtype).index_add(0, place, inside.to(x.dtype))


@define(aten.scatter_reduce.two)
def scatter_mean(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if reduce != "mean" or not x.is_floating_point():
        raise Unsupported(f"scatter_reduce by {reduce} of {x.dtype}")
    total = x.scatter_reduce(dim, index, source, "sum", include_self=include_self)
    start = torch.full_like(x, float(include_self))
    count = start.scatter_add(dim, index, torch.ones_like(index, dtype=x.dtype))
    return total / count.clamp_min(1)


# Memory


def _in_memory(x: Tensor) -> list[int]:
    """The dims of a tensor that is dense, in the order in which they lie in memory."""
    fixed(*x.shape, *x.stride())
    order = sorted(range(x.dim()), key=lambda d: (x.stride(d), x.shape[d]), reverse=True)
    if not x.permute(order).is_contiguous():
        raise Unsupported("strides in memory that is not the tensor's own")
    return order


def _places(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Tensor:
    """Of elements with these strides among all elements as they lie in memory."""
    fixed(*size, *stride, *([offset] if offset else []))
    start = (x.storage_offset() if offset is None else offset) - x.storage_offset()
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if start < 0 or (0 not in size and last >= x.numel()):
        raise Unsupported("strides in memory that is not the tensor's own")
    places = torch.full([], start)
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        places = places + (torch.arange(n) * s).reshape([-1 if j == i else 1 for j in range(len(size))])
    return places.reshape(-1)


@define(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    memory = x.permute(_in_memory(x)).reshape(-1)
    return memory[_places(x, size, stride, offset)].reshape(size)


@define(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    order = _in_memory(x)
    laid = x.permute(order)
    places = _places(x, size, stride, offset)
    changed = laid.reshape(-1).scatter(0, places, source.reshape(-1).to(x.dtype)).reshape(laid.shape)
    return changed.permute([order.index(d) for d in range(x.dim())])


# Pools


@define(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Window i of an axis is [floor(i n / out), ceil((i + 1) n / out)); shorter ones repeat their last element. The
    maximum of all windows is the maximum along one axis after another, and so is its place."""
    spatial, first = list(x.shape[x.dim() - len(size) :]), x.dim() - len(size)
    fixed(*spatial, *size)
    places = torch.arange(math.prod(spatial)).reshape(spatial).expand(x.shape)
    for i, (n, out) in reversed(list(enumerate(zip(spatial, size, strict=True)))):
        bounds = [(j * n // out, -(-(j + 1) * n // out)) for j in range(out)]
        longest = max(last - start for start, last in bounds)
        taken = list(itertools.chain(*([min(start + k, last - 1) for k in range(longest)] for start, last in bounds)))
        axis, index = first + i, torch.tensor(taken)
        shape = [*x.shape[:axis], out, longest, *x.shape[axis + 1 :]]
        x, places = (t.index_select(axis, index).reshape(shape) for t in (x, places))
        found = x.argmax(axis + 1, True)
        x, places = (t.gather(axis + 1, found).squeeze(axis + 1) for t in (x, places))
    return x, places


# Layers of nn.Transformer, whose fast paths are operators of their own


def _attention(x: Tensor, heads: int, weights: Sequence[Tensor], mask: Tensor | None, mask_type: int | None) -> Tensor:
    batch, length, width = x.shape
    qkv = F.linear(x, weights[0], weights[1]).reshape(batch, length, 3, heads, width // heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    if mask is not None:
        mask = mask.to(torch.bool).logical_not()  # as the kernel reads masks of floats
        mask = mask[:, None, None, :] if mask_type == 1 else mask
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return F.linear(found.transpose(1, 2).reshape(batch, length, width), weights[2], weights[3])


@define(aten._native_multi_head_attention.default, results={0})
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, ...]:
    if need_weights or key is not query or value is not query:
        raise Unsupported("attention that gives its weights, or of other keys than queries")
    return _attention(query, heads, (qkv_weight, qkv_bias, weight, bias), mask, mask_type), None


@define(aten._transformer_encoder_layer_fwd.default)
def encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    norms, ffn = rest[:4], rest[4:8]
    if len(rest) > 8:
        mask, mask_type = (*rest[8:], mask_type)[:2]

    def attend(y: Tensor) -> Tensor:
        return _attention(y, heads, (qkv_weight, qkv_bias, weight, bias), mask, mask_type)

    def feed(y: Tensor) -> Tensor:
        inner = F.linear(y, ffn[0], ffn[1])
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn[2], ffn[3])

    def norm(y: Tensor, i: int) -> Tensor:
        return F.layer_norm(y, [width], norms[2 * i], norms[2 * i + 1], eps)

    if norm_first:
        x = x + attend(norm(x, 0))
        return x + feed(norm(x, 1))
    x = norm(x + attend(x), 0)
    return norm(x + feed(x), 1)
