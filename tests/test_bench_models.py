"""The parts of `make bench-models` and `make growth` that decide what its figures mean."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from bench_models import difference, part, read_results
from conftest import Port, make_model
from growth import figures
from models_page import write_page
from models_summary import summarise
from onnx import TensorProto, helper
from plots import curves, ranked
from real_inputs import fix_sizes, make_inputs
from real_models import REAL_MODELS, pinned

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lookup(tmp_path: Path) -> Path:
    """Rows of a table by free ids, times a mask."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"]), helper.make_node("Cast", ["mask"], ["m"], to=1)]
    nodes += [helper.make_node("Mul", ["rows", "m"], ["y"])]
    inputs: list[Port] = [
        ("ids", TensorProto.INT64, ["batch", "length"]),
        ("mask", TensorProto.INT64, ["batch", "length", 1]),
    ]
    model = make_model(nodes, inputs, [("y", TensorProto.FLOAT, None)], {"table": np.ones((7, 4), np.float32)})
    path = tmp_path / "lookup.onnx"
    onnx.save(model, path)
    return path


def test_every_model_has_a_pin_and_a_name_of_its_own() -> None:
    assert {model.package for model in REAL_MODELS} == set(pinned())
    assert len({model.name for model in REAL_MODELS}) == len(REAL_MODELS) >= 60


def test_inputs_follow_the_graph_and_stay_the_same(lookup: Path) -> None:
    inputs = make_inputs(lookup, {})
    assert inputs["ids"].shape == (1, 128) and inputs["ids"].max() < 7
    assert (inputs["mask"] == 1).all()
    np.testing.assert_array_equal(inputs["ids"], make_inputs(lookup, {})["ids"])


def test_given_shapes_and_values_win(lookup: Path) -> None:
    inputs = make_inputs(lookup, {"ids": "2x3 <2", "mask": "2x3x1 =5"})
    assert inputs["ids"].shape == (2, 3) and inputs["ids"].max() < 2
    assert inputs["mask"].dtype == np.int64 and (inputs["mask"] == 5).all()


def test_sizes_are_written_into_the_model(lookup: Path, tmp_path: Path) -> None:
    inputs = make_inputs(lookup, {})
    fixed = tmp_path / "fixed.onnx"
    assert fix_sizes(lookup, inputs, fixed)
    assert not fix_sizes(fixed, inputs, tmp_path / "again.onnx")  # nothing is free any more


def save_outputs(path: Path, *arrays: Any) -> Path:
    np.savez(path, *arrays)
    return path


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ([1.0, 2.0, 100.0], 0.0),
        ([1.0, 3.0, 100.0], 0.01),
        ([1.0, np.nan, 100.0], "output 0 has other infinities or NaNs"),
        ([1.0, 2.0], "output 0 has shape [2] instead of [3]"),
    ],
)
def test_differences_are_relative_to_the_output(tmp_path: Path, got: list[float], expected: float | str) -> None:
    wanted = save_outputs(tmp_path / "wanted.npz", np.array([1.0, 2.0, 100.0]))
    assert difference(save_outputs(tmp_path / "got.npz", np.array(got)), wanted) == expected


def test_rounding_of_outputs_near_zero_is_no_difference(tmp_path: Path) -> None:
    wanted = save_outputs(tmp_path / "wanted.npz", np.array([7e-6]))
    assert difference(save_outputs(tmp_path / "got.npz", np.array([7.1e-6])), wanted) == pytest.approx(1e-4)


def test_equal_infinities_and_nans_are_no_difference(tmp_path: Path) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1.0])
    path = save_outputs(tmp_path / "same.npz", values, np.array(["a", "b"]))
    assert difference(path, path) == 0.0


def test_an_engine_that_fails_or_hangs_is_reported(lookup: Path, tmp_path: Path) -> None:
    data = tmp_path / "inputs.npz"
    arrays: dict[str, Any] = dict(make_inputs(lookup, {}))
    np.savez(data, **arrays)
    request = {"engine": "ingot", "inputs": str(data), "threads": 1, "outputs": str(tmp_path / "out.npz")}
    assert part("start", 60, tmp_path, path=str(lookup), **request)["first_result_s"] > 0
    assert "missing.onnx" in part("start", 60, tmp_path, path=str(tmp_path / "missing.onnx"), **request)["error"]
    assert "no result within" in part("start", 0.01, tmp_path, path=str(lookup), **request)["error"]


