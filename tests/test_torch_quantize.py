"""Quantizing in PyTorch: configs, calibration data in every form, static, dynamic, quantization-aware training."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e import disable_fake_quant

import ingot
from ingot import PostTrainingQuantConfig, QuantizationAwareTrainingConfig, quantize
from ingot.torch_quantizer.batches import CallForm

if TYPE_CHECKING:
    from pathlib import Path


class Net(nn.Module):  # type: ignore[misc]
    """What torchao's own quantizer stumbles over on its own: string padding, an epsilon, a sum with a number."""

    def __init__(self, padding: str | int = "same") -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=padding)
        self.norm = nn.BatchNorm2d(8, eps=0.1)
        self.second = nn.Conv2d(8, 8, 3, bias=False)
        self.second_norm = nn.BatchNorm2d(8, eps=0.05, momentum=0.3)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(72, 10)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.relu(self.second_norm(self.second(self.norm(self.first(x)))))
        return {"scores": self.head(self.drop(torch.flatten(self.pool(y), 1))) + 1.0}


def made(padding: str | int) -> nn.Module:
    torch.manual_seed(0)
    model = Net(padding)
    for _ in range(3):
        model(torch.randn(4, 3, 8, 8))
    return model.eval()


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return made("same")


def images(*sizes: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randn(size, 3, 8, 8, generator=random) for size in sizes]


def types(model: ingot.QuantizedModel) -> list[str]:
    return sorted({row["type"] for row in model.report.data["quantized"]})


def near(found: torch.Tensor, wanted: torch.Tensor, share: float = 0.03) -> bool:
    return bool((found - wanted).abs().max() < share * wanted.abs().max())


# Configs


def test_import_leaves_torch_alone() -> None:
    code = "import sys, ingot; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"approach": "statik"}, "approach.*\n.*did you mean 'static'"),
        ({"calibration": "kl"}, "calibration.*\n.*histogram, minmax, moving_average"),
        ({"op_types": ["Linear", "Conv9d"]}, "op_types='Conv9d'.*\n.*Conv2d"),
        ({"op_types": "Linear"}, "op_types.*list"),
        ({"op_types": ["LSTM"]}, "op_types='LSTM'"),
        ({"exclude_op_types": ["Softmax"]}, "exclude_op_types='Softmax'"),
        ({"exclude": "head"}, "exclude.*list"),
        ({"exclude": [3]}, "exclude holds 3"),
        ({"activation": "int8"}, "activation='int8'.*\n.*u8, s8"),
        ({"per_channel": "yes"}, "per_channel"),
        ({"calibration_samples": 0}, "calibration_samples"),
        ({"dynamic_axes": [0]}, "dynamic_axes"),
        ({"approach": "dynamic", "activation": "s8"}, "activation='s8' is not for approach='dynamic'"),
        ({"op_types": ["Linear"], "exclude_op_types": ["Linear"]}, "op_types"),
    ],
)
def test_config_errors_name_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.InvalidInputError, match=message):
        PostTrainingQuantConfig(**fields)


# Calibration data


class Two(nn.Module):  # type: ignore[misc]
    def forward(self, a: Any, b: Any = None, *, labels: Any = None) -> Any:
        return a if b is None else a + b


A, B, Y = torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        (A, ("a",)),
        ((A, B), ("a", "b")),
        ((A, Y), ("a",)),
        ((A, B, Y), ("a", "b")),
        (({"a": A, "b": B}, Y), ("a", "b")),
        (((A, B), Y), ("a", "b")),
        ({"a": A, "labels": Y, "idx": Y}, ("a",)),
        ({"b": B, "a": A.numpy()}, ("a", "b")),
    ],
)
def test_batches_of_every_form_lose_their_labels(batch: Any, names: tuple[str, ...]) -> None:
    form = CallForm(Two())
    form.fix(form.of_batch(batch))
    assert form.names == names


def test_example_inputs_decide_what_belongs_to_the_model() -> None:
    form = CallForm(Two())
    form.fix(((A,), {}))
    assert len(form.of_batch((A, B))[0]) == 1
    with pytest.raises(ingot.InvalidInputError, match=r"takes a; given: a, b"):
        form.arrange(((A, B), {}))


# Static


