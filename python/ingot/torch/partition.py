"""Cuts a functional ATen graph into blocks for Ingot and nodes that stay with PyTorch.

Every node gets a level: even levels are blocks, odd ones run in eager, and no node has a lower level than what it
reads. All supported nodes of one level form one block, so there are as few blocks as data flow allows, and running the
levels in order is always right. Arithmetic on sizes belongs to no block: each block repeats what it needs.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

aten = torch.ops.aten

# Why views stay in eager: no loss, and nothing to report.
NOTHING = "nothing to compute"

# What changes no numbers: a block of these alone is not worth a call.
VIEWS = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default, aten.transpose.int,
    aten.t.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.expand.default, aten.slice.Tensor, aten.select.int, aten.detach.default, aten.alias.default,
    aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, operator.getitem,
}  # fmt: skip


@dataclass
class Block:
    """One piece for Ingot: a graph of its own, and where its inputs come from and its results go."""

    name: str
    graph: Graph
    inputs: list[Node]  # nodes of the whole graph, one per placeholder of `graph`
    outputs: list[Node]  # nodes of the whole graph
    orders: dict[Node, list[int]]  # of outputs whose dims lie in memory in another order than their own
    weights: dict[str, int] = field(default_factory=dict)  # placeholder of `graph` -> argument of the whole graph
    attributes: dict[str, torch.Tensor] = field(
        default_factory=dict
    )  # placeholder -> tensor that the whole graph holds


@dataclass
class Partition:
    """The cut: blocks, the graph that calls them (as modules named like the blocks), and why nodes are not in one."""

    blocks: list[Block]
    graph: Graph
    eager: dict[Node, str]
    compiled: list[Node]

    def module(self, root: torch.nn.Module, blocks: Mapping[str, Any]) -> GraphModule:
        """The calling graph as code; root has what the graph's own attributes name."""
        attributes = {str(n.target): fetch(root, str(n.target)) for n in self.graph.find_nodes(op="get_attr")}
        return GraphModule({**attributes, **blocks}, self.graph)


