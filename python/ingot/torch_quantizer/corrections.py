"""What rounded weights change on average, put right: the recipes fast_bias_correction and weight_correction.

bias   += (w - r) E[x]            r: the rounded weight; E[x]: the mean of each input channel on the calibration data
scale  *= std(w) / std(r)         of each output channel, so that r varies as much as w
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from ingot.torch_quantizer.weight_only.sequence import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten


@dataclass
class Seen:
    """Of one product in the float model."""

    weight: Tensor
    sum: Tensor  # of each input channel
    count: int = 0


class Watch(Interpreter):  # type: ignore[misc]
    """Runs a prepared graph and remembers what its products are fed with."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.seen: dict[str, Seen] = {}

    def run_node(self, node: Node) -> Any:
        if node.op == "call_function" and node.target in PRODUCTS:
            x, weight = (self.env[arg] for arg in node.args[:2])
            channels = x.shape[-1] if node.target is aten.linear.default else x.shape[1]
            axis = x.dim() - 1 if node.target is aten.linear.default else 1
            seen = self.seen.setdefault(node.name, Seen(weight.detach(), torch.zeros(channels)))
            seen.sum += x.sum([dim for dim in range(x.dim()) if dim != axis])
            seen.count += x.numel() // channels
        return super().run_node(node)


def correct(graph: GraphModule, seen: dict[str, Seen], recipes: Sequence[str]) -> None:
    """Changes a converted graph."""
    for node in list(graph.graph.nodes):
        if node.name not in seen or node.target not in PRODUCTS or "dequantize" not in str(node.args[1].target):
            continue
        known = seen[node.name]
        if "weight_correction" in recipes:
            _correct_weight(graph, node.args[1], known.weight)
        if "fast_bias_correction" in recipes:
            off = known.weight - _value(graph, node.args[1])
            mean = known.sum / max(known.count, 1)
            # Of a convolution in groups each output reads the channels of its group.
            mean = mean.unflatten(0, (-1, off.shape[1])).repeat_interleave(len(off) * off.shape[1] // len(mean), 0)
            _add_to_bias(graph, node, (off.flatten(2).sum(2) if off.dim() > 2 else off).mul(mean).sum(1))
    graph.recompile()


def _value(graph: GraphModule, node: Any) -> Any:
    """Of a constant, or of what is computed from constants."""
    if not isinstance(node, Node):
        return node
    if node.op == "get_attr":
        return operator.attrgetter(str(node.target))(graph).detach()
    return node.target(*(_value(graph, arg) for arg in node.args), **node.kwargs)


def _correct_weight(graph: GraphModule, pair: Node, weight: Tensor) -> None:
    if "per_channel" not in str(pair.target) or pair.args[3] != 0:
        return
    varied = weight.flatten(1).std(1) / _value(graph, pair).flatten(1).std(1).clamp_min(1e-30)
    varied = torch.where(varied.isfinite() & (varied > 0), varied, 1.0)
    name = f"_corrected_{pair.name}"
    graph.register_buffer(name, _value(graph, pair.args[1]) * varied)
    _read(graph, pair, 1, name)


def _add_to_bias(graph: GraphModule, node: Node, shift: Tensor) -> None:
    bias = node.args[2] if len(node.args) > 2 else None
    name = f"_corrected_{node.name}"
    graph.register_buffer(name, shift if bias is None else _value(graph, bias) + shift)
    if len(node.args) == 2:
        node.args = (*node.args, None)
    _read(graph, node, 2, name)


def _read(graph: GraphModule, node: Node, index: int, name: str) -> None:
    before = node.args[index]
    with graph.graph.inserting_before(node):
        new = graph.graph.get_attr(name)
    value = getattr(graph, name)
    new.meta = dict(before.meta) if isinstance(before, Node) else {"val": value}
    node.update_arg(index, new)
