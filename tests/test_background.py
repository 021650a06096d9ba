"""Sessions that begin with native kernels and get specialised ones while they run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ingot
from ingot._ingot import kernels_compiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

F32 = TensorProto.FLOAT


def weights(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32) / 4


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def model(nodes: list[onnx.NodeProto], shape: list[Any], constants: dict[str, Any]) -> onnx.ModelProto:
    return make_model(nodes, [("x", F32, shape)], [("y", F32, None)], constants)


def long_epilogue() -> onnx.ModelProto:
    """Its registers do not fit for a whole tile."""
    steps = [node("Mul" if i % 2 else "Add", f"t{i} c{i}", f"t{i + 1}") for i in range(50)]
    constants = {f"c{i}": np.float32(1 + i / 64) for i in range(50)}
    nodes = [node("MatMul", "x w", "t0"), *steps, node("Sub", "t50 b", "y")]
    return model(nodes, ["n", 96], {"w": weights(96, 83), "b": weights(83), **constants})


# Each kind of kernel that is specialised, with an epilogue of several operators: a product and a sum side by side would
# be contracted to one FMA if the code generator were free to.
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "gemm": lambda: model(
        [
            node("MatMul", "x w", "p"),
            node("Add", "p b", "q"),
            node("Mul", "q s", "r"),
            node("Add", "r x2", "t"),
            node("Sigmoid", "t", "y"),
        ],
        ["n", 96],
        {"w": weights(96, 80), "b": weights(80), "s": weights(80), "x2": weights(80)},
    ),
    "long epilogue": long_epilogue,
    "conv": lambda: model(
        [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("HardSwish", "c", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(40, 24, 3, 3), "b": weights(40)},
    ),
    "depthwise": lambda: model(
        [node("Conv", "x w b", "c", pads=[2, 2, 2, 2], group=24), node("Mul", "c s", "d"), node("Add", "d s", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(24, 1, 5, 5), "b": weights(24), "s": weights(24, 1, 1)},
    ),
    "groups of two channels": lambda: model(
        [node("Conv", "x w b", "c", pads=[1, 1, 1, 1], group=12), node("HardSwish", "c", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(24, 2, 3, 3), "b": weights(24)},
    ),
    "conv to few channels": lambda: model(
        [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("HardSwish", "c", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(3, 24, 3, 3), "b": weights(3)},
    ),
    "conv to part of a panel": lambda: model(
        [node("Conv", "x w b", "c", strides=[2, 2]), node("HardSwish", "c", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(24, 24, 3, 3), "b": weights(24)},
    ),
    "transposed conv": lambda: model(
        [node("ConvTranspose", "x w b", "c", strides=[2, 2]), node("HardSwish", "c", "y")],
        ["n", 24, "h", "w"],
        {"w": weights(24, 9, 3, 3), "b": weights(9)},
    ),
    "elementwise": lambda: model(
        [node("Mul", "x s", "a"), node("Add", "a s", "b"), node("Erf", "b", "c"), node("Mul", "c x", "y")],
        ["n", 24, "h", "w"],
        {"s": weights(24, 1, 1)},
    ),
    "reduce": lambda: model(
        [node("Mul", "x x", "a"), node("Add", "a x", "b"), node("ReduceSum", "b axes", "y", keepdims=0)],
        ["n", 24, "h", "w"],
        {"axes": np.array([2, 3])},
    ),
    "pool": lambda: model(
        [
            node("Conv", "x w", "c"),
            node("AveragePool", "c", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        ],
        ["n", 24, "h", "w"],
        {"w": weights(24, 24, 1, 1)},
    ),
    "norm": lambda: model(
        [node("LayerNormalization", "x g b", "a", axis=-1), node("Softmax", "a", "y", axis=-1)],
        ["n", 96],
        {"g": weights(96), "b": weights(96)},
    ),
}


def sample(name: str, size: int) -> Any:
    shape = (size * 7, 96) if name in ("gemm", "long epilogue", "norm") else (1, 24, size + 13, size + 8)
    return weights(*shape)


@pytest.mark.parametrize("name", MODELS)
def test_native_and_specialised_kernels_agree_to_the_last_bit(name: str, tmp_path: Path) -> None:
    onnx.save(MODELS[name](), tmp_path / "m.onnx")
    native = ingot.compile(tmp_path / "m.onnx", opt_level=1)
    fast = ingot.compile(tmp_path / "m.onnx", wait=True)
    for size in (1, 4, 23):
        x = sample(name, size)
        np.testing.assert_array_equal(native.inference([x])["y"], fast.inference([x])["y"])


@pytest.mark.parametrize("name", ["gemm", "conv", "elementwise"])
def test_sizes_share_a_kernel(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGOT_CACHE", "off")
    onnx.save(MODELS[name](), tmp_path / "m.onnx")
    graph = ingot.compile(tmp_path / "m.onnx", wait=True)
    graph.inference([sample(name, 20)])
    before = kernels_compiled()
    for size in (21, 31, 47):
        graph.inference([sample(name, size)])
    assert kernels_compiled() == before


CHILD = """
import os, sys, time
import numpy as np
import ingot
from ingot._ingot import kernels_compiled
x = np.ones((1, 24, 33, 28), np.float32)
graph = ingot.compile(sys.argv[1])
first = graph.inference([x])["y"]
what = sys.argv[2]
if what == "wait":
    end = time.monotonic() + 120
    while kernels_compiled() == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert kernels_compiled() > 0
elif what == "delete":
    del graph
elif what == "fork":
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 120
        while kernels_compiled() == 0 and time.monotonic() < end:
            assert (graph.inference([x])["y"] == first).all()
        os._exit(0 if kernels_compiled() > 0 else 3)
    assert os.waitpid(child, 0)[1] == 0
if what != "delete":
    assert (graph.inference([x])["y"] == first).all()
"""


@pytest.mark.parametrize("what", ["wait", "exit", "delete", "fork"])
def test_processes_end_cleanly(what: str, tmp_path: Path) -> None:
    onnx.save(MODELS["conv"](), tmp_path / "m.onnx")
    environment = {**os.environ, "INGOT_WAIT": "0", "INGOT_CACHE_DIR": str(tmp_path / "cache")}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "m.onnx"), what],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 200
    assert not list((tmp_path / "cache").glob("*.new*")), "a half-written entry"
