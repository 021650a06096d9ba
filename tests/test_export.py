"""PyTorch to ONNX: every kind of quantized model, in both forms, against the exact arithmetic of the PyTorch model."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import int8_sources
import numpy as np
import onnx
import pytest
import torch
import torch.ao.quantization as tq
from conftest import cli
from int8_sources import SOURCES, Convolutional, Perceptron
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import ingot
from ingot.exporter.reference import ReferenceMode

if TYPE_CHECKING:
    from pathlib import Path

EXACT, THEIRS = "Ingot and exact arithmetic", "onnxruntime and exact arithmetic"
FORMATS = ("QDQ", "QLinear")


def model_of(made: int8_sources.Source) -> ingot.Model:
    if made.state is not None:
        return ingot.Model.from_state_dict(made.model, made.state)
    return ingot.Model(made.model, float_model=made.float_model)


def run(path: Path, inputs: Any) -> list[np.ndarray[Any, Any]]:
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return list(ingot.compile(path).inference([tensor.numpy() for tensor in given]).values())


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("name", SOURCES)
def test_source(name: str, tmp_path: Path) -> None:
    kind, _ = SOURCES[name]
    made = int8_sources.build(name)
    model = model_of(made)
    results = []
    for quant_format in FORMATS:
        path = tmp_path / f"{quant_format}.onnx"
        report = model.export(
            path,
            ingot.Torch2ONNXConfig(
                dtype="int8",
                quant_format=quant_format,
                opset_version=21,
                example_inputs=made.inputs,
                dynamic_axes=made.dynamic_axes,
            ),
        )
        assert report.quantized
        # A step more: where a value lies between two integers, float arithmetic in another order may take the other.
        assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
        assert report.worst(THEIRS) <= 1.01, str(report)  # type: ignore[operator]
        results.append(run(path, made.inputs))
        used = operators(path)
        if quant_format == "QDQ" and kind != "dynamic":
            assert not used & {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}
        assert all(opset.domain == "" for opset in onnx.load(path).opset_import)
    for qdq, qlinear in zip(*results, strict=True):
        np.testing.assert_array_equal(qdq, qlinear)


@pytest.mark.parametrize("opset", [13, 14, 17, 20, 23])
@pytest.mark.parametrize("quant_format", FORMATS)
def test_opsets(opset: int, quant_format: str, tmp_path: Path) -> None:
    made = int8_sources.build("BERT classifier, PT2E static")
    report = model_of(made).export(
        tmp_path / "m.onnx",
        dtype="int8",
        quant_format=quant_format,
        opset_version=opset,
        example_inputs=made.inputs,
        dynamic_axes=made.dynamic_axes,
    )
    assert report.worst(THEIRS) <= 1.01, str(report)  # type: ignore[operator]
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == opset


def test_free_dims_serve_other_shapes(tmp_path: Path) -> None:
    made = int8_sources.build("BERT classifier, eager dynamic")
    model_of(made).export(
        tmp_path / "m.onnx", dtype="int8", example_inputs=made.inputs[:1], dynamic_axes={"x": {0: "batch", 1: "length"}}
    )
    graph = ingot.compile(tmp_path / "m.onnx")
    assert graph.inputs[0].shape == ("batch", "length")
    for shape in ((1, 7), (5, 30)):
        ids = torch.randint(0, 100, shape)
        with torch.no_grad():
            wanted = made.model(ids).numpy()
        (found,) = graph.inference([ids.numpy()]).values()
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()  # PyTorch's activations have 7 bits


@pytest.mark.parametrize("recipe", ["int32_bias", "fp32_bias", "fp32_bias_qdq"])
@pytest.mark.parametrize("quant_format", FORMATS)
def test_bias_recipes(recipe: str, quant_format: str, tmp_path: Path) -> None:
    made = int8_sources.build("PT2E static")
    report = model_of(made).export(
        tmp_path / "m.onnx", dtype="int8", quant_format=quant_format, recipe=recipe, example_inputs=made.inputs
    )
    limit = 2.0 if recipe == "fp32_bias_qdq" else 1.01  # one more rounding than PyTorch has
    assert report.worst(THEIRS) <= limit, str(report)  # type: ignore[operator]


@pytest.mark.parametrize("weight_type", ["s8", "u8"])
@pytest.mark.parametrize("per_channel", [None, True, False])
def test_weights(weight_type: str, per_channel: bool | None, tmp_path: Path) -> None:
    made = int8_sources.build("eager static, x86")
    report = model_of(made).export(
        tmp_path / "m.onnx",
        dtype="int8",
        weight_type=weight_type,
        per_channel=per_channel,
        example_inputs=made.inputs,
    )
    graph = onnx.load(tmp_path / "m.onnx").graph
    (weight,) = (t for t in graph.initializer if t.name.startswith("conv.weight") and len(t.dims) == 4)
    assert weight.data_type == (onnx.TensorProto.INT8 if weight_type == "s8" else onnx.TensorProto.UINT8)
    (reader,) = (node for node in graph.node if weight.name in node.input)
    scales = next(t for t in graph.initializer if t.name == reader.input[1])
    assert list(scales.dims) == ([] if per_channel is False else [8])
    if per_channel is not False:
        assert report.worst(EXACT) <= 1.01  # type: ignore[operator]


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3), ("bf16", 5e-2)])
def test_floats(dtype: str, tolerance: float, tmp_path: Path) -> None:
    model = Convolutional().eval()
    x = torch.randn(3, 3, 8, 8)
    ingot.export(
        model,
        tmp_path / "m.onnx",
        dtype=dtype,
        example_inputs=x,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch_size"}, "output": {0: "batch_size"}},
    )
    graph = ingot.compile(tmp_path / "m.onnx")
    assert [p.name for p in graph.inputs] == ["input"] and [p.name for p in graph.outputs] == ["output"]
    with torch.no_grad():
        wanted = model(x).numpy()
    (found,) = graph.inference([x.numpy()]).values()
    np.testing.assert_allclose(found, wanted, atol=tolerance * np.abs(wanted).max())


class Filtered(nn.Module):  # type: ignore[misc]
    """A convolution by Fourier transforms, with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=8).relu()


