"""Operators that write into an argument, read as their functional counterparts.

What shares memory with the argument changes too: the tensors it is a view of get the new part written back, and their
other views are made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import find_rule
from ingot.torch.translate.values import Tensor, Unsupported, axis_of, is_complex

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


class Aliases:
    """Which values of a graph share memory with which: views and their bases."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._order: dict[Any, int] = {}
        self._base: dict[Any, Any] = {}

    def _prepare(self) -> None:
        if self._order:
            return
        for i, node in enumerate(self._graph.nodes):
            self._order[node] = i
            source = viewed(node)
            self._base[node] = self._base[source] if source is not None else node

    def base(self, node: Any) -> Any:
        self._prepare()
        return self._base[node]

    def is_mutation(self, node: Any) -> bool:
        """An operator that has a rule although it may write says itself when it does."""
        target = node.target
        return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and find_rule(target) is None

    def live(self) -> set[Any]:
        """The nodes that results depend on, by value or by what is written into their arguments, and those that write
        into inputs; assertions are not among them."""
        needed: set[Any] = set()
        bases: set[Any] = set()
        for node in reversed(self._graph.nodes):
            wanted = node.op == "output" or node in needed
            if not wanted and self.is_mutation(node) and isinstance(node.args[0], torch.fx.Node):
                base = self.base(node.args[0])
                wanted = base in bases or base.op != "call_function"
            if wanted:
                for n in (node, *node.all_input_nodes):
                    needed.add(n)
                    bases.add(self.base(n))
        return needed

    def others(self, node: Any) -> list[Any]:
        """Values that share memory with the argument a node writes into, made before it and read after it."""
        self._prepare()
        target, here = node.args[0], self._order[node]
        base = self._base[target]
        return [
            other
            for other, its_base in self._base.items()
            if its_base is base
            and other is not target
            and self._order[other] < here
            and any(self._order[user] > here for user in other.users)
        ]


# Give back their argument when nothing is to be done, without saying so.
_MAY_ALIAS = {"aten::to", "aten::reshape", "aten::contiguous", "aten::dropout", "aten::flatten", "aten::alpha_dropout"}


def viewed(node: Any) -> Any:
    """The argument whose memory the result of a node may be; a mutation's result is its argument."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return node.args[0] if getattr(target, "__name__", "") == "getitem" else None
    schema = target._schema
    shares = any(r.alias_info is not None for r in schema.returns) or schema.name in _MAY_ALIAS
    return node.args[0] if shares else None


def functional_target(node: Any) -> Any:
    """The operator that gives what a node writes."""
    schema = node.target._schema
    namespace, name = schema.name.split("::")
    writes = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    overload = getattr(packet, node.target._overloadname, None)
    if not name.endswith("_") or overload is None or writes != [schema.arguments[0].name]:
        raise Unsupported(f"it writes into its argument {', '.join(writes)}")
    return overload


# How a new value of a view goes back into what it is a view of: write(emitter, base, value, *arguments of the view).


def _reshape_back(e: Emitter, base: Tensor, value: Tensor, *_: Any) -> Tensor:
    return e.reshape(value, [e.size(base, i) for i in range(base.rank)])


def _same(e: Emitter, base: Tensor, value: Tensor, *_: Any) -> Tensor:
    return value


def _by_rule(target: Any) -> Callable[..., Tensor]:
    def write(e: Emitter, base: Tensor, value: Tensor, *args: Any) -> Tensor:
        rule = find_rule(target)
        assert rule is not None
        result: Tensor = rule(e, base, value, *args)
        return result

    return write


def _transpose_back(e: Emitter, base: Tensor, value: Tensor, a: int = -1, b: int = -2) -> Tensor:
    perm = list(range(base.rank))
    if base.rank > 1:
        i, j = axis_of(a, base.rank), axis_of(b, base.rank)
        perm[i], perm[j] = perm[j], perm[i]
    return e.transpose(value, perm)


def _permute_back(e: Emitter, base: Tensor, value: Tensor, dims: Any) -> Tensor:
    order = [axis_of(d, base.rank) for d in dims]
    return e.transpose(value, [order.index(i) for i in range(base.rank)])


_WRITE_BACK: dict[Any, Callable[..., Tensor]] = {
    aten.slice.Tensor: _by_rule(aten.slice_scatter.default),
    aten.select.int: _by_rule(aten.select_scatter.default),
    aten.transpose.int: _transpose_back,
    aten.t.default: _transpose_back,
    aten.mT.default: _transpose_back,
    aten.permute.default: _permute_back,
    **dict.fromkeys((aten.alias.default, aten.detach.default), _same),
    **dict.fromkeys(
        (
            aten.view.default,
            aten.unsqueeze.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unflatten.int,
        ),
        _reshape_back,
    ),
}


def write_back(e: Emitter, view: Any, base: Tensor, value: Tensor, arguments: tuple[Any, ...]) -> Tensor:
    """The base of a view with the view's elements replaced."""
    write = _WRITE_BACK.get(view.target)
    if write is None or is_complex(base.dtype):
        raise Unsupported(f"it writes into '{view.name}', which shares memory with others")
    result = write(e, base, value, *arguments[1:])
    return Tensor(result.name, base.dtype, base.shape)
