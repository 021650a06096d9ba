"""Files that other tools write for themselves: onnxruntime's optimised ones (nchwc), and those of QONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

RANDOM = np.random.default_rng(5)
F = TensorProto.FLOAT


def normal(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


# ---- com.microsoft.nchwc ----


def conv_net(channels: int, free: bool) -> onnx.ModelProto:
    """A first layer, a depthwise and a pointwise one, a sum, pools, an upsampling, and channels that fill no block."""
    weights = {
        "first": normal(channels, 3, 3, 3) * 0.3,
        "first_bias": normal(channels),
        "depthwise": normal(channels, 1, 3, 3) * 0.3,
        "pointwise": normal(channels, channels, 1, 1) * 0.3,
        "pointwise_bias": normal(channels),
        "last": normal(20, channels, 3, 3) * 0.1,
        "grouped": normal(32, 16, 1, 1) * 0.3,
        "wide": normal(32, 20, 1, 1) * 0.3,
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first", "first_bias"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depthwise"], ["c"], pads=[1, 1, 1, 1], group=channels),
        helper.make_node("Conv", ["c", "pointwise", "pointwise_bias"], ["d"]),
        helper.make_node("Add", ["d", "b"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["g", "last"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["h"], ["i"], alpha=0.2),
        helper.make_node("Conv", ["i", "wide"], ["j"]),
        helper.make_node("Conv", ["j", "grouped"], ["k"], group=2),
        helper.make_node("AveragePool", ["k"], ["l"], kernel_shape=[2, 2]),
        helper.make_node(
            "Resize",
            ["l", "", "scales"],
            ["m"],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        helper.make_node("Conv", ["m", "grouped"], ["y"], group=2),
        helper.make_node("GlobalAveragePool", ["h"], ["z"]),
    ]
    size: list[Any] = ["n", 3, "h", "w"] if free else [2, 3, 22, 18]
    ports = [helper.make_tensor_value_info("x", F, size)]
    results = [helper.make_tensor_value_info(name, F, None) for name in ("y", "z")]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", ports, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("channels", [16, 32, 24, 12])
def test_optimised_file_of_onnxruntime(save: Save, tmp_path: Path, channels: int, free: bool) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    session = ort.InferenceSession(save(conv_net(channels, free)), options)
    feed = {"x": normal(2, 3, 22, 18)}
    expected = session.run(None, feed)
    written = onnx.load(options.optimized_model_filepath)
    assert "com.microsoft.nchwc" in {node.domain for node in written.graph.node}
    for actual, value in zip(
        ingot.compile(options.optimized_model_filepath).inference(feed).values(), expected, strict=True
    ):
        np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-4)


def blocked(weights: NDArray[Any], block: int) -> NDArray[Any]:
    """[O, C, H, W] as onnxruntime stores it: [O / B][C / B][H][W][C % B][O % B]."""
    outs, ins, height, width = weights.shape
    parts = weights.reshape(outs // block, block, ins // block, block, height, width)
    return parts.transpose(0, 2, 4, 5, 3, 1).reshape(weights.shape)


def test_blocks_of_another_cpu(save: Save) -> None:
    """24 channels are no blocks of 16, whatever this CPU would take."""
    weights = normal(24, 24, 3, 3)
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain="com.microsoft.nchwc"),
        helper.make_node("Conv", ["a", "w"], ["b"], domain="com.microsoft.nchwc", activation="Relu"),
        helper.make_node("ReorderOutput", ["b"], ["y"], domain="com.microsoft.nchwc", channels=21, channels_last=1),
    ]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", F, ["n", 20, 6, 5])],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(blocked(weights, 8), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    x = normal(2, 20, 6, 5)
    actual = ingot.compile(save(helper.make_model(graph, opset_imports=opsets, ir_version=9))).inference([x])["y"]
    plain = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "plain",
        [helper.make_tensor_value_info("x", F, None)],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(weights[:21, :20], "w")],
    )
    session = ort.InferenceSession(helper.make_model(plain, opset_imports=opsets[:1], ir_version=9).SerializeToString())
    expected = np.maximum(session.run(None, {"x": x})[0], 0).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


# ---- Quant of QONNX ----

ROUNDINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "ROUND": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


def quant_model(
    x: NDArray[Any], scale: Any, zero: float, bits: float, domain: str, **attributes: Any
) -> onnx.ModelProto:
    node = helper.make_node("Quant", ["x", "scale", "zero", "bits"], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "quant",
        [helper.make_tensor_value_info("x", F, [f"d{i}" for i in range(x.ndim)])],
        [helper.make_tensor_value_info("y", F, None)],
        [
            numpy_helper.from_array(np.array(scale, np.float32), "scale"),
            numpy_helper.from_array(np.array(zero, np.float32), "zero"),
            numpy_helper.from_array(np.array(bits, np.float32), "bits"),
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)], ir_version=9
    )


def quantized(
    x: NDArray[Any], scale: Any, zero: float, bits: float, signed: int, narrow: int, rounding: str
) -> NDArray[Any]:
    """As QONNX defines it."""
    y = x / np.array(scale, np.float32) + np.float32(zero)
    if bits == 1 and signed:
        y = np.where(y >= 0, 1, -1).astype(np.float32)
    else:
        low = -(2 ** (bits - 1)) + narrow if signed else 0
        high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
        y = ROUNDINGS[rounding](np.clip(y, low, high)).astype(np.float32)
    result: NDArray[Any] = (y - np.float32(zero)) * np.array(scale, np.float32)
    return result


@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7, 8, 9, 16])
def test_quant(save: Save, bits: int, signed: int, narrow: int) -> None:
    x = (RANDOM.integers(-600, 600, (4, 50)) / 8).astype(np.float32)  # half of the steps of 0.25 are ties
    model = quant_model(x, 0.25, 0, bits, "qonnx.custom_op.general", signed=signed, narrow=narrow)
    graph = ingot.compile(save(model))
    np.testing.assert_array_equal(graph.inference([x])["y"], quantized(x, 0.25, 0, bits, signed, narrow, "ROUND"))


@pytest.mark.parametrize("zero", [4, 3, 0.5])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_quant_with_a_zero_point(save: Save, rounding: str, zero: float) -> None:
    x = (RANDOM.integers(-100, 100, (3, 40)) / 8).astype(np.float32)
    model = quant_model(x, 0.25, zero, 5, "onnx.brevitas", signed=0, narrow=0, rounding_mode=rounding)
    expected = quantized(x, 0.25, zero, 5, 0, 0, rounding)
    np.testing.assert_array_equal(ingot.compile(save(model)).inference([x])["y"], expected)


@pytest.mark.parametrize("shape", [(1, 3, 1), (4, 1, 1), (4, 3, 1), (5,)])
def test_quant_by_channel(save: Save, shape: tuple[int, ...]) -> None:
    x = (RANDOM.integers(-100, 100, (4, 3, 5)) / 8).astype(np.float32)
    scale = 2.0 ** RANDOM.integers(-3, 2, shape)
    model = quant_model(x, scale, 0, 4, "finn.custom_op.general", signed=1, narrow=1)
    expected = quantized(x, scale, 0, 4, 1, 1, "ROUND")
    np.testing.assert_array_equal(ingot.compile(save(model)).inference([x])["y"], expected)


def test_quantized_layer_is_one_of_integers(save: Save) -> None:
    """Weights and activations of 8 bits: the product is one of bytes, as in any other QDQ file."""
    quant: dict[str, Any] = {"domain": "qonnx.custom_op.general", "narrow": 0, "signed": 1}
    nodes = [
        helper.make_node("Quant", ["x", "x_scale", "zero", "bits"], ["xq"], **quant),
        helper.make_node("Quant", ["w", "w_scale", "zero", "bits"], ["wq"], **quant),
        helper.make_node("MatMul", ["xq", "wq"], ["m"]),
        helper.make_node("Quant", ["m", "y_scale", "zero", "bits"], ["y"], **quant),
    ]
    values = {"x_scale": 0.05, "w_scale": 0.01, "y_scale": 0.2, "zero": 0, "bits": 8}
    weights = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()]
    w = normal(64, 32) * np.float32(0.3)
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", F, ["n", 64])],
        [helper.make_tensor_value_info("y", F, None)],
        [*weights, numpy_helper.from_array(w, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qonnx.custom_op.general", 1)]
    compiled = ingot.compile(save(helper.make_model(graph, opset_imports=opsets, ir_version=9)))
    assert "MatMul" not in {node.op for node in compiled.nodes}
    x = normal(5, 64)
    product = quantized(x, 0.05, 0, 8, 1, 0, "ROUND") @ quantized(w, 0.01, 0, 8, 1, 0, "ROUND")
    expected = quantized(product, 0.2, 0, 8, 1, 0, "ROUND")
    assert np.abs(compiled.inference([x])["y"] - expected).max() <= 0.2001


def test_quant_that_cannot_be_read(save: Save) -> None:
    x = normal(3)
    model = quant_model(x, 1, 0, 8, "qonnx.custom_op.general", rounding_mode="STOCHASTIC")
    with pytest.raises(ingot.Error, match="rounding mode 'STOCHASTIC' is not supported"):
        ingot.compile(save(model))
    with pytest.raises(ingot.Error, match="has 0 bits"):
        ingot.compile(save(quant_model(x, 1, 0, 0, "qonnx.custom_op.general")))
    model = quant_model(x, 1, 0, 8, "qonnx.custom_op.general")
    model.graph.initializer.pop()
    model.graph.input.append(helper.make_tensor_value_info("bits", F, []))
    with pytest.raises(ingot.Error, match="number of bits must be a constant"):
        ingot.compile(save(model))


def test_blocks_that_are_none(save: Save) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain="com.microsoft.nchwc")
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", F, [1, 8, 6, 5])],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(normal(12, 8, 1, 1), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    with pytest.raises(ingot.Error, match="expected f32 in blocks of 8 channels"):
        ingot.compile(save(helper.make_model(graph, opset_imports=opsets, ir_version=9)))
