"""More of the small PyTorch models of `make torch-zoo`: mixtures of experts, state spaces, detection, segmentation,
speech and sound, several modalities, time series, graphs, and text written by generate()."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch_models import (
    GROUPED,
    IMAGE_DIMS,
    PATCHES,
    SIZES,
    SPEECH,
    TEXT_DIMS,
    TEXT_SIZES,
    VOCABULARY,
    WHISPER,
    TorchModel,
    decoder,
    encoder,
    from_transformers,
    generator,
    ids,
    image,
    padding_mask,
    speech,
    text,
    vision,
    whisper,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Inputs = dict[str, torch.Tensor]


def noise(k: int, *shape: int) -> torch.Tensor:
    """Normal numbers; the first dim is the batch."""
    return torch.randn(SIZES[k][0], *shape, generator=generator(k))


def only(name: str, shape: Callable[[int], tuple[int, ...]]) -> Callable[[int], Inputs]:
    """One input of normal numbers, whose shape is given for each example."""
    return lambda k: {name: noise(k, *shape(k))}


# Nets written here


class DiffusionUNet(nn.Module):  # type: ignore[misc]
    """A step of denoising: time as sines, residual blocks that it shifts, attention in the middle, skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([ShiftedBlock(width, width), ShiftedBlock(width, 2 * width)])
        self.shrink = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = ShiftedBlock(2 * width, 2 * width)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.ModuleList([ShiftedBlock(4 * width, width), ShiftedBlock(2 * width, width)])
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, pixel_values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        angles = step[:, None] * torch.exp(torch.arange(half) * (-9.2 / half))
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        a = self.down[0](self.enter(pixel_values), time)
        b = self.down[1](self.shrink(a), time)
        c = self.middle(b, time)
        rows = self.norm(c).flatten(2).transpose(1, 2)
        c = c + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(c.shape)
        d = nn.functional.interpolate(self.up[0](torch.cat([c, b], 1), time), scale_factor=2.0, mode="nearest")
        return self.leave(nn.functional.silu(self.up[1](torch.cat([d, a], 1), time)))


class ShiftedBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions with a residual; the time is added between them."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1))
        self.shift = nn.Linear(64, outer)
        self.second = nn.Sequential(nn.GroupNorm(4, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1))
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(x) + self.shift(time)[:, :, None, None]
        return self.second(y) + self.skip(x)


