"""The backend of torch.compile."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.intercept import show
from ingot.torch.lowering import lower
from ingot.torch.options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def backend(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """`torch.compile(model, backend="ingot", options={...})`; the options are described in docs/torch.md."""
    chosen = read_options(options)
    run, _ = lower(graph, inputs, chosen)
    return intercepted(graph, run, chosen.intercept) if chosen.intercept else run


def intercepted(graph: torch.fx.GraphModule, run: Callable[..., Any], hook: Any) -> Callable[..., Any]:
    """Shows the arguments of every call that are not the model's own."""
    names = [(i, argument_name(p)) for i, p in enumerate(graph.graph.find_nodes(op="placeholder"))]
    shown = [(i, name) for i, name in names if name]

    @functools.wraps(run)
    def call(*args: Any) -> Any:
        show("compiled graph", {name: args[i] for i, name in shown}, hook)
        return run(*args)

    shown_call: Callable[..., Any] = torch._dynamo.disable(call)
    return shown_call


def argument_name(placeholder: torch.fx.Node) -> str:
    """The name of an argument of the user's function; "" for weights and sizes."""
    source = getattr(placeholder, "_dynamo_source", None)
    if source is None or isinstance(placeholder.meta.get("example_value"), torch.SymInt):
        return ""
    if "_parameters" in source.name or "_buffers" in source.name:
        return ""
    return re.sub(r"^L\['(\w+)'\]", r"\1", source.name)
