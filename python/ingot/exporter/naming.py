"""Names in the written model: inputs and outputs as asked, weights as their modules call them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ingot.torch.translate.mutation import Aliases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ingot.exporter.capture import Captured

# How QuantizedWeight and PyTorch's own modules call the parts of a weight -> what readers expect.
PARTS = [
    (r"(\._packed_params|\._packed_weight|\.param)+", ""),
    (r"(^|\.)weight\.(values|scale|zero_point)$", r"\1\2"),
    (r"(^|\.)values$", r"\1weight"),
    (r"(^|\.)(scale|zero_point|offset)$", r"\1weight_\2"),
]

SAME = {"alias", "clone", "detach", "contiguous", "to", "_to_copy", "dropout", "lift_fresh_copy"}


def _plain(name: str) -> str:
    name = name.removeprefix("model.")
    for pattern, replacement in PARTS:
        name = re.sub(pattern, replacement, name)
    return name


def rename(captured: Captured, constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames the nodes of the graph; gives the constants by their new names."""
    graph, signature = captured.program.graph, captured.program.graph_signature
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    placeholders = graph.find_nodes(op="placeholder")
    inputs = [node for node in placeholders if node.name not in constants]
    wished = dict(zip(inputs, captured.call.names, strict=True))
    wished.update(_outputs(graph, captured.output_names))
    taken = {*wished.values(), *captured.output_names}
    result: dict[str, Tensor] = {}
    for node in placeholders:
        if node.name in constants:
            wished[node] = _free(_plain(targets[node.name]), taken)
            taken.add(wished[node])
            result[wished[node]] = constants[node.name]
    for node in graph.nodes:
        if node in wished:
            node.name = wished[node]
        elif node.op != "output":
            node.name = _free(node.name, taken)
            taken.add(node.name)
    return result


def _outputs(graph: torch.fx.Graph, names: Iterable[str]) -> dict[torch.fx.Node, str]:
    """Nodes whose value is an output, and one only, and not written into later: then it has another value."""
    leaves = [_maker(leaf) for leaf in graph.output_node().args[0]]
    pairs = list(zip(leaves, names, strict=True))
    aliases = Aliases(graph)
    written = {aliases.base(n.args[0]) for n in graph.nodes if n.op == "call_function" and aliases.is_mutation(n)}
    return {
        leaf: name
        for leaf, name in pairs
        if leaf.op == "call_function" and leaves.count(leaf) == 1 and aliases.base(leaf) not in written
    }


def _maker(node: torch.fx.Node) -> torch.fx.Node:
    """The node that a value comes from, behind operators that hand it on as it is."""
    while node.op == "call_function" and getattr(node.target, "_opname", "") in SAME:
        source = node.args[0]
        if not isinstance(source, torch.fx.Node) or source.meta["val"].dtype != node.meta["val"].dtype:
            break
        node = source
    return node


def _free(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
