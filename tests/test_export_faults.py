"""PyTorch to ONNX: what once gave a wrong file, an error of others, or none at all."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.ao.quantization as tq
from conftest import mlp
from torch import Tensor, nn
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx
from torch.nn import functional as F  # noqa: N812

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXACT, THEIRS = "Ingot and exact arithmetic", "onnxruntime and exact arithmetic"


class Stage(nn.Sequential):  # type: ignore[misc]
    def __init__(self, inner: int, outer: int) -> None:
        layers = [(inner, outer), (outer, outer)]
        parts = [(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()) for i, o in layers]
        super().__init__(*(part for three in parts for part in three))


class UNet(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.after = Stage(3, 8), Stage(8, 16), Stage(16, 8)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        y = self.up(self.middle(F.max_pool2d(skip, 2)))
        return self.last(self.after(torch.cat([y, skip], 1)))


def train(prepared: nn.Module, shape: tuple[int, ...], rate: float = 0.05) -> None:
    optimizer = torch.optim.SGD(prepared.parameters(), rate)
    for _ in range(3):
        optimizer.zero_grad()
        result = prepared(torch.randn(shape))
        getattr(result, "last_hidden_state", result).square().mean().backward()
        optimizer.step()


def trained(model: nn.Module, shape: tuple[int, ...], rate: float = 0.05, **fields: Any) -> ingot.QuantizedModel:
    config = ingot.QuantizationAwareTrainingConfig(**fields)
    prepared = ingot.prepare_qat(model, config, example_inputs=torch.randn(shape))
    train(prepared, shape, rate)
    return ingot.torch_quantizer.convert(prepared)


@pytest.fixture(scope="module")
def unet() -> ingot.QuantizedModel:
    """Its activations have few steps, so that a value on the other side of a border goes a long way."""
    torch.manual_seed(1)
    return trained(UNet(), (2, 3, 32, 32))


@pytest.mark.parametrize("quant_format", ["QDQ", "QLinear"])
def test_rounded_biases_that_change_the_model_are_not_written(
    unet: ingot.QuantizedModel, quant_format: str, tmp_path: Path
) -> None:
    report = unet.export(tmp_path / "m.onnx", dtype="int8", quant_format=quant_format)
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    assert any("biases are fp32" in note for note in report.notes)


def test_rounded_biases_that_change_the_model_are_an_error_if_asked_for(
    unet: ingot.QuantizedModel, tmp_path: Path
) -> None:
    with pytest.raises(ingot.InternalError, match="steps from its exact arithmetic"):
        unet.export(tmp_path / "m.onnx", dtype="int8", recipe="int32_bias")
    assert not list(tmp_path.iterdir())


def test_weights_with_zero_points_for_each_channel_run_everywhere(tmp_path: Path) -> None:
    """A channel of negative weights only has another zero point than the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.Hardswish(), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Flatten(1))
    with torch.no_grad():
        model[0].weight[1].abs_().neg_()
        model[2].weight[2].abs_().neg_()
    made = trained(model, (2, 4, 6, 6), rate=0.001)
    report = made.export(tmp_path / "m.onnx", dtype="int8", quant_format="QLinear")
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    assert report.worst(THEIRS) <= 1.01, str(report)  # type: ignore[operator]
    assert any("zero points" in o.reason for o in report.quantized), str(report)


def column(y: Tensor) -> Tensor:
    y[:, 0] = 0.5
    return y


def rows_from(y: Tensor) -> Tensor:
    y[1:] = y[:1] * 3
    return y


def masked(y: Tensor) -> Tensor:
    y[y > 0] = 1.0
    return y


def view_filled(y: Tensor) -> Tensor:
    y.view(-1)[2:5].fill_(7.0)
    return y


def part_added(y: Tensor) -> Tensor:
    y[:, 1:3] += 1
    return y


def stepped(y: Tensor) -> Tensor:
    y[:, ::2] = 0.0
    return y


def indexed(y: Tensor) -> Tensor:
    y[:, torch.tensor([0, 2])] = 9.0
    return y


def both(y: Tensor) -> tuple[Tensor, Tensor]:
    part = y[:, :2]
    part.mul_(2)
    return y, part


