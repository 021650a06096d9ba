"""Smoothing: a linear layer whose input has a few channels much larger than the others loses these in 8 bits. The layer
normalization before it gives every channel smaller by a factor, and the weight is larger by the same: the float model
stays what it was. With a the largest magnitudes of the input, and w those of the weight, of a channel, the factor is
a^alpha / w^(1 - alpha).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ingot.torch_quantizer.batches import Arguments

aten = torch.ops.aten


class Largest(nn.Module):  # type: ignore[misc]
    """The largest magnitude of each channel seen so far."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        now = x.detach().abs().flatten(0, -2).amax(0)
        self.seen = now if self.seen is None else torch.maximum(self.seen, now)
        return x


def smooth(graph: GraphModule, calls: Iterable[Arguments], alpha: float) -> int:
    """Changes a captured graph, and returns how many normalizations now smooth."""
    found = [norm for norm in graph.graph.find_nodes(op="call_function", target=aten.layer_norm.default) if _fits(norm)]
    observers: list[tuple[Node, Node, Largest]] = []
    for i, norm in enumerate(found):
        observer = Largest()
        graph.add_submodule(f"_largest_{i}", observer)
        users = list(norm.users)
        with graph.graph.inserting_after(norm):
            seen = graph.graph.call_module(f"_largest_{i}", (norm,))
        for user in users:
            user.replace_input_with(norm, seen)
        observers.append((norm, seen, observer))
    graph.recompile()
    with torch.no_grad():
        for args, kwargs in calls:
            graph(*args, **kwargs)
    for norm, seen, observer in observers:
        seen.replace_all_uses_with(norm)
        graph.graph.erase_node(seen)
        graph.delete_submodule(str(seen.target))
        if observer.seen is not None:
            _scale(graph, norm, observer.seen, alpha)
    graph.recompile()
    return len(observers)


def _fits(norm: Node) -> bool:
    """Over the last dim, with a weight and a bias, and read by nothing but linear layers."""
    shape, *parameters = norm.args[1:4] if len(norm.args) >= 4 else ([],)
    learned = len(parameters) == 2 and all(isinstance(p, Node) and p.op == "get_attr" for p in parameters)
    return learned and len(shape) == 1 and bool(norm.users) and all(_is_linear(user, norm) for user in norm.users)


def _is_linear(user: Node, source: Node) -> bool:
    if user.target is not aten.linear.default or user.args[0] is not source:
        return False
    return isinstance(user.args[1], Node) and user.args[1].op == "get_attr"


def _scale(graph: GraphModule, norm: Node, largest: Tensor, alpha: float) -> None:
    layers = list(norm.users)
    weights = [_held(graph, layer.args[1]) for layer in layers]
    most = torch.stack([w.abs().amax(0) for w in weights]).amax(0).clamp_min(1e-5)
    factor = (largest.clamp_min(1e-5) ** alpha / most ** (1 - alpha)).clamp_min(1e-5)
    for index in (2, 3):
        _replace(graph, norm, index, _held(graph, norm.args[index]) / factor)
    for layer, weight in zip(layers, weights, strict=True):
        _replace(graph, layer, 1, weight * factor)


def _held(graph: GraphModule, node: Any) -> Tensor:
    value: Tensor = operator.attrgetter(str(node.target))(graph)
    return value.detach()


def _replace(graph: GraphModule, node: Node, index: int, value: Tensor) -> None:
    """As a parameter of the graph's own: the model's is shared."""
    name = f"_smooth_{node.name}_{index}"
    graph.register_parameter(name, nn.Parameter(value, requires_grad=False))
    with graph.graph.inserting_before(node):
        new = graph.graph.get_attr(name)
    new.meta = dict(node.args[index].meta)
    node.update_arg(index, new)