def test_results_are_kept_only_for_the_same_header(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_results(path, {"build": 1}, fresh=False) == {}
    with path.open("a") as file:
        file.write(json.dumps({"model": "a"}) + '\n{"model": "cut o')
    assert list(read_results(path, {"build": 1}, fresh=False)) == ["a"]
    assert read_results(path, {"build": 2}, fresh=False) == {}


def made_up(name: str, ingot: float, peer: float, other: float, found: float | str = 0.0) -> dict[str, Any]:
    times = {"ingot free": ingot, "onnxruntime free": peer, "openvino free": other}
    step = {"op": "Conv", "node": "c", "kernel": "k", "specialised": False, "output": "[1]", "share": 0.5}
    return {
        "model": name,
        "package": "p",
        "inputs": {"x": "float32 [1]"},
        "forms": ["free"],
        "errors": {},
        "difference": {"ingot free": found},
        "tolerance": 1e-3,
        "cold": {"ingot free": {"first_result_s": 2.0}, "onnxruntime free": {"first_result_s": 1.0}},
        "warm": {"ingot free": {"first_result_s": 0.5}},
        "steady": {"1": {"engines": {n: {"deciding_ms": ms} for n, ms in times.items()}, "fma_peak_gmacs": 100.0}},
        "profile": {"worst": [step], "not_specialised_share": 0.5},
        "work": {"gmac": 0.1, "type": "fp32"},
    }


def test_the_summary_counts_against_the_best_peer(tmp_path: Path) -> None:
    refused = {**made_up("d", 1, 1, 1), "errors": {"ingot free": "<no kernel>"}, "steady": {}, "difference": {}}
    results = [made_up("a", 1, 2, 4), made_up("b", 4, 8, 2, 0.1), made_up("c", 1, 1.02, 3), refused]
    summary = summarise(results, [1])
    row = next(r for r in summary["steady"] if r["form"] == "free")
    best, ort = row["best peer"], row["onnxruntime"]
    assert (best["models"], best["wins"], best["ties"], best["losses"]) == (3, 1, 1, 1)
    assert (best["below_0.95"], best["below_0.8"]) == (1, 1)
    assert best["geometric_mean"] == pytest.approx((2 * 0.5 * 1.02) ** (1 / 3))
    assert ort["wins"] == 2
    assert row["roof"]["shares"]["a"] == pytest.approx(1.0)
    assert summary["starts"]["cold"]["geometric_mean"] == pytest.approx(2.0)
    assert summary["worst"][0]["model"] == "b" and summary["worst"][0]["step"]["op"] == "Conv"
    assert [d["model"] for d in summary["different"]] == ["b"]
    assert [r["error"] for r in summary["refused"]] == ["<no kernel>"]
    head = {"cpu": "c", "target": "t", "onnxruntime": "1", "openvino": "2", "fma_unit": "u"}
    write_page(tmp_path / "index.html", {**head, "settings": {"threads": [1]}}, summary, results)
    page = (tmp_path / "index.html").read_text()
    assert "&lt;no kernel&gt;" in page and "<svg" in page and "50 % Conv c [1] (k, not specialised)" in page


def test_plots_are_well_formed() -> None:
    points = [(1.0, 0.5), (10.0, 2.0), (100.0, 30.0)]
    for log in (True, False):
        xml.etree.ElementTree.fromstring(curves("a < b", {"x & y": points}, "n", "s", log_x=log, log_y=log))
    xml.etree.ElementTree.fromstring(ranked("r", {"a<b": 0.4, "b": 1.0, "c": 3.0}, "ratio", 0.05))
    xml.etree.ElementTree.fromstring(ranked("r", {"only": 1.0}, "ratio", 0.05))


def test_growth_figures_are_a_table_of_at_most_ten_columns() -> None:
    table = figures({"Ingot": [(float(i), i / 2) for i in range(1, 201)]}).splitlines()
    assert len(table) == 3
    assert table[0].count("|") == table[1].count("|") == table[2].count("|") == 12
