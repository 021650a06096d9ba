"""Small PyTorch models of many architectures, with random weights: what `make torch-zoo` and the tests capture.

Each has inputs of two shapes that differ in every dim which may differ, and says which dims these are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Batch and length (or none) of the two examples.
SIZES = ((2, 12), (3, 17))
VOCABULARY = 100


@dataclass(frozen=True)
class TorchModel:
    """`inputs(k)` are the keyword arguments of example k; `free` says which dims of which may change."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, torch.Tensor]]
    free: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        module = self.make().eval()
        for part in module.modules():
            _enliven(part)
        return module

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        """As torch.export takes them."""
        return {name: dict.fromkeys(self.free.get(name, ()), torch.export.Dim.DYNAMIC) for name in self.inputs(0)}


def _enliven(module: nn.Module) -> None:
    """Weights and statistics that let signals through: those of a fresh net vanish after a few layers."""
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.kaiming_normal_(module.weight)
    elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
        nn.init.normal_(module.running_mean, std=0.1)
        nn.init.uniform_(module.running_var, 0.5, 1.5)


def _generator(k: int) -> torch.Generator:
    return torch.Generator().manual_seed(k)


def ids(k: int, vocabulary: int = VOCABULARY, lead: int = 3) -> torch.Tensor:
    return torch.randint(lead, vocabulary, SIZES[k], generator=_generator(k))


def padding_mask(k: int) -> torch.Tensor:
    batch, length = SIZES[k]
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 4 :] = 0
    return mask


def _text(k: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(k), "attention_mask": padding_mask(k)}


def _image(size: int = 32, channels: int = 3) -> Callable[[int], dict[str, torch.Tensor]]:
    return lambda k: {"pixel_values": torch.randn(SIZES[k][0], channels, size, size, generator=_generator(k))}


_TEXT_DIMS = {"input_ids": (0, 1), "attention_mask": (0, 1)}
_IMAGE_DIMS = {"pixel_values": (0,)}


def _transformers(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return make


_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_GROUPED: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}


def _encoder(name: str, prefix: str, **options: Any) -> TorchModel:
    make = _transformers(f"{prefix}Model", f"{prefix}Config", **{**_SIZES, **options})
    return TorchModel(name, make, _text, _TEXT_DIMS)


def _decoder(name: str, prefix: str, **options: Any) -> TorchModel:
    make = _transformers(f"{prefix}ForCausalLM", f"{prefix}Config", **{**_GROUPED, **options})
    return TorchModel(name, make, _text, _TEXT_DIMS)


def _vision(name: str, model: str, config: str, size: int = 32, **options: Any) -> TorchModel:
    return TorchModel(name, _transformers(model, config, **options), _image(size), _IMAGE_DIMS)


_PATCHES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def _seq2seq(k: int) -> dict[str, torch.Tensor]:
    return {**_text(k), "decoder_input_ids": ids(k) % (VOCABULARY - 7) + 3}


_SEQ2SEQ_DIMS = {**_TEXT_DIMS, "decoder_input_ids": (0, 1)}


def _two_towers(k: int) -> dict[str, torch.Tensor]:
    return {**_text(k), **_image()(k)}


_TOWERS: dict[str, Any] = {
    "text_config": {**_SIZES, "projection_dim": 16},
    "vision_config": {**_PATCHES, "projection_dim": 16},
}


def _speech(k: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(SIZES[k][0], 800 + 160 * k, generator=_generator(k))}


_SPEECH: dict[str, Any] = {
    **{key: _SIZES[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")},
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": VOCABULARY,
}


def _whisper(k: int) -> dict[str, torch.Tensor]:
    batch = SIZES[k][0]
    return {
        "input_features": torch.randn(batch, 16, 60, generator=_generator(k)),
        "decoder_input_ids": ids(k),
    }


class Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Softmax(-1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Recurrent(nn.Module):  # type: ignore[misc]
    """A recurrent net between an embedding and a linear layer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.net = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 8)

    def forward(self, input_ids: torch.Tensor) -> Any:
        y, state = self.net(self.embedding(input_ids))
        return self.head(y), state


class UNet(nn.Module):  # type: ignore[misc]
    """Two levels down and up again, with skips: convolutions plain and transposed, group normalization, resizing."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def block(i: int, o: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())

        self.down = nn.ModuleList([block(3, width), block(width, 2 * width)])
        self.middle = block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join = block(4 * width, width)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        a = self.down[0](pixel_values)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.middle(nn.functional.avg_pool2d(b, 2))
        d = self.join(torch.cat([self.up(c), b], 1))
        wide = nn.functional.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([wide, a], 1))


class WithCache(nn.Module):  # type: ignore[misc]
    """A decoder that takes and gives its cache of keys and values as plain tensors."""

    def __init__(self, model: nn.Module, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past: torch.Tensor) -> Any:
        from transformers import DynamicCache

        pairs = [(past[i, 0], past[i, 1]) for i in range(self.layers)]
        result = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=DynamicCache(pairs), use_cache=True
        )
        cache = result.past_key_values.layers
        return result.logits, torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache])


