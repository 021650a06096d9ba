"""Inputs whose dims share a name but not a size: exporters write such models, and onnxruntime runs them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import cli
from onnx import TensorProto, helper, numpy_helper
from test_operators import onnxruntime

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

RANDOM = np.random.default_rng(3)
F, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def normal(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], outputs: dict[str, int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info(name, F, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs.items()],
        [numpy_helper.from_array(np.array([-1, 4]), "pairs")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def shared() -> onnx.ModelProto:
    """What equal names let a compiler conclude, and a wrong one would: that the Expand does nothing, that a size of b
    can be read off a, and that the matrix is square."""
    nodes = [
        helper.make_node("Shape", ["b"], ["b_shape"]),
        helper.make_node("Shape", ["a"], ["a_shape"]),
        helper.make_node("Expand", ["one", "b_shape"], ["expanded"]),
        helper.make_node("MatMul", ["square", "expanded"], ["product"]),
        helper.make_node("Reshape", ["a", "pairs"], ["rows"]),
        helper.make_node("Concat", ["rows", "b"], ["joined"], axis=0),
        helper.make_node("Size", ["b"], ["b_size"]),
        helper.make_node("Transpose", ["square"], ["turned"], perm=[1, 0]),
    ]
    inputs: dict[str, list[Any]] = {"a": ["n", 4], "b": ["n", 4], "one": ["n", 4], "square": ["m", "m"]}
    return model_of(nodes, inputs, {"product": F, "joined": F, "b_size": I64, "a_shape": I64, "turned": F})


def feed_of(a: int, b: int, one: int, square: tuple[int, int]) -> dict[str, NDArray[Any]]:
    return {"a": normal(a, 4), "b": normal(b, 4), "one": normal(one, 4), "square": normal(*square)}


def check(graph: ingot.Graph, model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> None:
    for actual, expected in zip(graph.inference(feed).values(), onnxruntime(model, feed), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_warns_once_and_goes_on(save: Save, shared: onnx.ModelProto) -> None:
    graph = ingot.compile(save(shared))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(graph, shared, feed_of(5, 5, 5, (5, 5)))
    with pytest.warns(RuntimeWarning, match="'a' and 'b' must agree on 'n', got 5 and 3"):
        check(graph, shared, feed_of(5, 3, 3, (3, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sizes in [(2, 7, 1, (6, 7)), (1, 4, 4, (2, 4)), (5, 5, 5, (5, 5))]:
            check(graph, shared, feed_of(*sizes))


def test_a_warning_may_be_an_error(save: Save, shared: onnx.ModelProto) -> None:
    graph = ingot.compile(save(shared))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="must agree"):
            graph.inference(feed_of(5, 3, 3, (3, 3)))


def test_strings_beside_numbers(save: Save) -> None:
    """A graph of more than one region."""
    nodes = [
        helper.make_node("StringConcat", ["s", "t"], ["u"]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=0),
    ]
    model = model_of(nodes, {"a": ["n"], "b": ["n"], "s": ["n"], "t": [1]}, {"y": F, "u": STRING})
    for port in model.graph.input[2:]:
        port.type.tensor_type.elem_type = STRING
    model.opset_import[0].version = 20
    graph = ingot.compile(save(model))
    feed = {"a": normal(2), "b": normal(3), "s": np.array(["a", "b"], object), "t": np.array(["!"], object)}
    with pytest.warns(RuntimeWarning, match="must agree"):
        found = graph.inference(feed)
    assert found["u"].tolist() == ["a!", "b!"]
    np.testing.assert_array_equal(found["y"], np.concatenate([feed["a"], feed["b"]]))


def test_autocast_keeps_going_on(save: Save, shared: onnx.ModelProto) -> None:
    graph = ingot.compile(save(shared)).autocast("bf16")
    feed = feed_of(5, 3, 3, (3, 3))
    with pytest.warns(RuntimeWarning, match="must agree"):
        found = graph.inference(feed)
    np.testing.assert_allclose(found["product"], onnxruntime(shared, feed)[0], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("independent", [False, True])
def test_library(save: Save, tmp_path: Path, shared: onnx.ModelProto, independent: bool) -> None:
    """A library cannot compile again: it refuses, unless it was made for it."""
    ingot.compile(save(shared), independent_dims=independent).emit(tmp_path / "model.so")
    library = ingot.load(tmp_path / "model.so")
    check(library, shared, feed_of(5, 5, 5, (5, 5)))
    feed = feed_of(2, 7, 1, (6, 7))
    if independent:
        check(library, shared, feed)
    else:
        with pytest.raises(ingot.InvalidInputError, match=r"must agree on 'n'(.|\n)*independent dims"):
            library.inference(feed)


def test_command_line(save: Save, tmp_path: Path, shared: onnx.ModelProto) -> None:
    path = save(shared)
    feed = feed_of(2, 7, 1, (6, 7))
    named: dict[str, Any] = feed
    np.savez(tmp_path / "feed.npz", **named)
    command: list[str | Path] = ["run", path, "--input", tmp_path / "feed.npz", "--output", tmp_path / "out.npz"]
    assert "warning: inputs 'a' and 'b' must agree on 'n', got 2 and 7" in cli(*command).err
    expected = onnxruntime(shared, feed)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["product"], expected[0], rtol=1e-5, atol=1e-5)
    assert "warning" not in cli(*command, "--independent-dims").err
