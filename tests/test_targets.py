"""Targets: every one that this CPU runs computes the same, in a session and in a library of several."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from assembly import assembly_of, busiest_block
from conftest import ROOT, Finished, cli, make_model
from onnx import TensorProto, helper

import ingot
from ingot import _ingot

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Model = tuple[onnx.ModelProto, NDArray[Any]]

TARGETS = _ingot.targets()
HERE = [name for name, runs in TARGETS.items() if runs]
RANDOM = np.random.default_rng(23)


def floats(*shape: int) -> NDArray[np.float32]:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def bytes_of(dtype: Any, *shape: int) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


@functools.cache
def integer_products(dtype: Any) -> Model:
    """Convolution, depthwise convolution and a matrix product of bytes over their whole range, with zero points."""
    x = bytes_of(dtype, 1, 16, 11, 37)
    to = helper.np_dtype_to_tensor_dtype(x.dtype)
    weights = {
        "w": bytes_of(np.int8, 40, 16, 3, 3),
        "depthwise": bytes_of(np.int8, 40, 1, 3, 3),
        "matrix": bytes_of(np.int8, 35, 83),
        "xz": dtype(113),
        "wz": bytes_of(np.int8, 40),
    }
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["c"], ["b"], to=to),
        helper.make_node("ConvInteger", ["b", "depthwise", "xz"], ["d"], group=40),
        helper.make_node("Cast", ["d"], ["e"], to=to),
        helper.make_node("MatMulInteger", ["e", "matrix", "xz"], ["y"]),
    ]
    inputs = [("x", to, x.shape)]
    return make_model(nodes, inputs, [("y", TensorProto.INT32, [1, 40, 9, 83])], weights), x


@functools.cache
def qdq_layers() -> Model:
    """Two linear layers with activations and weights quantized, as QDQ; scales are powers of two."""
    x = floats(37, 96)
    weights: dict[str, Any] = {"zero": np.uint8(128), "scale": np.float32(2**-5), "step": np.float32(2**-9)}
    nodes = []
    value = "x"
    for i, (rows, columns) in enumerate([(96, 200), (200, 61)]):
        weights |= {f"w{i}": bytes_of(np.int8, rows, columns), f"b{i}": RANDOM.integers(-999, 999, columns, np.int32)}
        weights[f"bscale{i}"] = np.float32(2**-14)
        nodes += [
            helper.make_node("QuantizeLinear", [value, "scale", "zero"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "scale", "zero"], [f"a{i}"]),
            helper.make_node("DequantizeLinear", [f"w{i}", "step"], [f"v{i}"]),
            helper.make_node("DequantizeLinear", [f"b{i}", f"bscale{i}"], [f"c{i}"]),
            helper.make_node("Gemm", [f"a{i}", f"v{i}", f"c{i}"], [f"g{i}"]),
            helper.make_node("Relu", [f"g{i}"], [f"r{i}"]),
        ]
        value = f"r{i}"
    nodes.append(helper.make_node("QuantizeLinear", [value, "scale", "zero"], ["y"]))
    inputs = [("x", TensorProto.FLOAT, x.shape)]
    return make_model(nodes, inputs, [("y", TensorProto.UINT8, [37, 61])], weights), x


@functools.cache
def float_layers() -> Model:
    """Conv, depthwise Conv, MatMul, Gelu, LayerNormalization and Softmax."""
    x = floats(1, 5, 13, 19)
    weights = {
        "w": floats(24, 5, 3, 3) / 7,
        "depthwise": floats(24, 1, 3, 3) / 3,
        "matrix": floats(19, 50) / 5,
        "gain": floats(50),
        "bias": floats(50),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "depthwise"], ["d"], group=24, pads=[1, 1, 1, 1]),
        helper.make_node("MatMul", ["d", "matrix"], ["m"]),
        helper.make_node("Gelu", ["m"], ["g"]),
        helper.make_node("LayerNormalization", ["g", "gain", "bias"], ["n"]),
        helper.make_node("Softmax", ["n"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, x.shape)]
    return make_model(nodes, inputs, [("y", TensorProto.FLOAT, [1, 24, 13, 50])], weights), x


def run(model: Model, tmp_path: Path, march: str, threads: int) -> NDArray[Any]:
    path = tmp_path / "model.onnx"
    onnx.save(model[0], path)
    return next(iter(ingot.compile(path, march=march, threads=threads).inference([model[1]]).values()))


def reference(model: Model) -> NDArray[Any]:
    """As ONNX defines the operators, in numpy."""
    return onnx.reference.ReferenceEvaluator(model[0]).run(None, {"x": model[1]})[0]  # type: ignore[no-any-return]


@functools.cache
def expected_integers(dtype: Any) -> NDArray[Any]:
    return reference(integer_products(dtype))


@functools.cache
def expected_qdq() -> NDArray[Any]:
    return reference(qdq_layers())


@functools.cache
def expected_floats() -> NDArray[Any]:
    return reference(float_layers())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("march", HERE)
def test_integers_are_the_same_on_every_target(march: str, threads: int, tmp_path: Path) -> None:
    for dtype in (np.uint8, np.int8):
        product = run(integer_products(dtype), tmp_path, march, threads)
        np.testing.assert_array_equal(product, expected_integers(dtype))
    np.testing.assert_array_equal(run(qdq_layers(), tmp_path, march, threads), expected_qdq())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("march", HERE)
def test_floats_are_close_on_every_target(march: str, threads: int, tmp_path: Path) -> None:
    np.testing.assert_allclose(run(float_layers(), tmp_path, march, threads), expected_floats(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "channels", "size"),
    [("conv_f32", channels, size) for channels in (64, 128, 256, 96) for size in (28, 14, 7)]
    + [("conv_winograd_f32", channels, size) for channels, size in ((64, 56), (96, 40), (256, 14))],
)
def test_sums_of_a_convolution_stay_in_registers(
    kernel: str, channels: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile has 24 accumulators, and LLVM once kept some of them in memory inside the loop."""
    weights = {"w": floats(channels, channels, 3, 3)}
    ports = [channels, size, size]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    model = make_model(
        [node], [("x", TensorProto.FLOAT, [1, *ports])], [("y", TensorProto.FLOAT, [1, *ports])], weights
    )
    patterns = {"winograd": kernel == "conv_winograd_f32"}
    code = specialised_code(model, kernel, "x86-64-v4", tmp_path, monkeypatch, patterns)
    check_sums_stay_in_registers(code, sums=20)  # 49 rows are tiles of 7, not of 8


