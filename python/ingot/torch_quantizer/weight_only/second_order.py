"""Rounding that makes up for its own errors (GPTQ): columns are rounded one after the other, and what a column is off
is taken from those not yet rounded, in the way that least changes the layer's result on the data seen:

    H = mean of x x^T over the layer's inputs, damped;  U: H^-1 = U^T U, U upper triangular
    w_j -= (w_i - round(w_i)) / U_ii * U_ij    for all columns j behind i
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.torch_quantizer.weight_only.grid import Form, Rounded, along, ranges

BLOCK = 128  # columns whose updates reach the others together


def to_least_error(
    weight: Tensor, hessian: Tensor, form: Form, *, damping: float = 0.01, by_size: bool = True, search: bool = True
) -> Rounded:
    """by_size: columns in the order of the size of their inputs, the largest first."""
    weight, hessian = weight.clone(), hessian.clone()
    size = hessian.diagonal().clone()
    unseen = size == 0
    hessian.diagonal()[unseen] = 1
    scale, zero = ranges(weight, form, size, search)
    columns = weight.shape[1]
    width = form.width(columns)
    scales, zeros = along(scale, width, columns), along(zero, width, columns)
    weight[:, unseen] = 0
    order = torch.argsort(size, descending=True, stable=True) if by_size else torch.arange(columns)
    factor = _factor(hessian[order][:, order], damping)
    q = _rounded(weight[:, order], factor, scales[:, order], zeros[:, order], form)
    back = torch.argsort(order)
    return Rounded(form, q[:, back].to(form.dtype), scale, zero)


def _factor(hessian: Tensor, damping: float) -> Tensor:
    """U. A matrix that is none of positive numbers for all the damping gets more of it."""
    unit = hessian.diagonal().mean()
    for _ in range(8):
        damped = hessian + torch.eye(len(hessian)) * (damping * unit)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                return upper
        damping *= 4
    return torch.eye(len(hessian))


def _rounded(weight: Tensor, factor: Tensor, scales: Tensor, zeros: Tensor, form: Form) -> Tensor:
    q = torch.empty_like(weight)
    columns = weight.shape[1]
    for first in range(0, columns, BLOCK):
        last = min(first + BLOCK, columns)
        part, errors = weight[:, first:last].clone(), torch.empty(len(weight), last - first)
        inner = factor[first:last, first:last]
        for i in range(last - first):
            scale, zero, w = scales[:, first + i], zeros[:, first + i], part[:, i]
            integers = ((w / scale).round() + zero).clamp(form.low, form.high)
            q[:, first + i] = integers
            errors[:, i] = (w - (integers - zero) * scale) / inner[i, i]
            part[:, i + 1 :].addr_(errors[:, i], inner[i, i + 1 :], alpha=-1)
        weight[:, last:] -= errors @ factor[first:last, last:]
    return q
