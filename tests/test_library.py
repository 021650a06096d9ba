"""model.so: the C interface from C and from Python, several libraries at once, threads."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import ROOT, cli, in_threads, make_model, mlp, run_mlp
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    onnx.save(mlp(), folder / "mlp.onnx")
    ingot.compile(folder / "mlp.onnx").emit(folder / "mlp.so")
    return folder / "mlp.so"


@pytest.fixture(scope="module")
def run_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("c") / "run_model"
    source = ROOT / "examples" / "c" / "run_model.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "include")]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-ldl"], check=True)
    return program


def test_library_agrees_with_the_graph(library: Path) -> None:
    loaded = ingot.load(library)
    assert loaded.is_library
    assert [(p.name, p.dtype, p.shape) for p in loaded.inputs] == [("x", "float32", ("batch", 4))]
    assert [p.name for p in loaded.outputs] == ["y"]
    np.testing.assert_allclose(loaded.inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)
    for batch in (1, 3, 0, 5):
        assert loaded.inference([X[:batch]])["y"].shape == (batch, 3)


def test_c_program_agrees_with_python(library: Path, run_model: Path) -> None:
    numbers = " ".join(f"{x:.9g}" for x in X[:2].ravel())
    # An empty environment: a library needs nothing of Ingot's.
    done = subprocess.run([run_model, library, "2", "4"], input=numbers, capture_output=True, text=True, env={})
    assert done.returncode == 0, done.stderr
    expected = ingot.load(library).inference([X[:2]])["y"]
    np.testing.assert_array_equal(np.array(done.stdout.split(), np.float32).reshape(2, 3), expected)
    assert len((ROOT / "examples" / "c" / "run_model.c").read_text().splitlines()) <= 30


def test_c_program_shows_the_librarys_error(library: Path, run_model: Path) -> None:
    done = subprocess.run([run_model, library, "2", "5"], input="", capture_output=True, text=True)
    assert done.returncode == 1
    assert "'x'" in done.stderr and "5" in done.stderr


def test_library_needs_only_the_c_library(library: Path) -> None:
    done = subprocess.run(["ldd", library], capture_output=True, text=True, check=True)
    needed = {line.split()[0].split(".so")[0].rsplit("/", 1)[-1] for line in done.stdout.splitlines()}
    assert needed <= {"linux-vdso", "libc", "libm", "libpthread", "libdl", "ld-linux-x86-64", "statically"}


def test_library_exports_exactly_the_interface(library: Path) -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    interface = ["api_version", "create", "destroy", "signature", "run", "release", "error"]
    interface += ["create_with", "run_with", "state_run_with"]
    interface += [
        f"state_{name}" for name in ("create", "destroy", "signature", "run", "reset", "length", "get", "set")
    ]
    assert names == {f"ingot_{name}" for name in interface}


def test_command_line_writes_and_runs_libraries(tmp_path: Path, library: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    done = cli("compile", tmp_path / "mlp.onnx", "-o", tmp_path / "m.so", "--shape", "x:5x4")
    assert done.code == 0, done.err
    np.save(tmp_path / "x.npy", X)
    for model in (tmp_path / "m.so", library):
        done = cli("run", model, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
        assert done.code == 0, done.err
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)
    assert "a compiled library" in cli("inspect", library).out
    assert cli("bench", library, "--shape", "x:2x4", "--repeat", "5").code == 0
    assert cli("inspect", library, "--yaml").code == 4
    assert cli("compile", library, "-o", tmp_path / "again").code == 5
    assert not (tmp_path / "again").exists()


def test_several_libraries_in_one_process(tmp_path: Path, library: Path) -> None:
    """Equal symbols in each: none may see another's."""
    graphs = []
    for scale in range(1, 5):
        weights = {"k": np.full(4, scale, np.float32)}
        node = helper.make_node("Mul", ["x", "k"], ["y"])
        model = make_model([node], [("x", TensorProto.FLOAT, ["n", 4])], [("y", TensorProto.FLOAT, ["n", 4])], weights)
        onnx.save(model, tmp_path / "m.onnx")
        ingot.compile(tmp_path / "m.onnx").emit(tmp_path / f"m{scale}.so")
        graphs.append(ingot.load(tmp_path / f"m{scale}.so"))
    graphs.append(ingot.load(library))
    for _ in range(2):
        for scale, graph in enumerate(graphs[:4], start=1):
            np.testing.assert_array_equal(graph.inference([X])["y"], X * np.float32(scale))
        np.testing.assert_allclose(graphs[4].inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)


def test_library_written_anew_is_loaded_anew(tmp_path: Path) -> None:
    port = (TensorProto.FLOAT, [4])
    results = []
    for scale in (2, 3):
        node = helper.make_node("Mul", ["x", "k"], ["y"])
        weights = {"k": np.full(4, scale, np.float32)}
        onnx.save(make_model([node], [("x", *port)], [("y", *port)], weights), tmp_path / "m.onnx")
        ingot.compile(tmp_path / "m.onnx").emit(tmp_path / "m.so")
        results.append(ingot.load(tmp_path / "m.so").inference([np.ones(4, np.float32)])["y"][0])
    assert results == [2, 3]


def test_library_from_many_threads(library: Path) -> None:
    graph = ingot.load(library, threads=2)
    batches = [np.random.default_rng(n).standard_normal((n, 4), dtype=np.float32) for n in range(1, 6)]
    expected = [run_mlp(mlp(), x) for x in batches]
    wrong: list[int] = []

    def work(first: int) -> None:
        for i in range(100):
            k = (first + i) % len(batches)
            if not np.allclose(graph.inference([batches[k]])["y"], expected[k], rtol=1e-5, atol=1e-6):
                wrong.append(k)

    in_threads(4, work)
    assert not wrong


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([X.astype(np.float64)], ["'x'"]),
        ([X[0]], ["'x'"]),
        ([X[:, :3]], ["'x'"]),
        ([X, X], ["2"]),
        ({"z": X}, ["'x'"]),
    ],
)
def test_library_refuses_wrong_inputs(library: Path, inputs: Any, words: list[str]) -> None:
    graph = ingot.load(library)
    with pytest.raises(ingot.InvalidInputError) as caught:
        graph.inference(inputs)
    for word in words:
        assert word in str(caught.value)
    assert graph.inference([X])["y"].shape == (5, 3)


def test_what_a_library_cannot_do_says_so(library: Path, tmp_path: Path) -> None:
    graph = ingot.load(library)
    for call in (
        lambda: graph.save(tmp_path / "ir"),
        lambda: graph.emit(tmp_path / "m.so"),
        lambda: graph.yaml,
        lambda: graph.nodes,
        lambda: graph.dump_tensors(["y"], [X]),
    ):
        with pytest.raises(ingot.UnsupportedError):
            call()
    with pytest.raises(ingot.InvalidInputError):
        ingot.compile(library)


def test_loaded_in_a_forked_child(library: Path) -> None:
    """A process that forks after using its threads must be able to go on in the child."""
    code = (
        "import os, sys, numpy as np, ingot\n"
        f"graph = ingot.load({str(library)!r}, threads=2)\n"
        "x = np.ones((64, 4), np.float32)\n"
        "y = graph.inference([x])['y']\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if (graph.inference([x])['y'] == y).all() else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    import sys

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