class GraphNet(nn.Module):  # type: ignore[misc]
    """Two layers over the edges of a graph: one adds neighbours by degree, one weighs them by a softmax over edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 32)
        self.weigh = nn.Linear(64, 1)
        self.out = nn.Linear(64, 8)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        count = nodes.shape[0]
        degree = torch.zeros(count).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        x = self.first(nodes)
        x = torch.relu(x + torch.zeros_like(x).index_add(0, target, x[source] / degree[target, None]))
        score = nn.functional.leaky_relu(self.weigh(torch.cat([x[source], x[target]], 1)), 0.2)
        top = torch.full((count, 1), -1e9).scatter_reduce(0, target[:, None], score, "amax")
        power = (score - top[target]).exp()
        share = power / torch.zeros(count, 1).index_add(0, target, power)[target]
        y = torch.zeros_like(x).index_add(0, target, share * self.second(x)[source])
        mean = torch.zeros_like(y).scatter_reduce(0, target[:, None].expand(-1, 32), y[source], "mean")
        return self.out(torch.cat([y, mean], 1))


def _graph(k: int) -> Inputs:
    g = generator(k)
    nodes, edges = ((10, 24), (13, 31))[k]
    return {"nodes": torch.randn(nodes, 16, generator=g), "edges": torch.randint(0, nodes, (2, edges), generator=g)}


class Mixer(nn.Module):  # type: ignore[misc]
    """Patches mixed across places, then across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, stride=8)
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(4)])
        sizes = (16, 32, 16, 32)
        self.mixes = nn.ModuleList(nn.Sequential(nn.Linear(n, 64), nn.GELU(), nn.Linear(64, n)) for n in sizes)
        self.head = nn.Linear(32, 10)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x = self.patches(pixel_values).flatten(2).transpose(1, 2)
        for i in (0, 2):
            x = x + self.mixes[i](self.norms[i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.mixes[i + 1](self.norms[i + 1](x))
        return self.head(x.mean(1))


class TemporalNet(nn.Module):  # type: ignore[misc]
    """Causal convolutions with growing steps, weights normalized."""

    def __init__(self) -> None:
        super().__init__()
        norm = torch.nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(
            norm(nn.Conv1d(8 if not i else 16, 16, 3, dilation=2**i, padding=2 ** (i + 1))) for i in range(3)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        for layer in self.layers:
            y = torch.relu(layer(x)[..., :length])
            x = x + y if x.shape[1] == y.shape[1] else y
        return self.head(x.transpose(1, 2))


class EncoderDecoder(nn.Module):  # type: ignore[misc]
    """nn.Transformer with its masks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.net(source, target, tgt_mask=mask, tgt_is_causal=True)


class SparseNet(nn.Module):  # type: ignore[misc]
    """Clicks: bags of embeddings, their products in pairs, a tower."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(VOCABULARY, 8, mode=mode) for mode in ("sum", "mean")])
        self.bottom = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(11, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(x)
        rows = torch.stack([dense, *(bag(input_ids) for bag in self.bags)], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))
        above = torch.triu_indices(3, 3, 1)
        return self.top(torch.cat([dense, pairs[:, above[0], above[1]]], 1))


# Decoders

_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
}
_LINEAR: dict[str, Any] = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}


def _gemma3n() -> nn.Module:
    import transformers

    config = transformers.Gemma3nTextConfig(
        **{**GROUPED, "intermediate_size": [64, 64, 64, 64], "num_hidden_layers": 4},
        head_dim=8,
        sliding_window=8,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8,
        laurel_rank=8,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    )
    return transformers.Gemma3nForCausalLM(config)


# Images


def _backbone(name: str) -> Any:
    """A small ResNet as part of a detector."""
    import transformers

    return getattr(transformers, name)(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 24],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
        out_indices=None,
    )


def _detector(model: str, config: str, backbone: str = "ResNetConfig", **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return from_transformers(model, config, backbone_config=_backbone(backbone), **options)()

    return make


_DETR: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 10,
}
_TWO_LEVELS: dict[str, Any] = {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 4}


def _mask2former() -> nn.Module:
    import transformers

    swin = transformers.SwinConfig(
        image_size=64, patch_size=4, out_features=["stage1", "stage2", "stage3", "stage4"], **_TWO_LEVELS
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=swin,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        encoder_layers=2,
        decoder_layers=3,
        num_attention_heads=4,
        dim_feedforward=32,
        num_queries=8,
    )
    return transformers.Mask2FormerModel(config)


