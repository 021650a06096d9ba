"""Weights in 4 and 8 bits, made in PyTorch: how they are rounded, kept, saved, exported and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import ingot
from ingot import PostTrainingQuantConfig, QuantizedModel, quantize
from ingot.torch_quantizer.weight_only.grid import Form, to_nearest
from ingot.torch_quantizer.weight_only.inputs import Inputs, rows_of
from ingot.torch_quantizer.weight_only.layers import NarrowConv, NarrowEmbedding, NarrowLinear
from ingot.torch_quantizer.weight_only.scaling import error_of
from ingot.torch_quantizer.weight_only.second_order import to_least_error

if TYPE_CHECKING:
    from pathlib import Path

EXACT, THEIRS = "Ingot and exact arithmetic", "onnxruntime and exact arithmetic"


class Layers(nn.Module):  # type: ignore[misc]
    """A table, linear layers, convolutions; places where factors of inputs can go, and one where they cannot."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        self.wide, self.back = nn.Linear(64, 70), nn.Linear(70, 40, bias=False)
        self.conv = nn.Conv1d(40, 48, 3, padding=1)
        self.after, self.last = nn.Conv1d(48, 32, 1), nn.Linear(32, 10)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.back(torch.relu(self.wide(self.norm(self.table(ids)))))
        x = self.after(torch.relu(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        result: Tensor = self.last(torch.nn.functional.gelu(x))
        return result


IDS = torch.randint(0, 50, (8, 12), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def layers() -> nn.Module:
    """With inputs as those of trained models: a few channels are much larger than the others."""
    model = Layers()
    with torch.no_grad():
        model.table.weight[:, ::9] *= 8
        model.norm.weight[::9] *= 8
    return model.eval()


def config(**fields: Any) -> PostTrainingQuantConfig:
    return PostTrainingQuantConfig(approach="weight_only", **fields)


def error(model: nn.Module, made: QuantizedModel) -> float:
    with torch.no_grad():
        wanted = model(IDS)
    return float((made(IDS) - wanted).norm() / wanted.norm())


def rows(made: QuantizedModel) -> dict[str, dict[str, Any]]:
    return {row["name"]: row["operands"][0] for row in made.report.data["quantized"]}


# Rounding


def correlated(columns: int, count: int = 400) -> Tensor:
    random = torch.Generator().manual_seed(2)
    mixed = torch.randn(count, columns // 4, generator=random) @ torch.randn(columns // 4, columns, generator=random)
    return mixed + 0.1 * torch.randn(count, columns, generator=random)


@pytest.mark.parametrize("form", [Form(4, 32, False), Form(4, 32, True), Form(4, 0, False), Form(8, 16, True)])
def test_rounding_keeps_to_its_form_and_search_helps(form: Form) -> None:
    weight = torch.randn(24, 70, generator=torch.Generator().manual_seed(0))
    plain, searched = to_nearest(weight, form, search=False), to_nearest(weight, form)
    for rounded in (plain, searched):
        assert int(rounded.q.min()) >= form.low and int(rounded.q.max()) <= form.high
        assert rounded.scale.shape == (24, -(-70 // form.group) if form.group else 1)
        assert torch.equal(rounded.scale, rounded.scale.half().float()), "scales fit 16 bits"
        assert (rounded.real() - weight).abs().max() < weight.abs().max() * (0.3 if form.bits == 4 else 0.02)
    off = [(rounded.real() - weight).square().sum() for rounded in (plain, searched)]
    assert off[1] < (0.95 if form.bits == 4 else 1.0) * off[0]


def test_weights_of_zeros_and_of_tiny_numbers() -> None:
    weight = torch.zeros(2, 32)
    weight[1] = torch.linspace(-1e-9, 1e-9, 32)
    real = to_nearest(weight, Form(8, 32, False)).real()
    assert torch.equal(real[0], weight[0])
    torch.testing.assert_close(real[1], weight[1], rtol=0, atol=1e-11)


def test_second_order_rounding_has_less_error_on_the_data() -> None:
    weight, x = torch.randn(24, 64, generator=torch.Generator().manual_seed(0)), correlated(64)
    hessian = x.T @ x / len(x)
    form = Form(4, 32, False)
    nearest = error_of(weight, to_nearest(weight, form, hessian.diagonal()).real(), hessian)
    for by_size in (True, False):
        made = error_of(weight, to_least_error(weight, hessian, form, by_size=by_size).real(), hessian)
        assert made < 0.3 * nearest
    hessian[5], hessian[:, 5] = 0, 0  # an input that is always 0, and a matrix without an inverse
    assert torch.isfinite(to_least_error(weight, hessian, form).real()).all()
    assert torch.isfinite(to_least_error(weight, torch.ones(64, 64), form).real()).all()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(8, 5), (3, 4, 8)),
        (nn.Conv1d(6, 4, 3, stride=2, padding=1), (2, 6, 11)),
        (nn.Conv2d(6, 4, (3, 2), padding="same", dilation=2, groups=2), (2, 6, 9, 8)),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular", groups=4), (1, 4, 6, 6)),
        (nn.Conv3d(2, 4, 2), (1, 2, 4, 5, 3)),
    ],
)
def test_what_layers_are_fed_with(layer: Any, shape: tuple[int, ...]) -> None:
    """Rows times the weight's matrix are the layer's results."""
    x = torch.randn(shape)
    with torch.no_grad():
        found = rows_of(layer, x)
        weight = layer.weight.flatten(1).unflatten(0, (len(found), -1))
        product = torch.bmm(found, weight.transpose(1, 2))  # [groups, places, outputs of a group]
        wanted = layer(x) - (
            layer.bias if isinstance(layer, nn.Linear) else layer.bias.reshape(-1, *[1] * (x.dim() - 2))
        )
        wanted = wanted.movedim(1, -1) if not isinstance(layer, nn.Linear) else wanted
        torch.testing.assert_close(product.movedim(0, 1).flatten(1), wanted.flatten(0, -2), rtol=1e-4, atol=1e-5)
    inputs = Inputs()
    inputs.add(layer, x)
    torch.testing.assert_close(inputs.hessians(), found.transpose(1, 2) @ found / found.shape[1])


# Whole models


def test_data_make_it_better(layers: nn.Module) -> None:
    plain = quantize(layers, config())
    kinds = {name: type(plain.model.get_submodule(name)) for name in rows(plain)}
    assert kinds["table"] is NarrowEmbedding and kinds["wide"] is NarrowLinear and kinds["conv"] is NarrowConv
    assert rows(plain)["table"]["dtype"] == "u8" and rows(plain)["wide"]["group_size"] == 32
    assert {row["algorithm"] for row in rows(plain).values()} == {"rtn"}
    with_data = quantize(layers, config(), calib=[IDS[:4], IDS[4:]])
    assert with_data.report.data["samples"] == 8 and rows(with_data)["wide"]["algorithm"] == "gptq"
    scaled = quantize(layers, config(algorithm="awq"), calib=[IDS])
    errors = [error(layers, made) for made in (plain, scaled, with_data)]
    assert errors[2] < 0.6 * errors[0] and errors[1] < 0.9 * errors[0], errors
    assert error(layers, quantize(layers, config(bits=8))) < 0.1 * errors[0]


def test_the_float_model_stays_as_it_is(layers: nn.Module) -> None:
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    made = quantize(layers, config(algorithm="awq"), calib=[IDS])
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert made.float_model(IDS).equal(layers(IDS))


def test_factors_are_folded_where_nothing_else_reads(layers: nn.Module) -> None:
    folded = quantize(layers, config(algorithm="awq"), calib=[IDS])
    kept = quantize(layers, config(algorithm="awq", recipes={"awq_args": {"folding": False}}), calib=[IDS])
    assert all(row["inputs_scaled"] for name, row in rows(kept).items() if name != "table")
    # Behind the normalization, behind relu; not behind a transpose or gelu.
    scaled = {name for name, row in rows(folded).items() if row["inputs_scaled"]}
    assert scaled == {"conv", "last"}, folded.report
    assert not torch.equal(folded.model.norm.weight, layers.norm.weight)
    torch.testing.assert_close(folded(IDS), kept(IDS), rtol=1e-3, atol=1e-3)


class Shared(nn.Module):  # type: ignore[misc]
    """One layer twice, two that read the same, and a normalization that something else reads, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.twice = nn.LayerNorm(32), nn.Linear(32, 32)
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        y = self.twice(torch.tanh(self.twice(x)))
        return x + self.a(y) * self.b(y)


def test_layers_that_share() -> None:
    model, x = Shared().eval(), correlated(32)
    made = quantize(model, config(algorithm="awq"), calib=[x])
    found = {name: layer for name, layer in made.model.named_modules() if isinstance(layer, NarrowLinear)}
    assert set(found) == {"twice", "a", "b"}
    assert torch.equal(found["a"].input_factor, found["b"].input_factor), "one multiplication serves both"
    assert torch.equal(made.model.norm.weight, model.norm.weight), "the sum reads the normalization"
    better, plain = quantize(model, config(), calib=[x]), quantize(model, config())
    with torch.no_grad():
        assert (better(x) - model(x)).norm() < 0.8 * (plain(x) - model(x)).norm()


class Branches(Layers):
    """Cannot be captured."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) if bool(ids.sum() > -1) else ids


def test_models_that_cannot_be_captured_are_rounded_on_what_the_float_model_gives(layers: nn.Module) -> None:
    model = Branches().eval()
    model.load_state_dict(layers.state_dict())
    made = quantize(model, config(), calib=[IDS])
    assert rows(made)["conv"]["algorithm"] == "gptq"
    assert "note: rounded on what the float model gives: " in str(made.report)
    assert error(model, made) < 0.6 * error(model, quantize(model, config()))
    for each in (model, layers):
        with pytest.raises(ingot.InvalidInputError, match="batch 1 does not fit"):
            quantize(each, config(), calib=[IDS, torch.full((2, 3), 99)])


def test_batches_of_several_lengths(layers: nn.Module) -> None:
    made = quantize(layers, config(), calib=[IDS[:4, :7], IDS[:3], IDS[4:, :9]])
    assert made.report.data["batches"] == 3 and error(layers, made) < 0.06


def test_settings_of_kinds_and_names(layers: nn.Module) -> None:
    made = quantize(
        layers,
        config(
            op_type_dict={
                "Conv.*": {"weight": {"bits": 8, "group_size": -1, "scheme": "sym"}},
                "Embedding": {"weight": {"bits": 4, "group_size": 16}},
            },
            op_name_dict={
                "wide": {"weight": {"algorithm": "RTN", "group_size": 64}, "activation": {"dtype": ["fp32"]}},
                "last": {"weight": {"dtype": ["fp32"]}},
            },
            symmetric=False,
        ),
        calib=[IDS],
    )
    found = rows(made)
    assert (found["conv"]["dtype"], found["conv"]["group_size"]) == ("s8", -1)
    assert (found["table"]["dtype"], found["table"]["group_size"]) == ("u4", 16)
    assert (found["wide"]["algorithm"], found["wide"]["group_size"]) == ("rtn", 64)
    assert (found["back"]["algorithm"], found["back"]["dtype"]) == ("gptq", "u4")
    assert "last" not in found and "excluded by 'last'" in str(made.report)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 3}, "bits is 3.*\n.*4 or 8"),
        ({"group_size": 8}, "group_size is 8"),
        ({"algorithm": "gptk"}, "algorithm='gptk'.*\n.*did you mean 'gptq'"),
        ({"weight": "u8"}, "weight='u8' is not for approach='weight_only'"),
        ({"approach": "static", "bits": 8}, "bits=8 is not for approach='static'"),
        ({"op_type_dict": {"LSTM": {"weight": {"bits": 4}}}}, "op_type_dict='LSTM'"),
        ({"op_type_dict": {"Linear": {"weight": {"bit": 4}}}}, "did you mean 'bits'"),
        ({"op_type_dict": {"Linear": {"weight": {"scheme": "symm"}}}}, "did you mean 'sym'"),
        ({"recipes": {"gptq_arg": {}}}, "did you mean 'gptq_args'"),
        ({"recipes": {"gptq_args": {"percdam": 0.1}}}, "did you mean 'percdamp'"),
        ({"recipes": {"awq_args": {"folding": 1}}}, "folding is 1, not True or False"),
        ({"recipes": {"smooth_quant": True}}, "smooth_quant is not for approach='weight_only'"),
    ],
)
def test_config_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.InvalidInputError, match=message) as raised:
        PostTrainingQuantConfig(**{"approach": "weight_only", **fields})
    assert raised.value.message


