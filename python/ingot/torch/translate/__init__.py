"""From a captured PyTorch program to Ingot's graph, directly: no ONNX file, no protobuf, no blanket decomposition.

    result = translate(graph, constants)     # a torch.fx.Graph of ATen operators with meta["val"]
    model = result.graph(threads=2)          # an ingot.Graph, optimised: the options of ingot.compile
    call = result.bind(model)                # call(*placeholders) -> list of the flattened outputs
    result.write("model.onnx")               # the same as an ONNX file

`graph` is what torch.export, AOTAutograd or make_fx give: functional, with parameters and buffers as placeholders.
Operators that write into an argument are accepted where nobody but later readers of that argument could tell.
`constants` maps names of placeholders to tensors that are part of the model: their memory is used where it lies, and
kept. The other placeholders are inputs. A placeholder that is a SymInt is read off the shape of a tensor where one has
that size; only those no tensor has, and SymFloats, become inputs (tensors of one element; `bind` makes them).

    unsupported(graph, constants)            # {node: reason} for every node that has no translation; {} if all have

Both raise nothing else on a well-formed graph; `translate` raises ingot.UnsupportedError with the node's name.
`Translation.names` maps the names of FX nodes to those of the tensors that hold their values, which
`ingot.Graph.dump_tensors` shows; results of nodes with several are "node.0", "node.1", ...

Rules are in translate/rules, a file for each family of operators, and are found by operator (registry.py). What has no
rule is decomposed by PyTorch's own definition, node by node (decomposition.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ingot._ingot import GraphBuilder
from ingot.errors import UnsupportedError
from ingot.torch.translate.translator import Input, Interface, Output, Translator, as_held
from ingot.torch.translate.values import Unsupported

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ingot import Graph

__all__ = ["Input", "Interface", "Output", "Translation", "as_held", "is_plain", "translate", "unsupported"]


@dataclass
class Translation:
    """What `translate` gives."""

    builder: GraphBuilder
    inputs: list[Input]  # the placeholders that the graph reads, in the order of its inputs
    outputs: list[Output]  # the flattened results of the FX graph
    names: dict[str, str] = field(default_factory=dict)

    def graph(self, **options: Any) -> Graph:
        """The optimised model; options are those of ingot.compile."""
        return self.builder.graph(**options)

    def write(self, path: str | os.PathLike[str], *, external_data: bool = False) -> None:
        """The graph as an ONNX file."""
        self.builder.write(path, external_data=external_data)

    def bind(self, graph: Graph) -> Callable[..., list[Any]]:
        """A function of all placeholders that runs the graph. Tensors are used where they lie if they are contiguous;
        results are tensors that own their memory."""
        return bind(graph, self.inputs, self.outputs)


def bind(graph: Graph, inputs: list[Input], outputs: list[Output]) -> Callable[..., list[Any]]:
    """See Translation.bind; inputs and outputs may come from a cache."""
    run, tensor = graph.run, torch.Tensor
    positions = [i.position for i in inputs]
    plain = all(map(is_plain, inputs)) and all(map(is_plain, outputs))
    if plain and [o.index for o in outputs] == list(range(len(graph.outputs))):
        return lambda *args: run([args[p] for p in positions], tensor)

    def call(*args: Any) -> list[Any]:
        found = run([_given(args[i.position], i) for i in inputs], tensor)
        return [o.value if o.index is None else _result(found[o.index], o) for o in outputs]

    return call


def is_plain(end: Input | Output) -> bool:
    """True if the graph takes or gives the very tensor."""
    return not end.symbolic and not end.is_complex


def _given(value: Any, to: Input) -> Any:
    if to.symbolic:
        return _number(value, to.kind)
    return as_held(value) if to.is_complex else value


def _result(value: torch.Tensor, of: Output) -> Any:
    if of.symbolic:
        return value.item()
    return torch.view_as_complex(value) if of.is_complex else value


def _number(value: Any, kind: str) -> torch.Tensor:
    """A number as the graph takes it."""
    return torch.tensor([int(value)]) if kind == "int" else torch.tensor(float(value), dtype=torch.float64)


def translate(
    graph: torch.fx.Graph,
    constants: Mapping[str, torch.Tensor] | None = None,
    *,
    name: str = "torch",
    interface: Interface | None = None,
) -> Translation:
    """Translates a captured graph; see the top of this file."""
    builder = GraphBuilder(name)
    translator = Translator(builder, graph, constants or {}, interface=interface)
    try:
        with unset_fake_temporarily():
            translator.run()
    except Unsupported as reason:
        raise UnsupportedError(str(reason), "unsupported(graph) lists all such nodes") from None
    return Translation(builder, translator.inputs, translator.outputs, translator.names)


class _Nothing:
    """Takes what a GraphBuilder takes, for nothing."""

    def input(self, *_: Any) -> None: ...
    def constant(self, *_: Any) -> None: ...
    def node(self, *_: Any) -> str:
        return ""

    def output(self, *_: Any) -> None: ...


def unsupported(graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor] | None = None) -> dict[torch.fx.Node, str]:
    """The nodes that have no translation, each with the reason."""
    failed: dict[torch.fx.Node, str] = {}
    with unset_fake_temporarily():
        Translator(_Nothing(), graph, constants or {}, failed).run()
    return failed
