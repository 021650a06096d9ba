"""The engines a benchmark runs side by side, each as a function that takes no arguments and runs the model once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Run = Callable[[], list[NDArray[Any]]]
    Inputs = Mapping[str, NDArray[Any]]


# What keeps oneDNN, and so OpenVINO, from instructions that a CPU has; read when it is loaded.
ONEDNN_ISA = "ONEDNN_MAX_CPU_ISA"


def runs_of(graph: ingot.Graph, inputs: Inputs) -> Run:
    arrays = [inputs[port.name] for port in graph.inputs]
    return lambda: list(graph.inference(arrays).values())


def ingot_engine(path: Path, inputs: Inputs, threads: int, fixed: bool = True) -> Run:
    """fixed: compiled for these shapes, as OpenVINO is below."""
    shapes = {name: list(array.shape) for name, array in inputs.items()} if fixed else None
    return runs_of(ingot.compile(path, threads=threads, shapes=shapes, wait=True), inputs)


def starting_ingot_engine(path: Path, inputs: Inputs, threads: int) -> Run:
    """Free sizes, and no waiting for specialised kernels."""
    return runs_of(ingot.compile(path, threads=threads), inputs)


def library_engine(path: Path, inputs: Inputs, threads: int) -> Run:
    return runs_of(ingot.load(path, threads=threads), inputs)


def onnxruntime_engine(path: Path, inputs: Inputs, threads: int, exact: bool = False) -> Run:
    """exact: integer products that do not saturate on CPUs without VNNI."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {i.name: inputs[i.name] for i in session.get_inputs()}
    return lambda: list(session.run(None, feed))


def exact_onnxruntime_engine(path: Path, inputs: Inputs, threads: int) -> Run:
    return onnxruntime_engine(path, inputs, threads, exact=True)


def openvino_engine(path: Path, inputs: Inputs, threads: int, fixed: bool = True) -> Run:
    """fixed: reshaped to these shapes."""
    import openvino as ov

    core = ov.Core()
    model = core.read_model(str(path))
    if fixed:
        model.reshape({name: list(array.shape) for name, array in inputs.items()})
    config = {
        "INFERENCE_NUM_THREADS": str(threads),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", config).create_infer_request()
    feed = dict(inputs)
    return lambda: list(request.infer(feed, share_inputs=True).to_tuple())


def openvino_survives(model: str) -> bool:
    """Does OpenVINO, in a process of its own, run this one of QUANTIZED_MODELS? An error is not death."""
    code = f"""
from engines import openvino_engine
from models import QUANTIZED_MODELS
model = QUANTIZED_MODELS[{model!r}]
openvino_engine(model.path(), model.inputs(), 1)()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True)
    return done.returncode >= 0


def torch_engine(module: Any, inputs: Inputs, threads: int) -> Run:
    import torch

    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def run() -> list[NDArray[Any]]:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return [module(*tensors).numpy()]

    return run