def fetch(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def is_size(node: Node) -> bool:
    """True for numbers that are not tensors: sizes and arithmetic on them."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def computes(node: Node) -> bool:
    return node.op == "call_function" and not is_size(node) and node.target not in VIEWS


def partition(
    graph: Graph, unsupported: Mapping[Node, str], min_block_size: int, weights: Collection[Node] = ()
) -> Partition:
    """Cuts; weights are placeholders whose values are constants of the blocks."""
    eager = with_results(graph, unsupported)
    while True:
        levels = assign_levels(graph, eager)
        small = too_small(levels, min_block_size)
        if not small:
            break
        eager |= small
    groups: dict[int, list[Node]] = {}
    for node, level in levels.items():
        if level % 2 == 0 and node.op == "call_function" and not is_size(node):
            groups.setdefault(level, []).append(node)
    blocks: dict[int, Block] = {}
    arguments = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    for level, nodes in sorted(groups.items()):
        block = BlockBuilder(f"block{len(blocks)}", nodes).build()
        for placeholder, source in zip(block.graph.find_nodes(op="placeholder"), block.inputs, strict=True):
            if source in weights:
                block.weights[placeholder.name] = arguments[source]
            elif source.op == "get_attr":
                block.attributes[placeholder.name] = placeholder.meta["val"]
        blocks[level] = block
    compiled = [node for nodes in groups.values() for node in nodes]
    return Partition(list(blocks.values()), calling_graph(graph, blocks, levels), eager, compiled)


def shared_results(graph: Graph) -> list[Node]:
    """Views that lead to results which share memory with others: made again from these, so that they still do."""
    (output,) = graph.find_nodes(op="output")
    by_memory: dict[int, set[Node]] = {}
    for node in output.all_input_nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            by_memory.setdefault(value.untyped_storage()._cdata, set()).add(node)
    views: dict[Node, None] = {}
    for group in by_memory.values():
        for node in group if len(group) > 1 else ():
            at: Any = node
            while isinstance(at, Node) and is_view(at):
                views[at] = None
                at = at.args[0]
    return list(views)


def is_view(node: Node) -> bool:
    """True if the result is another view of the first argument."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return any(r.alias_info is not None and not r.alias_info.is_write for r in node.target._schema.returns)


def with_results(graph: Graph, unsupported: Mapping[Node, str]) -> dict[Node, str]:
    """A tuple and its parts stay together: a part that cannot be had keeps all of it in eager."""
    eager = dict(unsupported)
    for node in reversed(graph.nodes):
        if node.target is operator.getitem and node in eager:
            eager.setdefault(node.args[0], eager[node])
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in eager:
            eager.setdefault(node, eager[node.args[0]])
    for node in reversed(graph.nodes):  # tensors made of nothing for those in eager
        from_nothing = node.op == "call_function" and not is_size(node) and all(map(is_size, node.all_input_nodes))
        if from_nothing and node.users and all(user in eager for user in node.users):
            eager.setdefault(node, NOTHING)
    return eager


def assign_levels(graph: Graph, eager: Mapping[Node, str]) -> dict[Node, int]:
    levels: dict[Node, int] = {}
    for node in graph.nodes:
        least = max((levels[a] for a in node.all_input_nodes), default=0)
        if node.op in ("placeholder", "get_attr"):
            levels[node] = 0
        elif node.op == "output" or is_size(node):
            levels[node] = least
        else:
            wanted = 1 if node in eager or node.op != "call_function" else 0
            levels[node] = least if least % 2 == wanted else least + 1
    return levels


def too_small(levels: Mapping[Node, int], least: int) -> dict[Node, str]:
    """Nodes of blocks that compute less than they cost."""
    nodes: dict[int, list[Node]] = {}
    for node, level in levels.items():
        if level % 2 == 0 and node.op == "call_function" and not is_size(node):
            nodes.setdefault(level, []).append(node)
    out = {}
    for group in nodes.values():
        working = sum(map(computes, group))
        if working < max(least, 1):
            reason = f"a block of {working} operations is below min_block_size" if working else NOTHING
            out.update(dict.fromkeys(group, reason))
    return out


class BlockBuilder:
    """Copies a block's nodes into a graph of its own."""

    def __init__(self, name: str, nodes: list[Node]) -> None:
        self.name, self.nodes, self.inside = name, nodes, set(nodes)
        self.graph = Graph()
        self.copies: dict[Node, Node] = {}
        self.inputs: list[Node] = []

    def build(self) -> Block:
        for node in self.nodes:
            for a in node.all_input_nodes:
                self.declare(a)
        for node in self.nodes:
            self.copy(node)
        outputs = [n for n in self.nodes if not all(u in self.inside or self.is_own_size(u) for u in n.users)]
        orders = {node: order for node in outputs if (order := memory_order(node))}
        self.graph.output(tuple(self.in_memory_order(node, orders.get(node)) for node in outputs))
        return Block(self.name, self.graph, self.inputs, outputs, orders)

    def in_memory_order(self, node: Node, order: list[int] | None) -> Node:
        """Blocks give dense tensors: with its dims in this order, the result lies in memory as PyTorch's does."""
        if order is None:
            return self.copies[node]
        permuted = self.graph.call_function(aten.permute.default, (self.copies[node], order))
        permuted.meta = {"val": node.meta["val"].permute(order)}
        return permuted

    def is_own(self, node: Node) -> bool:
        """In the block, or a size that depends on what is in it and so has to be made there."""
        return node in self.inside or (is_size(node) and any(map(self.is_own, node.all_input_nodes)))

    def is_own_size(self, user: Node) -> bool:
        """A size that nobody outside the block reads."""
        return is_size(user) and all(u in self.inside or self.is_own_size(u) for u in user.users)

    def declare(self, node: Node) -> None:
        """Makes what comes from outside an input."""
        if self.is_own(node):
            for a in node.all_input_nodes if node not in self.inside else ():
                self.declare(a)
        elif node not in self.copies:
            placeholder = self.graph.placeholder(node.name)
            placeholder.meta = dict(node.meta)
            if node.op == "get_attr":
                placeholder.meta["val"] = fetch(node.graph.owning_module, str(node.target))
            self.inputs.append(node)
            self.copies[node] = placeholder

    def copy(self, node: Node) -> None:
        for a in node.all_input_nodes:
            if a not in self.copies:
                self.copy(a)
        made = self.graph.node_copy(node, lambda n: self.copies[n])
        made.meta = dict(node.meta)
        self.copies[node] = made


def memory_order(node: Node) -> list[int]:
    """The dims of a result in the order of its memory, as PyTorch would have it; [] if that is their own order."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return []
    strides = [s.node.hint if isinstance(s, torch.SymInt) else s for s in value.stride()]
    order = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
    return [] if order == sorted(order) else order


def calling_graph(graph: Graph, blocks: Mapping[int, Block], levels: Mapping[Node, int]) -> Graph:
    """The whole graph with each block as one call, level by level."""
    out = Graph()
    copies: dict[Node, Node] = {}

    def copy(node: Node) -> None:
        copies[node] = out.node_copy(node, lambda n: copies[n])

    by_level: dict[int, list[Node]] = {level: [] for level in blocks}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            copy(node)
        elif node.op != "output" and (levels[node] % 2 == 1 or is_size(node)):
            by_level.setdefault(levels[node], []).append(node)
    for level, nodes in sorted(by_level.items()):
        if level not in blocks:
            for node in nodes:
                copy(node)
            continue
        # Sizes that the block reads come before it, sizes of its results after it, and those of what is only inside it
        # are not needed here.
        after = []
        for node in nodes:
            if all(a in copies for a in node.all_input_nodes):
                copy(node)
            else:
                after.append(node)
        block = blocks[level]
        called = out.call_module(block.name, tuple(copies[n] for n in block.inputs))
        for i, node in enumerate(block.outputs):
            result = out.call_function(operator.getitem, (called, i))
            order = block.orders.get(node, [])
            back = sorted(range(len(order)), key=lambda d: order[d])
            copies[node] = out.call_function(aten.permute.default, (result, back)) if order else result
        for node in after:
            if all(a in copies for a in node.all_input_nodes):
                copy(node)
    (result,) = graph.find_nodes(op="output")
    out.output(torch.fx.map_arg(result.args[0], lambda n: copies[n]))
    out.eliminate_dead_code(is_impure_node=lambda n: n.op == "placeholder" or not is_size(n))
    return out
