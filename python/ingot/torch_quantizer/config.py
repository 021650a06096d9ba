"""How to quantize. Every field is checked when the config is made; errors name it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ingot.errors import InvalidInputError
from ingot.torch_quantizer.checks import check_choice, check_field, check_flag, check_list, checked_names
from ingot.torch_quantizer.operations import (
    ALGORITHMS,
    FLOATS,
    WEIGHT_SETTINGS,
    WeightSettings,
    check_bits,
    check_group_size,
    check_operations,
    float_kind,
)
from ingot.torch_quantizer.recipes import (
    RECIPE_ARGUMENTS,
    RECIPE_FLAGS,
    RECIPES_ELSEWHERE,
    RoundingOptions,
    check_arguments,
)

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
# Those with weights, of all ways to quantize: these can compute in bf16 instead.
WEIGHTED_TYPES = (
    *("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    *("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "Embedding", "EmbeddingBag"),
)
# What is quantized only when asked for: it costs accuracy, or only shrinks the file.
STATIC_EXTRA_TYPES = ("MatMul", "Mul", "Embedding")
WEIGHT_ONLY_TYPES = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding")
DYNAMIC_TYPES = ("Linear", "LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "Embedding", "EmbeddingBag")


@dataclass(frozen=True, kw_only=True)
class _Config:
    """What both ways of static quantization share.

    op_types: which kinds of operations to quantize (all usual ones when None); exclude_op_types takes some away.
    exclude: modules to leave in fp32, as names ("classifier"), patterns ("encoder.layer.0.*") or classes (nn.Linear);
    all inside such a module is left too.
    activation, weight: 8-bit types; symmetric: zero of activations in the middle of the range. reduce_range:
    activations use 7 bits, for kernels that saturate in 16 (PyTorch's own on CPUs without VNNI; Ingot's do not).
    op_type_dict, op_name_dict: the same in another form, {"Conv2d": {"weight": {"dtype": ["fp32"]}}} by regular
    expressions for kinds, or for names of modules. fp32 leaves operations as they are; with bf16 they compute in bf16.
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
            check_operations(name, getattr(self, name), self._weight_only())
        for item in self.op_type_dict or {}:
            if not any(re.fullmatch(item, kind) for kind in valid):
                check_choice("op_type_dict", item, valid)
        self._check_bf16()
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
        floats = {kind for kind in self._valid_types() if self._kind_of_type(kind) in FLOATS}
        return frozenset(asked) - frozenset(self.exclude_op_types) - floats

    def float_patterns(self) -> list[str]:
        """Regular expressions for names of modules that stay as they are."""
        return [pattern for pattern, how in (self.op_name_dict or {}).items() if float_kind(how, self._weight_only())]

    def in_bf16(self, name: str, kind: str) -> bool:
        """Does a module compute in bf16? What is said of its name counts more than what is said of its kind."""
        named = [how for pattern, how in (self.op_name_dict or {}).items() if re.fullmatch(pattern, name)]
        return (float_kind(named[-1], self._weight_only()) if named else self._kind_of_type(kind)) == "bf16"

    def names_bf16(self) -> bool:
        every = [*(self.op_type_dict or {}).values(), *(self.op_name_dict or {}).values()]
        return any(float_kind(how, self._weight_only()) == "bf16" for how in every)

    def _check_bf16(self) -> None:
        for pattern, how in (self.op_type_dict or {}).items():
            narrow = float_kind(how, self._weight_only()) == "bf16"
            if narrow and not any(re.fullmatch(pattern, kind) for kind in WEIGHTED_TYPES):
                raise InvalidInputError(
                    f"op_type_dict: '{pattern}' is to compute in bf16",
                    f"kinds with weights can: {', '.join(WEIGHTED_TYPES)}",
                )

    def _kind_of_type(self, kind: str) -> str | None:
        """fp32, bf16 or None, by the last entry of op_type_dict for it."""
        found = [how for pattern, how in (self.op_type_dict or {}).items() if re.fullmatch(pattern, kind)]
        return float_kind(found[-1], self._weight_only()) if found else None

    def _weight_only(self) -> bool:
        return False


