"""Makes a small BERT classifier of sentence pairs and trains it, offline, in about a minute.

python examples/mrpc/train.py --output_dir=build/mrpc/model: the model, its tokenizer, train.tsv and dev.tsv
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from sentences import Pair, make_pairs, vocabulary, write_pairs
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer


def make_tokenizer(folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {word: index for index, word in enumerate(vocabulary())}
    BertTokenizer(vocab=vocab).save_pretrained(folder)
    return BertTokenizer.from_pretrained(folder)


def make_model(words: int, hidden: int, layers: int) -> nn.Module:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=words,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,  # small models learn sooner from larger weights
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def encode(tokenizer: Any, pairs: list[Pair]) -> dict[str, torch.Tensor]:
    texts = [pair.first for pair in pairs], [pair.second for pair in pairs]
    return dict(tokenizer(*texts, padding=True, truncation=True, max_length=64, return_tensors="pt"))


def train(model: nn.Module, tokenizer: Any, pairs: list[Pair], steps: int, batch: int = 64) -> None:
    inputs, labels = encode(tokenizer, pairs), torch.tensor([pair.label for pair in pairs])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(2)
    start = time.perf_counter()
    model.train()
    for step in range(steps):
        chosen = torch.randint(0, len(pairs), (batch,), generator=random)
        logits = model(**{name: tensor[chosen] for name, tensor in inputs.items()}).logits
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % max(steps // 10, 1) == 0:
            print(
                f"  step {step + 1} of {steps}: loss {loss.item():.3f}, {time.perf_counter() - start:.0f} s", flush=True
            )
    model.eval()


def accuracy(model: nn.Module, tokenizer: Any, pairs: list[Pair]) -> float:
    with torch.no_grad():
        found = model(**encode(tokenizer, pairs)).logits.argmax(-1)
    return float((found == torch.tensor([pair.label for pair in pairs])).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small BERT classifier of sentence pairs.")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a model as small as this one waits for more
    folder: Path = options.output_dir
    tokenizer = make_tokenizer(folder)
    pairs, held_out = make_pairs(12000, seed=1), make_pairs(1000, seed=2)
    write_pairs(folder / "train.tsv", pairs)
    write_pairs(folder / "dev.tsv", held_out)
    model = make_model(len(vocabulary()), options.hidden, options.layers)
    train(model, tokenizer, pairs, options.steps)
    model.save_pretrained(folder)
    print(f"{folder}: accuracy {accuracy(model, tokenizer, held_out):.1%} on {len(held_out)} pairs it has not seen")


if __name__ == "__main__":
    main()
