"""Layers that compute in bf16 beside quantized ones: operands are rounded to bf16, results widened again."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ingot.errors import InvalidInputError
from ingot.torch_quantizer.dynamic import TYPE_OF_CLASS
from ingot.torch_quantizer.graphs import shared_copy

if TYPE_CHECKING:
    from ingot.torch_quantizer.config import PostTrainingQuantConfig

CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
KINDS = {**TYPE_OF_CLASS, **{getattr(nn, name): name for name in CONVOLUTIONS}}


class InBf16(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.inner = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(Tensor, _narrow, (args, kwargs))
        return pytree.tree_map_only(Tensor, _wide, self.inner(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        """What code around a layer asks for: its sizes, its weight."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "inner":
                raise
            return getattr(self.inner, name)


def _narrow(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16) if x.is_floating_point() else x


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.is_floating_point() else x


def with_bf16(model: nn.Module, config: PostTrainingQuantConfig) -> nn.Module:
    """A copy in which the layers that the config names compute in bf16; the model itself where it names none."""
    if not config.names_bf16():
        return model
    result = shared_copy(model)
    found = 0
    for name, module in list(result.named_modules()):
        kind = KINDS.get(type(module))
        if kind is None or not config.in_bf16(name, kind):
            continue
        found += 1
        layer = InBf16(copy.deepcopy(module).to(torch.bfloat16))  # its tensors are the float model's
        if name:
            result.set_submodule(name, layer)
        else:
            result = layer
    if not found:
        raise InvalidInputError(
            "no layer of the model is one that is to compute in bf16",
            f"kinds with weights: {', '.join(KINDS.values())}",
        )
    return result