def test_static_keeps_structure_and_frees_the_batch(net: nn.Module) -> None:
    before = copy.deepcopy(net.state_dict())
    model = quantize(net, calib=[(x, torch.zeros(len(x))) for x in images(4, 4, 2)])
    assert types(model) == ["Conv2d", "Linear", "MaxPool2d"]
    assert model.report.data["samples"] == 10
    (x,) = images(7)
    assert near(model(x=x)["scores"], net(x)["scores"])
    assert torch.equal(model(x)["scores"], model.model(x)["scores"])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_static_follows_its_config(net: nn.Module) -> None:
    config = PostTrainingQuantConfig(
        exclude=["he*"],
        exclude_op_types=["MaxPool2d"],
        calibration="minmax",
        calibration_samples=4,
        activation="s8",
        symmetric=True,
        per_channel=False,
    )
    model = quantize(net, config, calib=images(4, 4))
    assert types(model) == ["Conv2d"]
    assert model.report.data["samples"] == 4
    for row in model.report.data["quantized"]:
        for operand in row["operands"]:
            assert (operand["dtype"], operand["zero_point"]) == ("s8", 0)
    reasons = {row["name"]: row["reason"] for row in model.report.data["unquantized"]}
    assert "excluded by 'he*'" in reasons["head"]
    assert "op_types" in reasons["pool"]
    assert "excluded by 'he*'" in model.report.text


def test_static_takes_what_torchao_leaves_out() -> None:
    class Kinds(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)
            self.one = nn.Conv1d(4, 4, 3, padding=1)
            self.up = nn.ConvTranspose1d(4, 4, 2, stride=2)
            self.shared = nn.Linear(12, 12)

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            y = self.shared(self.shared(self.up(self.one(self.table(i).transpose(1, 2)))))
            return torch.bmm(y, y.transpose(1, 2))

    torch.manual_seed(0)
    net = Kinds().eval()
    every = ["Embedding", "Conv1d", "ConvTranspose1d", "Linear", "MatMul"]
    ids = torch.randint(0, 10, (2, 6))
    model = quantize(net, PostTrainingQuantConfig(op_types=every), calib=ids)
    assert types(model) == sorted(every)
    assert sum(row["type"] == "Linear" for row in model.report.data["quantized"]) == 2
    assert near(model(ids), net(ids), 0.1)


def test_asked_axes_are_free_or_an_error(net: nn.Module) -> None:
    free = PostTrainingQuantConfig(dynamic_axes={"x": {0: "batch"}})
    model = quantize(net, free, calib=images(1))
    assert model(images(3)[0])["scores"].shape == (3, 10)
    with pytest.raises(ingot.Error, match=r"axis 1 of 'x' cannot be free|cannot be captured"):
        quantize(net, PostTrainingQuantConfig(dynamic_axes={"x": {1: "channels"}}), calib=images(2))
    with pytest.raises(ingot.InvalidInputError, match="dynamic_axes names 'z'"):
        quantize(net, PostTrainingQuantConfig(dynamic_axes={"z": {0: "batch"}}), calib=images(2))


@pytest.mark.parametrize(
    ("calib", "message"),
    [
        (None, "calib is missing"),
        ([], "calib is empty"),
        ("folder", "calib is str"),
        ([{"y": torch.zeros(1)}], r"batch 0 does not fit forward"),
        ([torch.zeros(2, 5, 8, 8)], "cannot be captured"),
        ([torch.zeros(2, 3, 8, 8), torch.zeros(2, 5, 8, 8)], "batch 1 does not fit the model"),
    ],
)
def test_calibration_data_that_cannot_be(net: nn.Module, calib: Any, message: str) -> None:
    with pytest.raises(ingot.Error, match=message):
        quantize(net, calib=calib)


def test_models_that_cannot_be(net: nn.Module) -> None:
    with pytest.raises(ingot.UnsupportedError, match=r"first.weight' is on meta"):
        quantize(copy.deepcopy(net).to("meta"), calib=images(2))
    with pytest.raises(ingot.UnsupportedError, match="bfloat16"):
        quantize(copy.deepcopy(net).bfloat16(), calib=images(2))
    with pytest.raises(ingot.InvalidInputError, match="exclude: no module of the model matches 'hed'"):
        quantize(net, PostTrainingQuantConfig(exclude=["hed"]), calib=images(2))
    with pytest.raises(ingot.UnsupportedError, match="nothing was quantized"):
        quantize(net, PostTrainingQuantConfig(exclude=[nn.Conv2d, nn.Linear]), calib=images(2))
    with pytest.raises(ingot.UnsupportedError, match="nothing was quantized"):
        quantize(nn.ReLU(), PostTrainingQuantConfig(approach="dynamic"))
    dynamic = quantize(net, PostTrainingQuantConfig(approach="dynamic"))
    with pytest.raises(ingot.InvalidInputError, match="quantized or prepared already"):
        quantize(dynamic.model, calib=images(2))


