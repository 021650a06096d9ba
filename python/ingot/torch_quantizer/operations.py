"""op_type_dict and op_name_dict: what is asked of some operations, by regular expressions for kinds or names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingot.errors import InvalidInputError
from ingot.torch_quantizer.checks import check_choice, check_field

TYPES = ("int8", "uint8", "fp32", "bf16", "auto")
# What operations can have of their own where only weights are quantized.
WEIGHT_SETTINGS = ("bits", "group_size", "scheme", "algorithm")
ALGORITHMS = ("rtn", "gptq", "awq")


def check_operations(field: str, given: object, weight_only: bool) -> None:
    example = f'{field}={{"name": {{"weight": {{"dtype": ["fp32"]}}}}}}'
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(isinstance(how, Mapping) for how in given.values()):
        raise InvalidInputError(f"{field} is no dict of dicts", example)
    for name, how in given.items():
        _check_pattern(field, name)
        for part, settings in how.items():
            check_field(f"{field}['{name}']", part, ("weight", "activation"))
            if not isinstance(settings, Mapping):
                raise InvalidInputError(f"{field}: '{name}' has {settings!r} for {part}", example)
            own = WEIGHT_SETTINGS if weight_only and part == "weight" else ()
            for setting, value in settings.items():
                if setting in ("scheme", "granularity", "algorithm") and setting not in own:
                    raise InvalidInputError(
                        f"{field}: '{name}' sets {setting}, which all operations have in common here",
                        "symmetric, per_channel and calibration of the config",
                    )
                check_field(f"{field}['{name}']['{part}']", setting, ("dtype", *own))
                if setting in own:
                    _check_weight_setting(f"{field}: {setting} of '{name}'", setting, value)
                    continue
                for kind in _listed(value):
                    check_choice(f"{field}: dtype of '{name}'", kind, (*TYPES, "int") if own else TYPES)


def _check_pattern(field: str, name: object) -> None:
    try:
        re.compile(str(name))
    except re.error as error:
        raise InvalidInputError(f"{field}: {name!r} is no regular expression: {error}") from None


def _check_weight_setting(what: str, setting: str, value: object) -> None:
    if setting == "bits":
        check_bits(what, value)
    elif setting == "group_size":
        check_group_size(what, value)
    elif setting == "scheme":
        check_choice(what, value, ("sym", "asym"))
    else:
        check_choice(what, str(value).lower(), ALGORITHMS)


def check_bits(field: str, value: object) -> None:
    if isinstance(value, bool) or value not in (4, 8):
        raise InvalidInputError(f"{field} is {value!r}", "4 or 8")


def check_group_size(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not (value == -1 or 16 <= value <= 65536):
        raise InvalidInputError(
            f"{field} is {value!r}", "32, 64, 128 or another number from 16 on; -1: a scale for each row"
        )


@dataclass(frozen=True)
class WeightSettings:
    """How the weight of one layer is kept, where only weights are quantized."""

    bits: int
    group_size: int  # -1: one group for each row
    symmetric: bool
    algorithm: str


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


FLOATS = ("fp32", "bf16")


def float_kind(how: Mapping[str, Any], weight_only: bool) -> str | None:
    """fp32 or bf16, where an operation is to have nothing else; the first of those that it may have."""
    for part, settings in how.items():
        if weight_only and part == "activation":  # which stays fp32 anyway
            continue
        choices = _listed(settings["dtype"]) if "dtype" in settings else []
        if choices and all(kind in FLOATS for kind in choices):
            return str(choices[0])
    return None
