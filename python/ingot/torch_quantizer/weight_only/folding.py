"""Where a factor of a layer's input can go instead: into the parameters of what made the input, if no other reads it.

    normalization(x) -> layer;  x * parameter -> layer;  layer -> layer;
and between the two what commutes with positive factors: relu, dropout, pooling, the product with something else.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from ingot.torch_quantizer.graphs import path_of
from ingot.torch_quantizer.weight_only.sequence import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Collection

aten = torch.ops.aten
# Normalizations, with the positions of their weight and bias, and the axis of their channels.
NORMALIZATIONS = {
    aten.layer_norm.default: (2, 3, -1),
    aten.rms_norm.default: (2, None, -1),
    aten.batch_norm.default: (1, 2, 1),
    aten.group_norm.default: (2, 3, 1),
}
ELEMENTWISE = {
    aten.relu.default,
    aten.relu_.default,
    aten.leaky_relu.default,
    aten.leaky_relu_.default,
    aten.dropout.default,
    aten.clone.default,
    aten.alias.default,
    aten.contiguous.default,
}
POOLS = {
    aten.max_pool2d.default,
    aten.avg_pool2d.default,
    aten.adaptive_avg_pool2d.default,
    aten.max_pool1d.default,
    aten.avg_pool1d.default,
    aten.adaptive_avg_pool1d.default,
}


@dataclass(frozen=True)
class Place:
    """Parameters of the model by name, or a layer, of which each row is divided by a factor."""

    parameters: tuple[str, ...] = ()
    layer: str = ""


def place_of(made: Any, users: Collection[Node], axis: int) -> Place | None:
    """For a value that only `users` read; axis: of its channels, 1 or -1."""
    if not isinstance(made, Node) or made.op != "call_function" or not set(made.users) <= set(users):
        return None
    if made.target in NORMALIZATIONS:
        weight, bias, found = NORMALIZATIONS[made.target]
        whole = made.target is aten.layer_norm.default and len(made.args[1]) != 1
        parts = [made.args[i] for i in (weight, bias) if i is not None and i < len(made.args)]
        given = [part for part in parts if part is not None]
        named = _parameters(given)
        if found != axis or whole or not named or parts[0] is None:
            return None
        return Place(parameters=named)
    if made.target in PRODUCTS:
        found = -1 if made.target is aten.linear.default else 1
        named = _parameters([part for part in made.args[1:3] if isinstance(part, Node)])
        return Place(layer=path_of(made)) if found == axis and named else None
    if made.target in ELEMENTWISE or (made.target in POOLS and axis == 1):
        return place_of(made.args[0], [made], axis)
    if made.target is aten.slice.Tensor and _axis(made, 1) != axis % made.meta["val"].dim():
        return place_of(made.args[0], [made], axis)
    if made.target is aten.mul.Tensor:
        return _place_of_product(made, axis)
    return None


def _axis(node: Node, index: int) -> int:
    """An argument that is an axis."""
    given = node.args[index] if len(node.args) > index else 0
    return int(given) % int(node.meta["val"].dim())


def _place_of_product(made: Node, axis: int) -> Place | None:
    for operand in made.args[:2]:
        named = _parameters([operand])
        if named and axis == -1 and operand.meta["val"].dim() == 1:
            return Place(parameters=named)
    for operand in made.args[:2]:
        if isinstance(operand, Node) and operand.meta["val"].shape == made.meta["val"].shape:
            found = place_of(operand, [made], axis)
            if found is not None:
                return found
    return None


def _parameters(nodes: list[Any]) -> tuple[str, ...]:
    """The names of parameters that are read here and nowhere else; else none."""
    for node in nodes:
        if not isinstance(node, Node) or node.op != "get_attr" or len(node.users) != 1:
            return ()
        if sum(other.target == node.target for other in node.graph.find_nodes(op="get_attr")) != 1:
            return ()
    return tuple(str(node.target) for node in nodes)


def divide_parameters(model: nn.Module, names: tuple[str, ...], factor: Tensor) -> None:
    """As parameters of the model's own: those before are shared with the float model."""
    for name in names:
        owner, _, last = name.rpartition(".")
        module = operator.attrgetter(owner)(model) if owner else model
        setattr(module, last, nn.Parameter(getattr(module, last).detach() / factor, requires_grad=False))


def has_parameters(model: nn.Module, place: Place) -> bool:
    """Captured graphs may name what the model does not have."""
    known = {name for name, _ in model.named_parameters()}
    return set(place.parameters) <= known