@pytest.mark.parametrize("opset", [17, 20])
def test_fourier_transforms(opset: int, tmp_path: Path) -> None:
    path, x, model = tmp_path / "m.onnx", torch.randn(3, 8), Filtered().eval()
    config = ingot.Torch2ONNXConfig(
        dtype="fp32", opset_version=opset, example_inputs=torch.randn(2, 8), dynamic_axes={"x": {0: "batch"}}
    )
    ingot.Model(model).export(path, config)
    assert "DFT" in operators(path)
    (found,) = run(path, x)
    np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["eager static, x86", "eager dynamic LSTM, GRU", "FX QAT, converted", "PT2E dynamic"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_floats_of_a_quantized_model(name: str, dtype: str, tmp_path: Path) -> None:
    made = int8_sources.build(name)
    model_of(made).export(tmp_path / "m.onnx", dtype=dtype, example_inputs=made.inputs)
    assert not {op for op in operators(tmp_path / "m.onnx") if "Quantize" in op or "Integer" in op}
    wanted = made.model(made.inputs)
    values = wanted if isinstance(wanted, tuple) else [wanted]
    for found, value in zip(run(tmp_path / "m.onnx", made.inputs), values, strict=True):
        assert np.abs(found - value.detach().numpy()).max() < 0.1 * np.abs(found).max()


@pytest.mark.parametrize("name", ["eager dynamic Linear, x86", "BERT classifier, eager dynamic", "ViT, eager dynamic"])
def test_seven_bits_as_pytorch_has_them(name: str, tmp_path: Path) -> None:
    made = int8_sources.build(name)
    fields = {"dtype": "int8", "example_inputs": made.inputs, "dynamic_axes": made.dynamic_axes}
    results = []
    for quant_format in FORMATS:
        path = tmp_path / f"{quant_format}.onnx"
        report = model_of(made).export(path, quant_format=quant_format, keep_reduce_range=True, **fields)
        assert report.worst("Ingot and PyTorch's int8 kernels") <= 1.01, str(report)  # type: ignore[operator]
        results.append(run(path, made.inputs))
    for qdq, qlinear in zip(*results, strict=True):
        np.testing.assert_array_equal(qdq, qlinear)


def test_keyword_arguments_and_nested_results(tmp_path: Path) -> None:
    class Nested(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, a: Tensor, scale: float = 1.0, *, b: dict[str, Tensor]) -> dict[str, Any]:
            y = self.fc(a) * scale
            return {"sum": y + b["one"], "pair": (y, None)}

    inputs = {"a": torch.randn(2, 4), "b": {"one": torch.randn(2, 4)}, "scale": 2.0}
    report = ingot.export(Nested().eval(), tmp_path / "m.onnx", example_inputs=inputs)
    graph = ingot.compile(tmp_path / "m.onnx")
    assert {p.name for p in graph.inputs} == {"a", "b.one"}
    assert [p.name for p in graph.outputs] == ["sum", "pair.0"]
    assert report.worst(EXACT) < 1e-3  # type: ignore[operator]


def test_report_is_data(tmp_path: Path) -> None:
    made = int8_sources.build("GPT-2, PT2E static")
    report = model_of(made).export(tmp_path / "m.onnx", dtype="int8", example_inputs=made.inputs)
    data = json.loads(report.json())
    assert data["quantized"] and all(entry["form"] for entry in data["quantized"])
    assert data["unquantized"] and all(entry["reason"] for entry in data["unquantized"])
    assert {d["output"] for d in data["differences"]} == {"output"}


# On tensors: PyTorch's kernels, operator by operator.

q = torch.ops.quantized
OPERATORS: dict[str, Any] = {
    "hardswish": lambda x: q.hardswish(x, 0.05, 30),
    "elu": lambda x: q.elu(x, 0.05, 30, 1.5, 1.1, 0.9),
    "celu": lambda x: q.celu(x, 0.05, 30, 1.3),
    "leaky_relu": lambda x: q.leaky_relu(x, 0.1, False, 0.05, 30),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid on a grid": lambda x: q.sigmoid(x, 0.01, 3),
    "softmax": lambda x: q.softmax(x, 1, 1 / 256, 0),
    "layer_norm": lambda x: q.layer_norm(x, [6], torch.full((6,), 1.1), torch.full((6,), 0.1), 1e-5, 0.04, 100),
    "group_norm": lambda x: q.group_norm(x, 2, torch.full((4,), 1.1), torch.full((4,), 0.1), 1e-5, 0.04, 100),
    "instance_norm": lambda x: q.instance_norm(x, torch.full((4,), 1.1), torch.full((4,), 0.1), 1e-5, 0.04, 100),
    "batch_norm": lambda x: q.batch_norm2d(
        x, torch.ones(4), torch.ones(4), torch.zeros(4), torch.ones(4), 1e-5, 0.05, 9
    ),
    "add": lambda x: q.add(x, x, 0.1, 100),
    "add_relu": lambda x: q.add_relu(x, x, 0.1, 10),
    "mul": lambda x: q.mul(x, x, 0.1, 10),
    "matmul": lambda x: q.matmul(x, x, 0.2, 100),
    "add a scalar": lambda x: q.add(x, 0.5),
    "add a large scalar": lambda x: q.add(x, 20.0),
    "add a small scalar": lambda x: q.add(x, -20.0),
    "add a scalar, relu": lambda x: q.add_relu(x, 0.5),
    "mul by a scalar": lambda x: q.mul(x, 1.5),
    "mul by a negative scalar": lambda x: q.mul(x, -1.5),
    "mul by zero": lambda x: q.mul(x, 0.0),
    "mul by a scalar, relu": lambda x: q.mul_relu(x, -1.5),
    "cat": lambda x: q.cat([x, x], 1, 0.1, 90),
    "cat of aten": lambda x: torch.cat([x, x], 1),
    "relu": torch.relu,
    "relu6": F.relu6,
    "clamp": lambda x: torch.clamp(x, -0.5, 0.7),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 3),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "mean": lambda x: torch.mean(x, (2, 3)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "slice": lambda x: x[:, 1:3],
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "topk": lambda x: x.topk(2)[0],
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
}


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8])
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_on_quantized_tensors(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values, zero_point = torch.randn(2, 4, 6, 6), 120 if dtype == torch.quint8 else -5
    wanted = OPERATORS[name](torch.quantize_per_tensor(values, 0.025, zero_point, dtype))
    with ReferenceMode() as mode:
        found = OPERATORS[name](torch.quantize_per_tensor(values, 0.025, zero_point, dtype))
        grid = mode.grid(found)
    assert grid is not None
    assert grid.scale == pytest.approx(wanted.q_scale(), rel=1e-6)
    assert grid.zero_point == wanted.q_zero_point()
    # PyTorch's kernels round some halves the other way.
    assert (found - wanted.dequantize()).abs().max() <= 1.001 * wanted.q_scale()


# What is wrong is said, and nothing is written.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "int7"}, "dtype"),
        ({"opset_version": 9}, "opset_version"),
        ({"opset_version": "14"}, "opset_version"),
        ({"quant_format": "QLiner"}, "did you mean 'qlinear'"),
        ({"recipe": "no_bias"}, "recipe"),
        ({"weight_type": "s4"}, "weight_type"),
        ({"per_channel": 1}, "per_channel"),
        ({"verify": "yes"}, "verify"),
        ({"input_names": "x"}, "input_names"),
        ({"dynamic_axes": {"x": {"0": "batch"}}}, "dynamic_axes"),
        ({"dynamic_axes": {"y": {0: "batch"}}}, "'y'"),
        ({"dynamic_axes": {"x": {5: "batch"}}}, "no axis 5"),
        ({"dynamic_axes": {"x": {1: "features"}}}, "cannot be free"),
        ({"input_names": ["a", "b"]}, "input_names"),
        ({"output_names": ["a", "b"]}, "output_names"),
        ({"example_inputs": None}, "example_inputs"),
        ({"example_inputs": 3}, "holds no tensor"),
        ({"oset_version": 14}, "oset_version"),
    ],
)
def test_wrong_configuration(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"dtype": "fp32", "example_inputs": torch.randn(2, 16), **fields}
    with pytest.raises(ingot.InvalidInputError, match=message):
        ingot.export(Perceptron().eval(), tmp_path / "m.onnx", **given)
    assert not list(tmp_path.iterdir())