def test_algorithms_that_need_data_say_so(layers: nn.Module) -> None:
    with pytest.raises(ingot.InvalidInputError, match=r"calib is missing.*\n.*'gptq' needs sample data"):
        quantize(layers, config(algorithm="gptq"))


def test_corrections() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16)).eval(),
        torch.rand(64, 4, 6, 6),
    )
    with torch.no_grad():
        wanted = model(x)

    def off(recipes: Any) -> float:
        made = quantize(
            model, config(algorithm="awq", recipes={"awq_args": {"enable_auto_scale": False}, **recipes}), calib=[x]
        )
        return float((made(x) - wanted).mean(0).abs().mean())

    assert off({"fast_bias_correction": True}) < 0.3 * off({})
    made = quantize(model, config(recipes={"weight_correction": True}))
    varied = made.model[3].weight.std(1) / model[3].weight.std(1)
    torch.testing.assert_close(varied, torch.ones(16), rtol=1e-4, atol=0)


def test_an_accuracy_is_kept(layers: nn.Module) -> None:
    """Layers go back to fp32 until it holds."""

    def off(model: Any) -> float:
        with torch.no_grad():
            return float((model(IDS) - layers(IDS)).norm())

    tolerable = 0.7 * off(quantize(layers, config(), calib=[IDS]))
    made = quantize(
        layers,
        config(),
        calib=[IDS],
        eval_func=lambda model: 1 - off(model),
        accuracy_criterion=ingot.AccuracyCriterion(criterion="absolute", tolerable_loss=tolerable),
    )
    told = made.report.data["tuning"]
    assert told["in_float"] and told["trials"][0]["score"] < 1 - tolerable <= 1 - off(made)
    assert not set(told["in_float"]) & set(rows(made))