def _cached(name: str, prefix: str, heads: int) -> TorchModel:
    def make() -> nn.Module:
        return WithCache(_transformers(f"{prefix}ForCausalLM", f"{prefix}Config", **_GROUPED)(), 2)

    def inputs(k: int) -> dict[str, torch.Tensor]:
        batch, length = SIZES[k][0], (3, 2)[k]
        past = (6, 9)[k]
        g = _generator(k)
        return {
            "input_ids": torch.randint(3, VOCABULARY, (batch, length), generator=g),
            "attention_mask": torch.ones(batch, past + length, dtype=torch.int64),
            "past": torch.randn(2, 2, batch, heads, past, 8, generator=g),
        }

    return TorchModel(name, make, inputs, {**_TEXT_DIMS, "past": (2, 4)})


def _t5(name: str, prefix: str, **options: Any) -> TorchModel:
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "use_cache": False,
        **options,
    }
    return TorchModel(name, _transformers(f"{prefix}Model", f"{prefix}Config", **sizes), _seq2seq, _SEQ2SEQ_DIMS)


def _bart(name: str, prefix: str, **options: Any) -> TorchModel:
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "use_cache": False,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        **options,
    }
    return TorchModel(name, _transformers(f"{prefix}Model", f"{prefix}Config", **sizes), _seq2seq, _SEQ2SEQ_DIMS)


_GPT: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_WHISPER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_source_positions": 30,
    "max_target_positions": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def _vectors(k: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(SIZES[k][0], 16, generator=_generator(k))}


