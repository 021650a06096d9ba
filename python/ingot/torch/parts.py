"""A forward that cannot be captured as a whole: dynamo cuts it into graphs, and the code between runs in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.lowering import lower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingot.torch.options import Options


def in_parts(forward: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """The same function, compiled part by part. dynamo guards what it takes for granted, so that it holds for any
    arguments; what it cannot follow at all runs in eager."""

    def compile_part(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lower(graph, inputs, options)[0]

    compiled = torch.compile(forward, backend=compile_part, dynamic=options.dynamic)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(suppress_errors=True):
            return compiled(*args, **kwargs)

    return call
