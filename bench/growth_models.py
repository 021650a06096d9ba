"""The nets of growth.py, written node by node: sizes to choose, weights random, opset 20."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path


class Net:
    """Nodes in order, each with one result whose name is its number."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def model(self, shape: list[int | str], result: str) -> Any:
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", result)]
        graph = helper.make_graph(self.nodes, "growth", ports[:1], ports[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def encoder(layers: int, width: int = 384, heads: int = 12) -> Any:
    """A transformer encoder of MiniLM's sizes on hidden states [batch, length, width], both free."""
    net = Net()
    ones, zeros = net.constant(np.ones(width, np.float32)), net.constant(np.zeros(width, np.float32))
    split = net.constant(np.array([0, 0, heads, width // heads]))
    whole = net.constant(np.array([0, 0, width]))
    root = net.constant(np.float32((width // heads) ** -0.5))

    def dense(x: str, rows: int, columns: int) -> str:
        return net("Add", net("MatMul", x, net.weight(rows, columns)), net.weight(columns))

    def by_heads(x: str, order: list[int]) -> str:
        return net("Transpose", net("Reshape", dense(x, width, width), split), perm=order)

    x = "x"
    for _ in range(layers):
        scores = net("MatMul", by_heads(x, [0, 2, 1, 3]), by_heads(x, [0, 2, 3, 1]))
        shares = net("Softmax", net("Mul", scores, root), axis=-1)
        mixed = net("Transpose", net("MatMul", shares, by_heads(x, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        x = net("LayerNormalization", net("Add", x, dense(net("Reshape", mixed, whole), width, width)), ones, zeros)
        wide = net("Gelu", dense(x, width, 4 * width))
        x = net("LayerNormalization", net("Add", x, dense(wide, 4 * width, width)), ones, zeros)
    return net.model(["batch", "length", width], x)


def chain(nodes: int, width: int = 64) -> Any:
    """About this many nodes in a row: products, biases, activations and sums with what came before."""
    net = Net()
    x = "x"
    while len(net.nodes) + 5 <= max(nodes, 5):
        inner = net("Add", net("MatMul", x, net.weight(width, width)), net.weight(width))
        x = net("Tanh", net("Add", x, net("Relu", inner)))
    return net.model(["batch", width], x)


def wide(megabytes: int, folder: Path, width: int = 1024) -> str:
    """A file with this much in weights, beside it as external data: products of 4 MB each."""
    count = max(megabytes * 2**20 // (4 * width * width), 1)
    net = Net()
    x = "x"
    one = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32) / np.float32(width**0.5)
    data = folder / "weights.data"
    with data.open("wb") as file:
        for i in range(count):
            (one + np.float32(i * 1e-4)).tofile(file)
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[width, width])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", i * one.nbytes), ("length", one.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            net.weights.append(tensor)
            x = net("Tanh", net("MatMul", x, tensor.name))
    path = folder / "wide.onnx"
    path.write_bytes(net.model(["batch", width], x).SerializeToString())
    return str(path)