@pytest.mark.parametrize("write", [column, rows_from, masked, view_filled, part_added, stepped, indexed, both])
def test_writes_to_parts_of_a_result(write: Callable[[Tensor], Any], tmp_path: Path) -> None:
    class Writes(nn.Module):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Any:
            return write(x * 2)

    x = torch.randn(3, 4)
    ingot.export(Writes(), tmp_path / "m.onnx", example_inputs=x, dynamic_axes={"x": {0: "batch"}})
    for given in (x, torch.randn(5, 4)):
        expected = Writes()(given)
        found = ingot.compile(tmp_path / "m.onnx").inference([given.numpy()]).values()
        for a, b in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-6)


def test_leaky_relu_with_its_slope_by_name(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LeakyReLU(0.2), nn.Flatten(1)).eval()
    x = torch.randn(2, 3, 6, 6)
    prepared = prepare_fx(model, tq.get_default_qconfig_mapping("x86"), x)
    prepared(x)
    report = ingot.export(convert_fx(prepared), tmp_path / "m.onnx", dtype="int8", example_inputs=x)
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]


class Traced(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return self.fc((y + y).mean((2, 3)))


@pytest.mark.parametrize("training", [False, True])
def test_state_of_a_model_that_fx_quantized(training: bool, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 6, 6)
    model = Traced().train(training)
    if training:
        prepared = prepare_qat_fx(copy.deepcopy(model), tq.get_default_qat_qconfig_mapping("x86"), x)
    else:
        prepared = prepare_fx(copy.deepcopy(model), tq.get_default_qconfig_mapping("x86"), x)
    prepared(x)
    made = convert_fx(prepared.eval())
    report = ingot.Model.from_state_dict(model, made.state_dict()).export(
        tmp_path / "m.onnx", dtype="int8", example_inputs=x
    )
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    (found,) = ingot.compile(tmp_path / "m.onnx").inference([x.numpy()]).values()
    ingot.export(made, tmp_path / "direct.onnx", dtype="int8", example_inputs=x)
    (direct,) = ingot.compile(tmp_path / "direct.onnx").inference([x.numpy()]).values()
    np.testing.assert_array_equal(found, direct)
    with pytest.raises(ingot.InvalidInputError, match="does not fit"):
        ingot.Model.from_state_dict(nn.Sequential(nn.Conv2d(3, 4, 3)), made.state_dict())


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_state_of_a_model_that_torchao_quantized(config: str, tmp_path: Path) -> None:
    from torchao import quantization

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    made, x = copy.deepcopy(model), torch.randn(2, 64)
    quantization.quantize_(made, getattr(quantization, config)())
    report = ingot.Model.from_state_dict(model, made.state_dict()).export(
        tmp_path / "m.onnx", dtype="int8", example_inputs=x
    )
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    (found,) = ingot.compile(tmp_path / "m.onnx").inference([x.numpy()]).values()
    torch.testing.assert_close(torch.from_numpy(found), made(x).detach(), atol=1e-3, rtol=1e-3)


def theirs(model: nn.Module, x: Tensor) -> nn.Module:
    """Prepared for training as torchao's documents have it."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    return prepare_qat_pt2e(torch.export.export(model.train(), (x,)).module(), quantizer)


@pytest.mark.parametrize("ours", [True, False])
def test_state_of_a_graph_prepared_for_training(ours: bool, tmp_path: Path) -> None:
    x, model = torch.randn(2, 3, 6, 6), Traced()
    prepared = ingot.prepare_qat(model, example_inputs=x) if ours else theirs(copy.deepcopy(model), x)
    train(prepared, (2, 3, 6, 6))
    state = copy.deepcopy(prepared.state_dict())
    report = ingot.Model.from_state_dict(model, state, example_inputs=x).export(
        tmp_path / "m.onnx", dtype="int8", example_inputs=x
    )
    assert report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    direct = tmp_path / "direct.onnx"
    if ours:
        ingot.torch_quantizer.convert(prepared).export(direct)
    else:
        ingot.export(prepared, direct, dtype="int8", example_inputs=x)
    results = [ingot.compile(f).inference([x.numpy()]).values() for f in (tmp_path / "m.onnx", direct)]
    np.testing.assert_array_equal(*(next(iter(r)) for r in results))
    with pytest.raises(ingot.InvalidInputError, match="has to be made again"):
        ingot.Model.from_state_dict(model, state)


def test_state_of_a_converted_graph_lacks_scales() -> None:
    made = trained(Traced(), (2, 3, 6, 6))
    with pytest.raises(ingot.UnsupportedError, match="lacks the scales of its activations"):
        ingot.Model.from_state_dict(Traced(), made.model.state_dict(), example_inputs=torch.randn(2, 3, 6, 6))


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm_after_training(norm: Any, tmp_path: Path) -> None:
    made = trained(nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 4)), (4, 8))
    report = made.export(tmp_path / "m.onnx")
    assert len(report.quantized) >= 2 and report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    x = torch.randn(4, 8)
    torch.testing.assert_close(made(x), made(x), atol=0, rtol=0)  # its vectors stay as they are


def test_layers_skipped_by_chance_in_training(tmp_path: Path) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    made = trained(Wav2Vec2Model(config), (2, 400), rate=0.001)
    report = made.export(tmp_path / "m.onnx")
    assert len(report.quantized) > 8 and report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(x)[0])


@pytest.mark.parametrize("training", [False, True])
def test_recurrent_layers_leave_the_length_free(training: bool, tmp_path: Path) -> None:
    x, axes = torch.randn(2, 5, 6), {"x": {0: "batch", 1: "length"}}
    if training:
        made = trained(Recurrent(), (2, 5, 6), dynamic_axes=axes)
    else:
        config = ingot.PostTrainingQuantConfig(approach="static", dynamic_axes=axes)
        made = ingot.quantize(Recurrent(), config, calib=[x])
    report = made.export(tmp_path / "m.onnx", dtype="int8", dynamic_axes=axes)
    assert report.quantized and report.worst(EXACT) <= 1.01, str(report)  # type: ignore[operator]
    other = torch.randn(3, 9, 6)
    (found,) = ingot.compile(tmp_path / "m.onnx").inference([other.numpy()]).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, made(other).numpy(), atol=1e-4)


def test_a_model_of_fp16_weights_is_no_8_bit_model(tmp_path: Path) -> None:
    half = tq.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), dtype=torch.float16)
    with pytest.raises(ingot.InvalidInputError, match="nothing in the model is quantized to 8 bits"):
        ingot.export(half, tmp_path / "m.onnx", dtype="int8", example_inputs=torch.randn(2, 4))
    ingot.export(half, tmp_path / "m.onnx", dtype="fp16", example_inputs=torch.randn(2, 4))


def test_what_eager_computes_in_another_way_is_said(tmp_path: Path) -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    padded = torch.tensor([[False, False, True], [False, True, True]])
    inputs = {"src": torch.randn(2, 3, 8), "src_key_padding_mask": padded}
    with torch.no_grad():
        assert not model(**inputs)[1, 2].any()  # the fast path, which zeroes padded rows
    report = ingot.export(model, tmp_path / "m.onnx", example_inputs=inputs)
    assert any("another way" in note for note in report.notes), str(report)
    report = ingot.export(nn.Linear(4, 4).eval(), tmp_path / "m.onnx", example_inputs=torch.randn(2, 4))
    assert not report.notes and report.worst("Ingot and PyTorch") is not None


def test_calibration_data_of_another_name_is_an_error(tmp_path: Path) -> None:
    import onnx

    onnx.save(mlp(), tmp_path / "m.onnx")
    data = np.random.default_rng(0).standard_normal((3, 8, 4), dtype=np.float32)
    np.savez(tmp_path / "wrong.npz", y=data)
    with pytest.raises(ingot.InvalidInputError, match="no data for input 'x'"):
        ingot.quantize_onnx(tmp_path / "m.onnx", tmp_path / "q.onnx", calib=tmp_path / "wrong.npz")
    np.savez(tmp_path / "unnamed.npz", data)
    ingot.quantize_onnx(tmp_path / "m.onnx", tmp_path / "q.onnx", calib=tmp_path / "unnamed.npz")


def test_star_import_hides_nothing() -> None:
    names: dict[str, Any] = {}
    exec("from ingot import *", names)
    assert "Model" in names and not {"torch", "compile"} & names.keys()