MODELS: tuple[TorchModel, ...] = (
    TorchModel("mlp", Mlp, _vectors, {"x": (0,)}),
    TorchModel("lstm", lambda: Recurrent(nn.LSTM), lambda k: {"input_ids": ids(k)}, {"input_ids": (0, 1)}),
    TorchModel("gru", lambda: Recurrent(nn.GRU), lambda k: {"input_ids": ids(k)}, {"input_ids": (0, 1)}),
    TorchModel("unet", UNet, _image(), _IMAGE_DIMS),
    # Text encoders
    _encoder("bert", "Bert"),
    _encoder("roberta", "Roberta", pad_token_id=1),
    _encoder("xlm-roberta", "XLMRoberta", pad_token_id=1),
    _encoder("camembert", "Camembert", pad_token_id=1),
    _encoder("albert", "Albert", embedding_size=16),
    _encoder("electra", "Electra", embedding_size=16),
    _encoder("deberta", "Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    _encoder("deberta-v2", "DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16),
    _encoder("mpnet", "MPNet", pad_token_id=1),
    _encoder("modernbert", "ModernBert", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
    _encoder("roformer", "RoFormer", embedding_size=32),
    _encoder("nystromformer", "Nystromformer", num_landmarks=4, segment_means_seq_len=4, conv_kernel_size=3),
    _encoder("layoutlm", "LayoutLM"),
    TorchModel(
        "distilbert",
        _transformers(
            "DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64
        ),
        _text,
        _TEXT_DIMS,
    ),
    # Decoders
    TorchModel("gpt2", _transformers("GPT2LMHeadModel", "GPT2Config", **_GPT, use_cache=False), _text, _TEXT_DIMS),
    TorchModel(
        "gptj", _transformers("GPTJForCausalLM", "GPTJConfig", **_GPT, rotary_dim=4, use_cache=False), _text, _TEXT_DIMS
    ),
    TorchModel(
        "gpt-neo",
        _transformers(
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=4,
            max_position_embeddings=64,
            use_cache=False,
        ),
        _text,
        _TEXT_DIMS,
    ),
    _decoder("gpt-neox", "GPTNeoX"),
    _decoder("llama", "Llama"),
    _decoder("qwen2", "Qwen2"),
    _decoder("qwen3", "Qwen3", head_dim=8),
    _decoder("mistral", "Mistral", sliding_window=8),
    _decoder("gemma", "Gemma", head_dim=8),
    _decoder("gemma2", "Gemma2", head_dim=8, sliding_window=8),
    TorchModel(
        "gemma3",
        _transformers(
            "Gemma3ForCausalLM", "Gemma3TextConfig", **_GROUPED, head_dim=8, sliding_window=8, query_pre_attn_scalar=8
        ),
        _text,
        _TEXT_DIMS,
    ),
    _decoder("phi", "Phi"),
    _decoder("phi3", "Phi3"),
    _decoder("olmo", "Olmo"),
    _decoder("olmo2", "Olmo2"),
    _decoder("granite", "Granite"),
    _decoder("stablelm", "StableLm"),
    _decoder("starcoder2", "Starcoder2", sliding_window=8),
    _decoder("cohere", "Cohere"),
    _decoder("smollm3", "SmolLM3"),
    TorchModel(
        "opt",
        _transformers(
            "OPTForCausalLM", "OPTConfig", **{**_GROUPED, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1}
        ),
        _text,
        _TEXT_DIMS,
    ),
    TorchModel(
        "bloom",
        _transformers(
            "BloomForCausalLM",
            "BloomConfig",
            vocab_size=VOCABULARY,
            hidden_size=32,
            n_layer=2,
            n_head=4,
            use_cache=False,
        ),
        _text,
        _TEXT_DIMS,
    ),
    _decoder("falcon", "Falcon"),
    _decoder("falcon-alibi", "Falcon", alibi=True, new_decoder_architecture=False),
    _cached("llama-cache", "Llama", 2),
    _cached("gpt-neox-cache", "GPTNeoX", 4),
    # Encoders and decoders
    _t5("t5", "T5"),
    _t5("mt5", "MT5"),
    _bart("bart", "Bart"),
    _bart("mbart", "MBart"),
    _bart("pegasus", "Pegasus", pad_token_id=0, eos_token_id=1, decoder_start_token_id=0),
    _bart("marian", "Marian"),
    # Images
    _vision("vit", "ViTModel", "ViTConfig", **_PATCHES),
    _vision("deit", "DeiTModel", "DeiTConfig", **_PATCHES),
    _vision("dinov2", "Dinov2Model", "Dinov2Config", **{**_PATCHES, "mlp_ratio": 2}),
    _vision("beit", "BeitModel", "BeitConfig", **_PATCHES),
    _vision(
        "swin",
        "SwinModel",
        "SwinConfig",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    _vision(
        "swinv2",
        "Swinv2Model",
        "Swinv2Config",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    _vision("convnext", "ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    _vision("convnextv2", "ConvNextV2Model", "ConvNextV2Config", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    _vision(
        "resnet",
        "ResNetModel",
        "ResNetConfig",
        embedding_size=8,
        hidden_sizes=[16, 32],
        depths=[2, 2],
        out_features=None,
    ),
    _vision(
        "regnet", "RegNetModel", "RegNetConfig", embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], groups_width=8
    ),
    _vision("mobilenet-v1", "MobileNetV1Model", "MobileNetV1Config", depth_multiplier=0.25),
    _vision("mobilenet-v2", "MobileNetV2Model", "MobileNetV2Config", depth_multiplier=0.25),
    _vision(
        "segformer",
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        64,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=16,
    ),
    _vision(
        "mobilevit",
        "MobileViTModel",
        "MobileViTConfig",
        64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        image_size=64,
    ),
    _vision("poolformer", "PoolFormerModel", "PoolFormerConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    _vision(
        "pvt",
        "PvtModel",
        "PvtConfig",
        64,
        image_size=64,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
    ),
    # Text and images
    TorchModel("clip", _transformers("CLIPModel", "CLIPConfig", **_TOWERS), _two_towers, {**_TEXT_DIMS, **_IMAGE_DIMS}),
    TorchModel(
        "siglip", _transformers("SiglipModel", "SiglipConfig", **_TOWERS), _two_towers, {**_TEXT_DIMS, **_IMAGE_DIMS}
    ),
    # Speech
    TorchModel(
        "whisper",
        _transformers("WhisperModel", "WhisperConfig", **_WHISPER),
        _whisper,
        {"input_features": (0,), "decoder_input_ids": (0, 1)},
    ),
    TorchModel(
        "wav2vec2", _transformers("Wav2Vec2Model", "Wav2Vec2Config", **_SPEECH), _speech, {"input_values": (0, 1)}
    ),
    TorchModel("hubert", _transformers("HubertModel", "HubertConfig", **_SPEECH), _speech, {"input_values": (0, 1)}),
)