# Saved and exported


def test_saved_models_and_states(layers: nn.Module, tmp_path: Path) -> None:
    made = quantize(layers, config(algorithm="awq", op_type_dict={"Conv1d": {"weight": {"bits": 8}}}), calib=[IDS])
    made.save(tmp_path / "q.pt")
    loaded = QuantizedModel.load(tmp_path / "q.pt").eval()
    assert torch.equal(loaded(IDS), made(IDS)) and str(loaded.report) == str(made.report)
    state = made.state_dict()
    assert state["wide.packed"].shape == (70, 32) and state["wide.packed"].dtype == torch.uint8
    again = ingot.Model.from_state_dict(layers, state)
    assert torch.equal(again.module(IDS), made(IDS))
    again.export(tmp_path / "again.onnx", dtype="int4", opset_version=21, example_inputs=IDS)
    with pytest.raises(ingot.InvalidInputError, match="does not fit the float module"):
        ingot.Model.from_state_dict(nn.Linear(3, 3), state)


def outputs(path: Path, ids: Tensor) -> Any:
    return next(iter(ingot.compile(path).inference([ids.numpy()]).values()))


@pytest.mark.parametrize("operator", ["DequantizeLinear", "MatMulNBits"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"symmetric": True, "group_size": 16},
        {"bits": 8},
        {"bits": 8, "symmetric": True},
        {"group_size": -1},
        {"op_type_dict": {"Embedding": {"weight": {"bits": 4, "group_size": 32}}}},
    ],
)
def test_files_say_what_the_model_computes(
    layers: nn.Module, fields: dict[str, Any], operator: str, tmp_path: Path
) -> None:
    made, path = quantize(layers, config(**fields)), tmp_path / "narrow.onnx"
    report = made.export(
        path, example_inputs=IDS, dynamic_axes={"ids": {0: "batch", 1: "length"}}, weight_operator=operator
    )
    assert report.worst(EXACT) < 0.01 and report.worst(THEIRS) < 0.01, str(report)  # type: ignore[operator]
    assert not report.unquantized and len(report.quantized) == 6, str(report)
    np.testing.assert_allclose(outputs(path, IDS[:3, :5]), made(IDS[:3, :5]).numpy(), rtol=1e-4, atol=1e-5)
    file = onnx.load(path)
    kinds = {tensor.name: tensor.data_type for tensor in file.graph.initializer}
    four = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4}
    used = [node.op_type for node in file.graph.node]
    blocks = fields.get("group_size") != -1
    assert used.count("MatMulNBits") == (3 if operator == "MatMulNBits" and blocks else 0)
    if operator == "DequantizeLinear":
        assert (kinds["wide.weight"] in four) == (fields.get("bits", 4) == 4)
        assert {opset.domain for opset in file.opset_import} == {""}


