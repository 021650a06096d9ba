"""PyTorch models quantized in all the ways there are: small, and each with a float model and an input.

`SOURCES` maps a name to its kind and a function that builds it. Used by tests/test_export.py and by
scripts/export_matrix.py, which writes docs/export.md.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.ao.nn.quantized as nnq
import torch.ao.quantization as tq
from torch import Tensor, nn
from torch.ao.quantization import quantize_fx as fx
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Source:
    model: Any
    inputs: Any
    float_model: nn.Module | None = None
    dynamic_axes: dict[str, dict[int, str]] | None = None
    state: dict[str, Any] | None = None  # of a quantized model; `model` is then the float module
    folder: Any = field(default=None, repr=False)


SOURCES: dict[str, tuple[str, Callable[[], Source]]] = {}
ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")


def source(name: str, kind: str) -> Callable[[Callable[[], Source]], Callable[[], Source]]:
    """kind: static, dynamic, weight-only"""

    def register(build: Callable[[], Source]) -> Callable[[], Source]:
        SOURCES[name] = (kind, build)
        return build

    return register


def build(name: str) -> Source:
    torch.manual_seed(0)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "x86"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SOURCES[name][1]()
    finally:
        torch.backends.quantized.engine = engine


class Perceptron(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(torch.relu(self.first(x)))
        return result


class Convolutional(nn.Module):  # type: ignore[misc]
    """With stubs for eager quantization; FX and PT2E do not need them."""

    def __init__(self, stubs: bool = False) -> None:
        super().__init__()
        self.quant = tq.QuantStub() if stubs else nn.Identity()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 4 * 4, 10)
        self.dequant = tq.DeQuantStub() if stubs else nn.Identity()
        with torch.no_grad():
            self.bn.running_mean.normal_(0, 0.1)
            self.bn.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.bn(self.conv(self.quant(x)))))
        result: Tensor = self.dequant(self.fc(torch.flatten(x, 1)))
        return result


class Everything(nn.Module):  # type: ignore[misc]
    """Arithmetic, activations, normalizations, pooling, all ranks of convolutions, on quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()
        self.conv1, self.conv2, self.conv3 = (
            nn.Conv1d(4, 6, 3),
            nn.Conv2d(4, 6, 3, stride=2, groups=2),
            nn.Conv3d(4, 6, 3),
        )
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.up1 = nn.ConvTranspose1d(6, 4, 3, stride=2, output_padding=1)
        self.add, self.mul, self.cat, self.shift, self.scale = (nnq.FloatFunctional() for _ in range(5))
        self.hardswish, self.elu, self.leaky, self.sigmoid = nn.Hardswish(), nn.ELU(), nn.LeakyReLU(0.1), nn.Sigmoid()
        self.prelu = nn.PReLU()
        self.layer, self.group, self.instance = nn.LayerNorm(5), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        self.average = nn.AdaptiveAvgPool2d(3)

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        x = self.quant(x)  # [n, 4, 11, 11]
        y = self.hardswish(self.conv2(x))  # [n, 6, 5, 5]
        y = self.layer(self.cat.cat([y, self.elu(y)], 1))
        z = self.leaky(self.up(y[:, :6]))  # [n, 4, 10, 10]
        z = self.instance(self.group(z))
        a = self.add.add(z, self.sigmoid(z))
        m = self.mul.mul(a, torch.tanh(a))
        m = self.scale.mul_scalar(self.shift.add_scalar(m, 0.5), -1.5)
        m = self.average(F.max_pool2d(self.prelu(m), 2))
        w = self.quant(v)  # [n, 4, 9]
        w = self.up1(self.conv1(w))
        deep = self.conv3(x[:, :, :9].reshape(x.shape[0], 4, 3, 3, 11))
        deep = torch.mean(F.relu6(deep), dim=(2, 3, 4))
        return self.dequant(m), self.dequant(w), self.dequant(deep)


