"""The configs, with the fields of neural_compressor 2.x. Fields that choose devices, other frameworks' backends and how
a search runs are accepted and mean nothing here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import ingot
from ingot.compat import MigrationWarning
from ingot.errors import InvalidInputError
from ingot.exporter import Torch2ONNXConfig
from ingot.torch_quantizer import AccuracyCriterion
from ingot.torch_quantizer.checks import check_choice, check_field
from ingot.torch_quantizer.recipes import RECIPE_ARGUMENTS, RECIPE_FLAGS, RECIPES_ELSEWHERE

__all__ = [
    "AccuracyCriterion",
    "PostTrainingQuantConfig",
    "QuantizationAwareTrainingConfig",
    "Torch2ONNXConfig",
    "TuningCriterion",
]

APPROACHES: dict[str, Literal["static", "dynamic", "auto", "weight_only"]] = {
    "static": "static",
    "dynamic": "dynamic",
    "auto": "auto",
    "weight_only": "weight_only",
    "post_training_static_quant": "static",
    "post_training_dynamic_quant": "dynamic",
    "post_training_auto_quant": "auto",
}
# What says how or where, not what.
MEANINGLESS = (
    "backend", "device", "diagnosis", "domain", "excluded_precisions", "framework", "inputs", "model_name",
    "ni_workload_name", "outputs", "quant_format", "quant_level", "use_bf16",
)  # fmt: skip


class TuningCriterion(ingot.TuningCriterion):
    """max_trials and timeout; strategies and objectives mean nothing: the most sensitive layers go first."""

    def __init__(
        self,
        strategy: str = "basic",
        strategy_kwargs: Any = None,
        timeout: float = 0,
        max_trials: int = 100,
        objective: Any = "performance",
    ) -> None:
        super().__init__(max_trials=max_trials, timeout=timeout)


def _common(owner: str, given: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    for name in given:
        check_field(owner, name, (*known, *MEANINGLESS))
    if given.get("device", "cpu") not in ("cpu", "auto"):
        raise InvalidInputError(f"device is {given['device']!r}", "Ingot runs on CPUs")
    fields = {name: given[name] for name in ("op_type_dict", "op_name_dict") if given.get(name)}
    if given.get("reduce_range"):
        fields["reduce_range"] = True
    return fields


def _recipes(given: Mapping[str, Any], approach: str) -> dict[str, Any]:
    """Those that Ingot has where they are; a warning names the others."""
    kept: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in given.items():
        if value is None or value == RECIPE_FLAGS.get(name, False):
            continue
        if name in (*RECIPE_FLAGS, *RECIPE_ARGUMENTS) and name not in RECIPES_ELSEWHERE[approach]:
            known = RECIPE_ARGUMENTS.get(name)
            if known is not None and isinstance(value, Mapping):
                ignored += [f"{name}['{key}']" for key in value if key not in known]
                value = {key: one for key, one in value.items() if key in known}
            kept[name] = value
        else:
            ignored.append(name)
    if ignored:
        text = f"recipes that Ingot does not have are ignored: {', '.join(sorted(ignored))}"
        warnings.warn(text, MigrationWarning, stacklevel=4)
    return kept


class PostTrainingQuantConfig:
    """What `quantization.fit` does; `.config` is Ingot's own."""

    FIELDS = (
        "accuracy_criterion", "approach", "calibration_sampling_size", "example_inputs", "op_name_dict", "op_type_dict",
        "recipes", "reduce_range", "tuning_criterion",
    )  # fmt: skip

    def __init__(self, **given: Any) -> None:
        fields = _common("PostTrainingQuantConfig", given, self.FIELDS)
        approach = given.get("approach", "static")
        check_choice("approach", approach, list(APPROACHES))
        if APPROACHES[approach] in ("dynamic", "weight_only"):
            fields.pop("reduce_range", None)
        if APPROACHES[approach] == "weight_only":
            fields |= {"op_types": ["Linear"], "algorithm": "rtn"}
        if APPROACHES[approach] != "dynamic":
            size = given.get("calibration_sampling_size", 100)
            fields["calibration_samples"] = max(size) if isinstance(size, list | tuple) else size
        recipes = _recipes(given.get("recipes") or {}, APPROACHES[approach])
        self.config = ingot.PostTrainingQuantConfig(approach=APPROACHES[approach], recipes=recipes or None, **fields)
        self.accuracy_criterion: AccuracyCriterion = given.get("accuracy_criterion") or AccuracyCriterion()
        self.tuning_criterion: Any = given.get("tuning_criterion") or TuningCriterion()
        self.example_inputs = given.get("example_inputs")


class QuantizationAwareTrainingConfig:
    """What `training.prepare_compression` does; `.config` is Ingot's own."""

    FIELDS = ("op_name_dict", "op_type_dict", "reduce_range", "recipes", "accuracy_criterion", "tuning_criterion")

    def __init__(self, **given: Any) -> None:
        fields = _common("QuantizationAwareTrainingConfig", given, self.FIELDS)
        _recipes(given.get("recipes") or {}, "training")
        self.config = ingot.QuantizationAwareTrainingConfig(**fields)
