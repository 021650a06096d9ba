"""What is tried while calls of the system fail: each operation of Ingot on a small model, and what must hold after."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def write_model(path: Path) -> None:
    """Two products with a GELU between them: weights, fusions, and large enough to be specialised."""
    random = np.random.default_rng(1)
    weights = {name: (random.standard_normal((64, 64)) / 8).astype(np.float32) for name in ("w", "v")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gelu", ["a"], ["g"]),
        helper.make_node("MatMul", ["g", "v"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 64]) for n in "xy")
    constants = [numpy_helper.from_array(a, name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


@dataclass
class Operation:
    """act is what is tried; its result goes to `good`. `output` is what it writes, which must be whole at any time."""

    act: Callable[[Path], Any]
    good: Callable[[Path, Any], bool]
    output: str = ""


EXPECTED: dict[str, Any] = {}


def close(found: Any, tolerance: float = 1e-4) -> bool:
    return bool(np.allclose(found, EXPECTED["y"], atol=tolerance))


def prepare(folder: Path) -> None:
    write_model(folder / "model.onnx")
    graph = ingot.compile(folder / "model.onnx", threads=2)
    EXPECTED["y"] = graph.inference([X])["y"]
    EXPECTED["graph"] = graph
    graph.save(folder / "ir")
    graph.emit(folder / "model.so")
    quantize(folder)
    convert(folder)


def runs(path: Path, tolerance: float = 1e-4) -> bool:
    return close(ingot.load(path, threads=1).inference([X])["y"], tolerance)


def quantize(folder: Path) -> None:
    ingot.quantize_onnx(folder / "model.onnx", folder / "int8.onnx", calib=[{"x": X}], quant_format="qdq")


def convert(folder: Path) -> None:
    ingot.convert(folder / "int8.onnx", folder / "qlinear.onnx", to="qlinear")


def specialise(folder: Path) -> Any:
    """Machine code made anew, and into the disk cache."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    graph = ingot.compile(folder / "model.onnx", threads=2, wait=True)
    graph.use_cache(folder / "cache")
    return graph.inference([X])["y"]


def torch_module(folder: Path) -> Any:
    import torch

    import ingot.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).eval()
    ingot.torch.clear_cache()
    x = torch.from_numpy(X)
    with torch.no_grad():
        found = torch.compile(model, backend="ingot", options={"cache_dir": str(folder / "torch")})(x)
        expected = model(x)
    torch._dynamo.reset()
    return bool(torch.allclose(found, expected, atol=1e-4))


def any_result(_: Path, result: Any) -> bool:
    return close(result)


OPERATIONS: dict[str, Operation] = {
    "compile": Operation(
        lambda f: ingot.compile(f / "model.onnx", threads=2), lambda _, graph: close(graph.inference([X])["y"])
    ),
    "run": Operation(lambda _: EXPECTED["graph"].inference([X])["y"], any_result),
    "specialise": Operation(specialise, any_result),
    "save": Operation(lambda f: EXPECTED["graph"].save(f / "ir"), lambda f, _: runs(f / "ir"), "ir"),
    "emit": Operation(lambda f: EXPECTED["graph"].emit(f / "model.so"), lambda f, _: runs(f / "model.so"), "model.so"),
    "load IR": Operation(lambda f: ingot.load(f / "ir", threads=2).inference([X])["y"], any_result),
    "load library": Operation(lambda f: ingot.load(f / "model.so", threads=2).inference([X])["y"], any_result),
    "quantize": Operation(quantize, lambda f, _: runs(f / "int8.onnx", 0.5), "int8.onnx"),
    "convert": Operation(convert, lambda f, _: runs(f / "qlinear.onnx", 0.5), "qlinear.onnx"),
    "torch": Operation(torch_module, lambda _, same: bool(same)),
}


def whole(operation: Operation, folder: Path) -> bool:
    """The output is what it was or what it becomes."""
    return not operation.output or operation.good(folder, None)


def listed(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if "cache" not in p.parts and "torch" not in p.parts}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
