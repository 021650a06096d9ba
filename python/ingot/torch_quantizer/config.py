"""How to quantize. Every field is checked when the config is made; errors name it."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from ingot.errors import InvalidInputError

DynamicAxes = Mapping[str, Mapping[int, str] | Sequence[int]]

STATIC_TYPES = (
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool2d",
    "AvgPool2d",
    "AdaptiveAvgPool2d",
    "Cat",
    "Flatten",
)
# What is quantized only when asked for: it costs accuracy, or only shrinks the file.
STATIC_EXTRA_TYPES = ("MatMul", "Mul", "Embedding")
DYNAMIC_TYPES = ("Linear", "LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "Embedding", "EmbeddingBag")


Class = TypeVar("Class", bound=type)


def checked_names(cls: Class) -> Class:
    """A field that the class does not have is an error with the name of the nearest one."""
    made: Any = cls.__init__  # type: ignore[misc]
    known = [field.name for field in fields(cls)]

    @functools.wraps(made)
    def init(self: Any, **given: Any) -> None:
        for name in given:
            check_field(cls.__name__, name, known)
        made(self, **given)

    cls.__init__ = init  # type: ignore[misc]
    return cls


def check_field(owner: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise InvalidInputError(f"{owner} has no field '{name}'", f"{hint}fields: {', '.join(known)}")


def check_choice(field: str, value: object, valid: Sequence[str]) -> None:
    if value not in valid:
        near = difflib.get_close_matches(str(value), valid, 1)
        hint = f"did you mean '{near[0]}'? valid: {', '.join(valid)}" if near else f"valid: {', '.join(valid)}"
        raise InvalidInputError(f"{field}={value!r} is not known", hint)


def check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{field} is {value!r}, not True or False")


def check_list(field: str, value: object, what: str) -> tuple[Any, ...]:
    if isinstance(value, str | type) or not isinstance(value, Sequence):
        raise InvalidInputError(f"{field} is {value!r}, not a list of {what}", f"{field}=[{value!r}]")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class _Config:
    """What both ways of static quantization share.

    op_types: which kinds of operations to quantize (all usual ones when None); exclude_op_types takes some away.
    exclude: modules to leave in fp32, as names ("classifier"), patterns ("encoder.layer.0.*") or classes (nn.Linear);
    all inside such a module is left too.
    activation, weight: 8-bit types; symmetric: zero of activations in the middle of the range. reduce_range:
    activations use 7 bits, for kernels that saturate in 16 (PyTorch's own on CPUs without VNNI; Ingot's do not).
    op_type_dict, op_name_dict: the same in another form, {"Conv2d": {"weight": {"dtype": ["fp32"]}}} by kind, or by
    regular expressions for names of modules; fp32 or bf16 leaves operations as they are.
    dynamic_axes: axes that must stay free, {"input_ids": {0: "batch", 1: "sequence"}}, by the names of forward's
    parameters; when None, all stay free that the model itself does not fix.
    """

    op_types: Sequence[str] | None = None
    exclude_op_types: Sequence[str] = ()
    exclude: Sequence[str | type] = ()
    op_type_dict: Mapping[str, Any] | None = None
    op_name_dict: Mapping[str, Any] | None = None
    activation: Literal["u8", "s8"] = "u8"
    weight: Literal["s8", "u8"] = "s8"
    symmetric: bool = False
    per_channel: bool = True
    reduce_range: bool = False
    dynamic_axes: DynamicAxes | None = None

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, ("u8", "s8"))
        check_choice("weight", self.weight, ("s8", "u8"))
        for name in ("symmetric", "per_channel", "reduce_range"):
            check_flag(name, getattr(self, name))
        valid = self._valid_types()
        for name in ("op_types", "exclude_op_types"):
            for item in check_list(name, getattr(self, name) or (), "names"):
                check_choice(name, item, valid)
        for name in ("op_type_dict", "op_name_dict"):
            _check_operations(name, getattr(self, name))
        for item in self.op_type_dict or {}:
            check_choice("op_type_dict", item, valid)
        for item in check_list("exclude", self.exclude, "names, patterns and classes"):
            if not isinstance(item, str | type) or not item:
                raise InvalidInputError(f"exclude holds {item!r}, neither a module's name nor a class")
        if self.dynamic_axes is not None and not isinstance(self.dynamic_axes, Mapping):
            raise InvalidInputError(f"dynamic_axes is {self.dynamic_axes!r}", 'a dict: {"input": {0: "batch"}}')
        if not self.types():
            raise InvalidInputError("op_types without exclude_op_types is empty: nothing would be quantized")

    def _valid_types(self) -> tuple[str, ...]:
        return STATIC_TYPES + STATIC_EXTRA_TYPES

    def _usual_types(self) -> tuple[str, ...]:
        return STATIC_TYPES

    def types(self) -> frozenset[str]:
        """The kinds of operations to quantize."""
        asked = self._usual_types() if self.op_types is None else self.op_types
        floats = [name for name, how in (self.op_type_dict or {}).items() if _stays_float(how)]
        return frozenset(asked) - frozenset(self.exclude_op_types) - frozenset(floats)

    def float_patterns(self) -> list[str]:
        """Regular expressions for names of modules that stay as they are."""
        return [pattern for pattern, how in (self.op_name_dict or {}).items() if _stays_float(how)]


TYPES = ("int8", "uint8", "fp32", "bf16", "auto")


def _check_operations(field: str, given: object) -> None:
    example = f'{field}={{"name": {{"weight": {{"dtype": ["fp32"]}}}}}}'
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(isinstance(how, Mapping) for how in given.values()):
        raise InvalidInputError(f"{field} is no dict of dicts", example)
    for name, how in given.items():
        if field == "op_name_dict":
            try:
                re.compile(name)
            except re.error as error:
                raise InvalidInputError(f"op_name_dict: {name!r} is no regular expression: {error}") from None
        for part, settings in how.items():
            check_field(f"{field}['{name}']", part, ("weight", "activation"))
            if not isinstance(settings, Mapping):
                raise InvalidInputError(f"{field}: '{name}' has {settings!r} for {part}", example)
            for setting in settings:
                if setting in ("scheme", "granularity", "algorithm"):
                    raise InvalidInputError(
                        f"{field}: '{name}' sets {setting}, which all operations have in common here",
                        "symmetric, per_channel and calibration of the config",
                    )
                check_field(f"{field}['{name}']['{part}']", setting, ("dtype",))
                for kind in _listed(settings[setting]):
                    check_choice(f"{field}: dtype of '{name}'", kind, TYPES)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _stays_float(how: Mapping[str, Any]) -> bool:
    kinds = [_listed(settings["dtype"]) for settings in how.values() if "dtype" in settings]
    return any(all(kind in ("fp32", "bf16") for kind in choices) for choices in kinds)


@checked_names
@dataclass(frozen=True, kw_only=True)
class PostTrainingQuantConfig(_Config):
    """Quantization of a trained model: "static" with scales from sample data, "dynamic" with scales found at run time,
    "auto": static where there are sample data and the model can be captured, else dynamic.

    calibration: how ranges are found: "histogram" (least error of the quantized values), "minmax" (all values seen) or
    "moving_average" (of minimum and maximum of each batch). calibration_samples: stop after so many samples.
    recipes: {"smooth_quant": True, "smooth_quant_args": {"alpha": 0.5}} evens out the channels of linear layers behind
    layer normalizations (see smoothing.py); static only.
    Dynamic quantization takes op_types, exclude_op_types, exclude and per_channel; its activations are u8.
    """

    approach: Literal["static", "dynamic", "auto"] = "static"
    calibration: Literal["histogram", "minmax", "moving_average"] = "histogram"
    calibration_samples: int | None = None
    recipes: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_choice("approach", self.approach, ("static", "dynamic", "auto"))
        check_choice("calibration", self.calibration, ("histogram", "minmax", "moving_average"))
        count = self.calibration_samples
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise InvalidInputError(f"calibration_samples is {count!r}, not a positive number")
        super().__post_init__()
        self._check_recipes()
        if self.approach == "dynamic":
            self._check_dynamic()

    def _check_recipes(self) -> None:
        if not isinstance(self.recipes or {}, Mapping):
            raise InvalidInputError(f"recipes is {self.recipes!r}, not a dict")
        for name in self.recipes or {}:
            check_field("recipes", name, ("smooth_quant", "smooth_quant_args"))
        check_flag("recipes: smooth_quant", (self.recipes or {}).get("smooth_quant", False))
        arguments = (self.recipes or {}).get("smooth_quant_args") or {}
        for name in arguments:
            check_field("smooth_quant_args", name, ("alpha",))
        alpha = arguments.get("alpha", 0.5)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
            raise InvalidInputError(f"alpha is {alpha!r}, not a number from 0 to 1")

    @property
    def smooth_alpha(self) -> float | None:
        """How much of the difference between channels moves to the weights; None without smoothing."""
        recipes = self.recipes or {}
        if not recipes.get("smooth_quant") or self.approach == "dynamic":
            return None
        return float((recipes.get("smooth_quant_args") or {}).get("alpha", 0.5))

    def _check_dynamic(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name in ("activation", "weight", "symmetric", "reduce_range"):
            if getattr(self, name) != usual[name]:
                raise InvalidInputError(
                    f"{name}={getattr(self, name)!r} is not for approach='dynamic'",
                    "PyTorch's dynamic quantization has u8 affine activations and s8 weights",
                )

    def _valid_types(self) -> tuple[str, ...]:
        return DYNAMIC_TYPES if self.approach == "dynamic" else super()._valid_types()

    def _usual_types(self) -> tuple[str, ...]:
        return DYNAMIC_TYPES if self.approach == "dynamic" else super()._usual_types()


@checked_names
@dataclass(frozen=True, kw_only=True)
class QuantizationAwareTrainingConfig(_Config):
    """Training with simulated quantization: see _Config for the fields."""

    def _valid_types(self) -> tuple[str, ...]:
        return tuple(name for name in super()._valid_types() if name != "Embedding")
