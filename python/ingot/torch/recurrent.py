"""Recurrent layers as operators that a tracer does not look into.

PyTorch traces aten.lstm and the like step by step, which fixes the number of steps. torch.ops.ingot.lstm, gru, rnn_tanh
and rnn_relu compute the same for inference and stay whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

library = torch.library.Library("ingot", "DEF")  # operators of our own
_ARGUMENTS = "Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first"


def _shape(x: Tensor, state: Tensor, params: Sequence[Tensor], bidirectional: bool) -> list[Any]:
    return [*x.shape[:-1], state.shape[-1] * (2 if bidirectional else 1)]


def _define(name: str, function: Callable[..., Any], states: int) -> Callable[..., Any]:
    given = ", ".join(f"Tensor state{i}" for i in range(states))
    results = ", ".join(["Tensor"] * (1 + states))
    library.define(f"{name}(Tensor x, {given}, {_ARGUMENTS}) -> ({results})")

    def compute(x: Tensor, *args: Any) -> Any:
        hx = args[0] if states == 1 else list(args[:states])
        params, has_biases, num_layers, bidirectional, batch_first = args[states:]
        return function(x, hx, params, has_biases, num_layers, 0.0, False, bidirectional, batch_first)

    def shapes(x: Tensor, *args: Any) -> Any:
        params, _, _, bidirectional, _ = args[states:]
        return (x.new_empty(_shape(x, args[0], params, bidirectional)), *(torch.empty_like(s) for s in args[:states]))

    library.impl(name, compute, "CPU")
    torch.library.register_fake(f"ingot::{name}", shapes, lib=library)
    operator = getattr(torch.ops.ingot, name)

    def call(x: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
        found = operator(x, *((hx,) if states == 1 else hx), list(params), *rest)
        return tuple(found)

    return call


lstm = _define("lstm", torch.lstm, 2)
gru = _define("gru", torch.gru, 1)
rnn_tanh = _define("rnn_tanh", torch.rnn_tanh, 1)
rnn_relu = _define("rnn_relu", torch.rnn_relu, 1)
