"""From PyTorch to an ONNX file: trace, translate, finish, verify, and only then put in place."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ingot.errors import InternalError, InvalidInputError, IoError
from ingot.exporter import verify
from ingot.exporter.capture import Call, Captured, DynamicAxes, call_of, capture
from ingot.exporter.config import Bias, Torch2ONNXConfig
from ingot.exporter.granularity import with_granularity
from ingot.exporter.microsoft import to_microsoft_operators
from ingot.exporter.naming import rename
from ingot.exporter.report import ExportReport, Operation
from ingot.exporter.sources import axes_of, example_of, load, module_of
from ingot.exporter.states import rebuild
from ingot.onnx_quantizer import convert, finish_export
from ingot.progress import Progress
from ingot.torch.translate import Interface, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


OPSET_OF_GROUPS = 21  # the first with numbers of 4 bits, and with scales for groups


class Model:
    """A PyTorch model to be exported: a module, quantized in any way or not, an ExportedProgram, or a file of these.

    float_model, where there is one, is what the report compares a quantized model with.
    """

    def __init__(self, source: Any, *, float_model: nn.Module | None = None) -> None:
        if isinstance(source, str | os.PathLike):
            source = load(source)
        self.program = source if isinstance(source, ExportedProgram) else None
        self.module = module_of(source)
        self.float_model = float_model

    @classmethod
    def from_state_dict(
        cls, float_module: nn.Module, state: Mapping[str, Any], *, example_inputs: Any = None, config: Any = None
    ) -> Model:
        """A quantized model from its state_dict and the float module it was made from.

        Which modules are quantized, and how, is read from the state. Normalizations that float_module has and the state
        lacks (fused into a convolution) become identities. States of graphs prepared for training (PT2E) need
        example_inputs, and the config given to prepare_qat if there was one.
        """
        return cls(rebuild(float_module, state, example_inputs, config), float_model=float_module)

    def interface(self, config: Torch2ONNXConfig) -> tuple[Call, DynamicAxes | None]:
        """How the model is called, and which dims are free. An exported program knows both."""
        if self.program is None:
            return call_of(self.module, config.example_inputs, config.input_names), config.dynamic_axes
        inputs = config.example_inputs if config.example_inputs is not None else example_of(self.program)
        call = call_of(self.module, inputs, config.input_names)
        return call, config.dynamic_axes if config.dynamic_axes is not None else axes_of(self.program, call.names)

    def export(
        self, path: str | os.PathLike[str], config: Torch2ONNXConfig | None = None, **fields: Any
    ) -> ExportReport:
        """Writes an ONNX file, and says what was done. Nothing is written when anything fails."""
        if config is None:
            config = _config_of(fields)
        elif fields:
            raise InvalidInputError("export: either a config or its fields")
        return _export(self, _target(path), config)


def export(
    source: Any, path: str | os.PathLike[str], config: Torch2ONNXConfig | None = None, **fields: Any
) -> ExportReport:
    """Model(source).export(path, config); fields of Torch2ONNXConfig may be given by name instead of a config."""
    return Model(source).export(path, config, **fields)


def _config_of(fields: dict[str, Any]) -> Torch2ONNXConfig:
    known = set(Torch2ONNXConfig.__dataclass_fields__)
    unknown = sorted(set(fields) - known)
    if unknown:
        raise InvalidInputError(f"Torch2ONNXConfig has no field '{unknown[0]}'", f"fields: {', '.join(sorted(known))}")
    return Torch2ONNXConfig(**fields)


def _target(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    if target.suffix != ".onnx":
        raise InvalidInputError(f"{target}: the name of an ONNX file ends in .onnx")
    if target.is_dir():
        raise IoError(f"{target}: is a folder")
    if not target.parent.is_dir():
        raise IoError(f"{target.parent}: no such folder")
    if not os.access(target.parent, os.W_OK):
        raise IoError(f"{target.parent}: cannot be written to")
    return target


def _export(model: Model, target: Path, config: Torch2ONNXConfig) -> ExportReport:
    report = ExportReport(str(target), config.dtype, config.opset_version)
    if config.dtype == "int8":
        report.quant_format = config.quant_format
    call, axes = model.interface(config)
    with _timed(report, "trace"):
        captured = capture(
            model.module,
            call,
            output_names=config.output_names,
            dynamic_axes=axes,
            keep_reduce_range=config.keep_reduce_range,
        )
    if config.dtype == "int8" and not _is_quantized(captured):
        raise InvalidInputError(
            "nothing in the model is quantized to 8 bits", "quantize it first; one with fp16 weights has dtype='fp16'"
        )
    if config.opset_version < OPSET_OF_GROUPS and _operators(captured, "ingot::dequantize_weight"):
        if config.weight_operator == "MatMulNBits":
            raise InvalidInputError(f"weight_operator: MatMulNBits is written from opset {OPSET_OF_GROUPS} on")
        report.notes.append(
            f"weights of 4 bits are bytes in opset {config.opset_version}, and groups take several operators: "
            f"opset {OPSET_OF_GROUPS} has both"
        )
    constants = constants_of(captured)
    if config.per_channel is not None and config.dtype == "int8":
        constants = with_granularity(captured.program, constants, config.per_channel)
    constants = rename(captured, constants)
    with _work_folder(target) as folder:
        traced, written = folder / "traced", folder / target.name
        traced.mkdir()
        with _timed(report, "translate"):
            interface = Interface(captured.output_names, captured.dim_names)
            translate(captured.program.graph, constants, interface=interface).write(traced / "model.onnx")
        with _timed(report, "finish"):
            if config.dtype == "int8":
                _finish_integers(traced / "model.onnx", written, config, report, config.bias)
                _name_blocked(captured, report)
            else:
                _finish_floats(traced / "model.onnx", written, config, report, _is_quantized(captured))
        if config.verify:
            with _timed(report, "verify"):
                _verify(model, captured, constants, written, report)
                if report.quant_format and config.per_channel is None:  # else the weights are others
                    _check_steps(model, captured, constants, (traced / "model.onnx", written), config, report)
        shutil.rmtree(traced)
        report.bytes = sum(file.stat().st_size for file in folder.iterdir())
        _put_in_place(folder, target)
    return report


@contextlib.contextmanager
def _timed(report: ExportReport, what: str) -> Iterator[None]:
    start = time.perf_counter()
    with Progress("export") as progress:
        progress.show(what)
        yield
    report.seconds[what] = time.perf_counter() - start


@contextlib.contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """Beside the target, so that files can be renamed into place."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise IoError(f"{target.parent}: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(folder: Path, target: Path) -> None:
    # The weights first: a model never stands beside another model's weights under its own name for long.
    for file in sorted(folder.iterdir(), key=lambda f: f.name == target.name):
        file.replace(target.parent / file.name)


