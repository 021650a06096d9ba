"""Training under the backend: forward and backward compiled as wholes, gradients equal to eager's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import ingot.torch
from ingot.torch.report import collect

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

WORDS = 20


class Transformer(nn.Module):  # type: ignore[misc]
    """Embedding, attention, LayerNorm, GELU; with cross-entropy."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, activation="gelu", batch_first=True)
        self.head = nn.Linear(16, WORDS)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layer(self.words(ids)))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=3)


class Convolutions(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, dilation=2, bias=False),
            nn.GroupNorm(4, 16),
            nn.SiLU(),
            nn.ConvTranspose2d(16, 8, 3, stride=2, output_padding=1),
            nn.AvgPool2d(2, ceil_mode=True, padding=1, count_include_pad=False),
            nn.LogSigmoid(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(x), labels, label_smoothing=0.1)


def random(*shape: int, high: int = WORDS) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "transformer": (Transformer, (random(4, 9), random(4, 9, high=10))),
    "convolutions": (Convolutions, (torch.randn(3, 3, 15, 17), random(3, high=5))),
}


def losses_and_gradients(model: nn.Module, step: Any, args: Any, count: int) -> list[Any]:
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(count):
        optimizer.zero_grad()
        loss = step(*args)
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
        optimizer.step()
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", ["dynamo", "wrapper"])
def test_a_training_loop_compiles_whole(name: str, form: str) -> None:
    make, args = MODELS[name]

    def train(form_of: Callable[[nn.Module], Any]) -> list[Any]:
        torch.manual_seed(1)
        model = make()
        return losses_and_gradients(model, form_of(model), args, 5)

    expected = train(lambda m: m)
    with collect() as report:
        found = train(
            ingot.torch.compile if form == "wrapper" else lambda m: torch.compile(m, backend="ingot", fullgraph=True)
        )
    assert not report.fallbacks and not report.problems
    assert [g.kind for g in report.graphs] == ["forward", "backward"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def gradients_of(function: Callable[..., Any], *args: Any) -> list[torch.Tensor]:
    leaves = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    result = function(*leaves)
    weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).sin()
    (result * weights).sum().backward()
    return [a.grad for a in leaves if isinstance(a, torch.Tensor) and a.grad is not None]


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, dilation=2), ((2, 3, 20), (4, 3, 3), (4,))),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=(3, 2), padding=(2, 1)), ((2, 3, 11, 9), (4, 3, 4, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), ((2, 2, 5, 6, 7), (3, 2, 3, 3, 3))),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        ((2, 3, 5, 6), (3, 4, 3, 3), (4,)),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, padding=1), ((2, 3, 8, 9),)),
    "avg_pool2d, edges": (
        lambda x: F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=False),
        ((3, 8, 10),),
    ),
    "avg_pool2d, divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), ((2, 3, 8, 9),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), ((2, 3, 4, 6, 5),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 1)), ((2, 3, 8, 9),)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), ((2, 3, 4, 5, 6),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True), ((2, 3, 8, 9),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), ((3, 4, 6, 5),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), ((2, 3, 8, 9),)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), ((2, 4, 6, 6),)),
    "logsigmoid": (F.logsigmoid, ((4, 5),)),
    "attention": (F.scaled_dot_product_attention, ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))),
    "attention, causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        ((2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)),
    ),
    "attention, mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 7).tril(2).bool()),
        ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    torch.manual_seed(3)
    args = [torch.randn(shape) for shape in shapes]
    with collect() as report:
        found = gradients_of(torch.compile(function, backend="ingot"), *args)
    assert not report.fallbacks, report
    torch.testing.assert_close(found, gradients_of(function, *args), rtol=1e-4, atol=1e-5)


def test_gradients_with_free_sizes() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, w, stride=2, padding=1)
        return F.avg_pool2d(F.max_pool2d(y, 2), 2, 1)

    fast, w = torch.compile(f, backend="ingot", fullgraph=True), torch.randn(4, 3, 3, 3)
    with collect() as report:
        for n, size in ((2, 16), (3, 21), (5, 18)):
            x = torch.randn(n, 3, size, size + 2)
            for d in (0, 2, 3):
                torch._dynamo.maybe_mark_dynamic(x, d)
            torch.testing.assert_close(gradients_of(fast, x, w), gradients_of(f, x, w), rtol=1e-4, atol=1e-5)
    assert not report.fallbacks


def test_embedding_gradients_add_up() -> None:
    """Words that occur several times, and the one that stands for nothing."""
    for options in ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True}):
        table = nn.Embedding(6, 4, **options)
        ids = torch.tensor([[1, 2, 1], [1, 5, 2]])

        def gradient(call: Any, ids: torch.Tensor = ids, table: nn.Embedding = table) -> Any:
            table.zero_grad()
            (call(ids) * torch.arange(24.0).reshape(2, 3, 4)).sum().backward()
            return table.weight.grad.clone()

        torch._dynamo.reset()
        with collect() as report:
            found = gradient(torch.compile(table, backend="ingot"))
        assert not report.fallbacks
        torch.testing.assert_close(found, gradient(table))


def test_dropout_makes_only_its_mask_in_eager() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x @ w, 0.5).relu() + 1, 0.25)

    x, w = torch.ones(64, 32), torch.full((32, 50), 1 / 32, requires_grad=True)
    with collect() as report:
        y = torch.compile(f, backend="ingot")(x, w)
        y.sum().backward()
    assert {f.operator for f in report.fallbacks} == {"aten.bernoulli.p"} and len(report.fallbacks) == 2
    assert [g.blocks for g in report.graphs] == [2, 1]
    found = {
        round(v, 4): n / y.numel() for v, n in zip(*(t.tolist() for t in y.unique(return_counts=True)), strict=True)
    }
    assert found.keys() == {0.0, round(1 / 0.75, 4), round(3 / 0.75, 4)}
    assert found[0.0] == pytest.approx(0.25, abs=0.05) and found[4.0] == pytest.approx(0.375, abs=0.05)
    # The gradient goes where the numbers came from.
    kept = (y == 4).sum(0) * 2 / 0.75
    torch.testing.assert_close(w.grad[0], kept.float())


def test_dropout_draws_as_eager_does() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.25).permute(2, 0, 1)  # random numbers follow the order in memory, not that of dims
        return F.dropout(y, 0.5) + F.dropout(x[:, :, :1].expand(5, 6, 7).permute(2, 0, 1), 0.5)

    x = torch.randn(5, 6, 7, requires_grad=True)
    torch.manual_seed(4)
    want = f(x)
    torch.manual_seed(4)
    torch.testing.assert_close(torch.compile(f, backend="ingot")(x), want)


def test_attention_with_dropout_trains() -> None:
    torch.manual_seed(0)
    model = Transformer(0.3)
    with collect() as report:
        loss = torch.compile(model, backend="ingot")(*MODELS["transformer"][1])
        loss.backward()
    assert all(f.operator == "aten.bernoulli.p" for f in report.fallbacks)
    assert torch.isfinite(loss) and all(torch.isfinite(p.grad).all() for p in model.parameters())
