"""Llama-like models with random weights as llama.cpp reads them: a GGUF file, Q4_0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from models import CACHE, RECIPE

if TYPE_CHECKING:
    from pathlib import Path


def gguf_path(name: str, vocabulary: int, layers: int, heads: int, key_heads: int, width: int, middle: int) -> Path:
    path: Path = CACHE / f"llama-{name}-{RECIPE}.gguf"
    if path.exists():
        return path
    import gguf

    CACHE.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    beside = path.with_suffix(".new")
    writer = gguf.GGUFWriter(beside, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(middle)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{i}>".encode() for i in range(vocabulary)])
    writer.add_token_scores([0.0] * vocabulary)
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)

    def add(tensor: str, rows: int, columns: int) -> None:
        weight = random.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        kind = gguf.GGMLQuantizationType.Q4_0
        writer.add_tensor(f"{tensor}.weight", gguf.quants.quantize(weight, kind), raw_dtype=kind)

    def add_ones(tensor: str) -> None:
        writer.add_tensor(f"{tensor}.weight", np.ones(width, np.float32))

    keys = width // heads * key_heads
    add("token_embd", vocabulary, width)
    for layer in range(layers):
        block = f"blk.{layer}"
        for tensor, rows, columns in (
            ("attn_q", width, width),
            ("attn_k", keys, width),
            ("attn_v", keys, width),
            ("attn_output", width, width),
            ("ffn_gate", middle, width),
            ("ffn_up", middle, width),
            ("ffn_down", width, middle),
        ):
            add(f"{block}.{tensor}", rows, columns)
        add_ones(f"{block}.attn_norm")
        add_ones(f"{block}.ffn_norm")
    add_ones("output_norm")
    add("output", vocabulary, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    beside.rename(path)
    return path
