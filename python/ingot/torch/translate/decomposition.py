"""Operators without a rule, as the nodes that PyTorch itself, or a definition of ours, defines them by."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from ingot.errors import first_line
from ingot.torch.translate import definitions_linalg  # noqa: F401  registers its own
from ingot.torch.translate.definitions import DEFINITIONS, RESULTS
from ingot.torch.translate.values import Unsupported


@cache
def _table() -> dict[Any, Any]:
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **dict(core_aten_decompositions())}


def _decomposition(target: Any) -> Any:
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if target in DEFINITIONS:
        return DEFINITIONS[target]
    if target in _table():
        return _table()[target]
    return (
        target.decompose if target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd) else None
    )


def decomposition_of(node: Any) -> torch.fx.Graph | None:
    """A graph that does what the node does, with its tensors and symbolic numbers as placeholders in the order of the
    arguments; None when there is none. Kept with the node."""
    if "ingot_decomposition" not in node.meta:
        node.meta["ingot_decomposition"] = _trace(node)
    found: torch.fx.Graph | None = node.meta["ingot_decomposition"]
    return found


def _writable(argument: Any) -> Any:
    """Lists of a graph cannot be changed, and some definitions change what they are given."""
    return list(argument) if isinstance(argument, list) else argument


def _is_read(node: Any) -> bool:
    return any(user.op == "output" or _is_read(user) for user in node.users)


def _trace(node: Any) -> torch.fx.Graph | None:
    function = _decomposition(node.target)
    if function is None:
        return None
    made = RESULTS.get(node.target)
    if made and any(u.target is operator.getitem and u.args[1] not in made and _is_read(u) for u in node.users):
        raise Unsupported("a result that only its gradient needs")
    args = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    leaves, spec = pytree.tree_flatten(args)
    free = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
    ]

    def call(*values: Any) -> Any:
        given = list(leaves)
        for i, value in zip(free, values, strict=True):
            given[i] = value
        positional, named = pytree.tree_unflatten(given, spec)
        return function(*map(_writable, positional), **{name: _writable(arg) for name, arg in named.items()})

    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = detect_fake_mode([leaves[i] for i in free])
    try:
        with unset_fake_temporarily():
            if mode is None:
                traced = make_fx(call)(*[leaves[i] for i in free])
            else:
                with mode:
                    traced = make_fx(call)(*[leaves[i] for i in free])
    except (NotImplementedError, Unsupported) as reason:
        if isinstance(reason, Unsupported):
            raise
        return None
    except Exception as error:
        raise Unsupported(f"its decomposition fails: {type(error).__name__}: {first_line(error)}") from error
    traced.graph.eliminate_dead_code()
    if node.target not in DEFINITIONS and any(n.target is node.target for n in traced.graph.nodes):
        return None
    graph: torch.fx.Graph = traced.graph
    return graph
