"""The command line: every command, its data on stdout, its exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from conftest import PROGRAM, cli, make_model, mlp, run_mlp
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[[onnx.ModelProto], Path]

X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)


def test_version_says_what_and_why() -> None:
    done = cli("version", "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["llvm"].startswith("22.")
    assert said["target"].startswith("x86-64")
    assert said["threads"] >= 1
    assert said["threads_reason"]
    assert json.loads(cli("version", "--json", INGOT_NUM_THREADS="1").out)["threads"] == 1
    assert cli("--version").out == f"ingot {said['ingot']}\n"


def test_version_lists_operators_and_fusions() -> None:
    operators = cli("version", "--operators").out.split()
    assert {"Add", "Conv", "MatMul"} <= set(operators)
    assert operators == sorted(operators)
    assert "gelu" in cli("version", "--fusions").out.split()


def test_help_documents_exit_codes_and_usage_errors_are_2() -> None:
    done = cli("--help")
    assert done.code == 0
    assert "Exit codes" in done.out
    for arguments in ([], ["frobnicate"], ["run"], ["compile", "m.onnx", "-O7"], ["bench", "m", "--threads", "x"]):
        wrong = cli(*arguments)
        assert wrong.code == 2
        assert wrong.out == ""
        assert wrong.err.splitlines()[-1].startswith("hint:")


def test_compile_then_run_ir_and_onnx(mlp_path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    done = cli("compile", mlp_path, "-o", tmp_path / "ir")
    assert (done.code, done.out) == (0, "")
    for model in (mlp_path, tmp_path / "ir"):
        done = cli("run", model, "--input", tmp_path / "x.npy", "--output", tmp_path / "out.npz")
        assert (done.code, done.out) == (0, ""), done.err
        with np.load(tmp_path / "out.npz") as out:
            assert out.files == ["y"]
            np.testing.assert_allclose(out["y"], run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)


def test_run_reads_named_npy_and_npz(save: Save, tmp_path: Path) -> None:
    port = (TensorProto.FLOAT, [2, 2])
    model = save(make_model([helper.make_node("Sub", ["a", "b"], ["c"])], [("a", *port), ("b", *port)], [("c", *port)]))
    a, b = np.array([[1, 2], [3, 4]], np.float32), np.array([[10, 20], [30, 40]], np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.savez(tmp_path / "stored.npz", b=b, a=a)
    np.savez_compressed(tmp_path / "packed.npz", b=b, a=a)
    for inputs in (
        [tmp_path / "a.npy", tmp_path / "b.npy"],
        [f"b={tmp_path}/b.npy", f"a={tmp_path}/a.npy"],
        [tmp_path / "stored.npz"],
        [tmp_path / "packed.npz"],
    ):
        flags = [word for file in inputs for word in ("--input", file)]
        done = cli("run", model, *flags, "--output", tmp_path / "c.npy")
        assert done.code == 0, done.err
        np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), a - b)


@pytest.mark.parametrize(
    ("onnx_type", "dtype"),
    [
        (TensorProto.FLOAT, np.float32),
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.INT8, np.int8),
        (TensorProto.INT64, np.int64),
        (TensorProto.UINT16, np.uint16),
        (TensorProto.BOOL, np.bool_),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    ],
)
@pytest.mark.parametrize("order", ["C", "F", "swapped"])
def test_npy_types_and_orders_round_trip(save: Save, tmp_path: Path, onnx_type: int, dtype: Any, order: str) -> None:
    model = save(
        make_model([helper.make_node("Identity", ["x"], ["y"])], [("x", onnx_type, [2, 3])], [("y", onnx_type, [2, 3])])
    )
    x = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    if order == "swapped":
        if x.dtype.itemsize == 1 or dtype is ml_dtypes.bfloat16:
            pytest.skip("has no byte order")
        np.save(tmp_path / "x.npy", x.astype(x.dtype.newbyteorder(">")))
    else:
        np.save(tmp_path / "x.npy", np.asarray(x, order=order))  # type: ignore[call-overload]
    done = cli("run", model, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert done.code == 0, done.err
    y = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(y.view(x.dtype), x)


def test_random_runs_repeat_with_their_seed(mlp_path: Path) -> None:
    first = cli("run", mlp_path, "--random", "--shape", "x:3x4", "--seed", "7")
    assert first.code == 0
    assert first.out.startswith("y: f32[3, 3]")
    assert cli("run", mlp_path, "--random", "--shape", "x:3x4", "--seed", "7").out == first.out
    assert cli("run", mlp_path, "--random", "--shape", "x:3x4", "--seed", "8").out != first.out


def test_bench_reports_json(mlp_path: Path) -> None:
    done = cli("bench", mlp_path, "--shape", "x:2x4", "--threads", "1,2", "--repeat", "20", "--json", "--peak")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["inputs"][0]["shape"] == [2, 4]
    assert len(said["results"]) == 2
    for result in said["results"]:
        assert result["runs"] == 20
        assert 0 < result["wall_min_ms"] <= result["wall_median_ms"] <= result["wall_p90_ms"]
        assert 0 < result["share_of_peak"] < 1
    # relu(x @ w + b) @ v with two rows
    assert said["gmac"] == pytest.approx(2 * (4 * 8 + 8 * 3) * 1e-9)
    assert said["peak"]["type"] == "fp32"
    assert said["peak"]["gmacs"] > 0
    table = cli("bench", mlp_path, "--seconds", "0.05")
    assert table.code == 0
    assert table.out.split()[0] == "threads"


def test_bench_names_the_unit_whose_peak_it_means(save: Save) -> None:
    """Products of integers count by the peak of bytes; --march says which unit is in use."""
    weights = {"w": np.ones((16, 8), np.int8)}
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    integers = save(
        make_model([node], [("x", TensorProto.UINT8, [4, 16])], [("y", TensorProto.INT32, [4, 8])], weights)
    )
    told = cli("bench", integers, "--repeat", "3", "--threads", "1", "--peak", "--march", "x86-64-v2").out
    assert "share of peak with 1 thread(s): " in told
    assert "(128-bit pmaddubsw, pmaddwd and paddd)" in told
    said = json.loads(cli("bench", integers, "--repeat", "3", "--json", "--peak").out)
    assert said["peak"]["type"] == "int8"
    assert said["gmac"] == pytest.approx(4 * 16 * 8 * 1e-9)


def test_inspect_as_text_json_yaml_and_page(mlp_path: Path, tmp_path: Path) -> None:
    text = cli("inspect", mlp_path)
    assert text.code == 0
    assert "x: f32[batch, 4]" in text.out
    assert "\033" not in text.out
    said = json.loads(cli("inspect", mlp_path, "--json", "--memory", "--shape", "x:2x4").out)
    assert said["inputs"] == [{"name": "x", "dtype": "f32", "shape": [2, 4]}]
    assert said["original_operators"] == {"MatMul": 2, "Add": 1, "Relu": 1}
    assert said["weights_bytes"] >= 4 * (4 * 8 + 8 + 8 * 3)
    assert cli("inspect", mlp_path, "--yaml").out.startswith("format:")
    done = cli("inspect", mlp_path, "--html", tmp_path / "page.html")
    assert (done.code, done.out) == (0, "")
    page = (tmp_path / "page.html").read_text()
    assert "MatMul" in page or "Gemm" in page
    assert "http" not in page  # nothing is loaded from elsewhere


def test_page_escapes_what_models_say(save: Save, tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    model = make_model([helper.make_node("Abs", ["x"], ["y"], name=name)], [("x", 1, [1])], [("y", 1, [1])])
    assert cli("inspect", save(model), "-O0", "--html", tmp_path / "p.html").code == 0
    assert name not in (tmp_path / "p.html").read_text()


def test_explain_goes_to_stdout_and_writes_nothing(mlp_path: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = cli("compile", mlp_path, "--explain")
    assert done.code == 0
    assert done.out
    assert sorted(tmp_path.iterdir()) == before


def test_patterns_can_be_switched(mlp_path: Path) -> None:
    assert cli("compile", mlp_path, "--explain", "--pattern", "nope=off").code == 5
    assert cli("compile", mlp_path, "--explain", "--pattern", "gelu").code == 5
    assert cli("compile", mlp_path, "--explain", "--pattern", "gelu=off").code == 0


def test_colours_only_on_a_terminal_without_no_color(mlp_path: Path) -> None:
    def on_terminal(**env: str) -> bytes:
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "inspect", str(mlp_path)], {**os.environ, "TERM": "xterm", **env})
        out = b""
        with contextlib.suppress(OSError):  # raised when the other end closes
            while chunk := os.read(fd, 4096):
                out += chunk
        os.waitpid(pid, 0)
        return out

    assert b"\033[1m" in on_terminal(NO_COLOR="")
    assert b"\033[1m" not in on_terminal(NO_COLOR="1")
