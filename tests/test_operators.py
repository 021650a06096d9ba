"""Operators beyond ONNX's own cases: other shapes, types and attributes, against exact arithmetic and onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

ML = "ai.onnx.ml"


def one_node(
    op: str,
    inputs: Sequence[NDArray[Any] | None],
    outputs: list[int],
    domain: str = "",
    opset: int = 22,
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A model of one node with free dims, and what to feed it; inputs that are None are left out."""
    ports, weights, feed = [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            continue
        if i in constants:
            weights.append(onnx.numpy_helper.from_array(value, f"x{i}"))
            continue
        dims = [f"d{i}_{axis}" for axis in range(value.ndim)]
        ports.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(value.dtype), dims))
        feed[f"x{i}"] = value
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(len(outputs))], domain=domain, **attributes)
    results = [helper.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(outputs)]
    opsets = [helper.make_opsetid(domain, opset)] + ([helper.make_opsetid("", 20)] if domain else [])
    graph = helper.make_graph([node], "test", ports, results, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feed


def run(save: Save, model: onnx.ModelProto, feed: dict[str, NDArray[Any]], threads: int = 2) -> list[NDArray[Any]]:
    return list(ingot.compile(save(model), threads=threads).inference(feed).values())


def onnxruntime(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    results: list[NDArray[Any]] = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    return results


def assert_like_onnxruntime(save: Save, made: tuple[onnx.ModelProto, dict[str, NDArray[Any]]]) -> None:
    for actual, expected in zip(run(save, *made), onnxruntime(*made), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("shapes", [((5, 7), (7, 4)), ((2, 3, 5, 70), (3, 70, 40)), ((7,), (7, 4)), ((0, 7), (7, 4))])
def test_integer_product_is_exact(
    save: Save, types: tuple[str, str], shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    random = np.random.default_rng(0)
    a, b = (
        random.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t) for t, s in zip(types, shapes, strict=True)
    )
    zeros = np.array(3, types[0]), random.integers(0, 100, shapes[1][-1]).astype(types[1])
    model, feed = one_node("MatMulInteger", [a, b, *zeros], [TensorProto.INT32], opset=10)
    wide = [x.astype(np.int32) - z.astype(np.int32) for x, z in zip((a, b), zeros, strict=True)]
    np.testing.assert_array_equal(run(save, model, feed)[0], np.matmul(*wide))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_quantized_convolution(save: Save, group: int, per_channel: bool) -> None:
    random = np.random.default_rng(1)
    x = random.integers(0, 256, (2, 4, 9, 8)).astype(np.uint8)
    w = random.integers(0, 256, (6, 4 // group, 3, 2)).astype(np.uint8)
    scale = (random.random(6) * 0.05 + 0.01).astype(np.float32) if per_channel else np.array(0.02, np.float32)
    zero = np.full(scale.shape, 128, np.uint8)
    inputs: list[NDArray[Any]] = [x, np.array(0.03, np.float32), np.array(3, np.uint8), w, scale, zero]
    inputs += [np.array(0.4, np.float32), np.array(7, np.uint8), random.integers(-999, 999, 6).astype(np.int32)]
    made = one_node(
        "QLinearConv", inputs, [TensorProto.UINT8], opset=10, group=group, pads=[1, 0, 1, 2], strides=[2, 1]
    )
    np.testing.assert_array_equal(run(save, *made)[0], onnxruntime(*made)[0])


def test_ties_round_to_even(save: Save) -> None:
    x = (np.arange(-40, 40) / 2).astype(np.float32)
    model, feed = one_node("QuantizeLinear", [x, np.array(1, np.float32), np.array(3, np.int8)], [TensorProto.INT8])
    np.testing.assert_array_equal(run(save, model, feed)[0], (np.rint(x) + 3).astype(np.int8))


RECURRENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "clip": {"clip": 0.4},
    "reverse": {"direction": "reverse"},
    "reset": {"linear_before_reset": 1},
    "coupled": {"input_forget": 1},
    "functions": {},
}
FUNCTIONS = {"RNN": ["Relu"], "GRU": ["Softsign", "Softplus"], "LSTM": ["Softsign", "Relu", "Softplus"]}


def recurrent_inputs(
    op: str, sizes: tuple[int, int, int, int], directions: int, dtype: type = np.float32
) -> list[NDArray[Any]]:
    """All operands of an RNN, GRU or LSTM: X, W, R, B, sequence_lens, initial_h and, for an LSTM, initial_c, P."""
    steps, batch, width, hidden = sizes
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    random = np.random.default_rng(2)

    def normal(*shape: int) -> NDArray[Any]:
        made: NDArray[Any] = (random.standard_normal(shape) * 1.6 / np.sqrt(shape[-1])).astype(dtype)
        return made

    state = (directions, batch, hidden)
    inputs = [normal(steps, batch, width), normal(directions, gates * hidden, width)]
    inputs += [normal(directions, gates * hidden, hidden), normal(directions, 2 * gates * hidden)]
    inputs += [random.integers(1, steps + 1, batch).astype(np.int32), normal(*state)]
    if op == "LSTM":
        inputs += [normal(*state), normal(directions, 3 * hidden)]
    return inputs


@pytest.mark.parametrize("weights", ["given", "constant"])
@pytest.mark.parametrize("variant", RECURRENT)
@pytest.mark.parametrize("sizes", [(1, 1, 4, 5), (6, 3, 5, 7), (5, 9, 8, 32), (3, 37, 6, 50)])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent(save: Save, op: str, sizes: tuple[int, int, int, int], variant: str, weights: str) -> None:
    if (variant == "reset" and op != "GRU") or (variant == "coupled" and op != "LSTM"):
        pytest.skip("the operator has no such attribute")
    directions = 1 if variant == "reverse" else 2
    attributes: dict[str, Any] = {"direction": "bidirectional", "hidden_size": sizes[3], **RECURRENT[variant]}
    if variant == "functions":
        attributes["activations"] = FUNCTIONS[op] * directions
    outputs = [TensorProto.FLOAT] * (3 if op == "LSTM" else 2)
    constants = (1, 2, 3) if weights == "constant" else ()
    inputs = recurrent_inputs(op, sizes, directions)
    assert_like_onnxruntime(save, one_node(op, inputs, outputs, opset=14, constants=constants, **attributes))


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_recurrent_with_the_batch_first(save: Save, op: str, dtype: type) -> None:
    """Layout 1, which onnxruntime does not have, is layout 0 with its axes turned; threads do not change a bit."""
    inputs = recurrent_inputs(op, (4, 21, 6, 33), 2, dtype)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = [number] * (3 if op == "LSTM" else 2)
    attributes: dict[str, Any] = {"direction": "bidirectional", "hidden_size": 33, "opset": 14, "constants": (1, 2, 3)}
    plain = one_node(op, inputs, outputs, **attributes)
    expected = run(save, *plain, threads=1)
    for one, two in zip(expected, run(save, *plain, threads=2), strict=True):
        np.testing.assert_array_equal(one, two)
    turned = [x.swapaxes(0, 1) if i in (0, 5, 6) else x for i, x in enumerate(inputs)]
    actual = run(save, *one_node(op, turned, outputs, layout=1, **attributes))
    np.testing.assert_array_equal(actual[0], expected[0].transpose(2, 0, 1, 3))
    for a, e in zip(actual[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(a, e.swapaxes(0, 1))


def test_recurrent_in_double_is_like_single(save: Save) -> None:
    for op in ("RNN", "GRU", "LSTM"):
        results = []
        for dtype in (np.float32, np.float64):
            number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            inputs = recurrent_inputs(op, (7, 5, 6, 20), 1, dtype)
            model, feed = one_node(op, inputs, [number] * 2, opset=14, hidden_size=20, constants=(1, 2, 3))
            results.append(run(save, model, feed))
        for single, double in zip(*results, strict=True):
            np.testing.assert_allclose(single, double, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 30, 61, 67, 128, 400, 1009])
@pytest.mark.parametrize("inverse", [0, 1])
def test_fourier_transform(save: Save, length: int, inverse: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, length, 3, 2))
    axis = np.array(1, np.int64)
    inputs = [x, None, axis]
    model, feed = one_node("DFT", inputs, [TensorProto.DOUBLE], opset=20, constants=(2,), inverse=inverse)
    expected = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0] + 1j * x[..., 1], axis=1)
    (actual,) = run(save, model, feed)
    np.testing.assert_allclose(actual[..., 0] + 1j * actual[..., 1], expected, atol=1e-12 * length)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_time_transform_of_rank_2(save: Save, dtype: str, free: bool, onesided: int) -> None:
    """ONNX wants [batch, length, 1]; exporters write [batch, length], and onnxruntime takes it."""
    random = np.random.default_rng(4)
    inputs = [random.standard_normal((2, 100)).astype(dtype), np.array(7), np.hanning(16).astype(dtype), np.array(16)]
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = one_node("STFT", inputs, [type_], opset=17, constants=(1, 2, 3), onesided=onesided)
    if not free:
        for dim, size in zip(made[0].graph.input[0].type.tensor_type.shape.dim, (2, 100), strict=True):
            dim.dim_value = size
    assert_like_onnxruntime(save, made)


@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_one_hot_encoder_of_strings(save: Save, known: bool, zeros: int) -> None:
    x = np.array([["b", "a"], ["c", "b" if known else "z"]], object)
    made = one_node("OneHotEncoder", [x], [TensorProto.FLOAT], ML, 1, zeros=zeros, cats_strings=["a", "b", "c"])
    if known or zeros:
        assert_like_onnxruntime(save, made)
    else:
        with pytest.raises(ingot.Error, match="none of the keys"):
            run(save, *made)


def test_random_numbers(save: Save) -> None:
    count = 100_000
    for op, mean, deviation in [("RandomUniform", 0.5, 1 / np.sqrt(12)), ("RandomNormal", 0.0, 1.0)]:
        model, _ = one_node(op, [], [TensorProto.FLOAT], shape=[count])
        compiled = ingot.compile(save(model))
        first, second = (compiled.inference({})["y0"] for _ in range(2))
        assert not np.array_equal(first, second)
        assert abs(float(first.mean()) - mean) < 6 * deviation / np.sqrt(count)
        assert abs(float(first.std()) - deviation) < 6 * deviation / np.sqrt(count)
        seeded, _ = one_node(op, [], [TensorProto.FLOAT], shape=[count], seed=4.0)
        np.testing.assert_array_equal(run(save, seeded, {}, threads=1)[0], run(save, seeded, {}, threads=2)[0])


def test_random_nodes_stay_apart(save: Save) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], [y]) for y in ("a", "b")]
    nodes.append(helper.make_node("Sub", ["a", "b"], ["y"]))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [100]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "test", ports[:1], ports[1:]), ir_version=10)
    model.opset_import[0].version = 20
    assert np.count_nonzero(run(save, model, {"x": np.zeros(100, np.float32)})[0]) == 100