def constants_of(captured: Captured) -> dict[str, Tensor]:
    """Parameters, buffers and constants by the names of their placeholders."""
    program = captured.program
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    held = {**program.state_dict, **program.constants}
    return {placeholder: held[name].detach() for placeholder, name in names.items()}


def _check_steps(
    model: Model,
    captured: Captured,
    constants: dict[str, Tensor],
    files: tuple[Path, Path],
    config: Torch2ONNXConfig,
    report: ExportReport,
) -> None:
    """Biases rounded to int32 move values across the border between two integers now and then. Models that make much
    of that (of few steps, say, as after a short training) get fp32 biases, unless these were asked for."""
    wrong = verify.far_apart(report.differences, "Ingot and exact arithmetic")
    if wrong is not None and config.recipe is None:
        rounded = f"biases are fp32: rounded to int32 they put '{wrong.output}' {wrong.steps:.1f} steps away"
        for known in (report.quantized, report.unquantized, report.differences, report.notes):
            known.clear()
        _finish_integers(*files, config, report, "fp32")
        _name_blocked(captured, report)
        _verify(model, captured, constants, files[1], report)
        report.notes.append(rounded)
        wrong = verify.far_apart(report.differences, "Ingot and exact arithmetic")
    if wrong is not None and config.bias != "fp32_trailing":  # which rounds more than PyTorch does
        raise InternalError(
            f"the written model is not the given one: '{wrong.output}' is {wrong.steps:.1f} steps from its exact "
            f"arithmetic, {wrong.share:.0%} of the values by more than one",
            "recipe='fp32_bias' does not round biases; verify=False writes the file as it is",
        )
    theirs = verify.far_apart(report.differences, "onnxruntime and exact arithmetic")
    if theirs is not None:
        report.notes.append(
            f"onnxruntime computes the file in another way: '{theirs.output}' is {theirs.steps:.1f} steps away; "
            "it rounds fp32 biases to int32"
        )


