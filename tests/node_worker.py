"""Runs ONNX's own backend cases one by one and prints what became of each as JSON; test_onnx_nodes.py starts it.

The cases run in forked children: should one crash or hang, the next child goes on after it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import ingot

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
CASE_SECONDS = 60


def load_cases() -> dict[str, Any]:
    return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


def data_sets(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs: in memory for node cases, beside the model for the others."""
    if case.data_sets is not None:
        return [([as_array(i) for i in inputs], [as_array(o) for o in outputs]) for inputs, outputs in case.data_sets]
    sets = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):

        def read(prefix: str, folder: Path = folder) -> list[Any]:
            count = len(list(folder.glob(f"{prefix}_*.pb")))
            return [onnx.numpy_helper.to_array(onnx.load_tensor(folder / f"{prefix}_{i}.pb")) for i in range(count)]

        sets.append((read("input"), read("output")))
    return sets


def as_array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(actual: Any, expected: Any, case: Any) -> None:
    expected = np.asarray(expected)
    if actual.dtype != expected.dtype:
        raise AssertionError(f"element type {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape}, expected {expected.shape}")
    if expected.dtype.kind not in "fciub":  # bfloat16 and smaller floats: numpy compares them through float32
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.atol)


def run(case: Any, folder: Path) -> None:
    path = folder / "model.onnx"
    if case.model is not None:
        onnx.save(case.model, path)
    else:
        path = Path(case.model_dir) / "model.onnx"
    graph = ingot.compile(path, threads=1)
    for inputs, outputs in data_sets(case):
        # Cases leave trailing optional inputs out.
        names = [port.name for port in graph.inputs]
        results = graph.inference(dict(zip(names, inputs, strict=True)))
        for actual, expected in zip(results.values(), outputs, strict=True):
            compare(actual, expected, case)


def run_until_crash(cases: dict[str, Any], names: list[str], pipe: IO[str]) -> None:
    """The child: a line before and a line after each case."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(json.dumps([name, "crashed"]), file=pipe, flush=True)
            signal.alarm(CASE_SECONDS)
            try:
                run(cases[name], Path(folder))
                outcome = "pass"
            except ingot.UnsupportedError as error:
                outcome = f"unsupported: {error.message}"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            outcome = " ".join(outcome.replace(f"{folder}/", "").split())
            print(json.dumps([name, outcome[:300]]), file=pipe, flush=True)


def main() -> None:
    cases = load_cases()
    todo = sorted(cases)
    outcomes: dict[str, str] = {}
    while todo:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                run_until_crash(cases, todo, pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            outcomes.update(json.loads(line) for line in pipe)
        os.waitpid(child, 0)
        todo = [name for name in todo if name not in outcomes]
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