# Dynamic


class Reader(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(self.table(ids[:1].expand(4, -1)))[0])


@pytest.mark.parametrize("per_channel", [True, False])
def test_dynamic_replaces_modules(per_channel: bool) -> None:
    torch.manual_seed(0)
    net = Reader().eval()
    ids = torch.randint(0, 20, (2, 5))
    model = quantize(net, PostTrainingQuantConfig(approach="dynamic", per_channel=per_channel))
    assert types(model) == ["Embedding", "LSTM", "Linear"]
    assert isinstance(model.model, Reader)
    assert near(model(ids), net(ids), 0.05)
    only = quantize(net, PostTrainingQuantConfig(approach="dynamic", op_types=["Linear"], exclude=["rnn"]))
    assert types(only) == ["Linear"]
    assert any("excluded by 'rnn'" in row["reason"] for row in only.report.data["unquantized"])


def test_dynamic_of_a_bare_module() -> None:
    layer = nn.Linear(8, 4)
    x = torch.randn(3, 8)
    model = quantize(layer, PostTrainingQuantConfig(approach="dynamic"))
    assert type(layer) is nn.Linear
    assert near(model(x), layer(x), 0.05)


# Quantization-aware training


def test_training_and_conversion_agree() -> None:
    net = made(1)
    before = copy.deepcopy(net.state_dict())
    prepared = ingot.prepare_qat(net, QuantizationAwareTrainingConfig(), example_inputs=images(4)[0])
    with pytest.raises(ingot.InvalidInputError, match="seen no data"):
        ingot.convert(prepared)
    optimizer = torch.optim.SGD(prepared.parameters(), 0.02)
    losses = []
    for x in images(*[4] * 12):
        loss = nn.functional.cross_entropy(prepared(x)["scores"], torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-3:]) < sum(losses[:3])
    (x,) = images(2)
    assert not torch.equal(prepared(x)["scores"], prepared(x)["scores"])  # dropout
    prepared.eval()
    simulated = prepared(x)["scores"]
    assert torch.equal(simulated, prepared(x)["scores"])
    model = ingot.convert(prepared)
    assert types(model) == ["Conv2d", "Linear", "MaxPool2d"]
    assert near(model(x)["scores"], simulated, 1e-5)
    trained = model.float_model.state_dict()
    assert torch.equal(trained["head.weight"], prepared.module.get_parameter("head.weight"))
    prepared.module.apply(disable_fake_quant)
    assert near(model.float_model(x)["scores"], prepared(x)["scores"], 1e-5)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    prepared.train()
    assert prepared(x)["scores"].requires_grad


def test_training_errors(net: nn.Module) -> None:
    with pytest.raises(ingot.InvalidInputError, match="example_inputs is missing"):
        ingot.prepare_qat(net)
    with pytest.raises(ingot.InvalidInputError, match=r"example_inputs: .*"):
        ingot.prepare_qat(net, example_inputs={"z": images(1)[0]})
    with pytest.raises(ingot.InvalidInputError, match="nothing would be quantized"):
        ingot.prepare_qat(nn.ReLU(), example_inputs=torch.zeros(2))
    with pytest.raises(ingot.InvalidInputError, match=r"convert\(\) takes"):
        ingot.convert(net)


# Export


@pytest.mark.parametrize("quant_format", ["QDQ", "QLinear"])
def test_export_of_a_static_model(net: nn.Module, tmp_path: Path, quant_format: str) -> None:
    model = quantize(net, calib=images(4, 4))
    path = tmp_path / "int8-model.onnx"
    config = ingot.Torch2ONNXConfig(dtype="int8", quant_format=quant_format, dynamic_axes={"x": {0: "batch"}})
    report = model.export(path, config)
    assert {operation.op for operation in report.quantized} >= {"Conv"}
    assert max(d.steps for d in report.differences if "exact" in d.between) <= 1
    (x,) = images(3)
    found = ingot.compile(path).inference({"x": x.numpy()})["scores"]
    assert near(torch.from_numpy(found), model(x)["scores"], 0.02)


def test_export_of_a_dynamic_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = quantize(
        nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), PostTrainingQuantConfig(approach="dynamic")
    )
    report = model.export(tmp_path / "m.onnx", dtype="int8", example_inputs=torch.randn(2, 16))
    assert len(report.quantized) == 2
