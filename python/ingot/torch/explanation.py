"""`explain`: what torch.compile with this backend makes of a model, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.backend import backend
from ingot.torch.report import Report, collect

if TYPE_CHECKING:
    from collections.abc import Callable


def explain(
    model: Callable[..., Any], *args: Any, ingot_options: dict[str, Any] | None = None, **kwargs: Any
) -> Report:
    """Compiles and runs the model once with these arguments and reports: graphs and graph breaks, what Ingot runs, what
    stays in eager and why. The model's own compiled code, if any, is left as it is."""
    from torch._dynamo.utils import counters

    def explaining(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return backend(graph, inputs, options={**(ingot_options or {}), "strict": False})

    before = {kind: dict(counters[kind]) for kind in ("graph_break", "unimplemented")}
    with collect() as report:
        torch.compile(model, backend=explaining)(*args, **kwargs)
    for kind, known in before.items():
        for reason, count in counters[kind].items():
            if str(reason) not in report.breaks:
                report.breaks += [str(reason)] * (count - known.get(reason, 0))
    return report
