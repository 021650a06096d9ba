"""Products of 4- and 8-bit weights: which instructions a target takes for them, and what rounding A costs.

The kernels themselves are tested in tests/kernels/gemm_narrow_test.cpp, on any CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from assembly import assembly_of, inner_loops
from conftest import cli, make_model
from onnx import TensorProto, helper

import ingot
from ingot import _ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

F32 = TensorProto.FLOAT
TARGETS = _ingot.targets()
random = np.random.default_rng(31)


def layer(k: int, n: int) -> onnx.ModelProto:
    weights = {"w": random.standard_normal((k, n), dtype=np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return make_model([node], [("x", F32, ["m", k])], [("y", F32, ["m", n])], weights)


def loops_of(path: Path, tmp_path: Path, march: str, rows: int, kernel: str, instruction: str) -> list[list[str]]:
    """Inner loops around the instruction in the code that is made for so many rows."""
    dump = tmp_path / "dump"
    options = ("--march", march, "--shape", f"x:{rows}x768", "--autocast", "int4-weights")
    done = cli("compile", path, "-o", tmp_path / "m.so", *options, INGOT_DUMP=str(dump), INGOT_CACHE="off")
    assert done.code == 0, done.err
    (code,) = dump.glob(f"ingot_{kernel}*.o")
    return inner_loops(assembly_of(code), instruction)


@pytest.mark.parametrize(
    ("march", "instruction", "register"),
    [
        ("x86-64-v3", "vpmaddubsw", "ymm"),
        ("x86-64-v3+vnni", "vpdpbusd", "ymm"),
        ("x86-64-v4", "vpmaddubsw", "zmm"),
        ("x86-64-v4+vnni", "vpdpbusd", "zmm"),
    ],
)
def test_one_row_of_4_bit_weights(save: Save, march: str, instruction: str, register: str, tmp_path: Path) -> None:
    """Digits of the row meet 4-bit numbers in the widest registers; 32 of them are enough for all that is used."""
    kernel = "gemm_row_dot" if "vnni" in march else "gemm_few"
    loops = loops_of(save(layer(768, 768)), tmp_path, march, 1, kernel, instruction)
    assert loops
    for body in loops:
        assert any(instruction in line and register in line for line in body)
        assert register != "zmm" or not [line for line in body if register in line and "(%rsp" in line]


@pytest.mark.parametrize(
    ("march", "instruction", "register"),
    [
        ("x86-64-v3", "vpmaddwd", "ymm"),
        ("x86-64-v3+vnni", "vpdpwssd", "ymm"),
        ("x86-64-v4", "vpmaddwd", "zmm"),
        ("x86-64-v4+vnni", "vpdpwssd", "zmm"),
    ],
)
def test_many_rows_of_4_bit_weights(save: Save, march: str, instruction: str, register: str, tmp_path: Path) -> None:
    """Where A may be rounded it meets integers of 16 bits; sums stay in registers."""
    loops = loops_of(save(layer(768, 768)), tmp_path, march, 64, "gemm_fixed", instruction)
    assert loops
    for body in loops:
        assert any(instruction in line and register in line for line in body)
        assert not [line for line in body if register in line and "(%rsp" in line]


def exact(graph: ingot.Graph, x: NDArray[Any], k: int, n: int) -> NDArray[Any]:
    """x times the weights that the graph stores, found by multiplying the identity, one row at a time."""
    rows = [graph.inference([row[None]])["y"][0] for row in np.eye(k, dtype=np.float32)]
    return x.astype(np.float64) @ np.stack(rows).astype(np.float64).reshape(k, n)


@pytest.mark.parametrize("march", TARGETS)
def test_rows_rounded_to_16_bits(save: Save, march: str) -> None:
    """One row and many lose 2e-5 of a sum at most; elements that no factor fits cost their own row alone."""
    if not TARGETS[march]:
        pytest.skip(f"this CPU does not run {march}")
    k, n = 160, 100
    graph = ingot.compile(save(layer(k, n)), march=march).autocast("int4-weights")
    x = random.standard_normal((200, k), dtype=np.float32)
    expected = exact(graph, x, k, n)
    for m in (1, 2, 5, 33, 200):
        found = graph.inference([x[:m]])["y"]
        assert np.abs(found - expected[:m]).max() < 1e-4 * np.abs(expected).max()
    x[3, 7] = np.inf
    found = graph.inference([x])["y"]
    assert not np.isfinite(found[3]).any()
    others = np.arange(200) != 3
    assert np.abs(found - expected)[others].max() < 1e-4 * np.abs(expected).max()


def test_native_and_specialised_kernels_agree(save: Save) -> None:
    """To the last bit, as tests/test_background.py has it of other kernels."""
    path = save(layer(160, 100))
    native = ingot.compile(path, opt_level=1).autocast("int4-weights")
    fast = ingot.compile(path, wait=True).autocast("int4-weights")
    for m in (1, 2, 5, 45):
        x = random.standard_normal((m, 160), dtype=np.float32)
        np.testing.assert_array_equal(native.inference([x])["y"], fast.inference([x])["y"])
