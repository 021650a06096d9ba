"""Convolutions of unusual shapes beside onnxruntime; reductions, moves and loops over short rows beside numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[[onnx.ModelProto], Path]


def check(save: Save, op: str, weights: list[int], sizes: list[tuple[int, ...]], bias: bool, **attributes: Any) -> None:
    """One node and a Relu, with the spatial dims free, run at each of `sizes`."""
    rng = np.random.default_rng(3)
    groups = attributes.get("group", 1)
    inputs, outputs = (weights[1] * groups, weights[0]) if op == "Conv" else (weights[0], weights[1] * groups)
    constants = {"w": rng.standard_normal(weights, dtype=np.float32)}
    if bias:
        constants["b"] = rng.standard_normal(outputs, dtype=np.float32)
    spatial = [f"s{i}" for i in range(len(weights) - 2)]
    node = helper.make_node(op, ["x", *constants], ["c"], **attributes)
    model = make_model(
        [node, helper.make_node("Relu", ["c"], ["y"])],
        [("x", TensorProto.FLOAT, ["n", inputs, *spatial])],
        [("y", TensorProto.FLOAT, ["n", outputs, *(f"o{s}" for s in spatial)])],
        constants,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    graph = ingot.compile(save(model), wait=True)
    for size in sizes:
        x = rng.standard_normal((size[0], inputs, *size[1:]), dtype=np.float32)
        (expected,) = session.run(None, {"x": x})
        found = graph.inference([x])["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("weights", "attributes"),
    [
        ([24, 24, 2, 2], {"strides": [2, 2]}),
        ([24, 1, 2, 2], {"strides": [2, 2]}),
        ([16, 8, 3, 3], {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ([6, 5, 4, 3], {"strides": [1, 3], "pads": [0, 2, 1, 0], "dilations": [2, 1]}),
        ([12, 3, 3, 3], {"strides": [2, 2], "group": 3}),
        ([8, 4, 3, 3], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ([32, 20, 16], {"strides": [8], "pads": [4, 4]}),
        ([4, 3, 2, 2, 2], {"strides": [2, 1, 2]}),
    ],
)
def test_transposed(save: Save, weights: list[int], attributes: dict[str, Any], bias: bool) -> None:
    rank = len(weights) - 2
    sizes = [(1, *(7 + d for d in range(rank))), (2, *(4 for _ in range(rank)))]
    check(save, "ConvTranspose", weights, sizes, bias, **attributes)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_a_bias_that_is_too_short_for_the_weights_of_a_run_is_refused(save: Save, opt_level: int) -> None:
    """Reading it would go beyond its end."""
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2])
    ports = [("x", TensorProto.FLOAT, [1, 1, "n"]), ("w", TensorProto.FLOAT, [1, "channels", 1])]
    bias = np.array([1, 2], np.float32)
    graph = ingot.compile(
        save(make_model([node], ports, [("y", TensorProto.FLOAT, None)], {"b": bias})), opt_level=opt_level
    )
    x = np.ones((1, 1, 3), np.float32)
    assert graph.inference([x, np.ones((1, 2, 1), np.float32)])["y"].shape == (1, 2, 5)
    with pytest.raises(ingot.Error, match="B is"):
        graph.inference([x, np.ones((1, 5, 1), np.float32)])


@pytest.mark.parametrize(
    ("weights", "sizes", "attributes"),
    [
        # few outputs: a head of one channel, a long filter, groups
        ([1, 64, 3, 3], [(1, 9, 13), (2, 4, 5)], {"pads": [1, 1, 1, 1]}),
        ([3, 40, 1, 1], [(1, 9, 13)], {"strides": [2, 2]}),
        ([1, 1, 256], [(2, 700), (1, 256)], {"strides": [2]}),
        ([2, 1, 41], [(1, 90)], {"dilations": [2], "pads": [5, 40]}),
        ([6, 48, 3, 3], [(1, 6, 7)], {"group": 2, "pads": [0, 1, 2, 1]}),
        # part of a panel: 8, 12, 20, 40 outputs
        ([8, 8, 3, 39], [(1, 9, 70)], {"pads": [1, 19, 1, 19]}),
        ([12, 12, 7, 3], [(1, 9, 13)], {"pads": [3, 1, 3, 1]}),
        ([20, 3, 3, 3], [(2, 9, 13)], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ([40, 24, 5, 1], [(1, 12, 5)], {"dilations": [2, 1]}),
        # one pixel wide
        ([32, 1, 64, 1], [(2, 300, 1), (1, 64, 1)], {"strides": [4, 1], "pads": [20, 0, 10, 0]}),
        ([8, 16, 9, 1], [(1, 40, 1), (1, 40, 6)], {"pads": [4, 0, 4, 0]}),
        # depthwise: edges wider than the image, strides, odd numbers of channels
        ([24, 1, 5, 5], [(1, 20, 20), (1, 2, 3), (2, 7, 1)], {"group": 24, "pads": [2, 2, 2, 2]}),
        ([13, 1, 3, 3], [(1, 17, 18), (1, 1, 1)], {"group": 13, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ([40, 1, 31], [(1, 90), (1, 5)], {"group": 40, "pads": [15, 15]}),
        ([16, 1, 3, 3], [(1, 12, 30)], {"group": 16, "pads": [4, 4, 4, 4], "dilations": [4, 4]}),
        # groups of 2 and 4 channels
        ([128, 2, 3, 3], [(1, 14, 14), (2, 3, 1)], {"group": 64, "pads": [1, 1, 1, 1]}),
        ([20, 4, 3, 5], [(1, 9, 13)], {"group": 5, "pads": [1, 2, 1, 2], "strides": [2, 1]}),
    ],
)
def test_plain(save: Save, weights: list[int], sizes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    check(save, "Conv", weights, sizes, True, **attributes)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceSumSquare": lambda x, axis: np.square(x).sum(axis),
    "ReduceL2": lambda x, axis: np.sqrt(np.square(x).sum(axis)),
    "ReduceProd": np.prod,
}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_short_rows(save: Save, op: str) -> None:
    for length in (2, 3, 7):
        node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
        model = make_model(
            [node],
            [("x", TensorProto.FLOAT, ["a", "b", length])],
            [("y", TensorProto.FLOAT, ["a", "b"])],
            {"axes": np.array([2], np.int64)},
        )
        x = np.random.default_rng(length).standard_normal((3, 37, length), dtype=np.float32)
        x[1, 5, 1], x[2, 6, 0] = np.nan, np.inf
        expected = REDUCTIONS[op](x.astype(np.float64), axis=2)
        np.testing.assert_allclose(ingot.compile(save(model)).inference([x])["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 32, 48, 3), (2, 331, 1, 3), (1, 5, 7, 4), (0, 4, 4, 3)])
def test_a_factor_for_each_of_few_channels(save: Save, sizes: tuple[int, ...]) -> None:
    channels = sizes[-1]
    mean, std = np.arange(channels, dtype=np.float32), np.arange(1, channels + 1, dtype=np.float32)
    model = make_model(
        [
            helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["f", "mean"], ["centred"]),
            helper.make_node("Div", ["centred", "std"], ["y"]),
        ],
        [("x", TensorProto.UINT8, ["n", "h", "w", channels])],
        [("y", TensorProto.FLOAT, ["n", "h", "w", channels])],
        {"mean": mean, "std": std},
    )
    x = np.random.default_rng(1).integers(0, 255, sizes, dtype=np.uint8)
    for wait in (False, True):
        found = ingot.compile(save(model), wait=wait).inference([x])["y"]
        np.testing.assert_array_equal(found, (x.astype(np.float32) - mean) / std)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", [TensorProto.UINT8, TensorProto.FLOAT])
def test_images_between_layouts(save: Save, channels: int, dtype: int) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[1, 3, 0, 2]),
    ]
    model = make_model(nodes, [("x", dtype, ["n", channels, "h", "w"])], [(t, dtype, None) for t in "yz"])
    x = np.random.default_rng(2).integers(0, 255, (2, channels, 203, 311))
    x = x.astype(helper.tensor_dtype_to_np_dtype(dtype))
    found = ingot.compile(save(model)).inference([x])
    np.testing.assert_array_equal(found["y"], x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(found["z"], x.transpose(0, 2, 3, 1).transpose(1, 3, 0, 2))