def test_nothing_quantized_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ingot.InvalidInputError, match="quantized"):
        ingot.export(Perceptron().eval(), tmp_path / "m.onnx", dtype="int8", example_inputs=torch.randn(2, 16))
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_survives_a_failure(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"older")
    with pytest.raises(ingot.InvalidInputError):
        ingot.export(Perceptron().eval(), tmp_path / "m.onnx", dtype="int8", example_inputs=torch.randn(2, 16))
    assert (tmp_path / "m.onnx").read_bytes() == b"older"


@pytest.mark.parametrize("path", ["missing/m.onnx", "m.pb", "."])
def test_unwritable_paths(path: str, tmp_path: Path) -> None:
    with pytest.raises(ingot.Error):
        ingot.export(Perceptron().eval(), tmp_path / path, example_inputs=torch.randn(2, 16))
    assert not list(tmp_path.iterdir())


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ingot.UnsupportedError, match="Perceptron cannot be traced"):
        ingot.export(Perceptron().eval(), tmp_path / "m.onnx", example_inputs=torch.randn(2, 17))
    assert not list(tmp_path.iterdir())


def test_never_calibrated() -> None:
    model = Convolutional(stubs=True).eval()
    model.qconfig = tq.get_default_qconfig("x86")
    with pytest.raises(ingot.InvalidModelError, match="never calibrated"):
        ingot.Model(tq.prepare(model))