def _sam() -> nn.Module:
    import transformers

    config = transformers.SamConfig(
        vision_config={
            **PATCHES,
            "image_size": 64,
            "output_channels": 16,
            "window_size": 4,
            "global_attn_indexes": [1],
            "mlp_dim": 64,
            "num_pos_feats": 8,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
    )
    return transformers.SamModel(config)


def _sam2() -> nn.Module:
    import transformers

    config = transformers.Sam2Config(
        vision_config={
            "backbone_config": {
                "model_type": "sam2_hiera_det_model",
                "hidden_size": 8,
                "num_attention_heads": 1,
                "image_size": [64, 64],
                "blocks_per_stage": [1, 1, 2, 1],
                "embed_dim_per_stage": [8, 16, 32, 64],
                "num_attention_heads_per_stage": [1, 2, 4, 8],
                "window_size_per_stage": [8, 4, 4, 4],
                "window_positional_embedding_background_size": [4, 4],
                "global_attention_blocks": [3],
            },
            "backbone_channel_list": [64, 32, 16, 8],
            "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
            "fpn_hidden_size": 16,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 4},
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
    )
    return transformers.Sam2Model(config)


def _points(k: int) -> Inputs:
    batch = SIZES[k][0]
    points = torch.rand(batch, 1, 2, 2, generator=generator(k)) * 64
    return {**image(64)(k), "input_points": points, "input_labels": torch.ones(batch, 1, 2, dtype=torch.int64)}


# Text and images

IMAGE_TOKEN = VOCABULARY - 1


def _with_image_tokens(count: int, size: int = 32) -> Callable[[int], Inputs]:
    """Texts that begin with the places of an image's features."""

    def inputs(k: int) -> Inputs:
        batch, length = SIZES[k]
        words = torch.randint(3, IMAGE_TOKEN, (batch, length), generator=generator(k))
        places = torch.full((batch, count), IMAGE_TOKEN)
        mask = torch.cat([torch.ones(batch, count, dtype=torch.int64), padding_mask(k)], 1)
        return {"input_ids": torch.cat([places, words], 1), "attention_mask": mask, **image(size)(k)}

    return inputs


def _blip2() -> nn.Module:
    import transformers

    config = transformers.Blip2Config(
        vision_config=PATCHES,
        qformer_config={**TEXT_SIZES, "encoder_hidden_size": 32, "cross_attention_frequency": 1},
        text_config={
            **{key: v for key, v in GROUPED.items() if key != "num_key_value_heads"},
            "model_type": "opt",
            "ffn_dim": 64,
            "word_embed_proj_dim": 32,
            "pad_token_id": 1,
        },
        num_query_tokens=4,
        image_token_index=IMAGE_TOKEN,
        image_token_id=IMAGE_TOKEN,
    )
    return transformers.Blip2ForConditionalGeneration(config)


def _florence2() -> nn.Module:
    import transformers

    config = transformers.Florence2Config(
        vision_config={
            "embed_dim": [8, 16, 16, 32],
            "depths": [1, 1, 1, 1],
            "num_heads": [1, 2, 2, 4],
            "num_groups": [1, 2, 2, 4],
            "window_size": 4,
            "projection_dim": 32,
            "max_position_embeddings": 8,
        },
        text_config={
            "model_type": "bart",
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 64,
            "use_cache": False,
        },
        image_token_id=IMAGE_TOKEN,
        is_encoder_decoder=True,
    )
    return transformers.Florence2ForConditionalGeneration(config)


def _florence_inputs(k: int) -> Inputs:
    return {**_with_image_tokens(5, 64)(k), "decoder_input_ids": ids(k)}


def _llava() -> nn.Module:
    import transformers

    config = transformers.LlavaConfig(
        vision_config={**PATCHES, "model_type": "clip_vision_model"},
        text_config={**GROUPED, "model_type": "llama"},
        image_token_id=IMAGE_TOKEN,
        image_token_index=IMAGE_TOKEN,
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config)


def _siglip2(k: int) -> Inputs:
    batch = SIZES[k][0]
    return {
        **text(k),
        "pixel_values": noise(k, 16, 192),
        "pixel_attention_mask": torch.ones(batch, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]] * batch),
    }


# Speech and sound


def _encoder_of(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().get_encoder()


def _speecht5(k: int) -> Inputs:
    return {**text(k), "decoder_input_values": noise(k, SIZES[k][1], 8)}


def _speecht5_model() -> nn.Module:
    return from_transformers(
        "SpeechT5ForTextToSpeech",
        "SpeechT5Config",
        **{key: v for key, v in TEXT_SIZES.items() if key in ("vocab_size", "hidden_size")},
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        speech_decoder_prenet_units=16,
        speech_decoder_prenet_dropout=0.0,
        speech_decoder_postnet_units=16,
        speech_decoder_postnet_layers=2,
        max_text_positions=64,
        max_speech_positions=64,
        speaker_embedding_dim=8,
        use_cache=False,
    )()


def _speecht5_inputs(k: int) -> Inputs:
    return {**_speecht5(k), "speaker_embeddings": noise(k, 8)}


def _musicgen() -> nn.Module:
    import transformers

    config = transformers.MusicgenDecoderConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        hidden_size=32,
        max_position_embeddings=64,
        num_codebooks=2,
        pad_token_id=VOCABULARY - 1,
        bos_token_id=VOCABULARY - 1,
        use_cache=False,
    )
    return transformers.MusicgenForCausalLM(config)


