"""ONNX's own backend cases: loading them, their data, and comparing what came out."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "model", "pytorch-converted", "pytorch-operator", "light")


@cache
def load_cases() -> dict[str, Any]:
    """By name. "model" are those of "simple" as ONNX makes them now: in memory, some under the name of one on disk."""
    cases = {}
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            cases[case.name] = case
    for case in collect_testcases():
        cases[case.name if case.kind == "real" else f"{case.name}/model"] = case
    return cases


def kind_of(case: Any) -> str:
    if case.kind == "real":  # ONNX's name for the light nets
        return "light"
    return "model" if case.kind == "simple" and case.model is not None else str(case.kind)


def model_of(case: Any) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    return onnx.load(model_path(case))


def model_path(case: Any) -> Path:
    """On disk; cases in memory have none."""
    if case.kind == "real":
        return Path(onnx.__file__).parent.parent / str(case.url)
    return Path(case.model_dir) / "model.onnx"


def as_value(value: Any) -> Any:
    """A tensor as an array, a sequence as a list, an absent optional as None."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return [as_value(v) for v in numpy_helper.to_list(value)]
    if isinstance(value, onnx.OptionalProto):
        return as_value(numpy_helper.to_optional(value))
    if isinstance(value, (list, tuple)):
        return [as_value(v) for v in value]
    return value


def read_value(path: Path, port: onnx.ValueInfoProto) -> Any:
    kind = port.type.WhichOneof("value")
    proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind, onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return as_value(proto)


def data_sets(case: Any, model: onnx.ModelProto) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs: in memory for node cases, beside the model for the others."""
    if case.data_sets is not None:
        return [([as_value(i) for i in inputs], [as_value(o) for o in outputs]) for inputs, outputs in case.data_sets]
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    path = model_path(case)
    if case.kind == "real":  # inputs are made by a rule, one output is kept beside the model
        given = [Runner.generate_dummy_data(i, seed=0, name=case.model_name, random=False) for i in inputs]
        return [(given, [read_value(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0])])]
    ports = {"input": inputs, "output": list(model.graph.output)}
    sets = []
    for data in sorted(path.parent.glob("test_data_set_*")):
        read = {}
        for prefix, known in ports.items():
            files = sorted(data.glob(f"{prefix}_*.pb"), key=lambda p: int(p.stem.split("_")[-1]))
            read[prefix] = [read_value(f, p) for f, p in zip(files, known, strict=False)]
        sets.append((read["input"], read["output"]))
    return sets


BFLOAT16_RTOL = 2**-6  # two units in the last place, as ONNX's own runner has it


def compare(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    if expected is None or actual is None:
        assert actual is None and expected is None, f"{actual!r}, expected {expected!r}"
        return
    if isinstance(expected, list):
        assert isinstance(actual, list) and len(actual) == len(expected), f"{actual!r}, expected {expected!r}"
        for a, e in zip(actual, expected, strict=True):
            compare(a, e, rtol, atol)
        return
    expected = np.asarray(expected)
    if expected.dtype.kind in "OUS":
        assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
        texts = [x.decode() if isinstance(x, bytes) else x for x in expected.ravel().tolist()]
        assert actual.ravel().tolist() == texts, f"{actual.tolist()}, expected {texts}"
        return
    assert actual.dtype == expected.dtype, f"element type {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, BFLOAT16_RTOL)
    if expected.dtype.kind not in "fciub":  # bfloat16 and smaller floats: numpy compares them through float32
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