@pytest.mark.parametrize(("march", "sums"), [("x86-64-v3", 12), ("x86-64-v4", 24)])
@pytest.mark.parametrize("depth", [384, 1536])
def test_sums_of_a_product_with_a_residual_stay_in_registers(
    march: str, sums: int, depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM once kept constants of the code for the last columns in registers, and the sums in memory."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["biased"]),
        helper.make_node("Add", ["biased", "residual"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [128, depth]), ("residual", TensorProto.FLOAT, [128, 384])]
    weights = {"w": floats(depth, 384), "b": floats(384)}
    model = make_model(nodes, inputs, [("y", TensorProto.FLOAT, [128, 384])], weights)
    code = specialised_code(model, "gemm_f32", march, tmp_path, monkeypatch)
    check_sums_stay_in_registers(code, sums)


def specialised_code(
    model: onnx.ModelProto,
    kernel: str,
    march: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    patterns: dict[str, bool] | None = None,
) -> str:
    onnx.save(model, folder / "model.onnx")
    monkeypatch.setenv("INGOT_DUMP", str(folder / "dump"))
    monkeypatch.setenv("INGOT_CACHE", "off")
    ingot.compile(folder / "model.onnx", march=march, patterns=patterns).emit(folder / "model.so")
    (code,) = (folder / "dump").glob(f"ingot_{kernel}*.o")
    return assembly_of(code)


def check_sums_stay_in_registers(code: str, sums: int) -> None:
    """In the loop over K, as many registers as `sums` are added to, and none is kept in memory."""
    block = busiest_block(code, "vfmadd")
    multiply = [i for i, line in enumerate(block) if "vfmadd" in line]
    assert len({block[i].split()[-1] for i in multiply}) >= sums
    loop = [line for line in block[multiply[0] : multiply[-1]] if "mm" in line]
    assert not any("(%rsp)" in line for line in loop), "\n".join(loop)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.uint8])
