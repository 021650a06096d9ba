"""Deep, wide and huge: the time to compile grows with the size, not with its square."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Save = Callable[..., Path]

F32 = TensorProto.FLOAT
X = np.array([1, -2, 3, -4], np.float32)


def test_a_chain_of_100_000_nodes(save: Save) -> None:
    count = 100_000
    nodes = [helper.make_node("Neg", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(count)]
    for node in nodes[::3]:
        node.op_type = "Ceil"
    path = save(make_model(nodes, [("x", F32, [4])], [(f"t{count}", F32, [4])]))
    expected = X + np.float32(0.5)
    found = ingot.compile(path, opt_level=1).inference([expected])[f"t{count}"]
    for node in nodes:
        expected = np.ceil(expected) if node.op_type == "Ceil" else -expected
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["Sum", "Max", "Mean"])
def test_one_node_with_100_000_operands(save: Save, op: str) -> None:
    count = 100_000
    path = save(make_model([helper.make_node(op, ["x"] * count, ["y"])], [("x", F32, [4])], [("y", F32, [4])]))
    expected = X * count if op == "Sum" else X
    np.testing.assert_allclose(ingot.compile(path, opt_level=1).inference([X])["y"], expected, rtol=1e-4)


def test_100_000_readers_of_one_tensor(save: Save) -> None:
    """A chain in which every node reads x too, and one Sum of as many results."""
    count = 50_000
    chain = [helper.make_node("Max", [f"t{i}" if i else "x", "x"], [f"t{i + 1}"]) for i in range(count)]
    for node in chain[::2]:
        node.op_type = "Add"
    wide = [helper.make_node("Neg" if i % 2 else "Abs", ["x"], [f"u{i}"]) for i in range(count)]
    last = helper.make_node("Sum", [f"u{i}" for i in range(count)] + [f"t{count}"], ["y"])
    path = save(make_model([*chain, *wide, last], [("x", F32, [4])], [("y", F32, [4])]))
    x = -np.abs(X)
    expected = x.copy()
    for node in chain:
        expected = np.maximum(expected, x) if node.op_type == "Max" else expected + x
    np.testing.assert_allclose(ingot.compile(path).inference([x])["y"], expected - x * count, rtol=1e-4)


def test_functions_that_double_20_times_are_refused(save: Save) -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for depth in range(20):
        inner = {"op_type": f"f{depth + 1}", "domain": "f"} if depth < 19 else {"op_type": "Relu", "domain": ""}
        nodes = [helper.make_node(inputs=[a], outputs=[b], **inner) for a, b in (("a", "b"), ("b", "c"))]
        functions.append(helper.make_function("f", f"f{depth}", ["a"], ["c"], nodes, opsets))
    model = make_model([helper.make_node("f0", ["x"], ["y"], domain="f")], [("x", F32, [4])], [("y", F32, [4])])
    model.opset_import.append(opsets[1])
    model.functions.extend(functions)
    with pytest.raises(ingot.InvalidModelError, match="nodes once functions are inlined"):
        ingot.compile(save(model))


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_a_window_of_a_million_by_a_million(save: Save, op: str) -> None:
    size = 1 << 20
    more = {"count_include_pad": 1} if op == "AveragePool" else {}
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[size, size], pads=[size // 2] * 4, **more)
    path = save(make_model([node], [("x", F32, [1, 1, 4, 4])], [("y", F32, None)]))
    x = np.ones((1, 1, 4, 4), np.float32)
    for level in (0, 3):
        found = ingot.compile(path, opt_level=level).inference([x])["y"]
        assert found.shape == (1, 1, 5, 5)
        expected = {"AveragePool": 16 / size / size, "MaxPool": 1, "LpPool": 4}[op]
        np.testing.assert_allclose(found[0, 0, 2, 2], expected, rtol=1e-5)