def _codes(k: int) -> Inputs:
    batch, length = SIZES[k]
    return {"input_ids": torch.randint(0, VOCABULARY - 1, (2 * batch, length), generator=generator(k))}


def _encodec() -> nn.Module:
    return from_transformers(
        "EncodecModel",
        "EncodecConfig",
        num_filters=4,
        upsampling_ratios=[4, 2],
        codebook_size=16,
        codebook_dim=16,
        hidden_size=16,
        sampling_rate=1000,
        target_bandwidths=[1.5],
        num_lstm_layers=1,
    )()


def _dac() -> nn.Module:
    return from_transformers(
        "DacModel",
        "DacConfig",
        encoder_hidden_size=4,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=16,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
        hidden_size=16,
    )()


def _vits() -> nn.Module:
    return from_transformers(
        "VitsModel",
        "VitsConfig",
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=32,
        flow_size=16,
        spectrogram_bins=9,
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        upsample_initial_channel=16,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        duration_predictor_num_flows=2,
        wavenet_dilation_rate=1,
        use_stochastic_duration_prediction=False,
        noise_scale=0.0,
        noise_scale_duration=0.0,
    )()


# Other


def _perceiver() -> nn.Module:
    import transformers

    config = transformers.PerceiverConfig(
        num_latents=8,
        d_latents=32,
        d_model=24,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
    )
    return transformers.PerceiverForMaskedLM(config)


_SERIES: dict[str, Any] = {
    "num_input_channels": 3,
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "d_model": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 32,
    "prediction_length": 4,
}


def _series(k: int) -> Inputs:
    return {"past_values": noise(k, 32, 3)}


_WRITE: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
_BEAMS: dict[str, Any] = {**_WRITE, "num_beams": 3}


def _writing(name: str, prefix: str, more: dict[str, Any], model: str = "ForCausalLM", **options: Any) -> TorchModel:
    make = from_transformers(f"{prefix}{model}", f"{prefix}Config", **options)
    return TorchModel(name, make, text, TEXT_DIMS, more)


_BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_WRITTEN_SPEECH = {**WHISPER, "use_cache": True, "begin_suppress_tokens": None, "suppress_tokens": None}
_MOONSHINE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 2,
    "encoder_num_attention_heads": 4,
    "decoder_num_attention_heads": 4,
    "max_position_embeddings": 64,
    "use_cache": False,
}

