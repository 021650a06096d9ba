"""Dynamic quantization: weights in 8 bits, activations quantized as they come. By PyTorch's eager quantize_dynamic.

The module keeps its class, its code and its way of being called: Hugging Face models stay such, with `generate`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch.ao.nn.quantized as nnq
import torch.ao.quantization as tq
from torch import Tensor, nn

from ingot.torch_quantizer.annotate import excluded_modules

if TYPE_CHECKING:
    from ingot.torch_quantizer.config import PostTrainingQuantConfig

CLASSES = {
    "Linear": nn.Linear,
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "LSTMCell": nn.LSTMCell,
    "GRUCell": nn.GRUCell,
    "RNNCell": nn.RNNCell,
    "Embedding": nn.Embedding,
    "EmbeddingBag": nn.EmbeddingBag,
}
# Classes count as they are: what is derived from them may do something else with its weight.
TYPE_OF_CLASS = {cls: name for name, cls in CLASSES.items()}
TABLES = (nn.Embedding, nn.EmbeddingBag)


def quantize_dynamic(model: nn.Module, config: PostTrainingQuantConfig) -> nn.Module:
    excluded = excluded_modules(model, config)
    chosen: dict[str, Any] = {}
    for name, module in model.named_modules():
        if TYPE_OF_CLASS.get(type(module)) not in config.types() or reason_excluded(name, excluded):
            continue
        if isinstance(module, TABLES):
            chosen[name] = tq.float_qparams_weight_only_qconfig
        else:
            chosen[name] = tq.per_channel_dynamic_qconfig if config.per_channel else tq.default_dynamic_qconfig
    if not chosen:
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # In a holder: PyTorch replaces children, never the module itself.
        holder = nn.Sequential(model)
        tq.quantize_dynamic(holder, {f"0.{name}".rstrip("."): how for name, how in chosen.items()}, inplace=True)
    for module in holder.modules():
        if isinstance(module, nnq.Embedding | nnq.EmbeddingBag):
            module.register_forward_pre_hook(_contiguous)
    return holder[0]


def _contiguous(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """PyTorch's quantized tables refuse indices that are views, such as expanded positions."""
    return tuple(arg.contiguous() if isinstance(arg, Tensor) else arg for arg in args)


def reason_excluded(name: str, excluded: dict[str, str]) -> str | None:
    """What in `exclude` names this module, or one around it."""
    parts = name.split(".")
    around = ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
    return next((excluded[path] for path in around if path in excluded), None)