class Functional(nn.Module):  # type: ignore[misc]
    """What FX quantizes beyond modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.norm, self.fc = nn.LayerNorm(6), nn.Linear(8 * 6 * 6, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn(self.conv(x)))
        y = y + y * 0.5
        y = F.elu(torch.cat([y, y + 1.0], 1))[:, :8]
        y = F.hardswish(self.norm(y)) * y
        y = torch.matmul(y, y.transpose(2, 3))
        result: Tensor = self.fc(torch.flatten(y, 1))
        return result


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.gru, self.fc = nn.GRU(12, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (hidden, _) = self.lstm(x)
        y, _ = self.gru(y)
        return self.fc(y), hidden


class Cells(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 4)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        h, _ = self.lstm(x, (h, h))
        result: Tensor = self.rnn(self.gru(h, h))
        return result


class Tables(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table, self.bag = nn.Embedding(20, 8), nn.EmbeddingBag(20, 8, mode="sum")
        self.fc = nn.Linear(8, 4)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.fc(self.table(ids)), self.bag(ids)


IMAGES = (4, 3, 8, 8)
BATCH = {0: "batch"}


def _calibrate(model: Any, *shapes: tuple[int, ...]) -> None:
    for _ in range(4):
        model(*[torch.randn(shape) for shape in shapes])


# Eager.


def _eager_static(engine: str) -> Source:
    torch.backends.quantized.engine = engine
    model = Convolutional(stubs=True).eval()
    model.qconfig = tq.get_default_qconfig(engine)
    prepared = tq.prepare(tq.fuse_modules(model, [["conv", "bn", "relu"]]))
    _calibrate(prepared, IMAGES)
    return Source(tq.convert(prepared), torch.randn(IMAGES), model, {"x": BATCH})


for _engine in ENGINES:
    SOURCES[f"eager static, {_engine}"] = ("static", lambda engine=_engine: _eager_static(engine))  # type: ignore[misc]


@source("eager static, all operators", "static")
def _eager_everything() -> Source:
    model = Everything().eval()
    model.qconfig = tq.get_default_qconfig("x86")
    for module in (model.up, model.up1, model.prelu):  # PyTorch has no per-channel kernels for these
        module.qconfig = tq.default_qconfig
    prepared = tq.prepare(model)
    _calibrate(prepared, (2, 4, 11, 11), (2, 4, 9))
    return Source(tq.convert(prepared), (torch.randn(2, 4, 11, 11), torch.randn(2, 4, 9)), model)


def _eager_dynamic(engine: str, per_channel: bool = False) -> Source:
    torch.backends.quantized.engine = engine
    model = Perceptron().eval()
    spec = {nn.Linear: tq.per_channel_dynamic_qconfig} if per_channel else {nn.Linear}
    return Source(tq.quantize_dynamic(model, spec), torch.randn(3, 16), model, {"x": BATCH})


for _engine in ENGINES:
    SOURCES[f"eager dynamic Linear, {_engine}"] = ("dynamic", lambda engine=_engine: _eager_dynamic(engine))  # type: ignore[misc]
SOURCES["eager dynamic Linear, per channel"] = ("dynamic", lambda: _eager_dynamic("x86", True))


@source("eager dynamic LSTM, GRU", "dynamic")
def _eager_recurrent() -> Source:
    model = Recurrent().eval()
    quantized = tq.quantize_dynamic(model, {nn.LSTM, nn.GRU, nn.Linear})
    return Source(quantized, torch.randn(2, 5, 8), model, {"x": {0: "batch", 1: "time"}})


@source("eager dynamic cells", "dynamic")
def _eager_cells() -> Source:
    model = Cells().eval()
    quantized = tq.quantize_dynamic(model, {nn.LSTMCell, nn.GRUCell, nn.RNNCell})
    return Source(quantized, (torch.randn(2, 8), torch.randn(2, 6)), model)


@source("eager Embedding, EmbeddingBag", "dynamic")
def _eager_tables() -> Source:
    model = Tables().eval()
    spec = {
        nn.Embedding: tq.float_qparams_weight_only_qconfig,
        nn.EmbeddingBag: tq.float_qparams_weight_only_qconfig,
        nn.Linear: tq.default_dynamic_qconfig,
    }
    return Source(tq.quantize_dynamic(model, spec), torch.randint(0, 20, (3, 5)), model, {"ids": {0: "batch"}})


def _train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(IMAGES)).square().mean().backward()
        optimizer.step()


def _eager_qat() -> nn.Module:
    model = Convolutional(stubs=True).train()
    model.qconfig = tq.get_default_qat_qconfig("x86")
    prepared: nn.Module = tq.prepare_qat(tq.fuse_modules_qat(model, [["conv", "bn", "relu"]]))
    _train(prepared)
    return prepared.eval()


@source("eager QAT, converted", "static")
def _eager_qat_converted() -> Source:
    return Source(tq.convert(_eager_qat()), torch.randn(IMAGES), None, {"x": BATCH})


@source("eager QAT, not converted", "static")
def _eager_qat_prepared() -> Source:
    return Source(_eager_qat(), torch.randn(IMAGES), None, {"x": BATCH})


# FX.


def _fx_prepared(engine: str = "x86", model: nn.Module | None = None) -> tuple[nn.Module, nn.Module]:
    model = model or Convolutional().eval()
    prepared: nn.Module = fx.prepare_fx(
        copy.deepcopy(model), tq.get_default_qconfig_mapping(engine), (torch.randn(IMAGES),)
    )
    _calibrate(prepared, IMAGES)
    return model, prepared


@source("FX static", "static")
def _fx_static() -> Source:
    model, prepared = _fx_prepared()
    return Source(fx.convert_fx(prepared), torch.randn(IMAGES), model, {"x": BATCH})


@source("FX static, qnnpack", "static")
def _fx_qnnpack() -> Source:
    torch.backends.quantized.engine = "qnnpack"
    model, prepared = _fx_prepared("qnnpack")
    return Source(fx.convert_fx(prepared), torch.randn(IMAGES), model, {"x": BATCH})


@source("FX static, functions and scalars", "static")
def _fx_functional() -> Source:
    model, prepared = _fx_prepared(model=Functional().eval())
    return Source(fx.convert_fx(prepared), torch.randn(IMAGES), model)


@source("FX reference", "static")
def _fx_reference() -> Source:
    model, prepared = _fx_prepared(model=Functional().eval())
    return Source(fx.convert_to_reference_fx(prepared), torch.randn(IMAGES), model)


@source("FX dynamic", "dynamic")
def _fx_dynamic() -> Source:
    model = Perceptron().eval()
    mapping = tq.QConfigMapping().set_global(tq.default_dynamic_qconfig)
    prepared = fx.prepare_fx(copy.deepcopy(model), mapping, (torch.randn(3, 16),))
    return Source(fx.convert_fx(prepared), torch.randn(3, 16), model, {"x": BATCH})


def _fx_qat() -> nn.Module:
    model = Convolutional().train()
    prepared: nn.Module = fx.prepare_qat_fx(model, tq.get_default_qat_qconfig_mapping("x86"), (torch.randn(IMAGES),))
    _train(prepared)
    return prepared.eval()


@source("FX QAT, converted", "static")
def _fx_qat_converted() -> Source:
    return Source(fx.convert_fx(_fx_qat()), torch.randn(IMAGES), None, {"x": BATCH})


@source("FX QAT, not converted", "static")
def _fx_qat_prepared() -> Source:
    return Source(_fx_qat(), torch.randn(IMAGES), None, {"x": BATCH})


# PT2E, with torchao's quantizers.


def _pt2e_prepared(model: nn.Module, inputs: tuple[Tensor, ...], calibration: bool = True, **config: Any) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(**config))
    prepared = (prepare_qat_pt2e if config.get("is_qat") else prepare_pt2e)(program.module(), quantizer)
    if calibration:
        for _ in range(4):
            prepared(*[torch.randn_like(x) for x in inputs])
    return prepared


def _pt2e_converted(prepared: Any) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    return convert_pt2e(prepared)


@source("PT2E static", "static")
def _pt2e_static() -> Source:
    model = Convolutional().eval()
    prepared = _pt2e_prepared(model, (torch.randn(IMAGES),))
    return Source(_pt2e_converted(prepared), torch.randn(IMAGES), model, {"x": BATCH})


@source("PT2E dynamic", "dynamic")
def _pt2e_dynamic() -> Source:
    model = Perceptron().eval()
    prepared = _pt2e_prepared(model, (torch.randn(3, 16),), is_dynamic=True)
    return Source(_pt2e_converted(prepared), torch.randn(3, 16), model, {"x": BATCH})


def _pt2e_qat() -> Any:
    from torchao.quantization.pt2e import move_exported_model_to_eval

    prepared = _pt2e_prepared(Convolutional().train(), (torch.randn(IMAGES),), calibration=False, is_qat=True)
    _train(prepared)
    return move_exported_model_to_eval(prepared)


@source("PT2E QAT, converted", "static")
def _pt2e_qat_converted() -> Source:
    return Source(_pt2e_converted(_pt2e_qat()), torch.randn(IMAGES), None, {"x": BATCH})


@source("PT2E QAT, not converted", "static")
def _pt2e_qat_prepared() -> Source:
    return Source(_pt2e_qat(), torch.randn(IMAGES), None, {"x": BATCH})


# torchao.quantize_: tensor subclasses.


def _torchao(config: Any, sizes: tuple[int, int] = (64, 128)) -> Source:
    from torchao.quantization import quantize_

    model = nn.Sequential(nn.Linear(*sizes), nn.ReLU(), nn.Linear(sizes[1], 32)).eval()
    quantized = copy.deepcopy(model)
    quantize_(quantized, config)
    return Source(quantized, torch.randn(2, 3, sizes[0]), model, {"input": {0: "batch", 1: "length"}})


@source("torchao int8 weight-only", "weight-only")
def _torchao_weight_only() -> Source:
    from torchao.quantization import Int8WeightOnlyConfig

    return _torchao(Int8WeightOnlyConfig())


@source("torchao int8 dynamic activation", "dynamic")
def _torchao_dynamic() -> Source:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return _torchao(Int8DynamicActivationInt8WeightConfig())


@source("torchao intx weight-only, groups", "weight-only")
def _torchao_groups() -> Source:
    from torchao.quantization import IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup

    return _torchao(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))


@source("torchao dynamic activation, intx weight", "dynamic")
def _torchao_intx_dynamic() -> Source:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig

    return _torchao(Int8DynamicActivationIntxWeightConfig())


# Files and states.


def _in_file(name: str, save: Callable[[str], None], **rest: Any) -> Source:
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / name)
    save(path)
    return Source(path, folder=folder, **rest)


@source("PT2E static, .pt2 file", "static")
def _pt2_file() -> Source:
    made = _pt2e_static()
    program = torch.export.export(made.model, (made.inputs,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    return _in_file(
        "m.pt2", lambda path: torch.export.save(program, path), inputs=made.inputs, float_model=made.float_model
    )


@source("eager static, scripted", "static")
def _scripted() -> Source:
    made = _eager_static("x86")
    script = torch.jit.script(made.model)
    return _in_file(
        "m.pt",
        lambda path: torch.jit.save(script, path),
        inputs=made.inputs,
        float_model=made.float_model,
        dynamic_axes=made.dynamic_axes,
    )


@source("FX static, traced", "static")
def _traced() -> Source:
    made = _fx_functional()
    trace = torch.jit.trace(made.model, made.inputs)
    return _in_file("m.pt", lambda path: torch.jit.save(trace, path), inputs=made.inputs, float_model=made.float_model)


@source("eager dynamic LSTM, scripted", "dynamic")
def _scripted_lstm() -> Source:
    made = _eager_recurrent()
    script = torch.jit.script(made.model)
    return _in_file("m.pt", lambda path: torch.jit.save(script, path), inputs=made.inputs, float_model=made.float_model)


@source("eager static, state_dict", "static")
def _static_state() -> Source:
    made = _eager_static("x86")
    return Source(made.float_model, made.inputs, made.float_model, made.dynamic_axes, state=made.model.state_dict())


@source("eager dynamic, state_dict", "dynamic")
def _dynamic_state() -> Source:
    made = _eager_dynamic("x86")
    return Source(made.float_model, made.inputs, made.float_model, made.dynamic_axes, state=made.model.state_dict())


# Whole networks of transformers.


class _Only(nn.Module):  # type: ignore[misc]
    """One tensor of a transformers model."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = getattr(self.model(x), self.output)
        return result


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return _Only(BertForSequenceClassification(config), "logits").eval()


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=2, n_positions=64, use_cache=False)
    return _Only(GPT2LMHeadModel(config), "logits").eval()


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return _Only(ViTForImageClassification(config), "logits").eval()


