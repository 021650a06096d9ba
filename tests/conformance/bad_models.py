"""Broken variants of ONNX's one-node cases: every operator with operands, types, sizes and attributes it does not take.

bad_models.py            runs them all: each has to end in a result or an ingot.Error, never in a crash or a hang
bad_models.py FOLDER     writes them to files instead, for a build with sanitizers (`make fuzz`)
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import onnx
from cases import data_sets, load_cases
from modes import constant
from onnx import AttributeProto, TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES_PER_OPERATOR = 3
CASE_SECONDS = 20
MEMORY = 12 << 30
HUGE = 2**62
Variant = tuple[str, onnx.ModelProto]


def one_node_cases() -> Iterator[tuple[str, onnx.ModelProto, list[Any]]]:
    """A few per operator, those with different attributes and operand counts first."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, case in sorted(load_cases().items()):
        if case.model is None or len(case.model.graph.node) != 1:
            continue
        node = case.model.graph.node[0]
        shape = f"{len(node.input)} {sorted(a.name for a in node.attribute)}"
        if len(found[node.op_type]) < CASES_PER_OPERATOR and shape not in found[node.op_type]:
            found[node.op_type].append(shape)
            yield name, case.model, data_sets(case, case.model)[0][0]


def changed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.GraphProto, onnx.NodeProto]:
    new = copy.deepcopy(model)
    return new, new.graph, new.graph.node[0]


def bad_operands(model: onnx.ModelProto) -> Iterator[Variant]:
    for i in range(len(model.graph.node[0].input)):
        new, _, node = changed(model)
        node.input[i] = ""
        yield f"operand {i} absent", new
    new, _, node = changed(model)
    node.input.extend(["x_extra"] * 3)
    new.graph.input.append(helper.make_tensor_value_info("x_extra", TensorProto.FLOAT, [1]))
    yield "three operands more", new
    new, _, node = changed(model)
    del node.input[:]
    yield "no operands", new
    new, _, node = changed(model)
    node.output.extend(["more1", "more2", "more3", "more4", "more5"])
    yield "five results more", new


def bad_types(model: onnx.ModelProto) -> Iterator[Variant]:
    for i, port in enumerate(model.graph.input):
        if not port.type.HasField("tensor_type"):
            continue
        rank = len(port.type.tensor_type.shape.dim)
        for dtype in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT16, TensorProto.BOOL):
            if dtype != port.type.tensor_type.elem_type:
                new, graph, _ = changed(model)
                graph.input[i].type.tensor_type.elem_type = dtype
                yield f"input {i} of type {dtype}", new
        for shape in ([], [0] * rank, [1] * (rank + 3), [7] * max(rank, 1), [HUGE] * max(rank, 1), [3, 0, 2]):
            new, graph, _ = changed(model)
            graph.input[i].CopyFrom(helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type, shape))
            yield f"input {i} of shape {shape}", new


def bad_attributes(model: onnx.ModelProto) -> Iterator[Variant]:
    for i, attribute in enumerate(model.graph.node[0].attribute):
        values: list[Any] = []
        if attribute.type == AttributeProto.INT:
            values = [-1, 0, 5, HUGE, -HUGE]
        elif attribute.type == AttributeProto.INTS:
            ints = list(attribute.ints)
            values = [[-1] * len(ints), [0] * len(ints), [HUGE] * len(ints), [*ints, 1], ints[:-1]]
        elif attribute.type == AttributeProto.FLOAT:
            values = [float("nan"), float("inf"), -1e30]
        elif attribute.type == AttributeProto.STRING:
            values = ["no such thing", ""]
        for value in [v for v in values if v != []]:
            new, _, node = changed(model)
            node.attribute[i].CopyFrom(helper.make_attribute(attribute.name, value))
            yield f"{attribute.name} = {value}", new
        new, _, node = changed(model)
        del node.attribute[i]
        yield f"without {attribute.name}", new
        new, _, node = changed(model)
        node.attribute[i].CopyFrom(helper.make_attribute(attribute.name, "text"))
        yield f"{attribute.name} of another type", new


def bad_values(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Integers that are lengths, indices or axes out of range; floats that are not finite."""
    for i, value in enumerate(inputs):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            continue
        extremes = (
            [np.nan, np.inf] if value.dtype.kind == "f" else [np.iinfo(value.dtype).min, np.iinfo(value.dtype).max, 9]
        )
        for extreme in extremes:
            yield f"input {i} full of {extreme}", [*inputs[:i], np.full_like(value, extreme), *inputs[i + 1 :]]


def variants() -> Iterator[tuple[str, onnx.ModelProto, list[Any]]]:
    for name, model, inputs in one_node_cases():
        if model.graph.node[0].op_type == "Loop":
            continue  # runs as long as it is told to
        for make in (bad_operands, bad_types, bad_attributes):
            for what, new in make(model):
                yield f"{name}: {what}", new, inputs
        for what, new_inputs in bad_values(inputs):
            yield f"{name}: {what}", model, new_inputs


def fitting(port: onnx.ValueInfoProto, value: Any) -> Any:
    """Data for an input whose declared type was changed: what it says, as far as that is small."""
    if not port.type.HasField("tensor_type"):
        return value
    tensor = port.type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if isinstance(value, np.ndarray) and value.dtype == dtype and list(value.shape) == dims:
        return value
    if np.prod([float(d) for d in dims]) > 1e6:
        dims = [1] * len(dims)
    return np.full(dims, "1" if tensor.elem_type == TensorProto.STRING else 1, dtype)


def attempt(model: onnx.ModelProto, inputs: list[Any], folder: Path) -> str:
    feed = {port.name: fitting(port, value) for port, value in zip(model.graph.input, inputs, strict=False)}
    outcome = "runs"
    for fold in (False, True):
        try:
            if fold:
                constant(model, feed, folder)
            else:
                (folder / "model.onnx").write_bytes(model.SerializeToString())
                ingot.compile(folder / "model.onnx", threads=1).inference(feed)
        except ingot.InternalError as error:
            return f"internal error: {error}"
        except (ingot.Error, MemoryError):
            outcome = "refused"
    return outcome


def run_from(models: list[tuple[str, onnx.ModelProto, list[Any]]], start: int, pipe: IO[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        for i, (what, model, inputs) in list(enumerate(models))[start:]:
            print(json.dumps([i, what, "crashed"]), file=pipe, flush=True)
            signal.alarm(CASE_SECONDS)
            try:
                outcome = attempt(model, inputs, Path(folder))
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            print(json.dumps([i, what, " ".join(outcome.split())[:300]]), file=pipe, flush=True)


def run_all() -> dict[str, str]:
    outcomes: dict[str, str] = {}
    models = list(variants())
    start = 0
    while True:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                run_from(models, start, pipe)
            os._exit(0)
        os.close(writer)
        last = -1
        with os.fdopen(reader) as pipe:
            for line in pipe:
                last, what, outcome = json.loads(line)
                outcomes[what] = outcome
                if outcome not in ("runs", "refused", "crashed"):
                    print(f"{what}: {outcome}", flush=True)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return outcomes
        print(f"{what}: ended by signal {status & 0x7F}", flush=True)
        start = last + 1


def main() -> int:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        for what, model, _ in variants():
            (folder / hashlib.sha1(what.encode()).hexdigest()).write_bytes(model.SerializeToString())
        return 0
    outcomes = run_all()
    wrong = {what: o for what, o in outcomes.items() if o not in ("runs", "refused")}
    refused = sum(o == "refused" for o in outcomes.values())
    run = len(outcomes) - refused - len(wrong)
    print(f"{len(outcomes)} broken models: {refused} refused, {run} run, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
