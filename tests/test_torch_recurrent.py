"""Recurrent layers under both forms of the backend: one artifact for sequences of any length, with right gradients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import ingot.torch
from ingot.torch import FallbackWarning
from ingot.torch.report import collect

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = kind(5, 6, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        y, state = self.net(x)
        return self.head(y), state


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_artifact_for_all_lengths_under_torch_compile(kind: str) -> None:
    model = Net(KINDS[kind]).eval()
    counter = CompileCounterWithBackend("ingot")
    with torch.no_grad(), ingot.torch.whole_recurrent_layers():
        fast = torch.compile(model, backend=counter, fullgraph=True)
        ingot.torch.clear_cache()
        before = ingot.torch.cache_info().misses
        for batch, length in ((2, 4), (3, 7), (5, 12)):
            x = torch.randn(batch, length, 5)
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 1)
            same(fast(x), model(x))
    assert counter.frame_count == 1 and ingot.torch.cache_info().misses == before + 1


@pytest.mark.parametrize("kind", KINDS)
def test_one_artifact_for_all_lengths_of_the_wrapper(kind: str) -> None:
    model = Net(KINDS[kind]).eval()
    fast = ingot.torch.compile(model, dynamic=True, strict=True)
    ingot.torch.clear_cache()
    before = ingot.torch.cache_info().misses
    with torch.no_grad():
        for batch, length in ((2, 4), (3, 7), (5, 12)):
            x = torch.randn(batch, length, 5)
            same(fast(x), model(x))
    assert fast.ingot_captures == 1 and ingot.torch.cache_info().misses == before + 1


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_at_two_lengths(kind: str) -> None:
    model = Net(KINDS[kind])
    fast = ingot.torch.compile(model, dynamic=True)

    def gradients(function: Any, x: torch.Tensor) -> list[torch.Tensor]:
        x = x.clone().requires_grad_()
        y, state = function(x)
        last = state[0] if isinstance(state, tuple) else state
        (y.square().sum() + last.sum()).backward()
        found = [x.grad, *(p.grad for p in model.parameters())]
        model.zero_grad()
        return found

    with collect() as report:
        for batch, length in ((2, 4), (3, 7)):
            x = torch.randn(batch, length, 5)
            same(gradients(fast, x), gradients(model, x))
    assert fast.ingot_captures == 1
    assert len(report.fallbacks) == 1 and "_backward" in report.fallbacks[0].operator


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_projections_layers_directions_and_given_states() -> None:
    for layers, bidirectional, bias, given in itertools.product((1, 2), (False, True), (False, True), (False, True)):
        net = nn.LSTM(5, 6, layers, bias=bias, bidirectional=bidirectional, proj_size=3).eval()
        fast = ingot.torch.compile(net, dynamic=True, strict=True)
        cells = layers * (2 if bidirectional else 1)
        with torch.no_grad():
            for batch, length in ((2, 4), (3, 7)):
                states = (torch.randn(cells, batch, 3), torch.randn(cells, batch, 6))
                args = (torch.randn(length, batch, 5), *([states] if given else []))
                same(fast(*args), net(*args))
        assert fast.ingot_captures == 1


def test_without_a_batch() -> None:
    net = nn.GRU(5, 6).eval()
    fast = ingot.torch.compile(net, dynamic=True, strict=True)
    with torch.no_grad():
        for length in (4, 7):
            x = torch.randn(length, 5)
            same(fast(x), net(x))


def test_models_with_packed_sequences_are_compiled_in_parts() -> None:
    class Packed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.GRU(5, 6, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, state = self.net(packed)
            return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], state

    model, args = Packed().eval(), (torch.randn(3, 7, 5), torch.tensor([3, 7, 2]))
    with torch.no_grad():
        with pytest.warns(FallbackWarning, match="compiled in parts"):
            fast = ingot.torch.compile(model)
            for _ in range(2):  # the first call finds it out
                same(fast(*args), model(*args))
        with ingot.torch.whole_recurrent_layers():
            same(torch.compile(model, backend="ingot")(*args), model(*args))


def test_dropout_between_layers_is_random() -> None:
    for kind in (nn.LSTM, nn.GRU):
        net = kind(5, 6, num_layers=2, dropout=0.5, bidirectional=True)
        fast, x = ingot.torch.compile(net), torch.ones(4, 2, 5)
        with pytest.warns(FallbackWarning, match="bernoulli"):
            first = fast(x)[0]
        assert first.requires_grad and not torch.equal(first, fast(x)[0])
        net.eval()
        with torch.no_grad():
            same(fast(x), net(x))
        net.train().dropout = 1e-9  # now and then one element of a billion
        with collect():
            same(fast(x), net(x))


def test_tracing_is_as_before_once_removed() -> None:
    gru = torch.ops.aten.gru.input
    before = dict(gru.py_kernels)
    handle = ingot.torch.whole_recurrent_layers()
    assert torch._dynamo.config.allow_rnn and gru.py_kernels != before
    handle.remove()
    handle.remove()
    assert not torch._dynamo.config.allow_rnn and gru.py_kernels == before


def test_explain_says_that_dynamo_leaves_out_recurrent_layers() -> None:
    report = ingot.torch.explain(Net(nn.GRU).eval(), torch.randn(2, 4, 5))
    assert any("GRU" in reason for reason in report.breaks)
