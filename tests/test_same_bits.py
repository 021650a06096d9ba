"""8-bit models give the same bits on every target that this CPU runs, with any number of threads.

Trained models from installed packages (wheel_models.py), quantized here statically and dynamically: those of QUICK in
`make test`, all ten with INGOT_EXHAUSTIVE=1 (`make same-bits`). Two more models of these packages have all their
products inside the branches of an If, which the quantizer leaves alone.

Products of integers, with what quantizes their operands and results, are the same on all targets. Floats between them
are not: sums run in another order, and a product and a sum are rounded once or twice. So a model as a whole has to give
the same bits for any number of threads; and each of its integer operators by itself, fed with what it gets in a run of
the whole model, has to give the same bits on every target too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper
from wheel_models import MODELS

import ingot
from ingot import _ingot

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[Any]]

HERE = [name for name, runs in _ingot.targets().items() if runs]
THREADS = (1, 2, 3)
INTEGER = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"}
QUICK = {"ocr_classify", "magika"}
IN_BRANCHES = {"silero_vad", "silero_vad_ifless"}
SLOW = os.environ.get("INGOT_EXHAUSTIVE") == "1"
CASES = [
    (name, form)
    for name in MODELS
    for form in (("its own",) if name == "smart_turn" else ("static", "dynamic"))
    if (SLOW or name in QUICK) and name not in IN_BRANCHES
]


def samples_of(name: str) -> list[Tensors]:
    """Two to calibrate with, one to compare with."""
    path, inputs = MODELS[name]
    wanted = {port.name for port in onnx.load(path(), load_external_data=False).graph.input}
    random = np.random.default_rng(0)
    return [{key: value for key, value in inputs(random).items() if key in wanted} for _ in range(3)]


def quantized(name: str, form: str, samples: list[Tensors], folder: Path) -> Path:
    """With integer operators. A model that is quantized already ("its own") is written with these."""
    path, out = MODELS[name][0](), folder / "int8.onnx"
    if form == "its own":
        ingot.convert(path, out, to="qlinear")
    elif form == "static":
        ingot.quantize_onnx(path, out, calib=samples[:2], quant_format="qlinear")
    else:
        ingot.quantize_onnx(path, out)
    return out


def assert_same(actual: Tensors, expected: Tensors, where: str) -> None:
    different = {key: int((actual[key] != expected[key]).sum()) for key in expected}
    same = all(actual[key].tobytes() == expected[key].tobytes() for key in expected)
    assert same, f"{where}: { ({k: n for k, n in different.items() if n}) } elements differ"


def integer_operators(model: onnx.ModelProto, tensors: Tensors) -> onnx.ModelProto:
    """All integer operators of the main graph side by side: what one gives no other takes. Constants stay constants."""
    graph = model.graph
    constants = {t.name: t for t in graph.initializer}
    nodes, ports, results = [], {}, []
    for i, node in enumerate(graph.node):
        if node.op_type not in INTEGER:
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for k in range(len(node.output)):
            copy.output[k] = f"{node.output[k]}/{i}" if node.output[k] else ""
        nodes.append(copy)
        results += [onnx.ValueInfoProto(name=output) for output in copy.output if output]
        for given in node.input:
            if given and given not in constants:
                kind = helper.np_dtype_to_tensor_dtype(tensors[given].dtype)
                ports[given] = helper.make_tensor_value_info(given, kind, tensors[given].shape)
    used = {given for node in nodes for given in node.input} & constants.keys()
    part = helper.make_graph(nodes, "integers", list(ports.values()), results, [constants[name] for name in used])
    return helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)


def operands(model: onnx.ModelProto, inputs: Tensors, folder: Path) -> Tensors:
    """What the integer operators of the main graph take that is not constant, in one run of the whole model."""
    constants = {t.name for t in model.graph.initializer}
    taken = {given for node in model.graph.node if node.op_type in INTEGER for given in node.input if given}
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=t) for t in sorted(taken - constants - inputs.keys()))
    onnx.save(whole, folder / "whole.onnx")
    return ingot.compile(folder / "whole.onnx", threads=1).inference(inputs) | inputs


@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_same_for_any_number_of_threads(name: str, form: str, tmp_path: Path) -> None:
    samples = samples_of(name)
    path = quantized(name, form, samples, tmp_path)
    for march in HERE:
        first, *others = (ingot.compile(path, march=march, threads=n).inference(samples[2]) for n in THREADS)
        for count, other in zip(THREADS[1:], others, strict=True):
            assert_same(other, first, f"{march}, {count} threads")


@pytest.mark.parametrize(("name", "form"), CASES)
def test_integers_are_the_same_on_every_target(name: str, form: str, tmp_path: Path) -> None:
    samples = samples_of(name)
    model = onnx.load(quantized(name, form, samples, tmp_path))
    if not any(node.op_type in INTEGER for node in model.graph.node):
        pytest.skip("no integer operator in the main graph")
    tensors = operands(model, samples[2], tmp_path)
    part = integer_operators(model, tensors)
    onnx.save(part, tmp_path / "integers.onnx")
    inputs = {port.name: tensors[port.name] for port in part.graph.input}
    expected = None
    for march in HERE:
        for threads in THREADS:
            results = ingot.compile(tmp_path / "integers.onnx", march=march, threads=threads).inference(inputs)
            expected = expected or results
            assert_same(results, expected, f"{march} and {HERE[0]}, {threads} threads")
