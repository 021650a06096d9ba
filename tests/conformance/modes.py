"""The ways a case is run. A mode takes model, inputs and a scratch folder, and gives the outputs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Outputs = list[Any]
    Mode = Callable[[onnx.ModelProto, dict[str, Any], Path], Outputs]


def save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def fixed_shapes(inputs: dict[str, Any]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in inputs.items() if isinstance(value, np.ndarray)}


def static(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path) -> Outputs:
    """Compiled for the shapes at hand."""
    graph = ingot.compile(save(model, folder), threads=1, shapes=fixed_shapes(inputs))
    return list(graph.inference(inputs).values())


def dynamic(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path) -> Outputs:
    """No dim of any input is known, nor anything that follows from one."""
    free = copy.deepcopy(model)
    del free.graph.value_info[:]
    for port in free.graph.input:
        if port.type.HasField("tensor_type"):
            for i, dim in enumerate(port.type.tensor_type.shape.dim):
                dim.Clear()
                dim.dim_param = f"{port.name}_d{i}"
    for port in free.graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
    return list(ingot.compile(save(free, folder), threads=1).inference(inputs).values())


def constant(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path) -> Outputs:
    """Tensors that are inputs become part of the model: whatever can be folded is folded."""
    fixed = copy.deepcopy(model)
    rest = dict(inputs)
    for port in list(fixed.graph.input):
        value = inputs.get(port.name)
        if not isinstance(value, np.ndarray) or not port.type.HasField("tensor_type"):
            continue
        if value.dtype.kind in "OUS":
            flat = [x if isinstance(x, bytes) else x.encode() for x in value.ravel().tolist()]
            tensor = helper.make_tensor(port.name, onnx.TensorProto.STRING, value.shape, flat)
        else:
            tensor = numpy_helper.from_array(value, port.name)
            tensor.data_type = port.type.tensor_type.elem_type
        fixed.graph.initializer.append(tensor)
        fixed.graph.input.remove(port)
        del rest[port.name]
    return list(ingot.compile(save(fixed, folder), threads=1).inference(rest).values())


def library(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path) -> Outputs:
    """Through model.so and its C interface."""
    ingot.compile(save(model, folder), threads=1).emit(folder / "model.so")
    return list(ingot.load(folder / "model.so", threads=1).inference(inputs).values())


def ir(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path) -> Outputs:
    """Through Engine IR on disk."""
    ingot.compile(save(model, folder), threads=1).save(folder / "ir")
    return list(ingot.load(folder / "ir", threads=1).inference(inputs).values())


# Types that numpy does not have: onnxruntime takes and gives their bits.
AS_BITS = {
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.FLOAT8E4M3FN,
    onnx.TensorProto.FLOAT8E4M3FNUZ,
    onnx.TensorProto.FLOAT8E5M2,
    onnx.TensorProto.FLOAT8E5M2FNUZ,
}


def onnxruntime(model: onnx.ModelProto, inputs: dict[str, Any], folder: Path, optimised: bool = True) -> Outputs:
    """The peer, as it comes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    types = {port.name: port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output)}
    feed = {}
    for name, value in inputs.items():
        feed[name] = np.asarray(value) if isinstance(value, np.generic) else value
        if types[name] in AS_BITS:
            bits = value.view(f"u{value.itemsize}")
            feed[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, types[name])
    results = session.run(None, feed)
    kinds = [types[port.name] for port in model.graph.output]
    return [
        r.view(helper.tensor_dtype_to_np_dtype(k)) if k in AS_BITS else r for r, k in zip(results, kinds, strict=True)
    ]


MODES: dict[str, Mode] = {
    "static": static,
    "dynamic": dynamic,
    "constant": constant,
    "library": library,
    "ir": ir,
    "onnxruntime": onnxruntime,
}
