"""Normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, Unsupported, static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _ones(e: Emitter, shape: Sequence[Size], dtype: torch.dtype) -> Tensor:
    return e.fill(shape, 1, dtype)


@rule(aten.layer_norm.default)
def _layer_norm(
    e: Emitter,
    x: Tensor,
    shape: Sequence[Size],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    # Under autocast x is narrower than the weights; PyTorch computes in their type.
    wide = (weight or bias or x).dtype
    weight = weight or _ones(e, shape, wide)
    y = e.op("LayerNormalization", e.cast(x, wide), weight, bias, axis=-len(shape), epsilon=eps)
    return e.cast(y, x.dtype)


@rule(aten.native_layer_norm.default)
def _native_layer_norm(
    e: Emitter, x: Tensor, shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float
) -> list[Tensor]:
    wide = (weight or bias or x).dtype
    weight = weight or _ones(e, shape, wide)
    types = [wide, *(out.dtype for out in e.out[1:])]
    y, *statistics = e.ops("LayerNormalization", [e.cast(x, wide), weight, bias], types, axis=-len(shape), epsilon=eps)
    return [e.cast(Tensor(y.name, wide, x.shape), x.dtype), *statistics]


@rule(aten.rms_norm.default)
def _rms_norm(
    e: Emitter, x: Tensor, shape: Sequence[Size], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    eps = torch.finfo(torch.float32 if x.dtype.itemsize < 4 else x.dtype).eps if eps is None else eps
    weight = weight or _ones(e, shape, x.dtype)
    return e.op("RMSNormalization", x, weight, axis=-len(shape), epsilon=eps)


@rule(aten._fused_rms_norm.default)
def _fused_rms_norm(
    e: Emitter, x: Tensor, shape: Sequence[Size], weight: Tensor | None, eps: float | None
) -> list[Tensor]:
    axes = list(range(x.rank - len(shape), x.rank))
    eps_used = torch.finfo(torch.float32 if x.dtype.itemsize < 4 else x.dtype).eps if eps is None else eps
    wide = e.cast(x, e.out[1].dtype)
    mean = e.reduce("ReduceMean", Tensor(e.mul(wide, wide).name, wide.dtype, x.shape), axes, True)
    inverse = e.op("Reciprocal", e.op("Sqrt", e.add(mean, e.number(eps_used, mean.dtype))))
    return [_rms_norm(e, x, shape, weight, eps), inverse]


def _by_channel(e: Emitter, x: Tensor, values: Tensor) -> Tensor:
    """[C] to be broadcast to [N, C, ...]."""
    return e.reshape(values, [values.dims[0]] + [1] * (x.rank - 2)) if x.rank > 2 else values


def _batch_norm_eval(
    e: Emitter, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    count = [e.size(mean, 0)]
    weight = weight or _ones(e, count, mean.dtype)
    bias = bias or e.fill(count, 0, mean.dtype)
    return e.op("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)


@rule(aten.batch_norm.default)
def _batch_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if training or mean is None or var is None:
        raise Unsupported("batch normalization in training")
    return _batch_norm_eval(e, x, weight, bias, mean, var, eps)


@rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_no_training(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> list[Tensor]:
    empty = e.fill([0], 0, e.out[1].dtype)
    return [_batch_norm_eval(e, x, weight, bias, mean, var, eps), empty, empty]


@rule(aten.native_batch_norm.default)
def _native_batch_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Tensor]:
    if training or mean is None or var is None:
        raise Unsupported("batch normalization in training")
    return _batch_norm_no_training(e, x, weight, bias, mean, var, momentum, eps)


def _normalized_groups(e: Emitter, x: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x with each group of channels normalized, and the groups' means and inverse deviations [N, groups]."""
    sizes = [e.size(x, i) for i in range(x.rank)]
    wide = e.cast(x, torch.float32) if x.dtype.itemsize < 4 else x
    channels = static(sizes[1], "the number of channels")
    flat = e.reshape(wide, [sizes[0], groups, e.product([channels // groups, *sizes[2:]])])
    mean = e.reduce("ReduceMean", flat, [2], True)
    centred = Tensor(e.sub(flat, mean).name, flat.dtype, flat.shape)
    variance = e.reduce("ReduceMean", Tensor(e.mul(centred, centred).name, flat.dtype, flat.shape), [2], True)
    inverse = e.op("Reciprocal", e.op("Sqrt", e.add(variance, e.number(eps, flat.dtype))), shape=variance.shape)
    return e.mul(centred, inverse), e.squeeze(mean, 2), e.squeeze(inverse, 2)


def _group_norm_parts(
    e: Emitter, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> Tensor:
    channels = static(x.dims[1], "the number of channels")
    scale = weight or _ones(e, [channels], x.dtype)
    shift = bias or e.fill([channels], 0, x.dtype)
    if groups == channels and x.rank > 2:
        return e.op("InstanceNormalization", x, scale, shift, epsilon=eps)
    return e.op("GroupNormalization", x, scale, shift, epsilon=eps, num_groups=groups)


@rule(aten.group_norm.default)
def _group_norm(
    e: Emitter,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    return _group_norm_parts(e, x, weight, bias, groups, eps)


@rule(aten.native_group_norm.default)
def _native_group_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: Size,
    c: Size,
    spatial: Size,
    groups: int,
    eps: float,
) -> list[Tensor]:
    y = _group_norm_parts(e, x, weight, bias, groups, eps)
    _, mean, inverse = _normalized_groups(e, x, groups, eps)
    return [y, e.cast(mean, e.out[1].dtype), e.cast(inverse, e.out[2].dtype)]


@rule(aten.instance_norm.default)
def _instance_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if not use_input_stats:
        if mean is None or var is None:
            raise Unsupported("instance normalization without statistics")
        return _batch_norm_eval(e, x, weight, bias, mean, var, eps)
    return _group_norm_parts(e, x, weight, bias, int(x.dims[1]), eps)
