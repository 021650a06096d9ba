"""neural_compressor 2.x for PyTorch: `quantization.fit`, `training.prepare_compression`, `Model` and the configs."""

from ingot.compat.neural_compressor import quantization, training
from ingot.compat.neural_compressor.config import (
    AccuracyCriterion,
    PostTrainingQuantConfig,
    QuantizationAwareTrainingConfig,
    Torch2ONNXConfig,
    TuningCriterion,
)
from ingot.exporter import Model

__all__ = [
    "AccuracyCriterion",
    "Model",
    "PostTrainingQuantConfig",
    "QuantizationAwareTrainingConfig",
    "Torch2ONNXConfig",
    "TuningCriterion",
    "quantization",
    "training",
]
