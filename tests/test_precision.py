"""Weights in fewer bits: models that store them so, and graphs cast so, against onnxruntime, torch and exact sums."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from conftest import PROGRAM, make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

F32, F16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
HALVES = {F16: np.float16, BF16: ml_dtypes.bfloat16}
PRECISIONS = {"bf16": 4e-3, "fp16": 5e-4, "int8": 2e-2, "int8-weights": 2e-2, "int4-weights": 2e-1}
random = np.random.default_rng(5)


def normal(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape, dtype=np.float32)


def ops(graph: ingot.Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def relative(found: NDArray[Any], expected: NDArray[Any]) -> float:
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max()
    return float(difference / np.abs(expected.astype(np.float64)).max())


def onnxruntime(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    results: list[NDArray[Any]] = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    return results


def stored_half(kind: int, gemm: bool, transposed: bool) -> tuple[onnx.ModelProto, NDArray[Any]]:
    """x @ float(w) + b with w in 16 bits."""
    k, n = 75, 130
    w = normal(k, n).astype(HALVES[kind])
    weights: dict[str, NDArray[Any]] = {"w": w.T.copy() if transposed else w, "b": normal(n)}
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=F32)]
    if gemm:
        nodes.append(helper.make_node("Gemm", ["x", "wide", "b"], ["y"], transB=int(transposed), alpha=0.5, beta=2.0))
    else:
        if transposed:
            nodes.append(helper.make_node("Transpose", ["wide"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["x", "t" if transposed else "wide"], ["h"]))
        nodes.append(helper.make_node("Add", ["h", "b"], ["y"]))
    model = make_model(nodes, [("x", F32, ["m", k])], [("y", F32, ["m", n])], weights)
    return model, w.astype(np.float64)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_half_weights_stay_half(save: Save, kind: int, gemm: bool, transposed: bool) -> None:
    model, w = stored_half(kind, gemm, transposed)
    graph = ingot.compile(save(model))
    assert ops(graph) == ["ingot.MatMul"]
    for m in (1, 64, 7):
        x = normal(m, 75)
        b = onnx.numpy_helper.to_array(model.graph.initializer[1])
        expected = x @ w * (0.5 if gemm else 1) + b * (2 if gemm else 1)
        np.testing.assert_allclose(graph.inference([x])["y"], expected, rtol=1e-5, atol=1e-4)


def quantized(bits: int, block: int, axis: int, zero: bool, shape: tuple[int, int]) -> tuple[onnx.ModelProto, Any]:
    """x @ DequantizeLinear(w); axis -1: one scale."""
    k, n = shape
    low, high = (-8, 8) if bits == 4 else (-128, 128)
    kind = TensorProto.INT4 if bits == 4 else TensorProto.INT8
    q = random.integers(low, high, shape)
    blocks = [] if axis < 0 else [shape[axis]]
    if block:
        blocks = [-(-k // block), n] if axis == 0 else [k, -(-n // block)]
    scale = (np.abs(normal(*blocks)) + 0.5).astype(np.float32) / high
    z = random.integers(low // 2, high // 2, blocks)
    initializers = [
        helper.make_tensor("q", kind, shape, q.ravel()),
        helper.make_tensor("s", F32, blocks, scale.ravel()),
        helper.make_tensor("z", kind, blocks, z.ravel()),
    ]
    attributes = {} if axis < 0 else {"axis": axis}
    if block:
        attributes["block_size"] = block
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"] if zero else ["q", "s"], ["w"], **attributes),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", F32, ["m", k])],
        [helper.make_tensor_value_info("y", F32, ["m", n])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def spread(p: NDArray[Any]) -> NDArray[Any]:
        if block:
            return np.repeat(p, block, axis=axis)[:k, :n]
        return p if axis < 0 else np.expand_dims(p, 1 - axis)

    wide = (q - (spread(z) if zero else 0)).astype(np.float64) * spread(scale).astype(np.float64)
    return model, wide


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("block,axis", [(0, -1), (0, 0), (0, 1), (16, 0), (20, 0), (32, 0)])
def test_dequantized_weights_stay_integers(save: Save, bits: int, zero: bool, block: int, axis: int) -> None:
    model, wide = quantized(bits, block, axis, zero, (100, 70))
    graph = ingot.compile(save(model))
    assert ops(graph) == ["ingot.MatMul"]
    for m in (1, 64):
        x = normal(m, 100)
        assert relative(graph.inference([x])["y"], x @ wide) < 2e-6


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_columns_are_dequantized_once(save: Save, bits: int) -> None:
    model, wide = quantized(bits, 16, 1, True, (96, 64))
    graph = ingot.compile(save(model))
    assert ops(graph) == ["ingot.MatMul"]
    x = normal(3, 96)
    assert relative(graph.inference([x])["y"], x @ wide) < 2e-6


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32, 128, 256])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_matmul_nbits(save: Save, bits: int, block: int, zeros: str) -> None:
    k, n, bias = 200, 48, block == 32
    blocks = -(-k // block)
    feed = {"x": normal(2, 3, k)}
    weights: dict[str, NDArray[Any]] = {
        "b": random.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": np.abs(normal(n, blocks)) / 100,
    }
    if zeros == "packed":
        weights["z"] = random.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    if zeros == "float":
        weights["z"] = (random.random((n, blocks)) * 2**bits).astype(np.float32)
    if bias:
        weights["bias"] = normal(n)
    inputs = ["x", "b", "s", "z" if zeros != "none" else "", "", "bias" if bias else ""]
    while inputs[-1] == "":
        inputs.pop()
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", **attributes)
    model = make_model([node], [("x", F32, [2, "s", k])], [("y", F32, [2, "s", n])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = ingot.compile(save(model))
    assert ops(graph) == ["ingot.MatMul"]
    found = graph.inference(feed)["y"]
    if bits == 8 and zeros == "float":  # onnxruntime has none
        scale, zero = (np.repeat(weights[name], block, axis=1)[:, :k].astype(np.float64) for name in ("s", "z"))
        expected = feed["x"] @ ((weights["b"].reshape(n, -1)[:, :k] - zero) * scale).T + (
            weights["bias"] if bias else 0
        )
    else:
        expected = onnxruntime(model, feed)[0]
    assert relative(found, expected) < 1e-5


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("level", range(5))
def test_matmul_nbits_rounds_a_no_further_than_its_accuracy_level(save: Save, level: int, rows: int) -> None:
    """Levels from fp16 on let A be rounded: to 16 bits next to the largest of 32 elements."""
    k, n, block = 256, 48, 32
    weights: dict[str, NDArray[Any]] = {
        "b": random.integers(0, 256, (n, k // block, block // 2), dtype=np.uint8),
        "s": np.full((n, k // block), 0.01, np.float32),
    }
    settings = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", **settings)
    model = make_model([node], [("x", F32, [rows, k])], [("y", F32, [rows, n])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = normal(rows, k)
    numbers = np.stack([weights["b"] & 15, weights["b"] >> 4], axis=-1).reshape(n, k).astype(np.float64) - 8
    error = relative(ingot.compile(save(model)).inference({"x": x})["y"], x @ (numbers * 0.01).T)
    assert error < (1e-6 if level < 2 else 1e-4)
    assert level < 2 or error > 1e-6  # the faster way was taken


def test_matmul_nbits_refuses_g_idx(save: Save) -> None:
    weights = {
        "b": np.zeros((4, 1, 16), np.uint8),
        "s": np.ones((4, 1), np.float32),
        "g": np.zeros(32, np.int32),
    }
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s", "", "g"], ["y"], name="mul", domain="com.microsoft", K=32, N=4, block_size=32
    )
    model = make_model([node], [("x", F32, [1, 32])], [("y", F32, [1, 4])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ingot.UnsupportedError, match=r"mul.*g_idx"):
        ingot.compile(save(model))


@pytest.mark.parametrize("attributes", [{"K": 64}, {"N": 5}, {"block_size": 24}, {"bits": 3}, {"K": -1}])
def test_matmul_nbits_that_does_not_fit(save: Save, attributes: dict[str, int]) -> None:
    weights = {"b": np.zeros((4, 1, 16), np.uint8), "s": np.ones((4, 1), np.float32)}
    settings = {"K": 32, "N": 4, "block_size": 32, "bits": 4} | attributes
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], name="mul", domain="com.microsoft", **settings)
    model = make_model([node], [("x", F32, [1, 32])], [("y", F32, [1, 4])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ingot.Error, match="mul"):
        ingot.compile(save(model))


@pytest.mark.parametrize("kind", HALVES)
def test_models_in_half_precision_round_every_tensor(save: Save, kind: int) -> None:
    """Each tensor of a bf16 or fp16 model is what torch computes in that type, up to the order of the sums."""
    torch = pytest.importorskip("torch")
    half = HALVES[kind]
    w, b, v = (a.astype(half) for a in (normal(96, 160) / 10, normal(160), normal(160, 40) / 10))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v"], ["y"]),
    ]
    model = make_model(nodes, [("x", kind, ["m", 96])], [("y", kind, ["m", 40])], {"w": w, "b": b, "v": v}, opset=20)
    graph = ingot.compile(save(model))
    torch_type = torch.float16 if kind == F16 else torch.bfloat16

    def tensor(a: NDArray[Any]) -> Any:
        return torch.from_numpy(a.astype(np.float32)).to(torch_type)

    for m in (1, 33):
        x = normal(m, 96).astype(half)
        given = torch.from_numpy(x.view(np.int16)).view(torch_type) if kind == BF16 else torch.from_numpy(x)
        found = graph.inference([given])["y"]
        found = np.asarray(found).view(half) if found.dtype != half else found
        hidden = torch.relu((tensor(x).float() @ tensor(w).float()).to(torch_type) + tensor(b))
        expected = (hidden.float() @ tensor(v).float()).to(torch_type).float().numpy()
        step = 2.0**-10 if kind == F16 else 2.0**-7
        assert relative(found.astype(np.float32), expected) < 2 * step


def test_gather_reads_narrow_rows(save: Save) -> None:
    table = normal(500, 64).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["table"], ["wide"], to=F32),
        helper.make_node("Gather", ["wide", "ids"], ["y"]),
    ]
    ports = [("ids", TensorProto.INT64, ["b", "s"])], [("y", F32, ["b", "s", 64])]
    graph = ingot.compile(save(make_model(nodes, *ports, {"table": table})))
    ids = random.integers(0, 500, (2, 5))
    np.testing.assert_array_equal(graph.inference([ids])["y"], table[ids].astype(np.float32))
    assert "dtype: f16, shape: [500, 64]" in graph.yaml
    assert "dtype: f32, shape: [500, 64]" not in graph.yaml


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block,axis", [(0, 0), (0, 1), (16, 1)])
def test_gather_of_a_quantized_table(save: Save, bits: int, block: int, axis: int) -> None:
    model, wide = quantized(bits, block, axis, True, (200, 64))
    nodes = [model.graph.node[0], helper.make_node("Gather", ["w", "ids"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "s"])],
        [helper.make_tensor_value_info("y", F32, ["b", "s", 64])],
        list(model.graph.initializer),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = ingot.compile(save(model))
    ids = random.integers(0, 200, (2, 5))
    np.testing.assert_allclose(compiled.inference([ids])["y"], wide[ids], rtol=1e-6, atol=1e-6)
    assert "dtype: f32, shape: [200, 64]" not in compiled.yaml


def test_half_convolution_weights(save: Save) -> None:
    """A 1x1 filter stays narrow; one that feeds a BatchNormalization is folded with it."""
    w = (normal(64, 32, 1, 1) / 6).astype(np.float16)
    norm = {name: np.abs(normal(64)) for name in ("g", "v")} | {name: normal(64) for name in ("b", "mean")}
    for batch_norm in (False, True):
        nodes = [
            helper.make_node("Cast", ["w"], ["wide"], to=F32),
            helper.make_node("Conv", ["x", "wide"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "g", "b", "mean", "v"], ["y"])
            if batch_norm
            else helper.make_node("Relu", ["c"], ["y"]),
        ]
        weights: dict[str, NDArray[Any]] = {"w": w} | (norm if batch_norm else {})
        model = make_model(nodes, [("x", F32, [1, 32, 9, 9])], [("y", F32, [1, 64, 9, 9])], weights)
        graph = ingot.compile(save(model))
        assert ("dtype: f16" in graph.yaml) == (not batch_norm)
        feed = {"x": normal(1, 32, 9, 9)}
        assert relative(graph.inference(feed)["y"], onnxruntime(model, feed)[0]) < 1e-5


def encoder(tokens: int = 200, width: int = 96) -> onnx.ModelProto:
    """An embedding, a layer with a residual and a head: tables, epilogues, a free sequence."""
    weights = {
        "table": normal(tokens, width),
        "w1": normal(width, 2 * width) / 8,
        "b1": normal(2 * width),
        "w2": normal(2 * width, width) / 8,
        "scale": normal(width),
        "bias": normal(width),
        "head": normal(50, width) / 8,
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "w1"], ["h1"]),
        helper.make_node("Add", ["h1", "b1"], ["h2"]),
        helper.make_node("Gelu", ["h2"], ["h3"]),
        helper.make_node("MatMul", ["h3", "w2"], ["h4"]),
        helper.make_node("Add", ["h4", "e"], ["h5"]),
        helper.make_node("LayerNormalization", ["h5", "scale", "bias"], ["h6"]),
        helper.make_node("Transpose", ["head"], ["headT"], perm=[1, 0]),
        helper.make_node("MatMul", ["h6", "headT"], ["y"]),
    ]
    return make_model(nodes, [("ids", TensorProto.INT64, ["b", "s"])], [("y", F32, ["b", "s", 50])], weights)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_autocast(save: Save, tmp_path: Path, precision: str) -> None:
    graph = ingot.compile(save(encoder()))
    cast = graph.autocast(precision)
    shapes = [(1, 1), (2, 3), (1, 64)]
    expected = {}
    for shape in shapes:
        ids = random.integers(0, 200, shape)
        exact = graph.inference([ids])["y"]
        expected[shape] = ids, cast.inference([ids])["y"]
        assert 0 < relative(expected[shape][1], exact) < PRECISIONS[precision]
    graph.save(tmp_path / "f32")
    cast.save(tmp_path / "ir")
    bytes_of = {name: (tmp_path / name / "weights.bin").stat().st_size for name in ("f32", "ir")}
    most = {"bf16": 0.52, "fp16": 0.52, "int8": 0.6, "int8-weights": 0.3, "int4-weights": 0.26}[precision]
    assert bytes_of["ir"] < most * bytes_of["f32"]
    cast.emit(tmp_path / "model.so")
    for path in ("ir", "model.so"):
        again = ingot.load(tmp_path / path)
        for ids, y in expected.values():
            np.testing.assert_allclose(again.inference([ids])["y"], y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_autocast_of_ir_and_unoptimised(save: Save, tmp_path: Path, precision: str) -> None:
    """A graph that went through IR, and one that was not optimised, can be cast too."""
    path = save(encoder())
    ingot.compile(path).save(tmp_path / "ir")
    ids = random.integers(0, 200, (1, 9))
    exact = ingot.compile(path).inference([ids])["y"]
    for graph in (ingot.load(tmp_path / "ir"), ingot.compile(path, opt_level=0)):
        assert relative(graph.autocast(precision).inference([ids])["y"], exact) < PRECISIONS[precision]


@pytest.mark.parametrize("precision", ["bf16", "fp16", "int8"])
def test_autocast_of_convolutions(save: Save, precision: str) -> None:
    weights = {
        "w1": normal(48, 3, 3, 3) / 4,
        "b1": normal(48),
        "w2": normal(64, 48, 1, 1) / 6,
        "w3": normal(64, 1, 3, 3) / 3,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Conv", ["c2", "w3"], ["c3"], pads=[1, 1, 1, 1], group=64),
        helper.make_node("Add", ["c2", "c3"], ["y"]),
    ]
    model = make_model(nodes, [("x", F32, ["n", 3, 12, 12])], [("y", F32, ["n", 64, 12, 12])], weights)
    graph = ingot.compile(save(model))
    x = normal(2, 3, 12, 12)
    found, exact = graph.autocast(precision).inference([x])["y"], graph.inference([x])["y"]
    assert 0 < relative(found, exact) < 3 * PRECISIONS[precision]


def test_autocast_leaves_what_it_cannot_hold(save: Save) -> None:
    """Weights too large for fp16, and those that are not finite, stay as they are; small ones too."""
    weights = {"w": normal(64, 64), "v": normal(64, 64), "u": normal(64, 8)}
    weights["w"][3, 3] = 1e6
    weights["v"][3, 3] = np.inf
    nodes = [helper.make_node("MatMul", ["x", w], [f"y{w}"]) for w in weights]
    model = make_model(nodes, [("x", F32, ["m", 64])], [(f"y{w}", F32, None) for w in weights], weights)
    graph = ingot.compile(save(model))
    x = normal(4, 64)
    for precision, changed in (("fp16", ["yv"]), ("int8-weights", ["yw"]), ("bf16", ["yw", "yv"])):
        cast = graph.autocast(precision)
        before, after = graph.inference([x]), cast.inference([x])
        for name in before:
            if name not in changed:
                np.testing.assert_array_equal(before[name], after[name])


def test_autocast_names(save: Save) -> None:
    graph = ingot.compile(save(encoder()))
    with pytest.raises(ingot.InvalidInputError, match="no precision 'int3'") as error:
        graph.autocast("int3")
    assert "int4-weights" in str(error.value)


def test_autocast_on_the_command_line(save: Save, tmp_path: Path) -> None:
    path = save(encoder())
    command = [PROGRAM, "compile", str(path), "-o", str(tmp_path / "ir"), "--autocast"]
    assert subprocess.run([*command, "bf16"], capture_output=True).returncode == 0
    assert "dtype: bf16" in (tmp_path / "ir" / "graph.yaml").read_text()
    wrong = subprocess.run([*command, "bf17"], capture_output=True, text=True)
    assert wrong.returncode != 0
    assert "bf17" in wrong.stderr
    assert "hint" in wrong.stderr


def test_weights_without_rows(save: Save) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = make_model(nodes, [("x", F32, [1, 0])], [("y", F32, [1, 8])], {"s": np.zeros((0, 8), np.float32)})
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.UINT4, [0, 8], []))
    np.testing.assert_array_equal(
        ingot.compile(save(model)).inference([np.zeros((1, 0), np.float32)])["y"], np.zeros((1, 8), np.float32)
    )


def test_hand_written_ir_is_checked(save: Save, tmp_path: Path) -> None:
    """Operands of a quantized product that do not fit each other are refused, not read past."""
    cast = ingot.compile(save(encoder())).autocast("int4-weights")
    cast.save(tmp_path / "ir")
    text = (tmp_path / "ir" / "graph.yaml").read_text()
    for right, wrong in (
        ("b_block: 32", "b_block: 64"),
        ("b_block: 32", "b_block: -1"),
        ("b_block: 32", "b_block: 0"),
        ("a_bits: 16", "a_bits: 8"),
    ):
        assert right in text
        (tmp_path / "ir" / "graph.yaml").write_text(text.replace(right, wrong))
        with pytest.raises(ingot.Error):
            ingot.load(tmp_path / "ir").inference([np.zeros((1, 1), np.int64)])
