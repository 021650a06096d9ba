"""LSTM, GRU and plain recurrent layers, dynamically quantized or not, and cells.

ONNX has no integer LSTM or GRU: their weights stay integers, their activations floats. Cells are written with products,
and these are quantized as any other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.errors import UnsupportedError
from ingot.exporter.reference.mode import ReferenceMode, handles, real
from ingot.exporter.reference.products import dynamic
from ingot.exporter.weights import CellWeights, HalfWeight, QuantizedWeight
from ingot.torch import recurrent


def _flat(params: list[Any]) -> list[Tensor]:
    if not all(isinstance(p, CellWeights) for p in params):
        raise UnsupportedError("a quantized recurrent module on a packed sequence", "pass a padded tensor")
    return [tensor for cell in params for tensor in cell.flat()]


def _register_quantized(name: str) -> None:
    @handles(f"quantized_{name}")
    def layer(mode: ReferenceMode, x: Tensor, hx: Any, params: list[Any], *rest: Any, **_: Any) -> Any:
        has_biases, num_layers, _dropout, _train, bidirectional, *batch_first = rest
        call = getattr(recurrent, name)
        return call(x, hx, _flat(params), has_biases, num_layers, bidirectional, bool(batch_first and batch_first[0]))


def _register_float(name: str) -> None:
    @handles(name)
    def layer(mode: ReferenceMode, x: Tensor, hx: Any, params: Any, *rest: Any) -> Any:
        if len(rest) != 6 or not isinstance(params, list | tuple) or isinstance(params, Tensor):
            return NotImplemented  # packed sequences
        has_biases, num_layers, _, _, bidirectional, batch_first = rest
        call = getattr(recurrent, name)
        return call(x, hx, [real(p) for p in params], has_biases, num_layers, bidirectional, batch_first)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _register_float(_name)
for _name in ("lstm", "gru"):
    _register_quantized(_name)


Weight = QuantizedWeight | HalfWeight


def _gates(mode: ReferenceMode, x: Tensor, weight: Weight) -> Tensor:
    """The bias is the packed one: PyTorch's kernels do not look at the biases they are given beside it."""
    operand = dynamic(mode, x, True) if isinstance(weight, QuantizedWeight) else x
    return torch.nn.functional.linear(operand, weight.real(), weight.bias)


@handles("quantized::quantized_lstm_cell_dynamic")
def lstm_cell(
    mode: ReferenceMode, x: Tensor, hx: Any, w_ih: Weight, w_hh: Weight, *biases: Tensor
) -> tuple[Tensor, Tensor]:
    h, c = hx
    i, f, g, o = (_gates(mode, x, w_ih) + _gates(mode, h, w_hh)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@handles("quantized::quantized_gru_cell_dynamic")
def gru_cell(mode: ReferenceMode, x: Tensor, h: Tensor, w_ih: Weight, w_hh: Weight, *biases: Tensor) -> Tensor:
    r_x, z_x, n_x = _gates(mode, x, w_ih).chunk(3, 1)
    r_h, z_h, n_h = _gates(mode, h, w_hh).chunk(3, 1)
    z = torch.sigmoid(z_x + z_h)
    n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return (h - n) * z + n


@handles("quantized::quantized_rnn_tanh_cell_dynamic")
def rnn_tanh_cell(mode: ReferenceMode, x: Tensor, h: Tensor, w_ih: Weight, w_hh: Weight, *biases: Tensor) -> Tensor:
    return torch.tanh(_gates(mode, x, w_ih) + _gates(mode, h, w_hh))


@handles("quantized::quantized_rnn_relu_cell_dynamic")
def rnn_relu_cell(mode: ReferenceMode, x: Tensor, h: Tensor, w_ih: Weight, w_hh: Weight, *biases: Tensor) -> Tensor:
    return torch.relu(_gates(mode, x, w_ih) + _gates(mode, h, w_hh))
