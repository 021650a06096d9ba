"""A written model against what it was written from: ONNX's checker, Ingot, onnxruntime, PyTorch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import ingot
from ingot.errors import InternalError
from ingot.exporter.report import Difference

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from torch.export import ExportedProgram

Arrays = list[np.ndarray[Any, Any]]

# Operators that hand on the values of their first operand.
MOVES = {
    "alias",
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    "clone",
    "t",
}


ROUNDING = 0.01  # of a step: float arithmetic in another order
# Of a quantized file that says what the model says: a value between two integers may be rounded to the other one, here
# and there, and what follows carries it on. Many values far away are another model.
MOST_STEPS, MOST_VALUES = 2.0, 0.01


def far_apart(differences: Sequence[Difference], between: str) -> Difference | None:
    """An output that differs by more than rounding explains."""
    return next(
        (d for d in differences if d.between == between and d.steps > MOST_STEPS and d.share > MOST_VALUES), None
    )


MOST_APART = 1e-3  # beside the largest value: what float arithmetic in another order may make of it


def notes_on_eager(eager: Arrays, traced: Arrays, names: Sequence[str]) -> list[str]:
    """Outputs in which the traced program is another than the module that runs in eager: fast paths, as that of
    nn.TransformerEncoder, which zeroes padded rows, and code that asks whether it is traced."""
    notes = []
    for name, a, b in zip(names, eager, traced, strict=True):
        if a.shape != b.shape or a.dtype.kind not in "fc" or not a.size:
            continue
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
        share = float((apart > MOST_APART * max(float(np.abs(a).max()), 1e-6)).mean())
        if share:
            notes.append(
                f"PyTorch itself computes '{name}' in another way when it does not trace: {share:.1%} of the values "
                f"differ, by up to {float(np.nanmax(apart)):.3g}; the file does what was traced"
            )
    return notes


class NotThereError(Exception):
    """An engine lacks something that the model is right to use."""


def check_file(path: str | os.PathLike[str]) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        raise InternalError(f"the written model does not pass ONNX's checker: {error}") from error


def run_ingot(path: str, inputs: Mapping[str, Tensor]) -> Arrays:
    graph = ingot.compile(path)
    results = graph.inference({port.name: array_of(inputs[port.name]) for port in graph.inputs})
    return [results[port.name] for port in graph.outputs]


def run_onnxruntime(path: str, inputs: Mapping[str, Tensor]) -> tuple[Arrays, str]:
    """Results, and a note where there is something to say."""
    import onnxruntime

    def session(exact: bool) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # By default it rounds activations beside integer weights, and its integer products saturate on CPUs without
        # VNNI. The mode in which they do not fails where products share a weight.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        if exact:
            options.add_session_config_entry("session.x64quantprecision", "1")
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    note = ""
    try:
        try:
            opened = session(exact=True)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            opened = session(exact=False)
            note = "onnxruntime's exact mode fails on the file: it was run in its default mode, which may saturate"
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:  # bf16, newer operators
        raise NotThereError(str(error).split(" : ", 3)[-1].strip()) from error
    except Exception as error:
        raise InternalError(f"the written model does not load in onnxruntime: {error}") from error
    given = {port.name: array_of(inputs[port.name]) for port in opened.get_inputs()}
    try:
        return list(opened.run(None, given)), note
    except Exception as error:  # what its kernels refuse they say when they run
        raise NotThereError(str(error).split(" : ", 3)[-1].strip()) from error


def run_torch(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Arrays:
    with torch.no_grad():
        result = call(*args, **kwargs)
    return [array_of(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def array_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return np.asarray(tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.contiguous().numpy())


def _scale_behind(node: Any, constants: Mapping[str, Tensor]) -> float | None:
    """The scale of the pair that a value comes out of, through operators that only move data."""
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        name = getattr(node.target, "_opname", "")
        if name == "dequantize_per_tensor":
            scale = node.args[1]
            if isinstance(scale, torch.fx.Node):
                scale = constants.get(scale.name)
            return float(scale) if isinstance(scale, int | float | Tensor) else None
        if name not in MOVES:
            return None
        node = node.args[0]
    return None


def steps_of(program: ExportedProgram, constants: Mapping[str, Tensor], reference: Arrays) -> list[float]:
    """The size of one quantization step of each output: its scale; of floats, the 255th part of their range."""
    leaves = program.graph.output_node().args[0]
    steps = []
    for leaf, value in zip(leaves, reference, strict=True):
        scale = _scale_behind(leaf, constants)
        if scale is None:
            finite = value[np.isfinite(value)] if value.dtype.kind == "f" else np.zeros(0)
            scale = float(finite.max() - finite.min()) / 255 if finite.size else 1.0
        steps.append(scale or 1.0)
    return steps


def differences(
    between: str, names: Sequence[str], found: Arrays, wanted: Arrays, steps: list[float]
) -> list[Difference]:
    result = []
    for name, a, b, step in zip(names, found, wanted, steps, strict=True):
        if a.shape != b.shape:
            raise InternalError(f"output '{name}' has shape {a.shape}; PyTorch's has {b.shape}")
        with contextlib.suppress(TypeError), np.errstate(invalid="ignore"):
            apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
            apart[(a == b) | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))] = 0.0
            largest = float(apart.max()) if apart.size else 0.0
            share = float((apart > (1 + ROUNDING) * step).mean()) if apart.size else 0.0
            result.append(Difference(name, between, largest / step, largest, step, share))
    return result
