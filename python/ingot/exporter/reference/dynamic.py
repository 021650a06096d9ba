"""Scales measured at run time, as one operator: torch.ops.ingot.dynamic_quantize is ONNX's DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.exporter.reference.mode import ReferenceMode, handles
from ingot.exporter.weights import decomposed
from ingot.torch.recurrent import library

EPS = torch.finfo(torch.float32).eps

library.define("dynamic_quantize(Tensor x) -> (Tensor, Tensor, Tensor)")


def _compute(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale, zero_point = decomposed.choose_qparams.tensor(x, 0, 255, EPS, torch.uint8)
    q = decomposed.quantize_per_tensor.tensor(x, scale, zero_point, 0, 255, torch.uint8)
    return q, scale.to(torch.float32).reshape(()), zero_point.to(torch.uint8).reshape(())


def _shapes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = torch.empty((), dtype=torch.float32, device=x.device)
    return torch.empty_like(x, dtype=torch.uint8), scale, torch.empty((), dtype=torch.uint8, device=x.device)


library.impl("dynamic_quantize", _compute, "CPU")
torch.library.register_fake("ingot::dynamic_quantize", _shapes, lib=library)


def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, scale, zero_point = torch.ops.ingot.dynamic_quantize(x)
    return q, scale, zero_point


@handles("quantized_decomposed::choose_qparams")
def choose_qparams(mode: ReferenceMode, x: Tensor, least: int, most: int, eps: float, dtype: torch.dtype) -> Any:
    """Of PT2E: the range and the integers are two operators there, and joined again here."""
    if (least, most, dtype) != (0, 255, torch.uint8):
        return NotImplemented
    q, scale, zero_point = dynamic_quantize(x)
    mode.measured[scale] = (x, q)
    return scale, zero_point


@handles("quantized_decomposed::quantize_per_tensor")
def quantize_per_tensor(mode: ReferenceMode, x: Tensor, scale: Any, *rest: Any) -> Any:
    measured = mode.measured.get(scale) if isinstance(scale, Tensor) else None
    return measured[1] if measured is not None and measured[0] is x else NotImplemented