MODELS: tuple[TorchModel, ...] = (
    TorchModel("mixer", Mixer, image(), IMAGE_DIMS),
    TorchModel("temporal-conv", TemporalNet, only("x", lambda k: (8, (20, 27)[k])), {"x": (0, 2)}),
    TorchModel(
        "nn-transformer",
        EncoderDecoder,
        lambda k: {"source": noise(k, SIZES[k][1], 32), "target": noise(k, SIZES[k][1] - 3, 32)},
        {"source": (0, 1), "target": (0, 1)},
    ),
    TorchModel("gnn", GraphNet, _graph, {"nodes": (0,), "edges": (1,)}),
    TorchModel(
        "recommender", SparseNet, lambda k: {"x": noise(k, 16), "input_ids": ids(k)}, {"x": (0,), "input_ids": (0, 1)}
    ),
    TorchModel(
        "diffusion-unet",
        DiffusionUNet,
        lambda k: {**image()(k), "step": torch.arange(SIZES[k][0]) * 7.0},
        {**IMAGE_DIMS, "step": (0,)},
    ),
    # Text encoders
    encoder("convbert", "ConvBert", embedding_size=16, head_ratio=2, conv_kernel_size=3),
    encoder("fnet", "FNet"),
    encoder("longformer", "Longformer", attention_window=4, pad_token_id=1),
    encoder("squeezebert", "SqueezeBert", embedding_size=32),
    TorchModel("perceiver", _perceiver, text, TEXT_DIMS),
    TorchModel(
        "xlnet",
        from_transformers(
            "XLNetModel", "XLNetConfig", vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=64
        ),
        text,
        TEXT_DIMS,
    ),
    # Decoders with experts
    decoder("mixtral", "Mixtral", num_local_experts=4, sliding_window=None),
    decoder("qwen2-moe", "Qwen2Moe", **_EXPERTS, shared_expert_intermediate_size=32, decoder_sparse_step=1),
    decoder("qwen3-moe", "Qwen3Moe", **_EXPERTS, head_dim=8, decoder_sparse_step=1),
    decoder(
        "qwen3-next",
        "Qwen3Next",
        **_EXPERTS,
        **_LINEAR,
        head_dim=8,
        shared_expert_intermediate_size=32,
        layer_types=["linear_attention", "full_attention"],
    ),
    decoder("deepseek-v2", "DeepseekV2", **_LATENT),
    decoder("deepseek-v3", "DeepseekV3", **_LATENT),
    decoder("gpt-oss", "GptOss", num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=8),
    decoder("phi-moe", "Phimoe", num_local_experts=4, num_experts_per_tok=2),
    decoder("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2),
    decoder("granite-moe", "GraniteMoe", num_local_experts=4, num_experts_per_tok=2),
    # Decoders with states
    decoder("mamba", "Mamba", state_size=4, time_step_rank=4, use_mambapy=False),
    decoder("mamba2", "Mamba2", state_size=4, num_heads=8, head_dim=8, n_groups=2, chunk_size=8),
    decoder("rwkv", "Rwkv", attention_hidden_size=32, context_length=64),
    decoder("xlstm", "xLSTM", num_heads=2, num_blocks=2, embedding_dim=32, chunk_size=8),
    decoder(
        "jamba",
        "Jamba",
        num_experts=2,
        num_experts_per_tok=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        use_mamba_kernels=False,
    ),
    decoder("lfm2", "Lfm2", layer_types=["conv", "full_attention"]),
    TorchModel("gemma3n", _gemma3n, text, TEXT_DIMS),
    # Text that is written
    _writing("llama-generate", "Llama", _WRITE, **{**GROUPED, "use_cache": True}),
    _writing("t5-beams", "T5", _BEAMS, "ForConditionalGeneration", **_T5),
    _writing("bart-beams", "Bart", _BEAMS, "ForConditionalGeneration", **_BART),
    # Images
    vision(
        "efficientnet",
        "EfficientNetModel",
        "EfficientNetConfig",
        width_coefficient=0.25,
        depth_coefficient=0.4,
        hidden_dim=320,
    ),
    vision(
        "levit",
        "LevitModel",
        "LevitConfig",
        64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[1, 2, 3],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    vision(
        "dpt",
        "DPTForDepthEstimation",
        "DPTConfig",
        **{**PATCHES, "num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=8,
        is_hybrid=False,
    ),
    vision(
        "yolos", "YolosForObjectDetection", "YolosConfig", **{**PATCHES, "image_size": [32, 32]}, num_detection_tokens=5
    ),
    TorchModel("detr", _detector("DetrForObjectDetection", "DetrConfig", **_DETR), image(64), IMAGE_DIMS),
    TorchModel(
        "deformable-detr",
        _detector("DeformableDetrForObjectDetection", "DeformableDetrConfig", **_DETR, num_feature_levels=3),
        image(64),
        IMAGE_DIMS,
    ),
    TorchModel(
        "rt-detr",
        _detector(
            "RTDetrForObjectDetection",
            "RTDetrConfig",
            "RTDetrResNetConfig",
            **{key: v for key, v in _DETR.items() if key not in ("encoder_layers",)},
            encoder_layers=1,
            encoder_hidden_dim=32,
            encoder_in_channels=[16, 16, 24],
            decoder_in_channels=[32, 32, 32],
            feat_strides=[8, 16, 32],
            num_denoising=0,
        ),
        image(64),
        IMAGE_DIMS,
    ),
    TorchModel("mask2former", _mask2former, image(64), IMAGE_DIMS),
    TorchModel("sam", _sam, _points, {"pixel_values": (0,), "input_points": (0,), "input_labels": (0,)}),
    TorchModel("sam2", _sam2, _points, {"pixel_values": (0,), "input_points": (0,), "input_labels": (0,)}),
    TorchModel(
        "videomae",
        from_transformers("VideoMAEModel", "VideoMAEConfig", **PATCHES, num_frames=4),
        only("pixel_values", lambda k: (4, 3, 32, 32)),
        IMAGE_DIMS,
    ),
    # Text and images
    TorchModel("blip2", _blip2, _with_image_tokens(4), {**TEXT_DIMS, **IMAGE_DIMS}),
    TorchModel("llava", _llava, _with_image_tokens(16), {**TEXT_DIMS, **IMAGE_DIMS}),
    TorchModel("florence2", _florence2, _florence_inputs, {**TEXT_DIMS, **IMAGE_DIMS, "decoder_input_ids": (0, 1)}),
    TorchModel(
        "siglip2",
        from_transformers(
            "Siglip2Model",
            "Siglip2Config",
            text_config={**TEXT_SIZES, "projection_size": 32},
            vision_config={**{key: v for key, v in PATCHES.items() if key != "image_size"}, "num_patches": 16},
        ),
        _siglip2,
        {**TEXT_DIMS, **IMAGE_DIMS, "pixel_attention_mask": (0,), "spatial_shapes": (0,)},
    ),
    # Speech and sound
    TorchModel(
        "whisper-encoder",
        _encoder_of(from_transformers("WhisperModel", "WhisperConfig", **WHISPER)),
        only("input_features", lambda k: (16, 60)),
        {"input_features": (0,)},
    ),
    TorchModel(
        "whisper-generate",
        from_transformers("WhisperForConditionalGeneration", "WhisperConfig", **_WRITTEN_SPEECH),
        lambda k: {"input_features": whisper(k)["input_features"]},
        {"input_features": (0,)},
        _WRITE,
    ),
    TorchModel(
        "moonshine",
        from_transformers("MoonshineModel", "MoonshineConfig", **_MOONSHINE),
        lambda k: {"input_values": noise(k, (1600, 2100)[k]), "decoder_input_ids": ids(k)},
        {"input_values": (0, 1), "decoder_input_ids": (0, 1)},
    ),
    TorchModel("wavlm", from_transformers("WavLMModel", "WavLMConfig", **SPEECH), speech, {"input_values": (0, 1)}),
    TorchModel(
        "audio-spectrogram",
        from_transformers(
            "ASTModel",
            "ASTConfig",
            **{key: v for key, v in PATCHES.items() if key != "image_size"},
            num_mel_bins=16,
            max_length=32,
            frequency_stride=8,
            time_stride=8,
        ),
        only("input_values", lambda k: (32, 16)),
        {"input_values": (0,)},
    ),
    TorchModel(
        "speecht5",
        _speecht5_model,
        _speecht5_inputs,
        {**TEXT_DIMS, "decoder_input_values": (0, 1), "speaker_embeddings": (0,)},
    ),
    TorchModel("vits", _vits, text, TEXT_DIMS),
    TorchModel("musicgen", _musicgen, _codes, {"input_ids": (0, 1)}),
    TorchModel("encodec", _encodec, only("input_values", lambda k: (1, (160, 240)[k])), {"input_values": (0, 2)}),
    TorchModel("dac", _dac, only("input_values", lambda k: (1, (160, 240)[k])), {"input_values": (0, 2)}),
    # Time series
    TorchModel(
        "patchtst",
        from_transformers("PatchTSTForPrediction", "PatchTSTConfig", **_SERIES),
        _series,
        {"past_values": (0,)},
    ),
    TorchModel(
        "patchtsmixer",
        from_transformers(
            "PatchTSMixerForPrediction",
            "PatchTSMixerConfig",
            context_length=32,
            patch_length=8,
            patch_stride=8,
            num_input_channels=3,
            d_model=16,
            num_layers=2,
            prediction_length=4,
        ),
        _series,
        {"past_values": (0,)},
    ),
)