def test_states_that_do_not_fit() -> None:
    made = int8_sources.build("eager dynamic, state_dict")
    assert made.state is not None
    other = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    with pytest.raises(ingot.InvalidInputError, match="belong together"):
        ingot.Model.from_state_dict(other, made.state)
    with pytest.raises(ingot.InvalidInputError, match="no quantized weight"):
        ingot.Model.from_state_dict(other, other.state_dict())
    lacking = {key: value for key, value in made.state.items() if not key.startswith("second")}
    with pytest.raises(ingot.InvalidInputError):
        ingot.Model.from_state_dict(made.model, lacking)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "m.pt2"
    file.write_bytes(content)
    with pytest.raises(ingot.InvalidModelError):
        ingot.Model(file)
    with pytest.raises(ingot.IoError):
        ingot.Model(tmp_path / "missing.pt2")


def test_objects_that_are_no_models() -> None:
    with pytest.raises(ingot.InvalidInputError, match="no model"):
        ingot.Model(3)


def test_command_line(tmp_path: Path) -> None:
    made = int8_sources.build("PT2E static, .pt2 file")
    target, report = tmp_path / "m.onnx", tmp_path / "r.json"
    options = ("--dtype", "int8", "--quant-format", "qlinear", "--opset", "15", "--report", str(report))
    done = cli("export", made.model, "-o", str(target), *options, INGOT_PYTHON=sys.executable)
    assert done.code == 0, done.err
    assert "QLinearConv" in done.out
    assert json.loads(report.read_text())["opset"] == 15
    assert isinstance(ingot.compile(target).inputs[0].shape[0], str)  # type: ignore[index]
    wrong = cli("export", made.model, "-o", str(tmp_path / "x.onnx"), "--dtype", "int9", INGOT_PYTHON=sys.executable)
    assert wrong.code == 5 and "hint:" in wrong.err
    assert not (tmp_path / "x.onnx").exists()