def _resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="bottleneck")
    return _Only(ResNetForImageClassification(config), "logits").eval()


TOKENS = {0: "batch", 1: "length"}


def _ids() -> Tensor:
    return torch.randint(0, 100, (2, 12))


def _images() -> Tensor:
    return torch.randn(2, 3, 16, 16)


def _pt2e_transformer(model: nn.Module, inputs: Callable[[], Tensor], dims: dict[int, str]) -> Source:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    program = torch.export.export(model, (inputs(),), dynamic_shapes=(dict.fromkeys(dims, torch.export.Dim.AUTO),))
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(program.module(), quantizer)
    for _ in range(3):
        prepared(inputs())
    return Source(_pt2e_converted(prepared), inputs(), model, {"x": dims})


SOURCES["BERT classifier, PT2E static"] = ("static", lambda: _pt2e_transformer(_bert(), _ids, TOKENS))
SOURCES["GPT-2, PT2E static"] = ("static", lambda: _pt2e_transformer(_gpt2(), _ids, TOKENS))
SOURCES["ViT, PT2E static"] = ("static", lambda: _pt2e_transformer(_vit(), _images, BATCH))
SOURCES["ResNet, PT2E static"] = ("static", lambda: _pt2e_transformer(_resnet(), _images, BATCH))


