"""Operators that are formulas of others, against numpy and ONNX's reference; the node cases test their attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import make_model
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[[onnx.ModelProto], Path]

RANDOM = np.random.default_rng(0)


def ops(graph: ingot.Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 6)]),
        ("b...,c...->bc...", [(2, 3, 4), (5, 3, 4)]),
        ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 6)]),
        ("abcd,cdef->abef", [(2, 3, 4, 5), (4, 5, 2, 3)]),
        ("abcd,cdef->abef", [(2, 0, 4, 5), (4, 5, 2, 3)]),
        ("...ii->...i", [(2, 3, 4, 4)]),
        ("iii", [(3, 3, 3)]),
        ("ijij->ij", [(3, 4, 3, 4)]),
        ("ba,cb", [(3, 4), (5, 3)]),
        ("ab,bc,ca->", [(2, 3), (3, 4), (4, 2)]),
        (",a->a", [(), (3,)]),
    ],
)
def test_einsum_agrees_with_numpy(save: Save, equation: str, shapes: list[tuple[int, ...]], free: bool) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    inputs: list[Any] = [
        (name, TensorProto.FLOAT, [f"{name}_{d}" for d in range(len(shape))] if free else shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    expected = np.einsum(equation, *arrays)
    model = make_model([node], inputs, [("y", TensorProto.FLOAT, [None] * expected.ndim)])
    actual = ingot.compile(save(model)).inference(arrays)["y"]
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_attention_becomes_one_node_and_agrees_with_the_reference(save: Save, mask: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {"Q": (2, 4, 5, 8), "K": (2, 2, 5, 8), "V": (2, 2, 5, 6)}
    feeds: dict[str, Any] = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs: list[Any] = [(name, TensorProto.FLOAT, ["batch", *shape[1:]]) for name, shape in shapes.items()]
    allowed = RANDOM.random((5, 5)) > 0.5
    allowed[1] = False  # a query that sees nothing
    if mask == "bool":
        feeds["M"] = allowed
        inputs.append(("M", TensorProto.BOOL, [5, 5]))
    elif mask == "float":
        feeds["M"] = np.where(allowed, 1, -np.inf).astype(np.float32)
        inputs.append(("M", TensorProto.FLOAT, [5, 5]))
    node = helper.make_node("Attention", list(feeds), ["Y"], is_causal=int(mask == "causal"))
    model = make_model([node], inputs, [("Y", TensorProto.FLOAT, ["batch", 4, 5, 6])], opset=23)
    graph = ingot.compile(save(model))
    assert ops(graph) == ["ingot.Attention"]
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(graph.inference(feeds)["Y"], expected, rtol=1e-4, atol=1e-5)


def test_missing_rank_is_named(save: Save) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], equation="ij->ji", name="turn")
    model = make_model([node], [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
    with pytest.raises(ingot.UnsupportedError, match=r"turn.*the rank of 'x' is not known"):
        ingot.compile(save(model))


FREE_THEN_WRONG: dict[str, tuple[str, int, list[tuple[int, ...]], dict[str, Any]]] = {
    "an odd head": ("RotaryEmbedding", 23, [(1, 2, 3, 5), (1, 3, 2), (1, 3, 2)], {}),
    "caches of another head": ("RotaryEmbedding", 23, [(1, 2, 3, 8), (1, 3, 3), (1, 3, 3)], {}),
    "heads that do not divide": ("RotaryEmbedding", 23, [(1, 3, 10), (1, 3, 2), (1, 3, 2)], {"num_heads": 4}),
    "a state that is too short": ("CausalConvWithState", 27, [(1, 2, 6), (2, 1, 4), (2,), (1, 2, 2)], {}),
}


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", FREE_THEN_WRONG)
def test_sizes_that_do_not_fit_are_errors_whenever_they_are_known(save: Save, name: str, fixed: bool) -> None:
    op, opset, shapes, attributes = FREE_THEN_WRONG[name]
    feeds = {f"x{i}": np.ones(shape, np.float32) for i, shape in enumerate(shapes)}
    inputs: list[Any] = [
        (port, TensorProto.FLOAT, x.shape if fixed else [f"{port}_{d}" for d in range(x.ndim)])
        for port, x in feeds.items()
    ]
    node = helper.make_node(op, list(feeds), ["y"], **attributes)
    model = make_model([node], inputs, [("y", TensorProto.FLOAT, None)], opset=opset)
    with pytest.raises(ingot.Error):
        ingot.compile(save(model)).inference(feeds)


@pytest.mark.parametrize(("theta", "size"), [((1, 2, 3), 5), ((1, 3, 4), 4), ((1, 4, 5), 6), ((1, 2, 4), 4)])
def test_affine_grid_of_other_rank_is_an_error(save: Save, theta: tuple[int, ...], size: int) -> None:
    node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"])
    feeds = {"theta": np.ones(theta, np.float32), "size": np.full(size, 2)}
    for free in (False, True):
        inputs: list[Any] = [
            ("theta", TensorProto.FLOAT, ["n", "a", "b"] if free else theta),
            ("size", TensorProto.INT64, ["s"] if free else [size]),
        ]
        model = make_model([node], inputs, [("grid", TensorProto.FLOAT, None)])
        with pytest.raises(ingot.Error):
            ingot.compile(save(model)).inference(feeds)


def test_kernels_of_one_formula_and_other_types_are_told_apart(save: Save) -> None:
    """f16 -> f32 and f32 -> f16 of as many elements: one loop over the same sizes, with steps of another width."""
    n = 4096
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["g"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "x"], ["z"]),
        helper.make_node("Add", ["d", "d"], ["e"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [n]), ("h", TensorProto.FLOAT16, [n]), ("d", TensorProto.DOUBLE, [n])]
    outputs = [("y", 10, [n]), ("g", 1, [n]), ("z", 1, [n]), ("e", 11, [n])]
    graph = ingot.compile(save(make_model(nodes, inputs, outputs)))
    x = RANDOM.standard_normal(n).astype(np.float32)
    results = graph.inference([x, x.astype(np.float16), x.astype(np.float64)])
    np.testing.assert_array_equal(results["y"], x.astype(np.float16))
    np.testing.assert_array_equal(results["g"], x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(results["z"], x + x)
    np.testing.assert_array_equal(results["e"], x.astype(np.float64) * 2)
