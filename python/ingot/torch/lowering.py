"""From what was captured to compiled functions, through AOTAutograd: it makes graphs functional, writes back what they
changed in inputs and buffers, makes results that are views into views again, and splits off the backward graph. Both
forms of the backend go this way."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.backends.common import aot_autograd

from ingot.torch.compiled import CompiledGraph
from ingot.torch.recurrent import WholeRecurrences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ingot.torch.options import Options


def lower(
    module: torch.nn.Module, inputs: Sequence[Any], options: Options, first_weights: int = 0
) -> tuple[Callable[..., Any], list[CompiledGraph]]:
    """A function that computes what the module does, and the graphs it consists of, which grow by the backward graph
    when it is first needed. The first arguments of the graph, as many as said, are weights; dynamo marks its own."""
    graphs: list[CompiledGraph] = []

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            weights = constant_arguments(first_weights) if kind == "inference" else []
            compiled = CompiledGraph(graph, kind, weights, options)
            graphs.append(compiled)
            return boxed(compiled)

        return compile_graph

    compile_all = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions={torch.ops.aten.native_dropout.default: dropout},
    )
    with without_collection(), WholeRecurrences():
        return compile_all(module, inputs), graphs


def dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask apart from the product: only the mask, which depends on nothing, has to be made in eager."""
    if train is False or p == 0:
        return x.clone(), torch.ones(x.shape, dtype=torch.bool)
    kept = torch.ops.aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool), 1 - p)
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Capturing makes very many objects that live on: looking for garbage among them costs a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def boxed(compiled: CompiledGraph) -> Callable[[list[Any]], Any]:
    """As a plain function: dynamo's wrappers copy its attributes."""

    def run(args: list[Any]) -> Any:
        return compiled(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def constant_arguments(first_weights: int) -> list[int]:
    """Arguments that are parameters or buffers and that the graph itself does not change."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return []
    static = sorted({*metadata.static_input_indices, *range(first_weights)})
    count = len(metadata.input_info)
    return [i for i in static if i < count and not metadata.input_info[i].mutates_data]
