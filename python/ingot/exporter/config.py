"""How a model is exported. Every field is checked when the configuration is made; errors name the field."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.errors import InvalidInputError

DTYPES = ("fp32", "bf16", "fp16", "int8")
OTHER_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int4": "int8"}
FORMATS = {"qdq": "QDQ", "qlinear": "QLinear", "qoperator": "QLinear"}
WeightType = Literal["s8", "u8"]
WEIGHT_TYPES: dict[str, WeightType] = {"s8": "s8", "int8": "s8", "u8": "u8", "uint8": "u8"}
WEIGHT_OPERATORS = {"dequantizelinear": "DequantizeLinear", "matmulnbits": "MatMulNBits"}
Bias = Literal["int32", "fp32", "fp32_trailing"]
RECIPES: dict[str, Bias] = {
    "int32_bias": "int32",
    "fp32_bias": "fp32",
    "fp32_bias_qdq": "fp32_trailing",
    "qdq_op_int32_bias": "int32",
    "qdq_op_fp32_bias": "fp32",
    "qdq_op_fp32_bias_qdq": "fp32_trailing",
}
OLDEST_OPSET, NEWEST_OPSET = 13, 28


def _choice(field: str, value: Any, choices: Sequence[str]) -> str:
    text = str(value).lower()
    if text in choices:
        return text
    near = difflib.get_close_matches(text, choices, 1)
    raise InvalidInputError(
        f"{field}: {value!r} is none of {', '.join(choices)}", f"did you mean '{near[0]}'?" if near else ""
    )


@dataclass
class Torch2ONNXConfig:
    """What to write, and from which inputs the model is traced.

    dtype            fp32, bf16, fp16: the type of weights and arithmetic; int8 (or int4): a quantized model as it is
    opset_version    13 to 28
    quant_format     QDQ, or QLinear: standard integer operators where there are some, QDQ elsewhere
    example_inputs   a tensor, a tuple of positional arguments, or a dict of keyword arguments
    input_names      of the tensors in example_inputs, in order; else those of forward's parameters
    output_names     of the results, in order
    dynamic_axes     {"input": {0: "batch_size"}} or {"input": [0]}: dims that are free in the written model
    weight_type      s8 or u8; None: as the model has them
    per_channel      None: as the model has them; True, False: quantized anew, with a scale for each channel or not
    recipe           of biases: int32_bias, fp32_bias, fp32_bias_qdq (fp32, and the result of the product quantized);
                     None: int32, or fp32 where the rounding of biases is found to change the model
    keep_reduce_range
                     dynamic activations in 7 bits where PyTorch's x86 kernels have them, with QuantizeLinear; else in 8
                     bits with DynamicQuantizeLinear
    weight_operator  of products with weights in groups: DequantizeLinear (of ONNX), or MatMulNBits (com.microsoft)
    external_data    weights in a file beside the model; always so above 2 GB
    verify           check the file, run it in Ingot and onnxruntime, compare with PyTorch
    """

    dtype: str = "fp32"
    opset_version: int = 18
    quant_format: str = "QDQ"
    example_inputs: Any = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None
    weight_type: str | None = None
    per_channel: bool | None = None
    recipe: str | None = None
    keep_reduce_range: bool = False
    weight_operator: str = "DequantizeLinear"
    external_data: bool = False
    verify: bool = True

    def __post_init__(self) -> None:
        self.dtype = _choice("dtype", OTHER_NAMES.get(self.dtype, self.dtype), DTYPES)
        self.quant_format = FORMATS[_choice("quant_format", self.quant_format, list(FORMATS))]
        if self.weight_type is not None:
            self.weight_type = WEIGHT_TYPES[_choice("weight_type", self.weight_type, list(WEIGHT_TYPES))]
        operator = _choice("weight_operator", self.weight_operator, list(WEIGHT_OPERATORS))
        self.weight_operator = WEIGHT_OPERATORS[operator]
        if self.recipe is not None:
            self.recipe = _choice("recipe", self.recipe, list(RECIPES))
        if isinstance(self.opset_version, bool) or not isinstance(self.opset_version, int):
            raise InvalidInputError(f"opset_version: {self.opset_version!r} is no integer")
        if not OLDEST_OPSET <= self.opset_version <= NEWEST_OPSET:
            raise InvalidInputError(f"opset_version: {self.opset_version} is not in {OLDEST_OPSET} to {NEWEST_OPSET}")
        for field in ("keep_reduce_range", "external_data", "verify"):
            if not isinstance(getattr(self, field), bool):
                raise InvalidInputError(f"{field}: {getattr(self, field)!r} is neither True nor False")
        if self.per_channel is not None and not isinstance(self.per_channel, bool):
            raise InvalidInputError(f"per_channel: {self.per_channel!r} is none of True, False, None")
        for field in ("input_names", "output_names"):
            self._check_names(field, getattr(self, field))
        self._check_axes()

    @staticmethod
    def _check_names(field: str, names: Any) -> None:
        if names is None:
            return
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(isinstance(n, str) and n for n in names)
        ):
            raise InvalidInputError(f"{field}: a list of names is needed, not {names!r}")

    def _check_axes(self) -> None:
        if self.dynamic_axes is None:
            return
        if not isinstance(self.dynamic_axes, Mapping):
            raise InvalidInputError("dynamic_axes: a dict is needed", '{"input": {0: "batch_size"}}')
        for name, axes in self.dynamic_axes.items():
            values = list(axes) if isinstance(axes, Mapping | Sequence) and not isinstance(axes, str) else None
            if values is None or not all(isinstance(a, int) and not isinstance(a, bool) for a in values):
                raise InvalidInputError(
                    f"dynamic_axes: '{name}' has {axes!r}", 'axes are numbers: {0: "batch_size"} or [0]'
                )

    @property
    def weights(self) -> WeightType | None:
        return WEIGHT_TYPES[self.weight_type] if self.weight_type is not None else None

    @property
    def bias(self) -> Bias:
        return RECIPES[self.recipe] if self.recipe is not None else "int32"
