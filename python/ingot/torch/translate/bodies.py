"""Operators that call functions of the program, written out before anybody looks at the graph: flex_attention as
products, the program's own functions of scores and places, and a softmax."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable


def _definitions() -> dict[str, Callable[..., Any]]:
    from torch._higher_order_ops.flex_attention import math_attention

    return {"flex_attention": math_attention}


def write_out_bodies(module: torch.fx.GraphModule) -> None:
    """Replaces such operators in the module's graph. One that cannot be traced stays, and runs in eager."""
    nodes = [n for n in module.graph.nodes if isinstance(n.target, torch._ops.HigherOrderOperator)]
    for node in nodes:
        define = _definitions().get(node.target.name())
        steps = None if define is None else _trace(module, node, define)
        if steps is not None:
            _replace(module, node, steps)


def _value_of(module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    if node.op != "get_attr":
        return node.meta.get("val")
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def _is_operand(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def _trace(
    module: torch.fx.GraphModule, node: torch.fx.Node, define: Callable[..., Any]
) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]] | None:
    """What the node does, as a graph of operators, and the nodes that are its placeholders."""
    leaves, spec = pytree.tree_flatten((tuple(node.args), dict(node.kwargs)))
    values = [_value_of(module, leaf) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
    free = [i for i, (leaf, v) in enumerate(zip(leaves, values, strict=True)) if leaf is not v and _is_operand(v)]
    mode = detect_fake_mode([values[i] for i in free])
    if mode is None:
        return None
    used = {user.args[1] for user in node.users if user.target is operator.getitem}

    def call(*given: Any) -> Any:
        arguments = list(values)
        for i, value in zip(free, given, strict=True):
            arguments[i] = value
        positional, named = pytree.tree_unflatten(arguments, spec)
        return [part if i in used else None for i, part in enumerate(define(*positional, **named))]

    given = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in (values[i] for i in free)]
    try:
        with mode:
            traced = make_fx(torch.func.functionalize(call, remove="mutations"))(*given)
    except Exception:  # whatever the program's functions do: eager does it, too
        return None
    traced.graph.eliminate_dead_code()
    return traced, [leaves[i] for i in free]


def _replace(
    module: torch.fx.GraphModule, node: torch.fx.Node, steps: tuple[torch.fx.GraphModule, list[torch.fx.Node]]
) -> None:
    traced, given = steps
    graph, copies = module.graph, dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    operands = node.all_input_nodes
    result: Any = None
    with graph.inserting_before(node):
        for step in traced.graph.nodes:
            if step.op == "output":
                result = torch.fx.map_arg(step.args[0], lambda n: copies[n])
            elif step.op == "get_attr":
                name = f"{node.name}_{step.target}"
                setattr(module, name, getattr(traced, str(step.target)))
                copies[step] = graph.get_attr(name)
                copies[step].meta = dict(step.meta)
            elif step.op != "placeholder":
                copies[step] = graph.node_copy(step, lambda n: copies[n])
    for user in list(node.users):
        user.replace_all_uses_with(result[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)
    for attribute in operands:
        if attribute.op == "get_attr" and not attribute.users:
            graph.erase_node(attribute)
