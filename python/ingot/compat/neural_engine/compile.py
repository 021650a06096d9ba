"""An ONNX file, or a folder of Engine IR, as a graph that runs."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ingot
from ingot.compat import MigrationWarning
from ingot.errors import InvalidInputError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

_precision: contextvars.ContextVar[str] = contextvars.ContextVar("precision", default="native")
PRECISIONS = ("native", "bf16", "fp16", "dynamic_int8")


class Graph:
    """A model: `inference`, `save`. An empty one reads Engine IR by `graph_init`."""

    def __init__(self, graph: ingot.Graph | None = None) -> None:
        self._graph = graph

    def graph_init(self, conf: str | os.PathLike[str], weight: str | os.PathLike[str] | None = None) -> Graph:
        """conf: the folder of the IR, or the yaml file in it; the weights lie beside it."""
        path = Path(conf)
        if weight is not None and Path(weight).parent != path.parent:
            raise InvalidInputError(f"{weight}: weights lie in the folder of {path}")
        self._graph = ingot.load(path if path.is_dir() else path.parent)
        return self

    @property
    def ingot_graph(self) -> ingot.Graph:
        """What does the work."""
        if self._graph is None:
            raise InvalidInputError("the graph is empty", "graph_init(yaml, weights), or compile(path)")
        return self._graph

    def inference(self, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        return self.ingot_graph.inference(inputs)

    def save(self, output_dir: str | os.PathLike[str] = "./ir") -> None:
        self.ingot_graph.save(output_dir)

    @property
    def input_tensors(self) -> list[ingot.Port]:
        return list(self.ingot_graph.inputs)

    @property
    def output_tensors(self) -> list[ingot.Port]:
        return list(self.ingot_graph.outputs)


@contextlib.contextmanager
def autocast(cast_type: str = "native", weight_dtype: str | None = None) -> Iterator[None]:
    """Models compiled in here have this precision: native, bf16, fp16 or dynamic_int8."""
    if cast_type not in PRECISIONS or weight_dtype is not None:
        given = cast_type if weight_dtype is None else f"{cast_type} with {weight_dtype} weights"
        raise InvalidInputError(f"autocast: {given}", f"one of {', '.join(PRECISIONS)}; see docs/precision.md for more")
    token = _precision.set(cast_type)
    try:
        yield
    finally:
        _precision.reset(token)


def compile(model: str | os.PathLike[str], config: Any = None) -> Graph:
    """Reads and optimises a model. Fusions cannot be switched by their old names: config is not looked at."""
    if config is not None:
        text = "config switches fusions by names of another tool and is ignored: ingot.compile(path, patterns={...})"
        warnings.warn(text, MigrationWarning, stacklevel=2)
    path = Path(model)
    graph = ingot.load(path) if path.is_dir() else ingot.compile(path)
    precision = _precision.get()
    if precision != "native":
        graph = graph.autocast({"dynamic_int8": "int8"}.get(precision, precision))
    return Graph(graph)
