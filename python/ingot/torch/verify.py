"""`verify`: the first calls are also made in eager, and the first node whose value differs is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.errors import Error
from ingot.torch.translate import as_held

if TYPE_CHECKING:
    from ingot.torch.compiled import Binding, CompiledGraph

# Relative to the largest value of the tensor.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
PRECISION_TOLERANCE = {"fp32": 0.0, "bf16": 3e-2, "int8-dynamic": 1e-1}


class VerificationError(Error):
    """The compiled graph gave another result than eager."""


class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph in eager and keeps the value of every node."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = value
        return value


def difference(found: Any, expected: Any, precision: str = "fp32") -> str:
    """What differs, or "" if the values agree."""
    if not isinstance(expected, torch.Tensor):
        return "" if found == expected else f"{found} instead of {expected}"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if not expected.numel() or torch.equal(found, expected):
        return ""
    if expected.is_complex():
        found, expected = as_held(found), as_held(expected)
    if not expected.is_floating_point():
        return f"{int((found != expected).sum())} of {expected.numel()} values differ"
    a, b = found.to(torch.float64), expected.to(torch.float64)
    special = ~torch.isfinite(b)
    if not torch.equal(torch.where(special, a, 0).nan_to_num(7), torch.where(special, b, 0).nan_to_num(7)):
        return "infinities or NaNs stand elsewhere"
    error = (a - b)[~special].abs().max().item() if not bool(special.all()) else 0.0
    scale = max(b[~special].abs().max().item(), 1e-6) if not bool(special.all()) else 1.0
    tolerance = max(TOLERANCE.get(expected.dtype, 0.0), PRECISION_TOLERANCE[precision])
    return f"differs by up to {error:.3g} where values go up to {scale:.3g}" if error > tolerance * scale else ""


def check_against_eager(compiled: CompiledGraph, binding: Binding, args: list[Any]) -> None:
    """Runs both; an error names the first node that differs."""
    with torch.random.fork_rng(devices=[]):
        found = binding.run(list(args))
    recorder = Recorder(compiled.module)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        expected = recorder.run(*args)
    precision = compiled.options.precision
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        what = difference(a, b, precision)
        if what:
            where = first_difference(compiled, binding, recorder.values, precision)
            raise VerificationError(
                f"result {i} of the {compiled.kind} graph {what}; {where}",
                "please report this with the model; disabled_ops keeps an operator in eager",
            )


def first_difference(compiled: CompiledGraph, binding: Binding, values: dict[str, Any], precision: str) -> str:
    """The first node, in the order of the graph, whose value in the compiled graph is not eager's."""
    wrong: dict[str, str] = {}
    for block in compiled.partition.blocks:
        session = binding.sessions.get(block.name)
        if session is None or session.graph.is_library:
            continue
        made = {name for node in session.graph.nodes for name in node.outputs}
        names = {fx: name for fx, name in session.names.items() if name in made and fx in values}
        inputs = [values[block.inputs[i.position].name] for i in session.inputs]
        inputs = [torch.tensor([v]) if isinstance(v, int) else as_held(v.detach()).contiguous() for v in inputs]
        shown = session.graph.dump_tensors(list(names.values()), inputs)
        for fx, name in names.items():
            expected = as_held(values[fx])
            what = difference(as_tensor(shown[name], expected), expected, precision)
            if what:
                wrong[fx] = what
    for node in compiled.module.graph.nodes:
        if node.name in wrong:
            line = (node.meta.get("stack_trace") or "").strip().splitlines()
            source = f" from `{line[-1].strip()}`" if line else ""
            return f"the first node that differs is {node.name} ({node.target}){source}: {wrong[node.name]}"
    return "no node inside could be looked at"


def as_tensor(array: Any, like: Any) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array
    if like.dtype is torch.bfloat16:
        import numpy as np

        return torch.from_numpy(np.array(array).view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)
