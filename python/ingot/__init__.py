"""Ingot turns models into small, fast, self-contained CPU programs.

graph = ingot.compile("model.onnx")
outputs = graph.inference([input_ids, mask])
graph.save("ir_path")
graph.emit("model.so")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ingot._ingot import VERSION, Cancel, FusionEntry, Graph, Node, Port, State, open_model
from ingot.errors import (
    CancelledError,
    DeadlineError,
    Error,
    InternalError,
    InvalidInputError,
    InvalidModelError,
    IoError,
    ResourceError,
    UnsupportedError,
)
from ingot.onnx_quantizer import ConversionReport, QuantizationReport, convert, finish_export, quantize_onnx

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ingot.exporter import ExportReport, Model, Torch2ONNXConfig, export
    from ingot.torch_quantizer import (
        AccuracyCriterion,
        PostTrainingQuantConfig,
        QuantizationAwareTrainingConfig,
        QuantizedModel,
        TuningCriterion,
        prepare_qat,
        quantize,
    )

__version__: str = VERSION
__all__ = [
    "AccuracyCriterion",
    "Cancel",
    "CancelledError",
    "ConversionReport",
    "DeadlineError",
    "Error",
    "ExportReport",
    "FusionEntry",
    "Graph",
    "InternalError",
    "InvalidInputError",
    "InvalidModelError",
    "IoError",
    "Model",
    "Node",
    "Port",
    "PostTrainingQuantConfig",
    "QuantizationAwareTrainingConfig",
    "QuantizationReport",
    "QuantizedModel",
    "ResourceError",
    "State",
    "Torch2ONNXConfig",
    "TuningCriterion",
    "UnsupportedError",
    "__version__",
    "convert",
    "export",
    "finish_export",
    "load",
    "prepare_qat",
    "quantize",
    "quantize_onnx",
]  # not "compile" and "torch": `from ingot import *` must not hide Python's and PyTorch's own

# What needs PyTorch is loaded when it is first asked for.
_NEEDS_TORCH = {
    "AccuracyCriterion": "ingot.torch_quantizer",
    "ExportReport": "ingot.exporter",
    "Model": "ingot.exporter",
    "PostTrainingQuantConfig": "ingot.torch_quantizer",
    "QuantizationAwareTrainingConfig": "ingot.torch_quantizer",
    "QuantizedModel": "ingot.torch_quantizer",
    "Torch2ONNXConfig": "ingot.exporter",
    "TuningCriterion": "ingot.torch_quantizer",
    "export": "ingot.exporter",
    "prepare_qat": "ingot.torch_quantizer",
    "quantize": "ingot.torch_quantizer",
}


def __getattr__(name: str) -> Any:
    if name != "torch" and name not in _NEEDS_TORCH:
        raise AttributeError(f"module 'ingot' has no attribute '{name}'")
    try:
        if name == "torch":
            return importlib.import_module("ingot.torch")
        return getattr(importlib.import_module(_NEEDS_TORCH[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UnsupportedError(f"ingot.{name} needs PyTorch", "pip install torch") from None


def compile(
    path: str | bytes | os.PathLike[Any],
    *,
    patterns: Mapping[str, bool] | None = None,
    opt_level: int = 3,
    march: str = "native",
    threads: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    independent_dims: bool = False,
    wait: bool = False,
    limits: Mapping[str, float] | None = None,
) -> Graph:
    """Reads a model and optimises it. It runs at once and gets faster while machine code is made in the background.

    patterns switches fusions by name, shapes fixes the shapes of inputs (-1 leaves a dim free), march is native or
    a target of docs/targets.md (several, commas between, for a library), threads 0 takes what the process may use.
    independent_dims lets inputs differ in dims to which the model gives one name. Without it, a graph warns when that
    happens and compiles itself again; a library, which cannot, refuses.
    With wait, machine code is made first: here where shapes are known, else in the first run of each shape. Results
    are the same to the last bit. opt_level 0 fuses nothing, 1 makes no machine code.
    limits says how much the model may take: compile_seconds, fold_seconds, fold_bytes, nodes, memory_bytes, plans
    (docs/guarantees.md).
    """
    fixed = {name: list(shape) for name, shape in (shapes or {}).items()}
    return open_model(
        path,
        dict(patterns or {}),
        opt_level,
        march,
        threads,
        fixed,
        wait,
        False,
        independent_dims,
        dict(limits or {}),
    )


def load(
    path: str | bytes | os.PathLike[Any],
    *,
    threads: int = 0,
    wait: bool = False,
    limits: Mapping[str, float] | None = None,
) -> Graph:
    """Reads an IR folder, an .onnx file or a model.so. A library is code: load only those you trust.

    limits as for compile; of a library, only memory_bytes and plans matter.
    """
    return open_model(path, {}, 3, "native", threads, {}, wait, True, False, dict(limits or {}))
