"""What tests share: small ONNX models built in memory, and the command line as a function."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("INGOT_CLI", str(ROOT / "build" / "bin" / "ingot"))
sys.path.insert(0, str(ROOT / "bench"))

# A cache of the tests' own: what other builds left on this machine must not matter.
os.environ.setdefault("INGOT_CACHE_DIR", str(ROOT / "build" / "test-cache"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Runs wait for their specialised kernels: otherwise most tests would end with the native ones.
os.environ.setdefault("INGOT_WAIT", "1")

Port = tuple[str, int, "Sequence[Any] | None"]


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    weights: Mapping[str, Any] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model from nodes, ports (name, type, shape) and initializers."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def mlp(hidden: int = 8) -> onnx.ModelProto:
    """relu(x @ w + b) @ v with a free batch: enough to have weights, a fusion and a symbolic dim."""
    random = np.random.default_rng(1)
    weights = {
        "w": random.standard_normal((4, hidden), dtype=np.float32),
        "b": random.standard_normal(hidden, dtype=np.float32),
        "v": random.standard_normal((hidden, 3), dtype=np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="first"),
        helper.make_node("Add", ["xw", "b"], ["h"], name="bias"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="second"),
    ]
    return make_model(
        nodes, [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 3])], weights
    )


def run_mlp(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    w = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    result: np.ndarray[Any, Any] = np.maximum(x @ w["w"] + w["b"], 0) @ w["v"]
    return result


@pytest.fixture
def mlp_path(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    return path


@pytest.fixture
def save(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    """Writes a model into the test's folder."""

    def write(model: onnx.ModelProto, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return write


@pytest.fixture(scope="session")
def node_cases() -> dict[str, Any]:
    """ONNX's own test cases, by name."""
    return {case.name: case for case in load_model_tests(kind="node")}


@dataclass
class Finished:
    code: int
    out: str
    err: str


def cli(*arguments: str | Path, cwd: Path | None = None, timeout: float = 120, **env: str) -> Finished:
    """Runs the `ingot` command of this build."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=timeout,
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """work(0), work(1), ... at the same time; what any of them raises, this raises."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def run_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    """What onnxruntime gives for those of the inputs that the model has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    result: list[Any] = session.run(None, {k: v for k, v in inputs.items() if k in wanted})
    return result


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Nothing of other tests in dynamo; what falls back to eager is an error."""
    import torch

    from ingot.torch import FallbackWarning

    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield
