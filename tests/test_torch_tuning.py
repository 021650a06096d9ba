"""Quantizing in PyTorch as older tools' users do: by an accuracy, by tables of operations, saved and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import ingot
from ingot import AccuracyCriterion, PostTrainingQuantConfig, TuningCriterion, quantize
from ingot.torch_quantizer.tuning import ranking

if TYPE_CHECKING:
    from pathlib import Path

DYNAMIC = PostTrainingQuantConfig(approach="dynamic")


class Layers(nn.Module):  # type: ignore[misc]
    """Layer 2 has one huge input that it does not use, beside which 8 bits leave nothing of the others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(5)])
        with torch.no_grad():
            self.layers[2].weight[:, 0] = 0

    def forward(self, x: Tensor) -> Tensor:
        huge = torch.tensor([1e4, 0, 0, 0, 0, 0, 0, 0])
        for i, layer in enumerate(self.layers):
            x = layer(x + huge if i == 2 else x).tanh()
        return x


X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


def scorer(model: nn.Module) -> Any:
    with torch.no_grad():
        wanted = model(X)
    return lambda made: 1 - float((made(X) - wanted).abs().max())


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_the_most_sensitive_layer_stays_in_fp32(approach: Any) -> None:
    model = Layers().eval()
    config = PostTrainingQuantConfig(approach=approach)
    made = quantize(
        model, config, calib=[X], eval_func=scorer(model), accuracy_criterion=AccuracyCriterion(tolerable_loss=0.1)
    )
    told = made.report.data["tuning"]
    assert told["baseline"] == 1.0 and told["in_float"] == ["layers.2"], made.report
    assert told["trials"][0]["score"] < 0.9 and told["trials"][-1]["score"] >= 0.9
    assert {row["name"] for row in made.report.data["quantized"]} == {f"layers.{i}" for i in (0, 1, 3, 4)}
    assert "1 layers in fp32" in made.report.text


def test_a_criterion_that_holds_at_once_costs_one_trial() -> None:
    model = Layers().eval()
    loose = AccuracyCriterion(criterion="absolute", tolerable_loss=10.0)
    made = quantize(model, DYNAMIC, eval_func=scorer(model), accuracy_criterion=loose)
    assert made.report.data["tuning"]["in_float"] == [] and len(made.report.data["tuning"]["trials"]) == 1


def test_a_criterion_that_cannot_hold_says_so() -> None:
    model = Layers().eval()
    score = scorer(model)

    def worse(made: Any) -> float:
        return float(score(made)) - isinstance(made, ingot.QuantizedModel)

    with pytest.raises(ingot.UnsupportedError, match="no 8-bit model fulfils the criterion"):
        quantize(model, DYNAMIC, calib=[X], eval_func=worse, tuning=TuningCriterion(max_trials=3))
    with pytest.raises(ingot.InvalidInputError, match="eval_func gave None"):
        quantize(model, DYNAMIC, eval_func=lambda made: None)
    with pytest.raises(ingot.InvalidInputError, match="eval_func is missing"):
        quantize(model, DYNAMIC, tuning=TuningCriterion())


def test_without_data_weights_are_ranked() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([1.0, 2.0, 4.0, 127.0])  # whole steps
    assert ranking(model, []) == ["1", "0"]


def test_smaller_scores_may_be_better() -> None:
    criterion = AccuracyCriterion(higher_is_better=False, tolerable_loss=0.5)
    assert criterion.holds(2.0, 2.9) and not criterion.holds(2.0, 3.1) and criterion.holds(2.0, 1.0)


def test_calibration_by_a_function_or_a_loader() -> None:
    model = Layers().eval()

    def run(given: nn.Module) -> None:
        for _ in range(3):
            given(X)

    by_function = quantize(model, calib_func=run)
    by_loader = quantize(model, calib_dataloader=[X, X, X])
    assert by_function.report.data["batches"] == by_loader.report.data["batches"] == 3
    torch.testing.assert_close(by_function(X), by_loader(X))
    with pytest.raises(ingot.InvalidInputError, match="did not call the model"):
        quantize(model, calib_func=lambda given: None)
    with pytest.raises(ingot.InvalidInputError, match="one thing"):
        quantize(model, calib=[X], calib_func=run)


def names(made: ingot.QuantizedModel) -> set[str]:
    return {row["name"] for row in made.report.data["quantized"]}


