"""Bad files and bad data: a clear error that names the place, an exit code that is not 0, nothing half-written."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import Finished, cli, make_model, mlp
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable

    Save = Callable[..., Path]

INVALID_MODEL, UNSUPPORTED, INVALID_INPUT, IO = 3, 4, 5, 6
X = np.ones((2, 4), np.float32)


def assert_refused(done: Finished, *words: str, codes: tuple[int, ...] = (INVALID_MODEL,)) -> None:
    assert done.code in codes, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == 1, done.err
    assert lines[-1].startswith("hint: "), done.err
    for word in words:
        assert word in done.err, done.err


def compile_bytes(tmp_path: Path, content: bytes) -> Finished:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    done = cli("compile", path, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx"]
    return done


# --- ONNX files


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.9, 0.99])
def test_truncated_model(tmp_path: Path, part: float) -> None:
    whole = mlp().SerializeToString()
    assert_refused(compile_bytes(tmp_path, whole[: int(len(whole) * part)]), "bad.onnx")


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes(tmp_path: Path, seed: int) -> None:
    assert_refused(compile_bytes(tmp_path, np.random.default_rng(seed).bytes(5000)), "bad.onnx")


def test_empty_and_text_files(tmp_path: Path) -> None:
    assert_refused(compile_bytes(tmp_path, b""), "bad.onnx")
    assert_refused(compile_bytes(tmp_path, b"hello, this is no model\n"), "bad.onnx")


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_deeply_nested_subgraphs(tmp_path: Path) -> None:
    """Thousands of If nodes inside each other must not exhaust the stack."""
    graph = b""
    for _ in range(5000):
        attribute = field(1, b"then_branch") + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute)) + field(2, b"g")
    assert_refused(compile_bytes(tmp_path, b"\x08\x0a" + field(8, b"\x10\x14") + field(7, graph)), "bad.onnx")


def test_length_that_exceeds_the_file(tmp_path: Path) -> None:
    assert_refused(compile_bytes(tmp_path, b"\x08\x0a\x3a" + varint(2**40) + b"xx"), "bad.onnx")


def test_oversized_initializer(tmp_path: Path, save: Save) -> None:
    """A shape that claims more than its data, and one that overflows 64 bits."""
    for dims in ([1 << 40], [1 << 40, 1 << 40], [-5], [3]):
        model = mlp()
        tensor = model.graph.initializer[0]
        del tensor.dims[:]
        tensor.dims.extend(dims)
        assert_refused(compile_bytes(tmp_path, model.SerializeToString()), "w")


def test_unknown_operator_domain_and_opset(save: Save, tmp_path: Path) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="frob")
    ports = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, [1])]
    done = cli("run", save(make_model([node], *ports)), "--random")
    assert_refused(done, "Frobnicate", codes=(INVALID_MODEL, UNSUPPORTED))
    node.domain = "com.example"
    model = make_model([node], *ports)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    assert_refused(cli("run", save(model), "--random"), "com.example", codes=(INVALID_MODEL, UNSUPPORTED))
    future = make_model([helper.make_node("Relu", ["x"], ["y"])], *ports, opset=999)
    assert_refused(cli("run", save(future), "--random"), "999", codes=(INVALID_MODEL, UNSUPPORTED))


def test_dangling_duplicate_and_cyclic_tensors(save: Save) -> None:
    ports = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, [1])]
    dangling = [helper.make_node("Add", ["x", "ghost"], ["y"], name="n")]
    assert_refused(cli("run", save(make_model(dangling, *ports)), "--random"), "ghost")
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])]
    assert_refused(cli("run", save(make_model(twice, *ports)), "--random"), "y")
    cycle = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])]
    cycle.append(helper.make_node("Relu", ["a"], ["y"]))
    assert_refused(cli("run", save(make_model(cycle, *ports)), "--random"))


def external(tmp_path: Path, location: str, offset: int = 0, length: int = 128) -> onnx.ModelProto:
    model = mlp()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize("location", ["missing.bin", "../secret.bin", "/etc/hostname", "sub/../../secret.bin", ""])
def test_external_data_missing_or_outside(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    (inside / "m.onnx").write_bytes(external(tmp_path, location).SerializeToString())
    assert_refused(cli("compile", inside / "m.onnx", "-o", inside / "out"), "w", codes=(INVALID_MODEL, IO))
    assert not (inside / "out").exists()


@pytest.mark.parametrize(("offset", "length"), [(4096, 128), (4000, 128), (-1, 128), (0, 1 << 62), (0, 64)])
def test_external_data_ranges(tmp_path: Path, offset: int, length: int) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4096))
    (tmp_path / "m.onnx").write_bytes(external(tmp_path, "w.bin", offset, length).SerializeToString())
    assert_refused(cli("inspect", tmp_path / "m.onnx"), "w", codes=(INVALID_MODEL, IO))


def test_external_data_link_that_leads_outside(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").symlink_to("/etc/hostname")
    (inside / "m.onnx").write_bytes(external(tmp_path, "w.bin").SerializeToString())
    assert_refused(cli("inspect", inside / "m.onnx"), codes=(INVALID_MODEL, IO))


# --- paths


def test_missing_model_and_folder_without_ir(tmp_path: Path) -> None:
    assert_refused(cli("inspect", tmp_path / "none.onnx"), "none.onnx", codes=(IO,))
    assert_refused(cli("inspect", tmp_path), str(tmp_path), codes=(IO, INVALID_MODEL))


def test_unwritable_output(mlp_path: Path, tmp_path: Path) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    for target in ("no/such/folder/ir", "no/such/folder/m.so"):
        assert_refused(cli("compile", mlp_path, "-o", tmp_path / target), codes=(IO,))
    run = ("run", mlp_path, "--random", "--output")
    assert_refused(cli(*run, tmp_path / "no/such/out.npz"), "out.npz", codes=(IO,))
    assert_refused(cli(*run, tmp_path / "out.txt"), "out.txt", codes=(INVALID_INPUT,))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs /proc")
def test_read_only_place(mlp_path: Path) -> None:
    assert_refused(cli("run", mlp_path, "--random", "--output", "/proc/out.npz"), codes=(IO,))


# --- data


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "nope={x}"], ["nope"]),
        (["--input", "{missing}"], ["missing.npy"]),
        (["--input", "{x}", "--input", "{x}"], ["no input is left"]),
        (["--input", "{rank}"], ["'x'"]),
        (["--input", "{double}"], ["'x'", "f32", "f64"]),
        (["--input", "{shape}"], ["'x'"]),
        ([], ["'x", "--random"]),
        (["--random", "--shape", "x:1xfour"], ["four"]),
        (["--random", "--shape", "1x4"], ["1x4"]),
        (["--random", "--shape", "nope:1x4"], ["nope"]),
        (["--random", "--shape", "x:1x2x4"], ["'x'"]),
        (["--random", "--shape", "x:1x5"], ["'x'"]),
    ],
)
def test_wrong_data_for_run(mlp_path: Path, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    arrays = {"x": X, "rank": X[0], "double": X.astype(np.float64), "shape": X[:, :3]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = {name: str(tmp_path / f"{name}.npy") for name in [*arrays, "missing"]}
    filled = [a.format(**files) for a in arguments]
    assert_refused(cli("run", mlp_path, *filled), *words, codes=(INVALID_INPUT, IO))


def npy(header: bytes, body: bytes = bytes(32), version: int = 1) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not numpy at all",
        b"\x93NUMPY\x01",
        b"\x93NUMPY\x01\x00\xff\xff{'descr'",
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", version=9),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", bytes(31)),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", bytes(33)),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 4), }"),
        npy(b"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2, 4), }"),
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }"),
        npy(b"{'descr': '<q4', 'fortran_order': False, 'shape': (2, 4), }"),
        npy(b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 4), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1, " * 500 + b"), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False}"),
        npy(b"{'descr': '<f4"),
        npy(b"__import__('os').system('true')"),
    ],
)
def test_malformed_npy(mlp_path: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    assert_refused(cli("run", mlp_path, "--input", tmp_path / "x.npy"), "x.npy", codes=(INVALID_INPUT,))


def test_malformed_npz(mlp_path: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "good.npz", x=X)
    good = (tmp_path / "good.npz").read_bytes()
    random = np.random.default_rng(0)
    for cut in (0, 10, 30, len(good) // 2, len(good) - 1):
        (tmp_path / "x.npz").write_bytes(good[:cut])
        assert_refused(cli("run", mlp_path, "--input", tmp_path / "x.npz"), "x.npz", codes=(INVALID_INPUT,))
    for _ in range(60):  # a flipped byte is found, or is in a field that does not matter: never a crash
        damaged = bytearray(good)
        damaged[random.integers(len(good))] ^= int(random.integers(1, 256))
        (tmp_path / "x.npz").write_bytes(damaged)
        assert cli("run", mlp_path, "--input", tmp_path / "x.npz").code in (0, INVALID_INPUT)
    np.savez(tmp_path / "x.npz", other=X)
    assert_refused(cli("run", mlp_path, "--input", tmp_path / "x.npz"), "other", codes=(INVALID_INPUT,))


# --- Engine IR


@pytest.fixture
def ir(mlp_path: Path, tmp_path: Path) -> Path:
    ingot.compile(mlp_path, opt_level=0).save(tmp_path / "ir")
    return tmp_path / "ir"


def edit(ir: Path, pattern: str, replacement: str) -> None:
    path = ir / "graph.yaml"
    text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.M)
    assert count == 1, path.read_text()
    path.write_text(text)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"^version: \d+", "version: 999"),
        (r"^version: \d+", "version: one"),
        (r"^format: .*", "format: something-else"),
        (r"location: \[\d+, ", "location: [99999999, "),
        (r"location: \[\d+, ", "location: [-8, "),
        (r"location: \[(\d+), \d+", r"location: [\1, 3"),
        (r"location: \[(\d+), \d+", r"location: [\1, 9223372036854775807"),
        (r"dtype: f32", "dtype: f33"),
        (r"shape: \[4, 8\]", "shape: [4, 9]"),
        (r"shape: \[4, 8\]", "shape: [4, -8]"),
        (r"type: Relu", "type: Frobnicate"),
        (r"input: \[h\]", "input: [nobody]"),
        (r"input: \[h\]", 'input: ["y"]'),
        (r"^operator:", "operator: &anchor"),
        (r"^operator:", "operators:"),
        (r"^inputs: .*", "inputs: [x"),
        (r"^inputs: .*", "inputs: [nobody]"),
        (r"type: Relu", "type: Relu, type: Relu"),
        (r"type: Relu", "type: Relu, attr: {packed: 16}"),
    ],
)
def test_edited_ir(ir: Path, pattern: str, replacement: str) -> None:
    edit(ir, pattern, replacement)
    assert_refused(cli("run", ir, "--random"), str(ir), codes=(INVALID_MODEL, UNSUPPORTED))


def test_ir_weights_damaged_cut_or_missing(ir: Path) -> None:
    weights = ir / "weights.bin"
    good = weights.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    for content in (bytes(damaged), good[:-1], b""):
        weights.write_bytes(content)
        assert_refused(cli("run", ir, "--random"), "weights", codes=(INVALID_MODEL, IO))
    weights.unlink()
    assert_refused(cli("run", ir, "--random"), "weights", codes=(INVALID_MODEL, IO))


def test_ir_that_is_no_yaml(ir: Path) -> None:
    for content in (b"", b"\x00\xff" * 50, b"- a\n- b\n", b"[" * 100_000, b"a: !!python/object x\n"):
        (ir / "graph.yaml").write_bytes(content)
        assert_refused(cli("run", ir, "--random"), "graph.yaml")


# --- libraries


def test_other_libraries_are_refused(tmp_path: Path) -> None:
    import ctypes.util

    (tmp_path / "broken.so").write_bytes(b"\x7fELF" + bytes(100))
    assert_refused(cli("run", tmp_path / "broken.so", "--random"), "broken.so", codes=(IO,))
    real = next(Path("/usr/lib/x86_64-linux-gnu").glob("libz.so*"))
    done = cli("run", real, "--random")
    assert_refused(done, "ingot_", codes=(INVALID_MODEL,))
    with pytest.raises(ingot.InvalidModelError):
        ingot.load(real)
    assert ctypes.util.find_library("z")


def test_exceptions_in_python_match_the_exit_codes(tmp_path: Path, save: Save) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"junk")
    with pytest.raises(ingot.InvalidModelError):
        ingot.compile(tmp_path / "bad.onnx")
    with pytest.raises(ingot.IoError):
        ingot.load(tmp_path / "none")
    with pytest.raises(TypeError):
        wrong: Any = 3
        ingot.compile(wrong)
