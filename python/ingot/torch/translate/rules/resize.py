"""Images in another size, and sampled at given places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Size, Tensor, Unsupported, expression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _resize(
    e: Emitter, x: Tensor, size: Sequence[Size] | None, scales: Sequence[float | None] | None, attrs: dict[str, Any]
) -> Tensor:
    n = x.rank - 2
    attrs = {**attrs, "axes": list(range(2, x.rank))}
    factors = None if scales is None or any(s is None for s in scales) else [float(s) for s in scales if s is not None]
    if factors is not None and _agrees(x, size, factors):
        return e.op("Resize", x, None, e.constant(np.array(factors, np.float32)), **attrs)
    target = e.out.shape[2:] if size is None else size
    assert len(target) == n
    return e.op("Resize", x, None, None, e.ints(target), **attrs)


def _agrees(x: Tensor, size: Sequence[Size] | None, factors: Sequence[float]) -> bool:
    """The factors alone give the size asked for."""
    if size is None:
        return True
    for old, new, factor in zip(x.dims[2:], size, factors, strict=True):
        a, b = expression(old), expression(new)
        if not (isinstance(a, int) and isinstance(b, int) and int(a * factor) == b):
            return False
    return True


def _nearest(exact: bool) -> dict[str, Any]:
    if exact:
        return {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    return {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _smooth(mode: str, align_corners: bool, antialias: bool = False) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
    }
    if mode == "cubic":
        attrs["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        attrs |= {"antialias": 1, "exclude_outside": 1}
    return attrs


def _nearest_rules(exact: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def by_vector(e: Emitter, x: Tensor, size: Sequence[Size] | None, scales: Any) -> Tensor:
        return _resize(e, x, size, scales, _nearest(exact))

    def by_size(e: Emitter, x: Tensor, size: Sequence[Size], *scales: float | None) -> Tensor:
        return _resize(e, x, size, scales or None, _nearest(exact))

    return by_vector, by_size


def _smooth_rules(mode: str, antialias: bool = False) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def by_vector(e: Emitter, x: Tensor, size: Sequence[Size] | None, align_corners: bool, scales: Any) -> Tensor:
        return _resize(e, x, size, scales, _smooth(mode, align_corners, antialias))

    def by_size(e: Emitter, x: Tensor, size: Sequence[Size], align_corners: bool, *scales: float | None) -> Tensor:
        return _resize(e, x, size, scales or None, _smooth(mode, align_corners, antialias))

    return by_vector, by_size


for _packets, _rules in (
    ((aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d), _nearest_rules(False)),
    (
        (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d),
        _nearest_rules(True),
    ),
    ((aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d), _smooth_rules("linear")),
    ((aten.upsample_bicubic2d,), _smooth_rules("cubic")),
    ((aten._upsample_bilinear2d_aa,), _smooth_rules("linear", True)),
    ((aten._upsample_bicubic2d_aa,), _smooth_rules("cubic", True)),
):
    for _packet in _packets:
        rule(_packet.vec)(_rules[0])
        rule(_packet.default)(_rules[1])


@rule(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def _grid_sampler(e: Emitter, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    modes = ("linear", "nearest", "cubic")
    paddings = ("zeros", "border", "reflection")
    if x.dtype != grid.dtype:
        raise Unsupported("a grid of another type than the image")
    attrs: dict[str, Any] = {
        "mode": modes[mode],
        "padding_mode": paddings[padding],
        "align_corners": int(align_corners),
    }
    return e.op("GridSample", x, grid, **attrs)
