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
    direct: list[Callable[..., Any]] = []

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            weights = constant_arguments(first_weights) if kind == "inference" else []
            compiled = CompiledGraph(graph, kind, weights, options)
            graphs.append(compiled)
            if kind == "inference" and needs_nothing_around(compiled):
                direct.extend(direct_call(compiled, inputs))
            return boxed(compiled)

        return compile_graph

    compile_all = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions={torch.ops.aten.native_dropout.default: dropout},
    )
    with without_collection(), WholeRecurrences():
        run = compile_all(module, inputs)
    return (direct[0] if direct else run), graphs


def dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask apart from the product: only the mask, which depends on nothing but sizes, has to be made in eager. Random
    numbers are drawn in the order of the elements in memory, as eager draws them."""
    if train is False or p == 0:
        return x.clone(), torch.ones(x.shape, dtype=torch.bool)
    strides = torch.empty_like(x).stride()
    outer_first = sorted(range(x.ndim), key=lambda dim: strides[dim], reverse=True)
    kept = torch.ops.aten.bernoulli.p(torch.empty([x.shape[dim] for dim in outer_first], dtype=torch.bool), 1 - p)
    if outer_first != list(range(x.ndim)):
        kept = kept.permute([outer_first.index(dim) for dim in range(x.ndim)])
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


# What AOTAutograd's metadata have when it has something to do around each call of a graph: writes to inputs, results
# that are views, sizes to be marked, tokens of effects, random numbers.
WORK_AROUND_CALLS = (
    "num_mutated_inp_runtime_indices",
    "mutated_graph_handled_indices_seen_by_autograd",
    "num_outputs_aliased",
    "num_intermediate_bases",
    "dynamic_outputs",
    "tokens",
    "is_rng_op_functionalized",
    "num_graphsafe_rng_states",
)


def needs_nothing_around(compiled: CompiledGraph) -> bool:
    """True for a graph that may be called without AOTAutograd's wrappers, which take longer than a small graph."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or compiled.partition.eager or torch._C._is_any_autocast_enabled():
        return False
    subclasses = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    return (
        not any(getattr(metadata, name, True) for name in WORK_AROUND_CALLS)
        and metadata.grad_enabled_mutation is None
        and all(type(about).__name__ == "PlainTensorMeta" for about in subclasses)
    )


def direct_call(compiled: CompiledGraph, inputs: Sequence[Any]) -> list[Callable[..., Any]]:
    """A function of the module's inputs; none if the graph has others: lists taken apart, or two that are one."""
    own = list(torch._guards.TracingContext.get().params_flat or ())
    nested = any(isinstance(x, (list, tuple, dict)) for x in inputs)
    if nested or len(own) + len(inputs) != len(compiled.placeholders):
        return []

    def call(*args: Any) -> Any:
        return compiled([*own, *args])

    return [torch._dynamo.disable(call)]


def constant_arguments(first_weights: int) -> list[int]:
    """Arguments that are parameters or buffers and that the graph itself does not change."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return []
    static = sorted({*metadata.static_input_indices, *range(first_weights)})
    count = len(metadata.input_info)
    return [i for i in static if i < count and not metadata.input_info[i].mutates_data]
