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
    """`inputs(k)` are the keyword arguments of example k; `free` says which dims of which may change. With `generate`,
    what it holds goes to the method of that name, which calls the module and its encoder."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, torch.Tensor]]
    free: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    generate: Mapping[str, Any] = field(default_factory=dict)

    def call(self, module: Any, inputs: dict[str, torch.Tensor]) -> Any:
        return module.generate(**inputs, **self.generate) if self.generate else module(**inputs)

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


def generator(k: int) -> torch.Generator:
    return torch.Generator().manual_seed(k)


def ids(k: int, vocabulary: int = VOCABULARY, lead: int = 3) -> torch.Tensor:
    return torch.randint(lead, vocabulary, SIZES[k], generator=generator(k))


def padding_mask(k: int) -> torch.Tensor:
    batch, length = SIZES[k]
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 4 :] = 0
    return mask


def text(k: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(k), "attention_mask": padding_mask(k)}


def image(size: int = 32, channels: int = 3) -> Callable[[int], dict[str, torch.Tensor]]:
    return lambda k: {"pixel_values": torch.randn(SIZES[k][0], channels, size, size, generator=generator(k))}


TEXT_DIMS = {"input_ids": (0, 1), "attention_mask": (0, 1)}
IMAGE_DIMS = {"pixel_values": (0,)}


def from_transformers(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**options))

    return make


TEXT_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
GROUPED: dict[str, Any] = {**TEXT_SIZES, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}


def encoder(name: str, prefix: str, **options: Any) -> TorchModel:
    make = from_transformers(f"{prefix}Model", f"{prefix}Config", **{**TEXT_SIZES, **options})
    return TorchModel(name, make, text, TEXT_DIMS)


def decoder(name: str, prefix: str, **options: Any) -> TorchModel:
    make = from_transformers(f"{prefix}ForCausalLM", f"{prefix}Config", **{**GROUPED, **options})
    return TorchModel(name, make, text, TEXT_DIMS)


def vision(name: str, model: str, config: str, size: int = 32, **options: Any) -> TorchModel:
    return TorchModel(name, from_transformers(model, config, **options), image(size), IMAGE_DIMS)


PATCHES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def _seq2seq(k: int) -> dict[str, torch.Tensor]:
    return {**text(k), "decoder_input_ids": ids(k) % (VOCABULARY - 7) + 3}


_SEQ2SEQ_DIMS = {**TEXT_DIMS, "decoder_input_ids": (0, 1)}


def _two_towers(k: int) -> dict[str, torch.Tensor]:
    return {**text(k), **image()(k)}


TOWERS: dict[str, Any] = {
    "text_config": {**TEXT_SIZES, "projection_dim": 16},
    "vision_config": {**PATCHES, "projection_dim": 16},
}


def speech(k: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(SIZES[k][0], 800 + 160 * k, generator=generator(k))}


SPEECH: dict[str, Any] = {
    **{
        key: TEXT_SIZES[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    },
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": VOCABULARY,
}


def whisper(k: int) -> dict[str, torch.Tensor]:
    batch = SIZES[k][0]
    return {
        "input_features": torch.randn(batch, 16, 60, generator=generator(k)),
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
        return WithCache(from_transformers(f"{prefix}ForCausalLM", f"{prefix}Config", **GROUPED)(), 2)

    def inputs(k: int) -> dict[str, torch.Tensor]:
        batch, length = SIZES[k][0], (3, 2)[k]
        past = (6, 9)[k]
        g = generator(k)
        return {
            "input_ids": torch.randint(3, VOCABULARY, (batch, length), generator=g),
            "attention_mask": torch.ones(batch, past + length, dtype=torch.int64),
            "past": torch.randn(2, 2, batch, heads, past, 8, generator=g),
        }

    return TorchModel(name, make, inputs, {**TEXT_DIMS, "past": (2, 4)})


def t5(name: str, prefix: str, **options: Any) -> TorchModel:
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
    return TorchModel(name, from_transformers(f"{prefix}Model", f"{prefix}Config", **sizes), _seq2seq, _SEQ2SEQ_DIMS)


def bart(name: str, prefix: str, **options: Any) -> TorchModel:
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
    return TorchModel(name, from_transformers(f"{prefix}Model", f"{prefix}Config", **sizes), _seq2seq, _SEQ2SEQ_DIMS)


_GPT: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
WHISPER: dict[str, Any] = {
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
    return {"x": torch.randn(SIZES[k][0], 16, generator=generator(k))}


MODELS: tuple[TorchModel, ...] = (
    TorchModel("mlp", Mlp, _vectors, {"x": (0,)}),
    TorchModel("lstm", lambda: Recurrent(nn.LSTM), lambda k: {"input_ids": ids(k)}, {"input_ids": (0, 1)}),
    TorchModel("gru", lambda: Recurrent(nn.GRU), lambda k: {"input_ids": ids(k)}, {"input_ids": (0, 1)}),
    TorchModel("unet", UNet, image(), IMAGE_DIMS),
    # Text encoders
    encoder("bert", "Bert"),
    encoder("roberta", "Roberta", pad_token_id=1),
    encoder("xlm-roberta", "XLMRoberta", pad_token_id=1),
    encoder("camembert", "Camembert", pad_token_id=1),
    encoder("albert", "Albert", embedding_size=16),
    encoder("electra", "Electra", embedding_size=16),
    encoder("deberta", "Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    encoder("deberta-v2", "DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16),
    encoder("mpnet", "MPNet", pad_token_id=1),
    encoder("modernbert", "ModernBert", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
    encoder("roformer", "RoFormer", embedding_size=32),
    encoder("nystromformer", "Nystromformer", num_landmarks=4, segment_means_seq_len=4, conv_kernel_size=3),
    encoder("layoutlm", "LayoutLM"),
    TorchModel(
        "distilbert",
        from_transformers(
            "DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64
        ),
        text,
        TEXT_DIMS,
    ),
    # Decoders
    TorchModel("gpt2", from_transformers("GPT2LMHeadModel", "GPT2Config", **_GPT, use_cache=False), text, TEXT_DIMS),
    TorchModel(
        "gptj",
        from_transformers("GPTJForCausalLM", "GPTJConfig", **_GPT, rotary_dim=4, use_cache=False),
        text,
        TEXT_DIMS,
    ),
    TorchModel(
        "gpt-neo",
        from_transformers(
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
        text,
        TEXT_DIMS,
    ),
    decoder("gpt-neox", "GPTNeoX"),
    decoder("llama", "Llama"),
    decoder("qwen2", "Qwen2"),
    decoder("qwen3", "Qwen3", head_dim=8),
    decoder("mistral", "Mistral", sliding_window=8),
    decoder("gemma", "Gemma", head_dim=8),
    decoder("gemma2", "Gemma2", head_dim=8, sliding_window=8),
    TorchModel(
        "gemma3",
        from_transformers(
            "Gemma3ForCausalLM", "Gemma3TextConfig", **GROUPED, head_dim=8, sliding_window=8, query_pre_attn_scalar=8
        ),
        text,
        TEXT_DIMS,
    ),
    decoder("phi", "Phi"),
    decoder("phi3", "Phi3"),
    decoder("olmo", "Olmo"),
    decoder("olmo2", "Olmo2"),
    decoder("granite", "Granite"),
    decoder("stablelm", "StableLm"),
    decoder("starcoder2", "Starcoder2", sliding_window=8),
    decoder("cohere", "Cohere"),
    decoder("smollm3", "SmolLM3"),
    TorchModel(
        "opt",
        from_transformers(
            "OPTForCausalLM", "OPTConfig", **{**GROUPED, "ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1}
        ),
        text,
        TEXT_DIMS,
    ),
    TorchModel(
        "bloom",
        from_transformers(
            "BloomForCausalLM",
            "BloomConfig",
            vocab_size=VOCABULARY,
            hidden_size=32,
            n_layer=2,
            n_head=4,
            use_cache=False,
        ),
        text,
        TEXT_DIMS,
    ),
    decoder("falcon", "Falcon"),
    decoder("falcon-alibi", "Falcon", alibi=True, new_decoder_architecture=False),
    _cached("llama-cache", "Llama", 2),
    _cached("gpt-neox-cache", "GPTNeoX", 4),
    # Encoders and decoders
    t5("t5", "T5"),
    t5("mt5", "MT5"),
    bart("bart", "Bart"),
    bart("mbart", "MBart"),
    bart("pegasus", "Pegasus", pad_token_id=0, eos_token_id=1, decoder_start_token_id=0),
    bart("marian", "Marian"),
    # Images
    vision("vit", "ViTModel", "ViTConfig", **PATCHES),
    vision("deit", "DeiTModel", "DeiTConfig", **PATCHES),
    vision("dinov2", "Dinov2Model", "Dinov2Config", **{**PATCHES, "mlp_ratio": 2}),
    vision("beit", "BeitModel", "BeitConfig", **PATCHES),
    vision(
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
    vision(
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
    vision("convnext", "ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    vision("convnextv2", "ConvNextV2Model", "ConvNextV2Config", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    vision(
        "resnet",
        "ResNetModel",
        "ResNetConfig",
        embedding_size=8,
        hidden_sizes=[16, 32],
        depths=[2, 2],
        out_features=None,
    ),
    vision(
        "regnet", "RegNetModel", "RegNetConfig", embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], groups_width=8
    ),
    vision("mobilenet-v1", "MobileNetV1Model", "MobileNetV1Config", depth_multiplier=0.25),
    vision("mobilenet-v2", "MobileNetV2Model", "MobileNetV2Config", depth_multiplier=0.25),
    vision(
        "segformer",
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        64,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=16,
    ),
    vision(
        "mobilevit",
        "MobileViTModel",
        "MobileViTConfig",
        64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        image_size=64,
    ),
    vision("poolformer", "PoolFormerModel", "PoolFormerConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    vision(
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
    TorchModel(
        "clip", from_transformers("CLIPModel", "CLIPConfig", **TOWERS), _two_towers, {**TEXT_DIMS, **IMAGE_DIMS}
    ),
    TorchModel(
        "siglip", from_transformers("SiglipModel", "SiglipConfig", **TOWERS), _two_towers, {**TEXT_DIMS, **IMAGE_DIMS}
    ),
    # Speech
    TorchModel(
        "whisper",
        from_transformers("WhisperModel", "WhisperConfig", **WHISPER),
        whisper,
        {"input_features": (0,), "decoder_input_ids": (0, 1)},
    ),
    TorchModel(
        "wav2vec2", from_transformers("Wav2Vec2Model", "Wav2Vec2Config", **SPEECH), speech, {"input_values": (0, 1)}
    ),
    TorchModel("hubert", from_transformers("HubertModel", "HubertConfig", **SPEECH), speech, {"input_values": (0, 1)}),
)
