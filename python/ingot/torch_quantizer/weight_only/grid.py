"""Integers for weights, in groups: w = (q - zero) * scale, one scale and zero point for `group` neighbours of a row.

A weight is a matrix here: a row for each output, a column for each input (of a convolution: for each input and place of
the filter). The range of a group is chosen by its error: ranges narrower than that of its numbers are tried, each with
the scale of least squares for the integers it gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

SHRINKING = [1 - 0.025 * i for i in range(21)]  # of the range of a group, down to half
CHUNK = 1 << 22  # numbers that are looked at together


@dataclass(frozen=True)
class Form:
    """Of the integers of a weight. group: columns that share a scale; 0: all of a row."""

    bits: int
    group: int
    symmetric: bool

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.symmetric else 0

    @property
    def high(self) -> int:
        return self.low + (1 << self.bits) - 1

    @property
    def dtype(self) -> torch.dtype:
        """Of the integers, one to a byte."""
        return torch.int8 if self.symmetric else torch.uint8

    @property
    def name(self) -> str:
        return f"{'s' if self.symmetric else 'u'}{self.bits}"

    def width(self, columns: int) -> int:
        """Columns in a group."""
        return min(self.group, columns) if self.group else columns


@dataclass
class Rounded:
    """The integers of a weight [rows, columns], and what they mean: scale and zero are [rows, groups]."""

    form: Form
    q: Tensor
    scale: Tensor
    zero: Tensor
    factor: Tensor | None = None  # of each column: the integers are those of weight * factor

    def real(self) -> Tensor:
        """The matrix that they stand for."""
        width = self.form.width(self.q.shape[1])
        value = (self.q.float() - along(self.zero, width, self.q.shape[1])) * along(self.scale, width, self.q.shape[1])
        return value if self.factor is None else value / self.factor


def along(of_groups: Tensor, width: int, columns: int) -> Tensor:
    """A number for each group -> for each column."""
    return of_groups.repeat_interleave(width, 1)[:, :columns]


def in_groups(matrix: Tensor, width: int) -> Tensor:
    """[rows, groups, width]; the last group is filled up with zeros."""
    missing = -matrix.shape[1] % width
    return F.pad(matrix, (0, missing)).unflatten(1, (-1, width))


def ranges(weight: Tensor, form: Form, importance: Tensor | None = None, search: bool = True) -> tuple[Tensor, Tensor]:
    """The scale and zero point of each group. importance, for each column: how much its errors count; search: for
    narrower ranges of less error."""
    width = form.width(weight.shape[1])
    counted = torch.ones(weight.shape[1]) if importance is None else importance.clamp_min(1e-12)
    weights = in_groups(counted[None, :] / counted.mean(), width)
    rows = max(1, CHUNK // weight.shape[1])
    parts = [_ranges(in_groups(part, width), weights, form, search) for part in weight.split(rows)]
    return torch.cat([scale for scale, _ in parts]), torch.cat([zero for _, zero in parts])


def _ranges(groups: Tensor, importance: Tensor, form: Form, search: bool) -> tuple[Tensor, Tensor]:
    low, high = groups.amin(-1).clamp_max(0), groups.amax(-1).clamp_min(0)
    best_scale, best_zero = _between(low, high, form)
    if not search:
        return best_scale, best_zero
    best = torch.full_like(best_scale, torch.inf)
    for share in SHRINKING:
        scale, zero = _between(low * share, high * share, form)
        for refit in (False, True):
            if refit:
                scale = _least_squares(groups, importance, scale, zero, form)
            off = (_steps(groups, scale, zero, form) * scale[..., None] - groups).square_()
            error = off.mul_(importance).sum(-1)
            better = error < best
            best = torch.where(better, error, best)
            best_scale = torch.where(better, scale, best_scale)
            best_zero = torch.where(better, zero, best_zero)
    return best_scale, best_zero


def _steps(groups: Tensor, scale: Tensor, zero: Tensor, form: Form) -> Tensor:
    """q - zero."""
    zero = zero[..., None]
    return (groups / scale[..., None]).round_().add_(zero).clamp_(form.low, form.high).sub_(zero)


def _between(low: Tensor, high: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    if form.symmetric:
        scale = kept(torch.maximum(low / form.low, high / form.high))
        return scale, torch.zeros_like(scale)
    scale = kept((high - low) / form.high)
    return scale, (-low / scale).round().clamp(0, form.high)


def _least_squares(groups: Tensor, importance: Tensor, scale: Tensor, zero: Tensor, form: Form) -> Tensor:
    steps = _steps(groups, scale, zero, form)
    weighed = steps * importance
    found = (weighed * groups).sum(-1) / (weighed * steps).sum(-1)
    return torch.where(torch.isfinite(found) & (found > 0), kept(found), scale)


def kept(scale: Tensor) -> Tensor:
    """As files keep it: of 16 bits where that is no other number to speak of (Ingot then stores 16), never 0."""
    scale = torch.where(scale > 0, scale, 1.0)
    half = scale.half().float()
    return torch.where((half - scale).abs() < 2**-10 * scale, half, scale)


def to_nearest(weight: Tensor, form: Form, importance: Tensor | None = None, search: bool = True) -> Rounded:
    scale, zero = ranges(weight, form, importance, search)
    return with_ranges(weight, form, scale, zero)


def with_ranges(weight: Tensor, form: Form, scale: Tensor, zero: Tensor) -> Rounded:
    width, columns = form.width(weight.shape[1]), weight.shape[1]
    q = (weight / along(scale, width, columns)).round() + along(zero, width, columns)
    return Rounded(form, q.clamp(form.low, form.high).to(form.dtype), scale, zero)
