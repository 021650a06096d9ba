"""What starting costs: compiling cold and from the cache, a model.so's size and load time, and the price of a call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import ingot

# Runs in a fresh process: nothing is warm but the files.
CHILD = """
import json, re, sys, time
import numpy as np
import ingot
path, threads, shapes = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
inputs = dict(np.load(sys.argv[4]))
start = time.perf_counter()
if path.endswith(".so"):
    graph = ingot.load(path, threads=threads)
else:
    graph = ingot.compile(path, threads=threads, shapes=shapes)
ready = time.perf_counter()
graph.inference(inputs)
done = time.perf_counter()
# Not ru_maxrss: that is inherited from the process that started this one.
rss = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps({"open_s": ready - start, "first_result_s": done - start, "peak_rss_mb": rss}))
"""


def fresh_process(path: Path, inputs: dict[str, Any], cache: Path, *, fixed: bool) -> dict[str, float]:
    shapes = {name: list(array.shape) for name, array in inputs.items()} if fixed else {}
    with tempfile.NamedTemporaryFile(suffix=".npz") as data:
        np.savez(data, **inputs)
        data.flush()
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(path), "1", json.dumps(shapes), data.name],
            env={**os.environ, "INGOT_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def startup(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Cold and cached compile times until the first result, and the same for an emitted library."""
    with tempfile.TemporaryDirectory() as folder:
        cache, library = Path(folder) / "cache", Path(folder) / "model.so"
        result: dict[str, Any] = {
            "cold": fresh_process(path, inputs, cache, fixed=True),
            "cached": fresh_process(path, inputs, cache, fixed=True),
        }
        graph = ingot.compile(path, shapes={name: list(array.shape) for name, array in inputs.items()})
        graph.emit(library)
        weights = sum(
            int(np.prod(t.dims)) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
            for t in onnx.load(path).graph.initializer
        )
        result["library"] = {
            **fresh_process(library, inputs, cache, fixed=False),
            "size_mb": library.stat().st_size / 1e6,
            "over_weights_mb": (library.stat().st_size - weights) / 1e6,
        }
    return result


def call_overhead() -> dict[str, float]:
    """Microseconds per call of a model with one Add of 4 numbers: all of it is overhead. numpy's own for scale."""
    node = helper.make_node("Add", ["x", "y"], ["z"])
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xyz"]
    model = helper.make_model(
        helper.make_graph([node], "one", ports[:2], ports[2:]), opset_imports=[helper.make_opsetid("", 20)]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        onnx.save(model, path)
        graph = ingot.compile(path, threads=1)
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    inputs = [x, y]
    graph.inference(inputs)

    def best(call: Any) -> float:
        return min(timeit.repeat(call, number=5000, repeat=15)) / 5000 * 1e6

    empty = best(lambda: inputs)
    return {
        "inference_us": best(lambda: graph.inference(inputs)) - empty,
        "numpy_add_us": best(lambda: np.add(x, y)) - empty,
    }
