"""The recipes of quantization after training, and which approach has which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.errors import InvalidInputError
from ingot.torch_quantizer.checks import check_field, check_flag

# Recipes that are on or off, with what they usually are; those that are arguments, with a test of each.
RECIPE_FLAGS = {
    "smooth_quant": False,
    "fast_bias_correction": False,
    "weight_correction": False,
    "first_conv_or_matmul_quantization": True,
    "last_conv_or_matmul_quantization": True,
}
RECIPE_ARGUMENTS: dict[str, dict[str, type]] = {
    "smooth_quant_args": {"alpha": float},
    "rtn_args": {"enable_mse_search": bool},
    "gptq_args": {"percdamp": float, "act_order": bool},
    "awq_args": {"enable_auto_scale": bool, "enable_mse_search": bool, "folding": bool},
}
WEIGHT_ONLY_RECIPES = ("rtn_args", "gptq_args", "awq_args")
CORRECTIONS = ("fast_bias_correction", "weight_correction")
RECIPES_ELSEWHERE = {
    "static": WEIGHT_ONLY_RECIPES,
    "auto": WEIGHT_ONLY_RECIPES,
    "dynamic": (*WEIGHT_ONLY_RECIPES, *CORRECTIONS),
    "weight_only": ("smooth_quant", "smooth_quant_args"),
    "training": (*RECIPE_FLAGS, *RECIPE_ARGUMENTS),
}


def check_arguments(name: str, given: object) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInputError(f"recipes: {name} is {given!r}, not a dict")
    for key, value in (given or {}).items():
        check_field(name, key, tuple(RECIPE_ARGUMENTS[name]))
        if RECIPE_ARGUMENTS[name][key] is bool:
            check_flag(f"{name}: {key}", value)
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InvalidInputError(f"{key} is {value!r}, not a number from 0 to 1")


@dataclass(frozen=True)
class RoundingOptions:
    """Of the algorithms that round weights."""

    search: bool = True  # for narrower ranges of less error
    damping: float = 0.01  # of the Hessian, as a share of its mean diagonal
    by_size: bool = True  # columns of large inputs first
    scale_channels: bool = True
    fold: bool = True
    correct_bias: bool = False
    correct_weight: bool = False
