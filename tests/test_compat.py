"""Code written for older tools, with only its imports changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from conftest import mlp
from torch import nn

import ingot
from ingot.compat import MigrationWarning

if TYPE_CHECKING:
    from pathlib import Path

EXACT = "Ingot and exact arithmetic"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()


class AddModel(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


# Neural Engine


def test_neural_engine_compiles_saves_and_loads(tmp_path: Path) -> None:
    from ingot.compat.neural_engine.compile import autocast, compile

    onnx.save(mlp(), tmp_path / "fp32-model.onnx")
    graph = compile(tmp_path / "fp32-model.onnx")
    graph.save(tmp_path / "ir_path")
    width: Any = (graph.input_tensors[0].shape or ())[-1]
    x = np.random.default_rng(0).standard_normal((3, width), dtype=np.float32)
    (wanted,) = ingot.compile(tmp_path / "fp32-model.onnx").inference([x]).values()
    (found,) = graph.inference([x]).values()
    np.testing.assert_array_equal(found, wanted)

    from ingot.compat.neural_engine import Graph

    model = Graph()
    with pytest.raises(ingot.InvalidInputError, match="the graph is empty"):
        model.inference([x])
    model.graph_init(tmp_path / "ir_path" / "graph.yaml", tmp_path / "ir_path" / "weights.bin")
    np.testing.assert_allclose(next(iter(model.inference([x]).values())), wanted, rtol=1e-6)
    with autocast("bf16"):
        narrow = compile(tmp_path / "ir_path")
    np.testing.assert_allclose(next(iter(narrow.inference([x]).values())), wanted, rtol=0.05, atol=0.05)
    with pytest.warns(MigrationWarning, match="ignored"):
        compile(tmp_path / "fp32-model.onnx", {"pattern_switch": {"Gelu": False}})


# Neural Compressor


def test_export_of_a_float_model(tmp_path: Path) -> None:
    from ingot.compat.neural_compressor import Model
    from ingot.compat.neural_compressor.config import Torch2ONNXConfig

    inc_model = Model(network())
    config = Torch2ONNXConfig(
        dtype="fp32",
        example_inputs=torch.randn(1, 3, 6, 6),
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch_size"}, "output": {0: "batch_size"}},
    )
    inc_model.export(str(tmp_path / "fp32-model.onnx"), config)
    x = torch.randn(4, 3, 6, 6)
    (found,) = ingot.compile(tmp_path / "fp32-model.onnx").inference([x.numpy()]).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, network()(x).numpy(), atol=1e-5)


@pytest.mark.parametrize("quant_format", ["QDQ", "QLinear"])
def test_fit_and_export(quant_format: str, tmp_path: Path) -> None:
    from ingot.compat.neural_compressor import PostTrainingQuantConfig, quantization
    from ingot.compat.neural_compressor.config import AccuracyCriterion, Torch2ONNXConfig, TuningCriterion

    data = [(torch.randn(4, 3, 6, 6), torch.zeros(4)) for _ in range(3)]
    conf = PostTrainingQuantConfig(
        approach="static",
        backend="default",
        calibration_sampling_size=[8],
        accuracy_criterion=AccuracyCriterion(tolerable_loss=0.5),
        tuning_criterion=TuningCriterion(timeout=0, max_trials=5),
        op_type_dict={"Linear": {"weight": {"dtype": ["fp32"]}, "activation": {"dtype": ["fp32"]}}},
    )
    q_model = quantization.fit(network(), conf, calib_dataloader=data, eval_func=lambda m: 1 + 0 * m(data[0][0]).sum())
    assert q_model.report.data["samples"] == 8 and len(q_model.report.data["tuning"]["trials"]) == 1
    assert not any(row["type"] == "Linear" for row in q_model.report.data["quantized"])
    config = Torch2ONNXConfig(
        dtype="int8",
        opset_version=14,
        quant_format=quant_format,
        example_inputs=torch.randn(1, 3, 6, 6),
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch_size"}, "output": {0: "batch_size"}},
    )
    report = q_model.export(str(tmp_path / "int8-model.onnx"), config)
    assert report.worst(EXACT) <= 1.01  # type: ignore[operator]


def test_dynamic_fit_and_settings_without_meaning() -> None:
    from ingot.compat.neural_compressor.config import PostTrainingQuantConfig
    from ingot.compat.neural_compressor.quantization import fit

    made = fit(model=network(), conf=PostTrainingQuantConfig(approach="post_training_dynamic_quant", quant_level=1))
    assert made.report.data["approach"] == "dynamic"
    with pytest.warns(MigrationWarning, match=r"ignored: gemm_to_matmul$"):
        conf = PostTrainingQuantConfig(
            recipes={
                "smooth_quant": True,
                "fast_bias_correction": True,
                "weight_correction": False,
                "gemm_to_matmul": True,
            }
        )
    assert conf.config.smooth_alpha == 0.5 and conf.config.recipe("fast_bias_correction")
    with pytest.warns(MigrationWarning, match=r"ignored: fast_bias_correction$"):
        PostTrainingQuantConfig(approach="dynamic", recipes={"fast_bias_correction": True})
    with pytest.raises(ingot.InvalidInputError, match="did you mean 'approach'"):
        PostTrainingQuantConfig(aproach="static")
    with pytest.raises(ingot.InvalidInputError, match="Ingot runs on CPUs"):
        PostTrainingQuantConfig(device="gpu")


def test_weight_only_fit(tmp_path: Path) -> None:
    from ingot.compat.neural_compressor.config import PostTrainingQuantConfig
    from ingot.compat.neural_compressor.quantization import fit

    settings = {"bits": 8, "group_size": -1, "scheme": "sym", "algorithm": "RTN"}
    conf = PostTrainingQuantConfig(approach="weight_only", op_type_dict={".*": {"weight": settings}})
    made = fit(network(), conf)
    (row,) = made.report.data["quantized"]
    assert row["type"] == "Linear" and row["operands"][0]["dtype"] == "s8"
    usual = fit(network(), PostTrainingQuantConfig(approach="weight_only")).report.data["quantized"]
    assert (usual[0]["operands"][0]["dtype"], usual[0]["operands"][0]["group_size"]) == ("u4", 32)
    with pytest.warns(MigrationWarning, match=r"ignored: gptq_args\['nsamples'\]$"):
        conf = PostTrainingQuantConfig(
            approach="weight_only",
            op_type_dict={".*": {"weight": {"algorithm": "GPTQ"}}},
            recipes={"gptq_args": {"percdamp": 0.05, "nsamples": 128}},
        )
    made = fit(network(), conf, calib_dataloader=[(torch.rand(4, 3, 6, 6), torch.zeros(4))])
    assert made.report.data["quantized"][0]["operands"][0]["algorithm"] == "gptq"
    assert conf.config.rounding_options().damping == 0.05


def test_training(tmp_path: Path) -> None:
    from ingot.compat.neural_compressor import QuantizationAwareTrainingConfig, training
    from ingot.compat.neural_compressor.config import Torch2ONNXConfig

    original = network()
    compression_manager = training.prepare_compression(original, QuantizationAwareTrainingConfig())
    compression_manager.callbacks.on_train_begin()
    model = compression_manager.model
    with pytest.raises(ingot.InvalidInputError, match="never called"):
        compression_manager.export(tmp_path / "m.onnx", Torch2ONNXConfig(dtype="int8"))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    x = torch.randn(8, 3, 6, 6)
    for epoch in range(2):
        compression_manager.callbacks.on_epoch_begin(epoch)
        for _ in range(4):
            optimizer.zero_grad()
            output = model(x)
            loss = (output - 1).square().mean()
            loss = compression_manager.callbacks.on_after_compute_loss(x, output, loss)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        compression_manager.callbacks.on_epoch_end()
    compression_manager.callbacks.on_train_end()
    assert losses[-1] < 0.7 * losses[0]  # the optimizer has the parameters that are used
    config = Torch2ONNXConfig(dtype="int8", opset_version=14, quant_format="QDQ", example_inputs=x)
    report = compression_manager.export(tmp_path / "int8-model.onnx", config)
    assert report.worst(EXACT) <= 1.01  # type: ignore[operator]
    (found,) = ingot.compile(tmp_path / "int8-model.onnx").inference([x.numpy()]).values()
    assert float(np.square(found - 1).mean()) < 0.8 * losses[0]
    compression_manager.save(tmp_path / "q.pt")
    np.testing.assert_allclose(ingot.QuantizedModel.load(tmp_path / "q.pt")(x).numpy(), found, atol=1e-2)


# onnxmlirtorch


@pytest.mark.usefixtures("fresh_dynamo")
def test_onnxmlirtorch_backend(capfd: Any) -> None:
    from ingot.compat import onnxmlirtorch

    mod = AddModel()
    my_option = {"compile_options": "-O3", "compiler_image_name": None, "compiler_path": None}
    opt_mod = torch.compile(mod, backend=onnxmlirtorch.onnxmlir_backend, options=my_option)
    before = ingot.torch.cache_info().misses
    x, y = torch.randn(2), torch.randn(2)
    torch.testing.assert_close(opt_mod(x, y), x + y)
    assert ingot.torch.cache_info().misses == before + 1
    torch._dynamo.reset()
    shown = torch.compile(mod, backend=onnxmlirtorch.onnxmlir_backend, options={"onnxmlir-intercept": True})
    torch.testing.assert_close(shown(x, y), x + y)
    assert ingot.torch.cache_info().misses == before + 1  # the original forward
    assert "float32" in capfd.readouterr().err


def test_onnxmlirtorch_wrapper(capfd: Any) -> None:
    from ingot.compat import onnxmlirtorch

    x, y = torch.randn(2), torch.randn(2)
    for wrap in (onnxmlirtorch.ONNXMLIRTorch, onnxmlirtorch.compile):
        with pytest.warns(MigrationWarning, match="--maccel"):
            wrapped = wrap(AddModel(), compile_options="-O3 --maccel=NNPA")
        torch.testing.assert_close(wrapped(x, y=y), x + y)
    model = AddModel()
    assert onnxmlirtorch.interceptForward(model) is model
    torch.testing.assert_close(model(x, y), x + y)
    assert "AddModel.forward" in capfd.readouterr().err
