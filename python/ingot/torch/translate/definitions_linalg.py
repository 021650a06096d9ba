"""Inverses, determinants, systems of equations and Cholesky's factors of small matrices, written out step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ingot.torch.translate.definitions import define, fixed
from ingot.torch.translate.values import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten
MAX_ROWS = 16  # beyond, LAPACK's blocked code is faster than a graph of single steps


def _rows(a: Tensor) -> int:
    fixed(a.shape[-1])
    n = int(a.shape[-1])
    if not 0 < n <= MAX_ROWS or not a.is_floating_point():
        raise Unsupported(f"matrices of {n} rows, {a.dtype}; floats of at most {MAX_ROWS} rows are compiled")
    return n


def _eliminate(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gauss and Jordan's elimination with the largest element of each column as its pivot: the solution of a x = b, the
    sign of the exchanged rows, and the pivots."""
    n = _rows(a)
    row = torch.arange(n)
    sign, pivots = torch.ones(a.shape[:-2], dtype=a.dtype), []
    for c in range(n):
        best = a[..., c:, c].abs().argmax(-1, True) + c
        order = torch.where(row == c, best, torch.where(row == best, c, row)).unsqueeze(-1)
        a, b = (t.gather(-2, order.expand(t.shape)) for t in (a, b))
        sign = torch.where(best.squeeze(-1) == c, sign, -sign)
        pivot = a[..., c : c + 1, c : c + 1]
        pivots.append(pivot[..., 0, 0])
        factor = torch.where((row == c).unsqueeze(-1), 0, a[..., c : c + 1] / pivot)
        a, b = a - factor * a[..., c : c + 1, :], b - factor * b[..., c : c + 1, :]
    return b / torch.stack(pivots, -1).unsqueeze(-1), sign, pivots


def _first(wrong: Sequence[Tensor]) -> Tensor:
    """The number of the first step, from 1, at which it went wrong; 0 if it never did."""
    info = torch.zeros(wrong[0].shape, dtype=torch.int32)
    for i, here in enumerate(wrong):
        info = torch.where((info == 0) & here, i + 1, info)
    return info


def _is_zero(pivots: Sequence[Tensor]) -> list[Tensor]:
    return [p == 0 for p in pivots]


@define(aten.linalg_inv_ex.default)
def inverse(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    found, _, pivots = _eliminate(a, torch.eye(_rows(a), dtype=a.dtype).expand(a.shape))
    return found, _first(_is_zero(pivots))


@define(aten._linalg_solve_ex.default, results={0, 3})
def solve(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    if not left:
        found, _, pivots = _eliminate(a.mT, b.mT)
        return found.mT, None, None, _first(_is_zero(pivots))
    right = b.unsqueeze(-1) if vector else b
    batch = torch.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    wide = a.expand(*batch, *a.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    found, _, pivots = _eliminate(*wide)
    return (found.squeeze(-1) if vector else found), None, None, _first(_is_zero(pivots))


@define(aten._linalg_det.default, results={0})
def determinant(a: Tensor) -> tuple[Any, ...]:
    _, sign, pivots = _eliminate(a, a[..., :1])
    singular = torch.stack(_is_zero(pivots), -1).any(-1)
    return torch.where(singular, 0, sign * torch.stack(pivots, -1).prod(-1)), None, None


@define(aten._linalg_slogdet.default, results={0, 1})
def slogdet(a: Tensor) -> tuple[Any, ...]:
    _, sign, pivots = _eliminate(a, a[..., :1])
    singular = torch.stack(_is_zero(pivots), -1).any(-1)
    diagonal = torch.stack(pivots, -1)
    sign = torch.where(singular, 0, sign * diagonal.sign().prod(-1))
    return sign, torch.where(singular, -torch.inf, diagonal.abs().log().sum(-1)), None, None


@define(aten.linalg_cholesky_ex.default)
def cholesky(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Column by column: what the columns before leave of a column, over the root of its diagonal element."""
    n = _rows(a)
    given = a.mT if upper else a
    row = torch.arange(n)
    columns: list[Tensor] = []
    wrong = []
    for c in range(n):
        left = given[..., c]
        for known in columns:
            left = left - known * known[..., c : c + 1]
        wrong.append(~(left[..., c] > 0))
        columns.append(torch.where(row >= c, left / left[..., c : c + 1].sqrt(), 0))
    factor = torch.stack(columns, -1)
    return (factor.mT if upper else factor), _first(wrong)