def tree_attributes(random: np.random.Generator, prefix: str, targets: int, trees: int = 5) -> dict[str, Any]:
    """Complete trees of depth 3; every leaf votes for all targets."""
    fields = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{f}": [] for f in (*fields, "missing_value_tracks_true")}
    votes: dict[str, list[Any]] = {f"{prefix}_{f}": [] for f in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        for i in range(15):
            leaf = i >= 7
            row = (tree, i, int(random.integers(4)), float(random.integers(-2, 3)), "LEAF" if leaf else "BRANCH_LEQ")
            children = (0, 0) if leaf else (2 * i + 1, 2 * i + 2)
            for field, value in zip(nodes, (*row, *children, int(random.integers(2))), strict=True):
                nodes[field].append(value)
            for target in range(targets if leaf else 0):
                for field, value in zip(votes, (tree, i, target, float(random.standard_normal())), strict=True):
                    votes[field].append(value)
    return nodes | votes


def features(random: np.random.Generator) -> NDArray[Any]:
    x = random.integers(-3, 4, (40, 4)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(save: Save, aggregate: str) -> None:
    random = np.random.default_rng(5)
    attributes = tree_attributes(random, "target", 3) | {"n_targets": 3, "base_values": [0.1, 0.2, 0.3]}
    attributes["aggregate_function"] = aggregate
    x = features(random)
    made = one_node("TreeEnsembleRegressor", [x], [TensorProto.FLOAT], ML, 1, **attributes)
    assert_like_onnxruntime(save, made)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("votes", "labels"), [(3, [4, 6, 9]), (1, [4, 6])])
def test_tree_classifier(save: Save, votes: int, labels: list[int], transform: str) -> None:
    random = np.random.default_rng(6)
    attributes = tree_attributes(random, "class", votes)
    attributes |= {"classlabels_int64s": labels, "post_transform": transform}
    types = [TensorProto.INT64, TensorProto.FLOAT]
    assert_like_onnxruntime(save, one_node("TreeEnsembleClassifier", [features(random)], types, ML, 1, **attributes))


def test_tree_that_is_below_itself(save: Save) -> None:
    attributes = tree_attributes(np.random.default_rng(7), "target", 1, trees=1)
    attributes["nodes_truenodeids"][3] = 0
    model, feed = one_node("TreeEnsembleRegressor", [np.zeros((1, 4), np.float32)], [1], ML, 1, **attributes)
    with pytest.raises(ingot.InvalidModelError, match="below"):
        run(save, model, feed)


SIMPLE_ML: dict[str, dict[str, Any]] = {
    "Scaler": {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 2.0, 1.0, 3.0]},
    "Normalizer": {"norm": "L2"},
    "Binarizer": {"threshold": 0.5},
    "Imputer": {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")},
    "OneHotEncoder": {"cats_int64s": [2, 0, -3]},
    "LinearRegressor": {"coefficients": [0.1] * 4 + [0.3] * 4, "intercepts": [0.5, -0.5], "targets": 2},
}


@pytest.mark.parametrize("op", SIMPLE_ML)
def test_simple_features(save: Save, op: str) -> None:
    x = features(np.random.default_rng(8))
    if op != "Imputer":
        x = np.nan_to_num(x)
    assert_like_onnxruntime(save, one_node(op, [x], [TensorProto.FLOAT], ML, 1, **SIMPLE_ML[op]))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(save: Save, classes: int, transform: str) -> None:
    random = np.random.default_rng(9)
    attributes: dict[str, Any] = {
        "coefficients": random.standard_normal(classes * 4).tolist(),
        "intercepts": [0.1] * classes,
    }
    attributes |= {"classlabels_ints": list(range(5, 5 + classes)), "post_transform": transform}
    x = np.nan_to_num(features(random))
    made = one_node("LinearClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], ML, 1, **attributes)
    assert_like_onnxruntime(save, made)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(save: Save, kernel: str) -> None:
    random = np.random.default_rng(10)
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.1, 0.2, 3.0],
        "support_vectors": random.standard_normal(9 * 4).tolist(),
        "vectors_per_class": [2, 3, 4],
        "coefficients": random.standard_normal(2 * 9).tolist(),
        "rho": [0.1, -0.2, 0.3],
        "prob_a": [-1.0, -1.5, -2.0],
        "prob_b": [0.1, 0.2, -0.1],
        "classlabels_ints": [7, 8, 9],
    }
    x = random.standard_normal((20, 4)).astype(np.float32)
    made = one_node("SVMClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], ML, 1, **attributes)
    assert_like_onnxruntime(save, made)


def test_label_encoder_of_numbers(save: Save) -> None:
    x = np.array([3, 5, 1, -9], np.int64)
    attributes: dict[str, Any] = {"keys_int64s": [3, 1, 2], "values_floats": [0.3, 0.1, 0.2], "default_float": 7.0}
    model, feed = one_node("LabelEncoder", [x], [TensorProto.FLOAT], ML, 2, **attributes)
    np.testing.assert_array_equal(run(save, model, feed)[0], np.array([0.3, 7, 0.1, 7], np.float32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grouped", [False, True])
def test_attention_after_a_past(save: Save, grouped: bool, threads: int) -> None:
    """One compiled model for any number of tokens after any past, also a long one, whose copies go past the caches."""
    heads = 2 if grouped else 4
    ports = {"q": ("b", 4, "s", 16), "k": ("b", heads, "s", 16), "v": ("b", heads, "s", 16)}
    ports |= {"past_k": ("b", heads, "p", 16), "past_v": ("b", heads, "p", 16)}
    floats = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in ports.items()}
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "keys", "values")]
    node = helper.make_node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["y", "keys", "values"])
    graph = helper.make_graph([node], "test", list(floats.values()), results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    compiled = ingot.compile(save(model), threads=threads)
    rng = np.random.default_rng(0)
    for batch, tokens, past in [(1, 1, 1), (2, 1, 40), (1, 3, 7), (2, 5, 300), (1, 1, 0), (1, 1, 1100), (1, 2, 40000)]:
        sizes: dict[str | int, int] = {"b": batch, "s": tokens, "p": past, 2: 2, 4: 4, 16: 16}
        feed = {name: rng.standard_normal([sizes[d] for d in dims]).astype(np.float32) for name, dims in ports.items()}
        y, keys, values = compiled.inference(feed).values()
        np.testing.assert_array_equal(keys, np.concatenate([feed["past_k"], feed["k"]], 2))
        np.testing.assert_array_equal(values, np.concatenate([feed["past_v"], feed["v"]], 2))
        keys, values = (np.repeat(x, 4 // heads, 1).astype(np.float64) for x in (keys, values))
        scores = np.exp(feed["q"] @ keys.transpose(0, 1, 3, 2) / 4)
        np.testing.assert_allclose(y, scores / scores.sum(-1, keepdims=True) @ values, rtol=1e-4, atol=1e-5)
