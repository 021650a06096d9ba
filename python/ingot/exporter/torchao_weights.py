"""Weights in torchao's tensor subclasses. Recognised by their fields, not by their class: these are renamed often."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.errors import UnsupportedError
from ingot.exporter.weights import ActivationRule, QuantizedWeight


def _activation_rule(tensor: Any) -> ActivationRule | None:
    named = getattr(tensor, "activation_quantization", None)
    if named is not None:
        if str(getattr(named, "value", named)) != "int8_asym_per_token":
            raise UnsupportedError(f"torchao's activation quantization {named}")
        return ActivationRule(per_row=True, symmetric=False)
    rule = getattr(tensor, "act_quant_kwargs", None)
    if rule is None:
        return None
    if getattr(rule, "reduce_range", False):
        raise UnsupportedError("torchao's reduce_range of dynamic activations")
    mapping = str(getattr(rule, "mapping_type", "SYMMETRIC")).rsplit(".", 1)[-1].upper()
    if mapping not in ("SYMMETRIC", "ASYMMETRIC"):
        raise UnsupportedError(f"torchao's mapping {mapping} of activations")
    granularity = type(rule.granularity).__name__
    if granularity not in ("PerRow", "PerToken", "PerTensor"):
        raise UnsupportedError(f"torchao's granularity {granularity} of activations")
    return ActivationRule(
        per_row=granularity != "PerTensor",
        symmetric=mapping == "SYMMETRIC",
        scale=getattr(tensor, "act_quant_scale", None),
        zero_point=getattr(tensor, "act_quant_zero_point", None),
        pre_scale=getattr(tensor, "act_pre_scale", None),
    )


def unpack_torchao(tensor: Tensor) -> QuantizedWeight:
    values: Tensor | None = getattr(tensor, "qdata", None)
    scale: Tensor | None = getattr(tensor, "scale", None)
    kind = type(tensor).__name__
    if values is None or scale is None or values.dtype not in (torch.int8, torch.uint8) or values.dim() < 2:
        raise UnsupportedError(f"torchao's {kind}", "weights with 8-bit `qdata` and `scale` are exported")
    if values.shape != tensor.shape:
        raise UnsupportedError(f"torchao's {kind}: its values are packed ({tuple(values.shape)})")
    block = tuple(int(b) for b in getattr(tensor, "block_size", None) or ())
    if len(block) != values.dim():
        raise UnsupportedError(f"torchao's {kind} with blocks {block}")
    zero_point: Tensor | None = getattr(tensor, "zero_point", None)
    if zero_point is None:
        zero_point = torch.zeros_like(scale, dtype=torch.int64)
    if zero_point.is_floating_point():
        raise UnsupportedError(f"torchao's {kind} with zero points that are no integers")
    scale, zero_point = scale.to(torch.float32), zero_point.to(torch.int64)
    more: dict[str, Any] = {"activation": _activation_rule(tensor)}
    if all(b == n for b, n in zip(block, values.shape, strict=True)):
        return QuantizedWeight(values, scale.reshape(()), zero_point.reshape(()), **more)
    if block[0] == 1 and all(b == n for b, n in zip(block[1:], values.shape[1:], strict=True)):
        return QuantizedWeight(values, scale.reshape(-1), zero_point.reshape(-1), axis=0, **more)
    if values.dim() == 2 and block[0] == 1:
        return QuantizedWeight(values, scale, zero_point, axis=0, block=block[1], **more)
    raise UnsupportedError(f"torchao's {kind} with blocks {block}", "per tensor, per row, and in groups along the row")
