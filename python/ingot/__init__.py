"""Ingot turns models into small, fast, self-contained CPU programs.

graph = ingot.compile("model.onnx")
outputs = graph.inference([input_ids, mask])
graph.save("ir_path")
graph.emit("model.so")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ingot._ingot import VERSION, FusionEntry, Graph, Node, Port, open_model
from ingot.errors import (
    Error,
    InternalError,
    InvalidInputError,
    InvalidModelError,
    IoError,
    UnsupportedError,
)
from ingot.quantization import QuantizationReport, convert, quantize_onnx

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

__version__: str = VERSION
__all__ = [
    "Error",
    "FusionEntry",
    "Graph",
    "InternalError",
    "InvalidInputError",
    "InvalidModelError",
    "IoError",
    "Node",
    "Port",
    "QuantizationReport",
    "UnsupportedError",
    "__version__",
    "compile",
    "convert",
    "load",
    "quantize_onnx",
    "torch",
]


def __getattr__(name: str) -> Any:
    """ingot.torch is there without an import of its own, but torch is imported only when it is asked for."""
    if name == "torch":
        return importlib.import_module("ingot.torch")
    raise AttributeError(f"module 'ingot' has no attribute '{name}'")


def compile(
    path: str | os.PathLike[str],
    *,
    patterns: Mapping[str, bool] | None = None,
    opt_level: int = 3,
    march: str = "native",
    threads: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """Reads a model and optimises it; machine code is made when it first runs or is emitted.

    patterns switches fusions by name, shapes fixes the shapes of inputs (-1 leaves a dim free), march is native,
    x86-64-v3 or x86-64-v2, threads 0 takes what the process may use.
    """
    fixed = {name: list(shape) for name, shape in (shapes or {}).items()}
    return open_model(path, dict(patterns or {}), opt_level, march, threads, fixed, False)


def load(path: str | os.PathLike[str], *, threads: int = 0) -> Graph:
    """Reads an IR folder, an .onnx file or a model.so. A library is code: load only those you trust."""
    return open_model(path, {}, 3, "native", threads, {}, True)
