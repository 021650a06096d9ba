"""Operators that write into an argument: read as their functional counterparts, where nobody else sees the argument."""

from __future__ import annotations

from typing import Any

import torch

from ingot.torch.translate.values import Unsupported


class Aliases:
    """Which values of a graph share memory with which: views and their bases."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._order: dict[Any, int] | None = None
        self._base: dict[Any, Any] = {}

    def _prepare(self) -> dict[Any, int]:
        if self._order is None:
            self._order = {}
            for i, node in enumerate(self._graph.nodes):
                self._order[node] = i
                source = _viewed(node)
                self._base[node] = self._base[source] if source is not None else node
        return self._order

    def is_mutation(self, node: Any) -> bool:
        return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable

    def mutated(self, node: Any) -> Any:
        return node.args[0]

    def check(self, node: Any) -> None:
        """Refuses a mutation that more than the later readers of the argument itself could see."""
        order = self._prepare()
        target = self.mutated(node)
        if target.op != "call_function":
            raise Unsupported(f"it writes into '{target.name}', which is not a result of this graph")
        here, base = order[node], self._base[target]
        for other, other_base in self._base.items():
            if other_base is not base or other is target or other is node:
                continue
            if any(order[user] > here for user in other.users):
                raise Unsupported(f"it writes into '{target.name}', whose memory '{other.name}' shares")


def _viewed(node: Any) -> Any:
    """The argument whose memory the result of a node may be; a mutation's result is its argument."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return node.args[0] if node.op == "call_function" and node.args and _is_item(node) else None
    if any(r.alias_info is not None for r in target._schema.returns) or target._schema.name in _MAY_ALIAS:
        first = node.args[0] if node.args else None
        return first if isinstance(first, torch.fx.Node) else None
    return None


# Give back their argument when nothing is to be done, without saying so.
_MAY_ALIAS = {"aten::to", "aten::reshape", "aten::contiguous", "aten::dropout", "aten::flatten", "aten::alpha_dropout"}


def _is_item(node: Any) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def functional_target(node: Any, aliases: Aliases) -> Any:
    """The operator to translate a node by: its own, or the one that does the same without writing."""
    if not aliases.is_mutation(node):
        return node.target
    schema = node.target._schema
    namespace, name = schema.name.split("::")
    writes = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    packet = getattr(getattr(torch.ops, namespace), name.rstrip("_"), None)
    overload = getattr(packet, node.target._overloadname, None)
    if not name.endswith("_") or overload is None or writes != [schema.arguments[0].name]:
        raise Unsupported(f"it writes into its argument {', '.join(writes)}")
    aliases.check(node)
    return overload