def test_tables_of_operations() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4), nn.Linear(4, 2)).eval()
    x, floats = torch.randn(2, 2, 8), {"weight": {"dtype": ["fp32"]}, "activation": {"dtype": "fp32"}}
    by_type = quantize(model, PostTrainingQuantConfig(op_type_dict={"Conv1d": floats}), calib=[x])
    assert "0" not in names(by_type) and {"3", "4"} <= names(by_type)
    by_name = quantize(model, PostTrainingQuantConfig(op_name_dict={"[34]": floats}), calib=[x])
    assert "0" in names(by_name) and not {"3", "4"} & names(by_name)
    with pytest.raises(ingot.InvalidInputError, match="no module of the model matches '9'"):
        quantize(model, PostTrainingQuantConfig(op_name_dict={"9": floats}), calib=[x])
    with pytest.raises(ingot.InvalidInputError, match="all operations have in common"):
        PostTrainingQuantConfig(op_type_dict={"Linear": {"weight": {"granularity": ["per_tensor"]}}})
    with pytest.raises(ingot.InvalidInputError, match="did you mean 'weight'"):
        PostTrainingQuantConfig(op_type_dict={"Linear": {"weigth": {"dtype": "fp32"}}})


class Normalized(nn.Module):  # type: ignore[misc]
    """One channel of what the linear layers read is 200 times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        with torch.no_grad():
            self.norm.weight[3] = 200
            self.a.weight[:, 3] /= 200
            self.b.weight[:, 3] /= 200

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return torch.cat([self.a(y), self.b(y)], -1)


def test_smoothing_evens_out_channels() -> None:
    model = Normalized().eval()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with torch.no_grad():
        wanted = model(X)
    errors = []
    for recipes in (None, {"smooth_quant": True}, {"smooth_quant": True, "smooth_quant_args": {"alpha": 0.6}}):
        made = quantize(model, PostTrainingQuantConfig(recipes=recipes, calibration="minmax"), calib=[X[:8], X[8:]])
        assert len(made.report.data["quantized"]) >= 2
        errors.append(float((made(X) - wanted).abs().max()))
    assert max(errors[1:]) < 0.2 * errors[0], errors
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    with pytest.raises(ingot.InvalidInputError, match="did you mean 'smooth_quant'"):
        PostTrainingQuantConfig(recipes={"smoothquant": True})
    with pytest.raises(ingot.InvalidInputError, match="alpha is 2"):
        PostTrainingQuantConfig(recipes={"smooth_quant": True, "smooth_quant_args": {"alpha": 2}})


class Folded(nn.Module):  # type: ignore[misc]
    """Convolutions in groups and without a bias, one of them behind a normalization that becomes part of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 8, 3, groups=2, bias=False), nn.Linear(128, 10)
        with torch.no_grad():
            self.norm.running_mean += 0.1

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        result: Tensor = self.last(torch.flatten(torch.relu(self.second(y)), 1))
        return result


DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_channel.default
IMAGES = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def test_corrections_of_biases_and_weights(tmp_path: Path) -> None:
    model = Folded().eval()
    with torch.no_grad():
        wanted = model(IMAGES)

    def average_error(recipes: Any) -> float:
        # Weights with one scale for all, so that there is an error to correct.
        config = PostTrainingQuantConfig(recipes=recipes, per_channel=recipes.get("weight_correction", False))
        made = quantize(model, config, calib=[IMAGES[:40], IMAGES[40:]])
        report = made.export(tmp_path / "m.onnx", recipe="fp32_bias")
        assert report.worst("Ingot and exact arithmetic") <= 1.01  # type: ignore[operator]
        return float((made(IMAGES) - wanted).mean(0).abs().mean())

    assert average_error({"fast_bias_correction": True}) < 0.6 * average_error({})
    made = quantize(model, PostTrainingQuantConfig(recipes={"weight_correction": True}), calib=[IMAGES])
    pairs = made.model.graph.find_nodes(op="call_function", target=DEQUANTIZE)
    weight = next(pair for pair in pairs if next(iter(pair.users)).target is torch.ops.aten.conv2d.default)
    q, scale = (getattr(made.model, str(arg.target)) for arg in weight.args[:2])
    fused = model.first.weight * (model.norm.weight / (model.norm.running_var + 1e-5).sqrt())[:, None, None, None]
    torch.testing.assert_close(q.float().flatten(1).std(1) * scale, fused.flatten(1).std(1), rtol=1e-4, atol=0)


