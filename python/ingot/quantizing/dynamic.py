"""Dynamic quantization: weights in 8 bits, activations quantized as they come. By PyTorch's eager quantize_dynamic.

The module keeps its class, its code and its way of being called: Hugging Face models stay such, with `generate` and all.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch.ao.quantization as tq
from torch import nn

from ingot.quantizing.annotate import excluded_modules
from ingot.quantizing.config import PostTrainingQuantConfig

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
        if "" in chosen:  # PyTorch replaces children, never the module itself
            holder = nn.Sequential(copy.copy(model))
            return tq.quantize_dynamic(holder, {"0": chosen[""]})[0]
        return tq.quantize_dynamic(model, chosen, inplace=True)


def reason_excluded(name: str, excluded: dict[str, str]) -> str | None:
    """What in `exclude` names this module, or one around it."""
    parts = name.split(".")
    around = ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
    return next((excluded[path] for path in around if path in excluded), None)
