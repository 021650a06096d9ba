"""What must not happen whatever a user, another process or the system does: no crash, hang, lost or mixed file."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import PROGRAM, ROOT, Finished, cli, make_model, mlp, run_mlp
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable

    Save = Callable[..., Path]

F32 = TensorProto.FLOAT
IO, RESOURCE = 6, 7
RUN = ["run", "mlp.onnx", "--random", "--shape", "x:2x4"]
X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)


def python(code: str, *args: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, which may die."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


def temporaries(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.endswith((".tmp", ".new", ".exports")))


# --- files that change


def table_model(rows: int, value: float) -> onnx.ModelProto:
    """A Gather, which reads its table in every run, and a MatMul, whose weights are packed."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["g"]),
        helper.make_node("MatMul", ["g", "w"], ["y"]),
        helper.make_node("Identity", ["g"], ["rows"]),
    ]
    weights = {"table": np.full((rows, 64), value, np.float32), "w": np.full((64, 32), value, np.float32)}
    ports = [("y", F32, [1, 32]), ("rows", F32, [1, 64])]
    return make_model(nodes, [("i", TensorProto.INT64, [1])], ports, weights)


@pytest.mark.parametrize("form", ["onnx", "ir"])
@pytest.mark.parametrize("change", ["overwritten", "truncated"])
def test_a_model_keeps_its_weights_when_its_file_changes(tmp_path: Path, form: str, change: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(table_model(20000, 1), path)
    if form == "ir":
        ingot.compile(path).save(tmp_path / "ir")
    found = python(
        """
        import sys, numpy as np, ingot, os
        path, weights, change = sys.argv[1:]
        graph = ingot.load(path)
        other = np.frombuffer(open(weights, "rb").read(), np.uint8).copy()
        def both():
            out = graph.inference([np.array([17000])])
            return float(out["y"][0, 0]), float(out["rows"][0, 0])
        first = both()
        with open(weights, "r+b") as f:
            if change == "truncated":
                f.truncate(1000)
            else:
                f.write(b"\\0" * len(other))
        graph.emit(sys.argv[2] + ".so")
        assert both() == first, (both(), first)
        again = ingot.load(sys.argv[2] + ".so").inference([np.array([17000])])
        assert float(again["rows"][0, 0]) == first[1]
        print(first)
        """,
        path if form == "onnx" else tmp_path / "ir",
        path if form == "onnx" else tmp_path / "ir" / "weights.bin",
        change,
    )
    assert found.returncode == 0, found
    assert found.stdout == "(64.0, 1.0)\n"


# --- libraries


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    onnx.save(mlp(), folder / "mlp.onnx")
    ingot.compile(folder / "mlp.onnx").emit(folder / "mlp.so")
    return folder / "mlp.so"


@pytest.mark.parametrize("part", [100, 0.1, 0.5, 0.99, -1])
def test_a_library_that_is_cut_off_is_refused(tmp_path: Path, library: Path, part: float) -> None:
    whole = library.read_bytes()
    cut = tmp_path / "cut.so"
    cut.write_bytes(whole[: int(part if abs(part) >= 1 else len(whole) * part)])
    done = cli("run", cut, "--random")
    if part == -1:  # only the seal's last byte: its size differs, so it counts as damaged
        assert done.code == IO, done
    assert done.code == IO, done
    assert "cut.so" in done.err
    assert (
        python("import sys, ingot\ntry: ingot.load(sys.argv[1])\nexcept ingot.IoError: sys.exit(9)", cut).returncode
        == 9
    )


def test_a_library_with_a_changed_byte_is_refused(tmp_path: Path, library: Path) -> None:
    bad = bytearray(library.read_bytes())
    bad[len(bad) // 2] ^= 1
    (tmp_path / "bad.so").write_bytes(bad)
    with pytest.raises(ingot.IoError, match="checksum"):
        ingot.load(tmp_path / "bad.so")
    # What an earlier version made has no seal.
    whole = library.read_bytes()
    (tmp_path / "old.so").write_bytes(whole[: whole.rindex(b"ingot-library")])
    assert ingot.load(tmp_path / "old.so").inference([X])["y"].shape == (5, 3)


def test_two_libraries_in_one_link_are_told_apart_by_their_prefixes(tmp_path: Path) -> None:
    for name, value in (("first", 2.0), ("second", 3.0)):
        node = helper.make_node("Mul", ["x", "c"], ["y"])
        model = make_model([node], [("x", F32, [1])], [("y", F32, [1])], {"c": np.float32(value)})
        onnx.save(model, tmp_path / f"{name}.onnx")
        done = cli("compile", tmp_path / f"{name}.onnx", "-o", tmp_path / f"lib{name}.so", "--prefix", name)
        assert done.code == 0, done
    (tmp_path / "both.c").write_text(
        """
        #include <stdio.h>
        #include "ingot/ingot.h"
        INGOT_DECLARE_MODEL(first);
        INGOT_DECLARE_MODEL(second);
        int main(void) {
          float x = 1, y[2] = {0, 0};
          ingot_model *a, *b;
          ingot_tensor in = {&x, 4, INGOT_TENSOR, INGOT_F32, 1, {1}};
          ingot_tensor out[2] = {{&y[0], 4, 0, 0, 0, {0}}, {&y[1], 4, 0, 0, 0, {0}}};
          if (first_create(1, &a) || second_create(1, &b)) return 1;
          if (first_run(a, &in, 1, &out[0], 1) || second_run(b, &in, 1, &out[1], 1)) return 2;
          printf("%g %g\\n", y[0], y[1]);
          first_destroy(a);
          second_destroy(b);
          return 0;
        }
        """
    )
    flags = ["-I", str(ROOT / "include"), f"-L{tmp_path}", "-lfirst", "-lsecond", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["cc", str(tmp_path / "both.c"), "-o", str(tmp_path / "both"), *flags], check=True)
    assert subprocess.run([tmp_path / "both"], capture_output=True, text=True).stdout == "2 3\n"
    assert ingot.load(tmp_path / "libfirst.so").inference([np.ones(1, np.float32)])["y"] == 2  # the usual names too
    assert cli("compile", tmp_path / "first.onnx", "-o", tmp_path / "x.so", "--prefix", "1-x").code == 5


# --- writing


def test_threads_that_emit_to_one_path(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    graph = ingot.compile(tmp_path / "mlp.onnx")
    failed: list[Exception] = []

    def emit() -> None:
        try:
            for _ in range(3):
                graph.emit(tmp_path / "mlp.so")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=emit) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    np.testing.assert_allclose(ingot.load(tmp_path / "mlp.so").inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5)
    assert temporaries(tmp_path) == []


def test_emit_to_a_full_disk(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs a disk of its own to fill")
    try:
        done = cli("compile", tmp_path / "mlp.onnx", "-o", disk / "mlp.so")
        assert done.code == IO, done
        assert "No space left" in done.err
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("name", ["save", "emit", "quantize", "convert", "specialise"])
def test_files_that_cannot_grow_are_an_error_and_leave_nothing(name: str) -> None:
    """As on a full disk: every file, intermediate ones too, takes so many bytes and no more."""
    found = python(
        """
        import os, resource, sys, tempfile
        from pathlib import Path
        import ingot
        from faults.operations import OPERATIONS, listed, prepare, whole
        operation, unlimited = OPERATIONS[sys.argv[1]], resource.RLIM_INFINITY
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ.update(INGOT_CACHE_DIR=name + "/cache", TMPDIR=name + "/tmp")
            (folder / "tmp").mkdir()
            prepare(folder)
            before, errors = listed(folder), 0
            for most in (0, 1, 1000, 10_000, 100_000, 1_000_000, unlimited):
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, unlimited))
                try:
                    result = operation.act(folder)
                    assert operation.good(folder, result), most
                except ingot.IoError as error:
                    errors += 1
                    assert "File too large" in str(error), error
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
                assert whole(operation, folder), most
                assert listed(folder) == before, (most, listed(folder) - before)
            print(errors)
        """,
        name,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])},
    )
    assert found.returncode == 0, found
    # Machine code that cannot be held is done without.
    assert (int(found.stdout) > 0) == (name != "specialise"), found