def _dynamic_transformer(model: nn.Module, inputs: Callable[[], Tensor], dims: dict[int, str]) -> Source:
    return Source(tq.quantize_dynamic(model, {nn.Linear}), inputs(), model, {"x": dims})


SOURCES["BERT classifier, eager dynamic"] = ("dynamic", lambda: _dynamic_transformer(_bert(), _ids, TOKENS))
SOURCES["ViT, eager dynamic"] = ("dynamic", lambda: _dynamic_transformer(_vit(), _images, BATCH))


@source("GPT-2, torchao int8 dynamic activation", "dynamic")
def _gpt2_torchao() -> Source:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = _gpt2()
    quantized = copy.deepcopy(model)
    quantize_(quantized, Int8DynamicActivationInt8WeightConfig())
    return Source(quantized, _ids(), model, {"x": TOKENS})


# Weights alone, by ingot.quantize.


def _weights_only(model: nn.Module, inputs: Tensor, dims: dict[int, str], data: bool, **fields: Any) -> Source:
    import ingot

    config = ingot.PostTrainingQuantConfig(approach="weight_only", **fields)
    name = "input" if isinstance(model, nn.Sequential) else "x"
    made = ingot.quantize(model, config, calib=[inputs] if data else None, example_inputs=inputs)
    return Source(made.callable, inputs, model, {name: dims})