def _finish_integers(traced: Path, written: Path, config: Torch2ONNXConfig, report: ExportReport, bias: Bias) -> None:
    found = finish_export(
        traced,
        written,
        quant_format="qdq" if config.quant_format == "QDQ" else "qlinear",
        opset=config.opset_version,
        bias=bias,
        weight=config.weights,
        external_data=config.external_data,
    ).data
    report.quantized = [Operation(o["name"], o["operator"], o["form"], o["reason"]) for o in found["quantized"]]
    report.unquantized = [Operation(o["name"], o["operator"], "fp32", o["reason"]) for o in found["not_quantized"]]
    report.notes += found.get("notes", [])
    if config.weight_operator == "MatMulNBits":
        count = to_microsoft_operators(written, external_data=config.external_data)
        report.notes.append(f"{count} operators are onnxruntime's own, of com.microsoft")


def _name_blocked(captured: Captured, report: ExportReport) -> None:
    """Of convolutions with weights in groups: these are reshaped from a matrix, which reports take for work on its
    own."""
    shaped = {
        user
        for node in _operators(captured, "ingot::dequantize_weight")
        for user in node.users
        if getattr(user.target, "_opname", "") in ("view", "reshape", "_unsafe_view")
    }
    names = {user.name for node in shaped for user in node.users}
    moved = {node.name for node in shaped}
    blocked = [o for o in report.unquantized if o.name in names]
    report.unquantized = [o for o in report.unquantized if o.name not in names]
    report.quantized = [o for o in report.quantized if o.name not in moved]
    report.quantized += [Operation(o.name, o.op, "weight-only") for o in blocked]


def _finish_floats(
    traced: Path, written: Path, config: Torch2ONNXConfig, report: ExportReport, quantized: bool
) -> None:
    """What was quantized becomes the floats it stands for; these become narrower where asked for."""
    opset, external_data = config.opset_version, config.external_data
    if quantized:
        report.notes.append("the model is quantized: weights are the floats that its integers stand for")
        floats = written if config.dtype == "fp32" else traced.with_name("floats.onnx")
        report.notes += convert(traced, floats, to="float", opset=opset, external_data=external_data)
        traced = floats
    if traced != written:
        narrow: dict[str, Literal["fp16", "bf16"] | None] = {"fp32": None, "fp16": "fp16", "bf16": "bf16"}
        report.notes += convert(traced, written, to=narrow[config.dtype], opset=opset, external_data=external_data)


def _is_quantized(captured: Captured) -> bool:
    return bool(_operators(captured, "quantized_decomposed", "ingot::dynamic_quantize", "ingot::dequantize_weight"))


def _operators(captured: Captured, *names: str) -> list[torch.fx.Node]:
    """The nodes whose operators' names start so."""
    return [node for node in captured.program.graph.nodes if str(getattr(node.target, "_name", "")).startswith(names)]


def _verify(
    model: Model, captured: Captured, constants: dict[str, Tensor], written: Path, report: ExportReport
) -> None:
    verify.check_file(written)
    call, names = captured.call, captured.output_names
    inputs = dict(zip(call.names, call.tensors, strict=True))
    with torch.no_grad():
        exact = verify.run_torch(captured.program.module(), *call.tensors)
    steps = verify.steps_of(captured.program, constants, exact)
    ours = verify.run_ingot(str(written), inputs)
    report.differences += verify.differences("Ingot and exact arithmetic", names, ours, exact, steps)
    try:
        theirs, note = verify.run_onnxruntime(str(written), inputs)
        report.notes += [note] if note else []
        report.differences += verify.differences("onnxruntime and exact arithmetic", names, theirs, exact, steps)
    except ImportError:
        report.notes.append("onnxruntime is not installed: the file was not run there")
    except verify.NotThereError as reason:
        report.notes.append(f"onnxruntime cannot run the file: {reason}")
    args, kwargs = call.arguments(call.tensors)
    training = any(part.training for part in model.module.modules())  # then eager is another computation
    if report.dtype == "fp32" and not training and not _is_quantized(captured):
        eager = verify.run_torch(model.module, *args, **kwargs)
        report.differences += verify.differences("Ingot and PyTorch", names, ours, eager, steps)
        report.notes += verify.notes_on_eager(eager, exact, names)
    if report.quant_format:
        try:
            eager = verify.run_torch(model.module, *args, **kwargs)
            report.differences += verify.differences("Ingot and PyTorch's int8 kernels", names, ours, eager, steps)
        except Exception as error:  # another engine's kernels, or none
            report.notes.append(f"PyTorch's kernels do not run the model here: {str(error).strip() or error!r}")
        if model.float_model is not None:
            floats = verify.run_torch(model.float_model.eval(), *args, **kwargs)
            report.differences += verify.differences("Ingot and the fp32 model", names, ours, floats, steps)
