"""How to quantize. Every field is checked when the config is made; errors name it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

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
    dynamic_axes: axes that must stay free, {"input_ids": {0: "batch", 1: "sequence"}}, by the names of forward's
    parameters; when None, all stay free that the model itself does not fix.
    """

    op_types: Sequence[str] | None = None
    exclude_op_types: Sequence[str] = ()
    exclude: Sequence[str | type] = ()
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
        return frozenset(asked) - frozenset(self.exclude_op_types)


@dataclass(frozen=True, kw_only=True)
class PostTrainingQuantConfig(_Config):
    """Quantization of a trained model: "static" with scales from sample data, "dynamic" with scales found at run time.

    calibration: how ranges are found: "histogram" (least error of the quantized values), "minmax" (all values seen) or
    "moving_average" (of minimum and maximum of each batch). calibration_samples: stop after so many samples.
    Dynamic quantization takes op_types, exclude_op_types, exclude and per_channel; its activations are u8.
    """

    approach: Literal["static", "dynamic"] = "static"
    calibration: Literal["histogram", "minmax", "moving_average"] = "histogram"
    calibration_samples: int | None = None

    def __post_init__(self) -> None:
        check_choice("approach", self.approach, ("static", "dynamic"))
        check_choice("calibration", self.calibration, ("histogram", "minmax", "moving_average"))
        count = self.calibration_samples
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise InvalidInputError(f"calibration_samples is {count!r}, not a positive number")
        super().__post_init__()
        if self.approach == "dynamic":
            self._check_dynamic()

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


@dataclass(frozen=True, kw_only=True)
class QuantizationAwareTrainingConfig(_Config):
    """Training with simulated quantization: see _Config for the fields."""

    def _valid_types(self) -> tuple[str, ...]:
        return tuple(name for name in super()._valid_types() if name != "Embedding")