def test_a_program_may_have_functions_of_the_c_library_of_its_own(tmp_path: Path) -> None:
    """A model.so names the system's libraries, not whatever else defines their functions in this process."""
    (tmp_path / "own.c").write_text("void abort(void) { for (;;); }\ndouble lgamma(double x) { return x; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-fno-builtin", str(tmp_path / "own.c"), "-o", str(tmp_path / "own.so")], check=True
    )
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    found = python(
        "import sys, ingot; ingot.compile(sys.argv[1]).emit(sys.argv[2])",
        tmp_path / "mlp.onnx",
        tmp_path / "mlp.so",
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "own.so")},
    )
    assert found.returncode == 0, found
    np.testing.assert_allclose(ingot.load(tmp_path / "mlp.so").inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5)


def test_leftovers_of_killed_writers_do_not_matter_and_go(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    graph = ingot.compile(tmp_path / "mlp.onnx")
    # Process numbers repeat in containers: names that a process of this number once used.
    for n in range(8):
        (tmp_path / f".ir.{os.getpid()}.{n}.tmp").mkdir()
    old = tmp_path / ".ir.0123456789abcdef.tmp"
    old.mkdir()
    (old / "weights.bin").write_bytes(b"half")
    fresh = tmp_path / ".ir.fedcba9876543210.tmp"
    fresh.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    graph.save(tmp_path / "ir")
    graph.save(tmp_path / "ir")
    assert not old.exists()
    assert fresh.exists()  # somebody may be writing it
    assert ingot.load(tmp_path / "ir").inference([X])["y"].shape == (5, 3)


def test_what_is_saved_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    log = tmp_path / "calls"
    command = [
        "strace",
        "-f",
        "-e",
        "trace=fsync,rename,renameat2",
        "-o",
        str(log),
        PROGRAM,
        "compile",
        str(tmp_path / "mlp.onnx"),
    ]
    done = subprocess.run([*command, "-o", str(tmp_path / "mlp.so")], capture_output=True, text=True)
    assert done.returncode == 0, done
    names = [line.split("(")[0].split()[-1] for line in log.read_text().splitlines() if "(" in line]
    assert names[-3:] == ["fsync", "rename", "fsync"], names


# --- the cache


def cached(path: Path, cache: Path) -> Finished:
    return cli("run", path, "--random", INGOT_CACHE_DIR=str(cache), INGOT_WAIT="1")


def wide(save: Save) -> Path:
    """Large enough to be specialised."""
    node = helper.make_node("Tanh", ["x"], ["y"])
    return save(make_model([node], [("x", F32, [4096])], [("y", F32, [4096])]))


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path, save: Save) -> None:
    path, cache = wide(save), tmp_path / "cache"
    assert cached(path, cache).code == 0
    assert any(cache.glob("*.so"))
    assert cache.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(cache)
    cache.mkdir()
    cache.chmod(0o777)
    assert cached(path, cache).code == 0
    assert not any(cache.glob("*.so"))
    graph = ingot.compile(path)
    graph.use_cache(cache)
    with pytest.raises(ingot.IoError, match="other users"):
        graph.inference([np.zeros(4096, np.float32)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_not_used(tmp_path: Path, save: Save) -> None:
    path, cache = wide(save), tmp_path / "cache"
    assert cached(path, cache).code == 0
    os.chown(cache, 1234, 1234)
    before = {p.name: p.stat().st_mtime_ns for p in cache.iterdir()}
    assert cached(path, cache).code == 0
    assert {p.name: p.stat().st_mtime_ns for p in cache.iterdir()} == before
    os.chown(cache, 0, 0)
    for entry in cache.iterdir():
        if entry.is_file():
            os.chown(entry, 1234, 1234)
    assert "damaged: " in cli("cache", "verify", INGOT_CACHE_DIR=str(cache)).out


def test_a_fifo_in_the_cache_is_not_waited_for(tmp_path: Path, save: Save) -> None:
    path, cache = wide(save), tmp_path / "cache"
    assert cached(path, cache).code == 0
    for entry in list(cache.iterdir()):
        if entry.suffix in (".so", ".o"):
            entry.unlink()
            os.mkfifo(entry)
    assert cached(path, cache).code == 0


def test_a_relative_cache_home_is_ignored(tmp_path: Path, save: Save) -> None:
    path = wide(save)
    env = {k: v for k, v in os.environ.items() if k != "INGOT_CACHE_DIR"}
    env |= {"XDG_CACHE_HOME": "here", "HOME": str(tmp_path / "home"), "INGOT_WAIT": "1"}
    done = subprocess.run([PROGRAM, "run", path, "--random"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert not (tmp_path / "here").exists()
    assert any((tmp_path / "home/.cache/ingot").glob("*.so"))


def test_kernels_of_sessions_that_are_gone_are_unmapped() -> None:
    found = python(
        """
        import gc, os, tempfile, numpy as np, onnx, ingot
        from onnx import TensorProto, helper
        def one(n, path):
            node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=n / 1000)
            x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, [4096]) for v in "xy")
            graph = helper.make_graph([node], "g", [x], [y])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
            ingot.compile(path, wait=True).inference([np.ones(4096, np.float32)])
        maps = lambda: sum("ingot-kernels" in line for line in open("/proc/self/maps"))
        with tempfile.TemporaryDirectory() as folder:
            for n in range(130):
                one(n, folder + "/m.onnx")
                gc.collect()
                if n == 50: half = maps()
            print(half, maps())
        """,
        env={**os.environ, "INGOT_CACHE": "off"},
    )
    assert found.returncode == 0, found
    half, end = map(int, found.stdout.split())
    assert 0 < end < half, found.stdout  # those of the first hundred are gone


# --- memory and threads


@pytest.mark.parametrize("megabytes", [150, 200, 250, 300, 400, 600])
def test_little_memory_is_an_error_and_not_the_end(tmp_path: Path, megabytes: int) -> None:
    weights = {"w": np.ones((256, 4096), np.float32), "v": np.ones((4096, 256), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gelu", ["a"], ["g"]),
        helper.make_node("MatMul", ["g", "v"], ["y"]),
    ]
    model = make_model(nodes, [("x", F32, [8, 256])], [("y", F32, [8, 256])], weights)
    onnx.save(model, tmp_path / "model.onnx")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20,) * 2)

    for command in (
        ["run", str(tmp_path / "model.onnx"), "--random"],
        ["compile", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "m.so")],
    ):
        env = {**os.environ, "INGOT_CACHE": "off", "INGOT_NUM_THREADS": "8", "INGOT_WAIT": "1"}
        done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, env=env, preexec_fn=limit)
        assert done.returncode in (0, IO, RESOURCE), (megabytes, done)
        assert "terminate" not in done.stderr
        assert "LLVM ERROR" not in done.stderr
    assert temporaries(tmp_path) == []


def test_no_more_threads_is_no_reason_to_stop(tmp_path: Path) -> None:
    onnx.save(mlp(64), tmp_path / "mlp.onnx")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        os.setuid(12345)

    if os.geteuid() != 0:
        pytest.skip("only root can become a user who has no threads left")
    tmp_path.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            pytest.skip("the test's folder is not open to others")
    env = {**os.environ, "INGOT_CACHE": "off", "INGOT_NUM_THREADS": "8", "INGOT_WAIT": "1", "HOME": "/"}
    done = subprocess.run([PROGRAM, *RUN], capture_output=True, text=True, env=env, preexec_fn=limit, cwd=tmp_path)
    assert done.returncode in (0, RESOURCE), done


# --- Python


def test_an_input_that_changes_the_list_it_is_in(save: Save) -> None:
    node = helper.make_node("StringConcat", ["a", "b"], ["y"])
    text = TensorProto.STRING
    path = save(make_model([node], [("a", text, [1]), ("b", text, [1])], [("y", text, [1])]))
    found = python(
        """
        import sys, numpy as np, ingot
        graph = ingot.compile(sys.argv[1])
        class Hostile:
            def __array__(self, *args, **kwargs):
                inputs.clear()
                return np.array(["x"], object)
        inputs = [Hostile(), np.array(["y"] , object)]
        try:
            graph.inference(inputs)
        except ingot.InvalidInputError as error:
            print(error.message)
        """,
        path,
    )
    assert found.returncode == 0, found
    assert found.stdout == "the model has 2 inputs, 0 were given\n"


def test_paths_of_bytes(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    assert ingot.compile(os.fsencode(tmp_path / "mlp.onnx")).inference([X])["y"].shape == (5, 3)
    with pytest.raises(ingot.IoError):
        ingot.compile(b"nowhere.onnx")
    with pytest.raises(TypeError):
        ingot.compile(3)  # type: ignore[arg-type]
    odd = tmp_path / os.fsdecode(b"odd\xff.onnx")
    onnx.save(mlp(), odd)
    assert ingot.compile(odd).inference([X])["y"].shape == (5, 3)


# --- the command line


@pytest.mark.parametrize(
    "command", [["version"], ["--help"], ["inspect", "mlp.onnx"], ["run", "mlp.onnx", "--random", "--shape", "x:2x4"]]
)
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, command: list[str]) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PROGRAM, *command], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == IO, done
    assert "No space left" in done.stderr
    assert "fault of Ingot" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"'{PROGRAM}' --help-all | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "0", done
    assert signal.SIGPIPE


# --- IR


@pytest.mark.parametrize(
    ("op", "wrong"), [("LayerNormalization", "epsilo"), ("Gelu", "aproximate"), ("Softmax", "axes_")]
)
def test_a_misspelt_attribute_is_refused(tmp_path: Path, op: str, wrong: str) -> None:
    weights = {"s": np.ones(8, np.float32)} if op == "LayerNormalization" else {}
    node = helper.make_node(op, ["x", *weights], ["y"])
    onnx.save(make_model([node], [("x", F32, [2, 8])], [("y", F32, [2, 8])], weights), tmp_path / "m.onnx")
    assert cli("compile", tmp_path / "m.onnx", "-o", tmp_path / "ir", "-O", "0").code == 0
    text = (tmp_path / "ir/graph.yaml").read_text()
    assert f"type: {op}" in text
    if "attr: {" in text:
        text = text.replace("attr: {", f"attr: {{{wrong}: 1, ", 1)
    else:
        text = text.replace(f"type: {op}", f"type: {op}, attr: {{{wrong}: 1}}", 1)
    (tmp_path / "ir/graph.yaml").write_text(text)
    with pytest.raises(ingot.InvalidModelError, match=f"has no attribute '{wrong}'"):
        ingot.load(tmp_path / "ir")