@checked_names
@dataclass(frozen=True, kw_only=True)
class PostTrainingQuantConfig(_Config):
    """Quantization of a trained model: "static" with scales from sample data, "dynamic" with scales found at run time,
    "auto": static where there are sample data and the model can be captured, else dynamic; "weight_only": weights in 4
    or 8 bits, everything else in fp32.

    calibration: how ranges are found: "histogram" (least error of the quantized values), "minmax" (all values seen) or
    "moving_average" (of minimum and maximum of each batch). calibration_samples: stop after so many samples.
    Dynamic quantization takes op_types, exclude_op_types, exclude and per_channel; its activations are u8.

    Of weight_only: bits: 4 or 8. group_size: numbers of a row that share a scale, -1 for whole rows. symmetric: without
    zero points. algorithm: "rtn" (to the nearest number, in ranges of the least error), "gptq" (each column makes up
    for the errors of those before it) or "awq" (channels of large inputs get finer steps); the last two need sample
    data. None: gptq where there are such, else rtn. Tables of embeddings have 8 bits and whole rows. op_type_dict and
    op_name_dict say otherwise for some: {"Embedding": {"weight": {"bits": 4, "group_size": 32, "scheme": "sym"}}}.

    recipes:
      smooth_quant, smooth_quant_args {"alpha": 0.5}   evens out the channels of linear layers behind normalizations
                                        (see smoothing.py); static only
      fast_bias_correction              biases take over the average error that rounded weights make
      weight_correction                 weights vary as much, in each output channel, as they did before
      first_conv_or_matmul_quantization, last_conv_or_matmul_quantization   False: these stay in fp32
      rtn_args {"enable_mse_search"}, gptq_args {"percdamp", "act_order"},
      awq_args {"enable_auto_scale", "enable_mse_search", "folding"}    see RoundingOptions; weight_only only
    """

    approach: Literal["static", "dynamic", "auto", "weight_only"] = "static"
    calibration: Literal["histogram", "minmax", "moving_average"] = "histogram"
    calibration_samples: int | None = None
    bits: Literal[4, 8] = 4
    group_size: int = 32
    algorithm: Literal["rtn", "gptq", "awq"] | None = None
    recipes: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_choice("approach", self.approach, ("static", "dynamic", "auto", "weight_only"))
        check_choice("calibration", self.calibration, ("histogram", "minmax", "moving_average"))
        count = self.calibration_samples
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise InvalidInputError(f"calibration_samples is {count!r}, not a positive number")
        check_bits("bits", self.bits)
        check_group_size("group_size", self.group_size)
        if self.algorithm is not None:
            check_choice("algorithm", self.algorithm, ALGORITHMS)
        super().__post_init__()
        self._check_recipes()
        if self.approach == "dynamic":
            self._check_usual(
                ("activation", "weight", "symmetric", "reduce_range"),
                "PyTorch's dynamic quantization has u8 affine activations and s8 weights",
            )
        if self._weight_only():
            self._check_usual(
                ("activation", "weight", "per_channel", "reduce_range", "calibration"),
                "bits, group_size, symmetric and algorithm say how weights are kept",
            )
        else:
            self._check_usual(("bits", "group_size", "algorithm"), "approach='weight_only' has them")

    def _check_usual(self, names: Sequence[str], hint: str) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != usual[name]:
                raise InvalidInputError(f"{name}={getattr(self, name)!r} is not for approach='{self.approach}'", hint)

    def _check_recipes(self) -> None:
        if not isinstance(self.recipes or {}, Mapping):
            raise InvalidInputError(f"recipes is {self.recipes!r}, not a dict")
        for name, value in (self.recipes or {}).items():
            check_field("recipes", name, (*RECIPE_FLAGS, *RECIPE_ARGUMENTS))
            if name in RECIPE_FLAGS:
                check_flag(f"recipes: {name}", value)
            else:
                check_arguments(name, value)
            unfit = name in RECIPES_ELSEWHERE.get(self.approach, ()) and value != RECIPE_FLAGS.get(name)
            if unfit and value:
                raise InvalidInputError(f"recipes: {name} is not for approach='{self.approach}'")

    def recipe(self, name: str) -> bool:
        return bool((self.recipes or {}).get(name, RECIPE_FLAGS[name]))

    def weight_settings(self, name: str, kind: str, data: bool) -> WeightSettings:
        """How the weight of a layer is kept; data: there are some to round it by."""
        table = kind == "Embedding"
        found: dict[str, Any] = {
            "bits": 8 if table else self.bits,
            "group_size": -1 if table else self.group_size,
            "scheme": "sym" if self.symmetric else "asym",
            "algorithm": self.algorithm or ("gptq" if data else "rtn"),
        }
        for given, subject in ((self.op_type_dict, kind), (self.op_name_dict, name)):
            for pattern, how in (given or {}).items():
                if re.fullmatch(pattern, subject):
                    found |= {key: value for key, value in how.get("weight", {}).items() if key in WEIGHT_SETTINGS}
        algorithm = "rtn" if table else str(found["algorithm"]).lower()
        return WeightSettings(found["bits"], found["group_size"], found["scheme"] == "sym", algorithm)

    def rounding_options(self) -> RoundingOptions:
        given = {name: (self.recipes or {}).get(f"{name}_args") or {} for name in ALGORITHMS}
        searches = [given[name].get("enable_mse_search", True) for name in ("rtn", "awq")]
        return RoundingOptions(
            search=all(searches),
            damping=float(given["gptq"].get("percdamp", 0.01)),
            by_size=given["gptq"].get("act_order", True),
            scale_channels=given["awq"].get("enable_auto_scale", True),
            fold=given["awq"].get("folding", True),
            correct_bias=self.recipe("fast_bias_correction"),
            correct_weight=self.recipe("weight_correction"),
        )

    def _weight_only(self) -> bool:
        return self.approach == "weight_only"

    @property
    def smooth_alpha(self) -> float | None:
        """How much of the difference between channels moves to the weights; None without smoothing."""
        recipes = self.recipes or {}
        if not recipes.get("smooth_quant") or self.approach not in ("static", "auto"):
            return None
        return float((recipes.get("smooth_quant_args") or {}).get("alpha", 0.5))

    def _valid_types(self) -> tuple[str, ...]:
        return self._types_by_approach() or super()._valid_types()

    def _usual_types(self) -> tuple[str, ...]:
        return self._types_by_approach() or super()._usual_types()

    def _types_by_approach(self) -> tuple[str, ...] | None:
        return {"dynamic": DYNAMIC_TYPES, "weight_only": WEIGHT_ONLY_TYPES}.get(self.approach)


@checked_names
@dataclass(frozen=True, kw_only=True)
class QuantizationAwareTrainingConfig(_Config):
    """Training with simulated quantization: see _Config for the fields. What is to be bf16 stays fp32."""

    def _valid_types(self) -> tuple[str, ...]:
        return tuple(name for name in super()._valid_types() if name != "Embedding")
