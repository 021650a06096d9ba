"""`fit`: quantization after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ingot
from ingot.compat.neural_compressor.config import PostTrainingQuantConfig
from ingot.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def fit(
    model: nn.Module,
    conf: PostTrainingQuantConfig | None = None,
    calib_dataloader: Any = None,
    calib_func: Callable[[Any], Any] | None = None,
    eval_func: Callable[[Any], Any] | None = None,
    eval_dataloader: Any = None,
    eval_metric: Any = None,
) -> ingot.QuantizedModel:
    """The quantized model. With eval_func, layers stay in fp32 until conf.accuracy_criterion holds."""
    conf = PostTrainingQuantConfig() if conf is None else conf
    if not isinstance(conf, PostTrainingQuantConfig):
        raise InvalidInputError(f"conf is {type(conf).__name__}, not PostTrainingQuantConfig")
    if eval_metric is not None or eval_dataloader is not None:
        raise UnsupportedError("eval_metric and eval_dataloader", "eval_func=lambda model: ... does the same")
    tuned: dict[str, Any] = {}
    if eval_func is not None:
        tuned = {"eval_func": eval_func, "accuracy_criterion": conf.accuracy_criterion}
        tuned["tuning"] = conf.tuning_criterion
    return ingot.quantize(
        model,
        conf.config,
        example_inputs=conf.example_inputs,
        calib_dataloader=calib_dataloader,
        calib_func=None if calib_dataloader is not None else calib_func,
        **tuned,
    )
