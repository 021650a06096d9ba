"""Quantization of ONNX files: thin over the compiled module, which does the work."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ingot._ingot import convert_file, quantize_facts, quantize_file
from ingot.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ingot.torch_quantizer import PreparedModel, QuantizedModel


@dataclass(frozen=True)
class QuantizationReport:
    """What was quantized, what was not and why, and how exact the result is (SNR in dB, on calibration data)."""

    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return self.text


def quantize_onnx(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    mode: Literal["static", "dynamic", "weight_only"] | None = None,
    calib: str | os.PathLike[str] | Iterable[Any] | None = None,
    quant_format: Literal["qdq", "qlinear", "ir"] | None = None,
    activation: Literal["u8", "s8"] = "u8",
    weight: Literal["u8", "s8", "s4"] = "s8",
    per_channel: bool = True,
    symmetric: bool = False,
    reduce_range: bool = False,
    method: Literal["minmax", "percentile", "entropy", "mse"] = "minmax",
    percentile: float = 99.99,
    bias: Literal["int32", "fp32", "fp32_trailing"] = "int32",
    bias_correction: bool = False,
    smooth_quant: bool | float = True,
    mixed_precision: float | None = None,
    block: int = 0,
    op_types: Sequence[str] = (),
    exclude_op_types: Sequence[str] = (),
    nodes: Sequence[str] = (),
    exclude_nodes: Sequence[str] = (),
    external_data: bool = False,
    opset: int | None = None,
    facts: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> QuantizationReport:
    """Quantizes an ONNX file and writes another one (or Engine IR, with quant_format="ir").

    mode is static when calib is given and dynamic otherwise. calib is a folder or an .npz file as `ingot quantize`
    takes them, or samples: dicts by input name, sequences in the order of the inputs, arrays for models of one input.
    smooth_quant: True shares outliers of activations with weights where that promises much less noise, a number is the
    alpha for all. mixed_precision: the SNR in dB that the outputs must reach; the noisiest layers stay in fp32 for it.
    opset: the version of ai.onnx to write; by default that of the file, at least 21.
    facts: scales and zero points by name, as `convert(to="float", facts=...)` writes them: a file, or what is in it; of
    the other options quant_format, opset and external_data then count.
    """
    if facts is not None:
        return _quantize_with_facts(path, output, facts, quant_format, opset, external_data)
    smooth = not isinstance(smooth_quant, bool) or smooth_quant
    options: dict[str, Any] = {
        "mode": mode or ("static" if calib is not None else "dynamic"),
        "activation": activation,
        "weight": weight,
        "per_channel": per_channel,
        "symmetric": symmetric,
        "reduce_range": reduce_range,
        "method": method,
        "percentile": percentile,
        "bias": bias,
        "bias_correction": bias_correction,
        "smooth_quant": smooth,
        "block": block,
        "op_types": list(op_types),
        "exclude_op_types": list(exclude_op_types),
        "nodes": list(nodes),
        "exclude_nodes": list(exclude_nodes),
        "external_data": external_data,
    }
    if quant_format is not None:
        options["format"] = quant_format
    if smooth and not isinstance(smooth_quant, bool):
        options["smooth_alpha"] = float(smooth_quant)
    if mixed_precision is not None:
        options["mixed_precision"] = float(mixed_precision)
    if opset is not None:
        options["opset"] = opset
    text, data = quantize_file(os.fspath(path), os.fspath(output), _samples(calib, path), options)
    return QuantizationReport(text, json.loads(data))


def _quantize_with_facts(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    facts: str | os.PathLike[str] | Mapping[str, Any],
    quant_format: str | None,
    opset: int | None,
    external_data: bool,
) -> QuantizationReport:
    given = Path(facts).read_text() if isinstance(facts, (str, os.PathLike)) else json.dumps(facts)
    options: dict[str, Any] = {"to": quant_format or "qdq", "external_data": external_data}
    if opset is not None:
        options["opset"] = opset
    text, data = quantize_facts(os.fspath(path), os.fspath(output), given, options)
    return QuantizationReport(text, json.loads(data))


@dataclass(frozen=True)
class ConversionReport:
    """What is quantized in which form, what is not, and why.

    data["quantized"] has entries of name, operator, form (QLinearConv, QLinearMatMul, ConvInteger, MatMulInteger, QDQ,
    dynamic QDQ, integer, weight-only) and reason; data["not_quantized"] of name, operator and reason.
    """

    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return self.text


@overload
def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    to: Literal["qdq", "qlinear", "float", "fp16", "bf16"] | None = None,
    opset: int | None = None,
    bias: Literal["int32", "fp32", "fp32_trailing"] | None = None,
    weight: Literal["u8", "s8"] | None = None,
    facts: str | os.PathLike[str] | None = None,
    keep_io: bool = True,
    external_data: bool = False,
) -> list[str]: ...
@overload
def convert(path: PreparedModel) -> QuantizedModel: ...
def convert(
    path: str | os.PathLike[str] | PreparedModel,
    output: str | os.PathLike[str] | None = None,
    *,
    to: Literal["qdq", "qlinear", "float", "fp16", "bf16"] | None = None,
    opset: int | None = None,
    bias: Literal["int32", "fp32", "fp32_trailing"] | None = None,
    weight: Literal["u8", "s8"] | None = None,
    facts: str | os.PathLike[str] | None = None,
    keep_io: bool = True,
    external_data: bool = False,
) -> list[str] | QuantizedModel:
    """Writes a model in another opset, in 16-bit floats, or a quantized one as QDQ or with integer operators.

    to="float" takes the quantization out; facts is a file for its scales and zero points, which quantize_onnx takes.
    to="fp16" and "bf16" leave inputs and outputs in f32 unless keep_io is False.
    Returns what stays as it was, and why.

    Of a module that prepare_qat() gave, after training: the 8-bit model.
    """
    if not isinstance(path, (str, os.PathLike)):
        from ingot.torch_quantizer import convert as convert_trained

        return convert_trained(path)
    if output is None:
        raise InvalidInputError("convert: the name of the file to write is missing")
    options: dict[str, Any] = {"to": to, "opset": opset, "bias": bias, "weight": weight, "external_data": external_data}
    options["keep_io"] = keep_io
    if facts is not None:
        options["facts"] = os.fspath(facts)
    return _convert(path, output, options)[0]


def finish_export(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    quant_format: Literal["qdq", "qlinear"] = "qdq",
    opset: int | None = None,
    bias: Literal["int32", "fp32", "fp32_trailing"] | None = None,
    weight: Literal["u8", "s8"] | None = None,
    external_data: bool = False,
) -> ConversionReport:
    """Writes the final file of a model with quantization marks; the report says what became of each.

    Marks are QuantizeLinear and DequantizeLinear around activations, DequantizeLinear of integer constants, and
    DynamicQuantizeLinear, or explicit scales of rows, with DequantizeLinear. A file without any is an error.
    """
    options = {"to": quant_format, "opset": opset, "bias": bias, "weight": weight, "external_data": external_data}
    _, text, data = _convert(path, output, options)
    return ConversionReport(text, json.loads(data))


def _convert(
    path: str | os.PathLike[str], output: str | os.PathLike[str], options: dict[str, Any]
) -> tuple[list[str], str, str]:
    given = {key: value for key, value in options.items() if value is not None}
    return convert_file(os.fspath(path), os.fspath(output), given)


def _samples(calib: Any, path: str | os.PathLike[str]) -> str | list[dict[str, Any]] | None:
    if calib is None:
        return None
    if isinstance(calib, (str, os.PathLike)):
        return os.fspath(calib)
    samples = list(calib)
    if all(isinstance(sample, dict) for sample in samples):
        return samples
    names = _input_names(path)
    return [_by_name(sample, names) for sample in samples]


def _by_name(sample: Any, names: Sequence[str]) -> dict[str, Any]:
    if hasattr(sample, "items"):
        mapping: Mapping[str, Any] = sample
        return dict(mapping.items())
    values = list(sample) if isinstance(sample, (list, tuple)) else [sample]
    if len(values) != len(names):
        raise InvalidInputError(f"a calibration sample has {len(values)} arrays, the model {len(names)} inputs", "")
    return dict(zip(names, values, strict=True))


def _input_names(path: str | os.PathLike[str]) -> list[str]:
    from ingot._ingot import open_model

    return [port.name for port in open_model(path, {}, 0, "native", 0, {}, False, False).inputs]
