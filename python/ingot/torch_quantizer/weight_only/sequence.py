"""Layers rounded in the order in which data meet them, each on what the rounded layers before it give.

The model is captured as a graph, and all batches go through it together, node by node: each layer is looked at once,
with its inputs of all batches at hand, and computes with its rounded weight from then on. A layer that is called more
than once (shared by several places) is rounded on what the float model feeds it with.

A model that cannot be captured is run as it is, and every layer rounded on what the float model feeds it with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from ingot.progress import Progress
from ingot.torch_quantizer.batches import watch
from ingot.torch_quantizer.graphs import path_of
from ingot.torch_quantizer.weight_only.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ingot.torch_quantizer.batches import Arguments

    # Names of layers that read one input, and what that is -> the weights that they have from then on.
    Rounding = Callable[[list[str], Inputs], dict[str, Tensor]]
    Visit = Callable[[Node, Iterable[Tensor]], None]

aten = torch.ops.aten
PRODUCTS = {
    aten.linear.default,
    aten.conv1d.default,
    aten.conv1d.padding,
    aten.conv2d.default,
    aten.conv2d.padding,
    aten.conv3d.default,
    aten.conv3d.padding,
}


def products_of(graph: GraphModule, layers: Mapping[str, nn.Module]) -> dict[Node, str]:
    """The nodes of the graph that are these layers' products with their weights, and the layers' names."""
    found = {}
    for node in graph.graph.nodes:
        name = path_of(node)
        if node.op == "call_function" and node.target in PRODUCTS and name in layers:
            weight = node.args[1]
            if isinstance(weight, Node) and weight.op == "get_attr":
                found[node] = name
    return found


def readers(products: Mapping[Node, str]) -> dict[Any, list[str]]:
    """Names of layers by the node that they read, each once."""
    found: dict[Any, list[str]] = {}
    for node, name in products.items():
        names = found.setdefault(node.args[0], [])
        if name not in names:
            names.append(name)
    return found


def round_in_sequence(
    graph: GraphModule, calls: Sequence[Arguments], layers: Mapping[str, nn.Module], rounding: Rounding
) -> None:
    products = products_of(graph, layers)
    called = list(products.values())
    shared = {name: Inputs() for name in called if called.count(name) > 1}
    weights: dict[str, Tensor] = {}

    def gather(node: Node, xs: Iterable[Tensor]) -> None:
        if products[node] in shared:
            for x in xs:
                shared[products[node]].add(layers[products[node]], x)

    if shared:
        _run(graph, calls, products, {}, gather)
        for name, inputs in shared.items():
            weights |= rounding([name], inputs)
    siblings = readers(products)

    def visit(node: Node, xs: Iterable[Tensor]) -> None:
        layer = layers[products[node]]
        if products[node] in weights:
            return
        inputs = Inputs()
        for x in xs:
            inputs.add(layer, x)
        same = [n for n in siblings[node.args[0]] if n not in weights and fed_alike(layers[n], layer)]
        weights.update(rounding(same, inputs))

    with Progress("rounding") as progress:

        def told(node: Node, xs: Iterable[Tensor]) -> None:
            progress.show(products[node])
            visit(node, xs)

        _run(graph, calls, products, weights, told)


def fed_alike(a: Any, b: Any) -> bool:
    """Do both make the same matrix of an input?"""
    if type(a) is not type(b):
        return False
    fields = ("kernel_size", "stride", "dilation", "groups", "padding", "padding_mode")
    return isinstance(a, nn.Linear) or all(getattr(a, field) == getattr(b, field) for field in fields)


def _run(
    graph: GraphModule,
    calls: Sequence[Arguments],
    products: Mapping[Node, str],
    weights: Mapping[str, Tensor],
    visit: Visit,
) -> None:
    """Every node for all batches before the next node. visit sees a product and its inputs before it is computed."""
    batches = []
    for args, kwargs in calls:
        batch = Interpreter(graph, garbage_collect_values=True)
        batch.args_iter = iter(pytree.tree_leaves((args, kwargs)))
        batches.append(batch)
    with torch.no_grad():
        for node in graph.graph.nodes:
            if node.op == "output":
                break
            if node in products:
                visit(node, (batch.env[node.args[0]] for batch in batches))
            for batch in batches:
                own = weights.get(products.get(node, ""))
                kept = batch.env.get(node.args[1]) if own is not None else None
                if own is not None:
                    batch.env[node.args[1]] = own
                batch.env[node] = batch.run_node(node)
                if own is not None:
                    batch.env[node.args[1]] = kept
                for used in batch.user_to_last_uses.get(node, []):
                    del batch.env[used]


def round_at_once(
    model: nn.Module, calls: Iterable[Arguments], layers: Mapping[str, nn.Module], rounding: Rounding
) -> None:
    """On the float model's inputs of every layer."""
    gathered = {name: Inputs() for name in layers}

    def gather(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, args: tuple[Any, ...]) -> None:
            gathered[name].add(layer, args[0])

        return hook

    watch(model, calls, [layer.register_forward_pre_hook(gather(name)) for name, layer in layers.items()])
    for name, inputs in gathered.items():
        if inputs.count:
            rounding([name], inputs)
