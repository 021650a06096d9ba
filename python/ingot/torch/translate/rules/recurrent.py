"""LSTM, GRU and plain recurrent layers, each layer as one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Tensor, Unsupported, static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


@dataclass(frozen=True)
class _Cell:
    op: str
    gates: tuple[int, ...]  # PyTorch's gates in ONNX's order
    attrs: dict[str, Any]


# PyTorch has i f g o and r z n; ONNX has i o f c and z r h.
_LSTM = _Cell("LSTM", (0, 3, 1, 2), {})
_GRU = _Cell("GRU", (1, 0, 2), {"linear_before_reset": 1})


def _plain(activation: str, directions: int) -> _Cell:
    return _Cell("RNN", (0,), {"activations": [activation] * directions})


def _ordered(e: Emitter, w: Tensor, cell: _Cell) -> Tensor:
    """The rows of the gates in ONNX's order."""
    count = len(cell.gates)
    if count == 1:
        return w
    parts = e.ops("Split", [w], [w.dtype] * count, axis=0, num_outputs=count)
    return e.op("Concat", *(parts[g] for g in cell.gates), axis=0, shape=w.shape)


def _stack(e: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    """One entry for each direction."""
    return e.concat([e.unsqueeze(t, 0) for t in tensors], 0)


def _layer(
    e: Emitter, x: Tensor, states: Sequence[Tensor], params: Sequence[Sequence[Tensor]], cell: _Cell
) -> list[Tensor]:
    """x [seq, batch, features] -> y [seq, batch, directions * hidden], and the last states."""
    directions = len(params)
    hidden = static(params[0][1].dims[1], "the size of the state")
    weights = [_stack(e, [_ordered(e, p[i], cell) for p in params]) for i in (0, 1)]
    biases = None
    if len(params[0]) == 4:
        halves = [[_ordered(e, p[i], cell) for i in (2, 3)] for p in params]
        biases = _stack(e, [e.op("Concat", *pair, axis=0, shape=(2 * pair[0].dims[0],)) for pair in halves])
    attrs = {**cell.attrs, "hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
    y, *last = e.ops(cell.op, [x, *weights, biases, None, *states], [x.dtype] * (1 + len(states)), **attrs)
    if directions == 1:
        return [e.op("Squeeze", y, e.ints([1]), shape=[*x.dims[:2], hidden]), *last]
    moved = e.op("Transpose", y, perm=[0, 2, 1, 3], shape=[*x.dims[:2], directions, hidden])
    return [e.reshape(moved, [*x.dims[:2], directions * hidden]), *last]


def _projected_layer(
    e: Emitter, x: Tensor, states: Sequence[Tensor], params: Sequence[Sequence[Tensor]], cell: _Cell
) -> list[Tensor]:
    """An LSTM whose state is P h, with the h of a plain one: R (P h) = (R P) h gives the weights of that. The first
    state is no such product; R times it reaches the gates as an input of the first step, as W x does."""
    h, c = states
    size, hidden = (static(n, "the size of the state") for n in params[0][-1].dims)
    length, batch = x.dims[:2]
    zeros = e.fill([length - 1, batch, size], 0.0, x.dtype)
    starts, plain = [], []
    for i, (w, r, *biases, p) in enumerate(params):
        own = e.slice(h, 0, i, i + 1)
        starts.append(e.concat([own, zeros] if i == 0 else [zeros, own], 0))
        columns = [r if k == i else e.fill(r.dims, 0.0, r.dtype) for k in range(len(params))]
        plain.append([e.concat([w, *columns], 1, w.shape), e.op("MatMul", r, p, shape=(r.dims[0], hidden)), *biases])
    wide = e.concat([x, *starts], 2, x.shape)
    y, last, cells = _layer(e, wide, [e.fill([len(params), batch, hidden], 0.0, x.dtype), c], plain, cell)
    projections = [e.transpose(p[-1], [1, 0]) for p in params]
    parts = [
        e.op("MatMul", e.slice(y, 2, i * hidden, (i + 1) * hidden), p, shape=(length, batch, size))
        for i, p in enumerate(projections)
    ]
    y = e.concat(parts, 2, (length, batch, size * len(params)))
    return [y, e.op("MatMul", last, _stack(e, projections)), cells]


def _recurrent(
    e: Emitter,
    cell: _Cell,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    if train and dropout > 0:
        raise Unsupported("dropout in training")
    directions = 2 if bidirectional else 1
    per_cell = len(params) // (layers * directions)
    layer_of = _projected_layer if per_cell == (5 if has_biases else 3) else _layer
    single = x.rank == 2
    if single:
        x = e.unsqueeze(x, 1)
        states = [e.unsqueeze(s, 1) for s in states]
    elif batch_first:
        x = e.transpose(x, [1, 0, 2])
    cells = [params[i : i + per_cell] for i in range(0, len(params), per_cell)]
    finals: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        first = layer * directions
        own = [e.slice(s, 0, first, first + directions) if layers > 1 else s for s in states]
        x, *last = layer_of(e, x, own, cells[first : first + directions], cell)
        for final, state in zip(finals, last, strict=True):
            final.append(state)
    ends = [e.concat(final, 0) for final in finals]
    if single:
        return [e.squeeze(x, 1), *(e.op("Squeeze", s, e.ints([1])) for s in ends)]
    return [e.transpose(x, [1, 0, 2]) if batch_first else x, *ends]


@rule(aten.lstm.input)
def _lstm(e: Emitter, x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return _recurrent(e, _LSTM, x, hx, params, *rest)


@rule(aten.gru.input)
def _gru(e: Emitter, x: Tensor, hx: Tensor, params: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return _recurrent(e, _GRU, x, [hx], params, *rest)


@rule(aten.rnn_tanh.input)
def _rnn_tanh(e: Emitter, x: Tensor, hx: Tensor, params: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return _recurrent(e, _plain("Tanh", 2 if rest[4] else 1), x, [hx], params, *rest)


@rule(aten.rnn_relu.input)
def _rnn_relu(e: Emitter, x: Tensor, hx: Tensor, params: Sequence[Tensor], *rest: Any) -> list[Tensor]:
    return _recurrent(e, _plain("Relu", 2 if rest[4] else 1), x, [hx], params, *rest)


# torch.ops.ingot.*: see ingot/torch/recurrent.py.
def _whole(name: str, states: int) -> None:
    inner: Any = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}[name]

    @rule(f"ingot.{name}.default")
    def translate(e: Emitter, x: Tensor, *args: Any) -> list[Tensor]:
        hx = args[0] if states == 1 else args[:states]
        params, has_biases, layers, bidirectional, batch_first = args[states:]
        result: list[Tensor] = inner(e, x, hx, params, has_biases, layers, 0.0, False, bidirectional, batch_first)
        return result


for _name, _states in (("lstm", 2), ("gru", 1), ("rnn_tanh", 1), ("rnn_relu", 1)):
    _whole(_name, _states)