def test_first_and_last_product_may_stay_in_fp32() -> None:
    recipes = {"first_conv_or_matmul_quantization": False, "last_conv_or_matmul_quantization": False}
    made = quantize(Folded(), PostTrainingQuantConfig(recipes=recipes), calib=[IMAGES])
    assert names(made) == {"second"} and "first_conv_or_matmul_quantization=False" in str(made.report)
    dynamic = quantize(Layers(), PostTrainingQuantConfig(approach="dynamic", recipes=recipes))
    assert names(dynamic) == {"layers.1", "layers.2", "layers.3"}


BF16 = {"weight": {"dtype": ["bf16"]}, "activation": {"dtype": ["bf16"]}}


@pytest.mark.parametrize("approach", ["static", "dynamic", "weight_only"])
def test_bf16_beside_integers(approach: Any, tmp_path: Path) -> None:
    model = Layers().eval()
    sums: dict[int, int] = {}
    before = {name: p.clone() for name, p in model.state_dict().items()}
    config = PostTrainingQuantConfig(approach=approach, op_name_dict={r"layers\.[24]": BF16})
    made = quantize(model, config, calib=[X])
    assert names(made) == {"layers.0", "layers.1", "layers.3"}
    told = {row["name"]: row["reason"] for row in made.report.data["unquantized"]}
    assert told["layers.2"] == told["layers.4"] == "computes in bf16", made.report
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    report = made.export(tmp_path / "m.onnx", example_inputs=X, opset_version=21)
    assert report.worst("Ingot and exact arithmetic") <= 1.5  # type: ignore[operator]
    for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer:
        sums[tensor.data_type] = sums.get(tensor.data_type, 0) + 1
    assert sums[onnx.TensorProto.BFLOAT16] >= 2
    made.save(tmp_path / "q.pt")
    assert torch.equal(ingot.QuantizedModel.load(tmp_path / "q.pt")(X), made(X))


def test_bf16_by_kind_and_where_it_cannot_be() -> None:
    made = quantize(Folded(), PostTrainingQuantConfig(op_type_dict={"Conv2d": BF16}), calib=[IMAGES])
    assert names(made) == {"last"}
    assert {row["reason"] for row in made.report.data["unquantized"] if row["type"] == "Conv2d"} == {"computes in bf16"}
    with pytest.raises(ingot.InvalidInputError, match="'Cat' is to compute in bf16"):
        PostTrainingQuantConfig(op_type_dict={"Cat": BF16})
    with pytest.raises(ingot.InvalidInputError, match="no layer of the model"):
        quantize(Layers(), PostTrainingQuantConfig(op_type_dict={"Conv2d": BF16}), calib=[X])


def test_approach_auto() -> None:
    config = PostTrainingQuantConfig(approach="auto")
    assert quantize(Layers(), config, calib=[X]).report.data["approach"] == "static"
    assert quantize(Layers(), config).report.data["approach"] == "dynamic"

    class Branches(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if bool(x.sum() > -1e9) else x

    assert quantize(Branches(), config, calib=[X]).report.data["approach"] == "dynamic"


def test_unknown_fields_are_errors_with_the_nearest_name() -> None:
    with pytest.raises(ingot.InvalidInputError, match="did you mean 'approach'"):
        PostTrainingQuantConfig(aproach="static")  # type: ignore[call-arg]
    with pytest.raises(ingot.InvalidInputError, match="did you mean 'tolerable_loss'"):
        AccuracyCriterion(tolerable_los=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_saved_models_are_the_same(approach: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    made = quantize(model, PostTrainingQuantConfig(approach=approach), calib=[X])
    made.save(tmp_path / "q.pt")
    loaded = ingot.QuantizedModel.load(tmp_path / "q.pt").eval()
    torch.testing.assert_close(loaded(X[:3]), made(X[:3]), rtol=0, atol=0)
    assert str(loaded.report) == str(made.report) and loaded.state_dict().keys() >= made.state_dict().keys()
    report = loaded.export(tmp_path / "m.onnx", example_inputs=X)
    assert report.worst("Ingot and exact arithmetic") <= 1.01  # type: ignore[operator]
    (tmp_path / "bad.pt").write_bytes(b"no model")
    with pytest.raises(ingot.InvalidModelError):
        ingot.QuantizedModel.load(tmp_path / "bad.pt")
    with pytest.raises(ingot.IoError):
        ingot.QuantizedModel.load(tmp_path / "none.pt")
