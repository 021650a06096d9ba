"""Products of bf16 by bf16: which targets and models take the units made for it, their code, and their results.

The kernels themselves are tested in tests/kernels/gemm_bf16_test.cpp, on any CPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from assembly import assembly_of, inner_loops
from conftest import cli, make_model
from onnx import TensorProto, helper

import ingot
from ingot import _ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

F32, BF16 = TensorProto.FLOAT, TensorProto.BFLOAT16
TARGETS = _ingot.targets()
UNITS = {
    "x86-64-v4+vnni+bf16": ("vdpbf16ps", "bf16 weights for vdpbf16ps"),
    "x86-64-v4+amx": ("tdpbf16ps", "bf16 weights for AMX"),
}
RUN_TIME, WIDENED = "bf16 operands, packed at run time", "bf16 operands, widened to f32"
random = np.random.default_rng(11)


def bf16(*shape: int) -> NDArray[Any]:
    return random.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)


def widened(value: str, to: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [value], [to], to=F32)


def layer(k: int = 64, n: int = 96, transposed: bool = False) -> onnx.ModelProto:
    """Gemm in bf16 with alpha, beta and C."""
    weights = {"w": bf16(n, k) if transposed else bf16(k, n), "c": bf16(n)}
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"], transB=int(transposed), alpha=0.5, beta=2.0)
    return make_model([node], [("x", BF16, ["m", k])], [("y", BF16, ["m", n])], weights)


def forms(path: Path, march: str) -> dict[str, int]:
    done = cli("inspect", path, "--march", march, "--json")
    assert done.code == 0, done.err
    found: dict[str, int] = json.loads(done.out)["products"][march]
    return found


@pytest.mark.parametrize("march", TARGETS)
def test_inspect_names_the_form(save: Save, march: str) -> None:
    path = save(layer())
    form = UNITS[march][1] if march in UNITS else WIDENED
    assert forms(path, march) == {form: 1}
    assert f"1  {form}" in cli("inspect", path, "--march", march).out


@pytest.mark.parametrize("march", UNITS)
def test_operands_that_are_not_constant(save: Save, march: str) -> None:
    """Both are activations, with a batch; B is transposed, and packed by the kernel."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["y"]),
    ]
    ports = [("q", BF16, [2, 3, 10, 16]), ("k", BF16, [2, 3, 12, 16])]
    path = save(make_model(nodes, ports, [("y", BF16, [2, 3, 10, 12])]))
    assert forms(path, march) == {RUN_TIME: 1}


@pytest.mark.parametrize("march", UNITS)
def test_widened_operands_are_read_as_bf16(save: Save, march: str) -> None:
    """Cast(bf16) by Cast(bf16), with an epilogue in f32; also where the Cast is a result of a fused loop."""
    weights = {"w": bf16(64, 96), "b": random.standard_normal(96, dtype=np.float32)}
    product = [
        widened("x", "a"),
        widened("w", "v"),
        helper.make_node("MatMul", ["a", "v"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    ports, out = [("x", BF16, ["m", 64])], [("y", F32, ["m", 96])]
    assert forms(save(make_model(product, ports, out, weights)), march) == {UNITS[march][1]: 1}
    fused = [*product, helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Exp", ["s"], ["z"])]
    model = make_model(fused, ports, [*out, ("z", F32, ["m", 64])], weights)
    assert forms(save(model), march) == {UNITS[march][1]: 1}


@pytest.mark.parametrize("march", UNITS)
def test_what_was_computed_in_f32_is_not_rounded(save: Save, march: str, tmp_path: Path) -> None:
    """bf16 weights under an A of f32, in the model or by autocast, are products of f32 on every target."""
    weights = {"w": bf16(64, 96)}
    nodes = [widened("w", "v"), helper.make_node("MatMul", ["x", "v"], ["y"])]
    path = save(make_model(nodes, [("x", F32, ["m", 64])], [("y", F32, ["m", 96])], weights))
    assert forms(path, march) == {"bf16 weights, panels of 48 columns": 1}
    plain = make_model(
        [nodes[1]], [("x", F32, ["m", 64])], [("y", F32, ["m", 96])], {"v": np.ones((64, 96), np.float32)}
    )
    dump = tmp_path / "dump"
    done = cli(
        "compile", save(plain), "-o", tmp_path / "m.so", "--march", march, "--autocast", "bf16", INGOT_DUMP=str(dump)
    )
    assert done.code == 0, done.err
    code = "".join(assembly_of(p) for p in dump.glob("*.o"))
    assert "vfmadd" in code
    assert "dpbf16ps" not in code


@pytest.mark.parametrize("march", UNITS)
def test_the_instruction_is_in_the_inner_loop(save: Save, march: str, tmp_path: Path) -> None:
    """With nothing spilled around it."""
    dump = tmp_path / "dump"
    options = ("--march", march, "--shape", "x:64x768")
    done = cli(
        "compile", save(layer(768, 768)), "-o", tmp_path / "m.so", *options, INGOT_DUMP=str(dump), INGOT_CACHE="off"
    )
    assert done.code == 0, done.err
    instruction = UNITS[march][0]
    code = "".join(assembly_of(p) for p in dump.glob("*gemm_bf16*.o"))
    loops = inner_loops(code, instruction)
    assert loops
    for body in loops:
        assert not [line for line in body if "zmm" in line and "(%rsp" in line]


def expected(model: onnx.ModelProto, x: NDArray[Any], transposed: bool) -> NDArray[Any]:
    w, c = (onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    return 0.5 * (x.astype(np.float64) @ (w.T if transposed else w)) + 2 * c  # type: ignore[no-any-return]


@pytest.mark.parametrize("k", [64, 75])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("march", TARGETS)
def test_results(save: Save, march: str, transposed: bool, k: int) -> None:
    if not TARGETS[march]:
        pytest.skip(f"this CPU does not run {march}")
    model = layer(k, 130, transposed)
    graph = ingot.compile(save(model), march=march)
    for m in (1, 7, 40, 200):
        x = bf16(m, k)
        y = graph.inference([x])["y"]
        assert y.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(y.astype(np.float64), expected(model, x, transposed), rtol=1 / 128, atol=1e-2)


@pytest.mark.parametrize("march", TARGETS)
def test_batches_and_f32_results(save: Save, march: str) -> None:
    """q k v in bf16, and a product of widened operands with an epilogue."""
    if not TARGETS[march]:
        pytest.skip(f"this CPU does not run {march}")
    weights = {"w": bf16(24, 50), "b": random.standard_normal(50, dtype=np.float32)}
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("MatMul", ["s", "v"], ["o"]),
        widened("o", "a"),
        widened("w", "wide"),
        helper.make_node("MatMul", ["a", "wide"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    q, k, v = bf16(2, 3, 33, 21), bf16(3, 21, 17), bf16(2, 1, 17, 24)
    ports = [("q", BF16, q.shape), ("k", BF16, k.shape), ("v", BF16, v.shape)]
    model = make_model(nodes, ports, [("o", BF16, [2, 3, 33, 24]), ("y", F32, [2, 3, 33, 50])], weights)
    found = ingot.compile(save(model), march=march).inference([q, k, v])
    s = (q.astype(np.float64) @ k.astype(np.float64)).astype(ml_dtypes.bfloat16)
    o = s.astype(np.float64) @ v.astype(np.float64)
    np.testing.assert_allclose(found["o"].astype(np.float64), o, rtol=1 / 64, atol=0.2)
    y = found["o"].astype(np.float64) @ weights["w"].astype(np.float64) + weights["b"]
    np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-3)