def test_ingot_multiplies_with_the_narrow_weights(layers: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "narrow.onnx"
    quantize(layers, config()).export(path, example_inputs=IDS)
    quantized = [line for line in ingot.compile(path).yaml.splitlines() if "b_block: 32" in line]
    assert len(quantized) == 3


def test_older_opsets_have_bytes(layers: nn.Module, tmp_path: Path) -> None:
    made, path = quantize(layers, config()), tmp_path / "old.onnx"
    report = made.export(path, example_inputs=IDS, opset_version=18)
    assert report.worst(THEIRS) < 0.01 and "weights of 4 bits are bytes in opset 18" in str(report)  # type: ignore[operator]
    with pytest.raises(ingot.InvalidInputError, match=r"MatMulNBits.*opset 21"):
        made.export(path, example_inputs=IDS, opset_version=18, weight_operator="MatMulNBits")


def test_a_transformer_keeps_its_class(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=60, num_key_value_heads=1, **sizes)).eval()
    ids = {"input_ids": torch.randint(0, 60, (2, 9)), "use_cache": False}
    made = quantize(model, config(algorithm="awq"), calib=[ids])
    found = rows(made)
    scaled = {name.rpartition(".")[2] for name, row in found.items() if row["inputs_scaled"]}
    assert scaled == {"o_proj"}, "the others fold into normalizations and up_proj"
    assert isinstance(made.model, LlamaForCausalLM)
    assert made.model.generate(input_ids=ids["input_ids"], max_new_tokens=3, do_sample=False).shape == (2, 12)
    report = made.export(tmp_path / "llama.onnx", example_inputs=ids)
    assert report.worst(EXACT) < 0.01 and report.worst(THEIRS) < 0.01  # type: ignore[operator]
