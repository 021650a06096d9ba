"""Trains a small transformer with dropout by AdamW in eager, under Ingot and under inductor, and compares the losses.

    python bench/training.py [--steps 200] [--backends ingot,inductor]

All start from the same weights and see the same batches. Dropout draws from PyTorch's generator in all of them
(inductor: fallback_random), so that only rounding makes the curves differ: it grows with every step. Ingot is to be as
close to eager as inductor is.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WORDS, LENGTH, BATCH = 32, 12, 16
SHOWN = (1, 10, 50, 100, 150, 200)


class Writer(nn.Module):  # type: ignore[misc]
    """Says for each word of a sequence which comes next."""

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.head(self.layers(x, mask, is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def batches(steps: int) -> list[torch.Tensor]:
    """Sequences with a rule in them: each word is the sum of the two before it, most of the time."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(steps):
        rows = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        noise = torch.rand(rows.shape, generator=generator) < 0.1
        for i in range(2, LENGTH + 1):
            rows[:, i] = torch.where(noise[:, i], rows[:, i], (rows[:, i - 1] + rows[:, i - 2]) % WORDS)
        made.append(rows)
    return made


def losses(backend: str | None, steps: int) -> list[float]:
    """The loss of every step; backend None is eager."""
    torch.manual_seed(0)
    model = Writer().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    torch._dynamo.reset()
    run = model if backend is None else torch.compile(model, backend=backend)
    torch.manual_seed(2)
    curve = []
    for rows in batches(steps):
        optimizer.zero_grad()
        loss = run(rows[:, :-1], rows[:, 1:])
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return curve


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--backends", default="ingot,inductor", help="of torch.compile, with commas between them")
    options = parser.parse_args()
    if "inductor" in options.backends:
        import torch._inductor.config as inductor

        inductor.fallback_random = True
    eager = losses(None, options.steps)
    print(f"loss in eager: {eager[0]:.4f} at first, {eager[-1]:.4f} after {options.steps} steps")
    shown = [step for step in SHOWN if step < options.steps] + [options.steps]
    print("| difference from eager | " + " | ".join(f"up to step {s}" for s in shown) + " | mean |")
    print("|---" * (len(shown) + 2) + "|")
    for backend in options.backends.split(","):
        apart = [abs(a - b) for a, b in zip(losses(backend, options.steps), eager, strict=True)]
        cells = [f"{max(apart[:step]):.1e}" for step in shown]
        print(f"| {backend} | {' | '.join(cells)} | {sum(apart) / len(apart):.1e} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
