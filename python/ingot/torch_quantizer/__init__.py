"""Quantized models made in PyTorch, in 8 bits by PyTorch's and torchao's own quantizers, ready to be exported.

Data flows down this list: `config` (what is asked; `operations`, `recipes` and `checks` are parts of it), `batches`
(samples as calls of the model), `graphs` (the model as a graph of ATen operations with free dims), `annotate` (which
operations are quantized), `half` (which layers compute in bf16), then one file per way: `static`, `dynamic`,
`training`, and the folder `weight_only`; `smoothing` comes before, `corrections` after; `tuning` leaves layers in fp32
until an accuracy holds; `report` says what came out, `model` is what users get.
"""

from __future__ import annotations

from ingot.torch_quantizer.config import PostTrainingQuantConfig, QuantizationAwareTrainingConfig
from ingot.torch_quantizer.model import QuantizedModel, quantize
from ingot.torch_quantizer.training import PreparedModel, convert, prepare_qat
from ingot.torch_quantizer.tuning import AccuracyCriterion, TuningCriterion

__all__ = [
    "AccuracyCriterion",
    "PostTrainingQuantConfig",
    "PreparedModel",
    "QuantizationAwareTrainingConfig",
    "QuantizedModel",
    "TuningCriterion",
    "convert",
    "prepare_qat",
    "quantize",
]