@pytest.mark.parametrize("march", HERE)
def test_elements_of_every_width(march: str, dtype: Any, tmp_path: Path) -> None:
    """A vector of the widest elements takes several registers; odd lengths leave a tail."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Mul", ["t", "x"], ["y"])]
    for count in (4096, 4099):
        x = RANDOM.integers(0, 10, count).astype(dtype)
        model = make_model(nodes, [("x", element, [count])], [("y", element, [count])])
        np.testing.assert_array_equal(run((model, x), tmp_path, march, 1), (x + x) * x)


def test_library_of_two_targets_has_its_weights_once(tmp_path: Path) -> None:
    """And computes the same, whichever target it takes here."""
    x = bytes_of(np.uint8, 5, 1024)
    weights = {"w": bytes_of(np.int8, 1024, 4096), "f": floats(4096, 512)}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["i"]),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["c", "f"], ["y"]),
    ]
    inputs = [("x", TensorProto.UINT8, x.shape)]
    model = make_model(nodes, inputs, [("y", TensorProto.FLOAT, [5, 512])], weights)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    both = ["x86-64-v3", "x86-64-v4+vnni"]
    sizes = []
    for march in (*both, ",".join(both)):
        ingot.compile(path, march=march).emit(tmp_path / "model.so")
        sizes.append((tmp_path / "model.so").stat().st_size)
    assert sizes[2] < min(sizes[:2]) + 0.5e6
    if not any(TARGETS[name] for name in both):
        with pytest.raises(ingot.Error, match="which this CPU does not run"):
            ingot.load(tmp_path / "model.so")
        return
    expected = ((x.astype(np.float64) @ weights["w"]) @ weights["f"]).astype(np.float32)
    for threads in (1, 2):
        y = ingot.load(tmp_path / "model.so", threads=threads).inference([x])["y"]
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))


def load_with(isa: str, path: Path, x: NDArray[Any], to: Path) -> Finished:
    """What a library computes in a process of its own, saved."""
    np.save(to / "x.npy", x)
    code = (
        "import ingot, numpy, sys; library = ingot.load(sys.argv[1], threads=1);"
        "y, = library.inference([numpy.load(sys.argv[2])]).values(); numpy.save(sys.argv[3], y)"
    )
    arguments = [sys.executable, "-c", code, str(path), str(to / "x.npy"), str(to / "y.npy")]
    done = subprocess.run(arguments, env={**os.environ, "INGOT_ISA": isa}, capture_output=True, text=True)
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif("x86-64-v4" not in HERE, reason="needs three builds")
def test_isa_says_which_target_a_library_takes(tmp_path: Path) -> None:
    """As if the CPU were no more than that. Targets tell themselves apart by how floats are rounded."""
    model, x = float_layers()
    onnx.save(model, tmp_path / "model.onnx")
    wanted = {march: run((model, x), tmp_path, march, 1) for march in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
    assert len({y.tobytes() for y in wanted.values()}) == 3
    ingot.compile(tmp_path / "model.onnx", march=",".join(wanted)).emit(tmp_path / "all.so")
    for isa, march in [*zip(wanted, wanted, strict=True), ("x86-64-v4+vnni", "x86-64-v4")]:
        if isa in HERE:
            done = load_with(isa, tmp_path / "all.so", x, tmp_path)
            assert done.code == 0, done.err
            np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted[march])
    ingot.compile(tmp_path / "model.onnx", march="x86-64-v4").emit(tmp_path / "wide.so")
    done = load_with("x86-64-v3", tmp_path / "wide.so", x, tmp_path)
    assert done.code == 1
    assert "compiled for x86-64-v4, which this CPU does not run" in done.err
    assert "INGOT_ISA is set" in done.err


def test_inspect_shows_products_of_each_target(tmp_path: Path) -> None:
    onnx.save(integer_products(np.uint8)[0], tmp_path / "int8.onnx")
    onnx.save(float_layers()[0], tmp_path / "float.onnx")
    march = "x86-64-v4+vnni,x86-64-v3"
    text = cli("inspect", tmp_path / "int8.onnx", "--march", march).out
    wide, narrow = text.split("products on x86-64-v4+vnni")[1].split("products on x86-64-v3")
    assert "dot (vpdpbusd)" in wide
    assert "dot" not in narrow
    said = json.loads(cli("inspect", tmp_path / "float.onnx", "--march", march, "--json").out)["products"]
    assert list(said) == march.split(",")
    assert said["x86-64-v4+vnni"] != said["x86-64-v3"]
    assert all("f32 depthwise filters" in forms for forms in said.values())


def test_a_march_that_does_not_exist_is_refused(mlp_path: Path, tmp_path: Path) -> None:
    message = "march 'x86-64-v9' is not a target Ingot compiles for"
    for march in ("x86-64-v9", "x86-64-v2,x86-64-v9"):
        with pytest.raises(ingot.InvalidInputError, match=message) as error:
            ingot.compile(mlp_path, march=march).emit(tmp_path / "model.so")
        assert all(name in str(error.value) for name in TARGETS)
        assert not (tmp_path / "model.so").exists()
    done = cli("compile", mlp_path, "-o", tmp_path / "model.so", "--march", "x86-64-v9")
    assert done.code != 0
    assert message in done.err


def test_an_isa_that_does_not_exist_is_refused(mlp_path: Path) -> None:
    code = f"import ingot, numpy; ingot.compile({str(mlp_path)!r}).inference([numpy.ones((1, 4), numpy.float32)])"
    environment = {**os.environ, "INGOT_ISA": "pdp-11"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "INGOT_ISA=pdp-11 is not a target Ingot knows" in done.stderr
    assert all(name in done.stderr for name in TARGETS)
    said = cli("version", INGOT_ISA="pdp-11")
    assert said.code != 0
    assert "INGOT_ISA=pdp-11 is not a target Ingot knows" in said.err


@pytest.mark.parametrize("march", HERE)
def test_isa_is_what_native_means(march: str) -> None:
    code = "from ingot import _ingot; print(_ingot.cpu_target(), _ingot.fma_peak(0.001), _ingot.byte_peak(0.001))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "INGOT_ISA": march}, capture_output=True, text=True, check=True
    )
    name, fp32, int8 = done.stdout.split()
    assert name == march
    assert float(fp32) > 0
    assert float(int8) > 0


def test_the_page_has_the_table_of_targets() -> None:
    table = cli("version", "--targets").out
    assert table in (ROOT / "docs" / "targets.md").read_text()
    assert {row.split("`")[1] for row in table.splitlines()[2:]} == set(TARGETS)