SOURCES["weights in 4 bits, to nearest"] = (
    "weight-only",
    lambda: _weights_only(Convolutional().eval(), torch.randn(4, 3, 8, 8), BATCH, data=False),
)
SOURCES["ResNet, weights in 4 bits, by second order"] = (
    "weight-only",
    lambda: _weights_only(_resnet(), _images(), BATCH, data=True),
)
SOURCES["BERT classifier, weights in 4 bits, by second order"] = (
    "weight-only",
    lambda: _weights_only(_bert(), _ids(), TOKENS, data=True),
)
SOURCES["GPT-2, weights in 4 bits, scaled channels"] = (
    "weight-only",
    lambda: _weights_only(_gpt2(), _ids(), TOKENS, data=True, algorithm="awq", symmetric=True, group_size=16),
)
SOURCES["ViT, weights in 8 bits, whole rows"] = (
    "weight-only",
    lambda: _weights_only(_vit(), _images(), BATCH, data=False, bits=8, group_size=-1, symmetric=True),
)


@source("weights in 4 bits, state_dict", "weight-only")
def _narrow_state() -> Source:
    made = _weights_only(Perceptron().eval(), torch.randn(4, 16), BATCH, data=False, group_size=16)
    return Source(made.float_model, made.inputs, made.float_model, made.dynamic_axes, state=made.model.state_dict())
