"""From a module and example inputs to an ATen graph of tensors in and tensors out, with named inputs and free dims."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from ingot.errors import InvalidInputError, UnsupportedError, first_line
from ingot.exporter.reference import ReferenceMode
from ingot.exporter.weights import unpacked

DynamicAxes = Mapping[str, Mapping[int, str] | Sequence[int]]


@dataclass(frozen=True)
class Call:
    """How a module is called: tensors in order with names; everything else stays as it is."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    leaves: tuple[Any, ...]  # of the structure; None where a tensor goes
    spec: pytree.TreeSpec

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = iter(tensors)
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return tuple(args), dict(kwargs)


_TENSOR = object()


def call_of(model: Any, example_inputs: Any, input_names: Sequence[str] | None) -> Call:
    """example_inputs: a tensor, a sequence of positional arguments, or a mapping of keyword arguments."""
    if example_inputs is None:
        raise InvalidInputError("example_inputs is missing", "a tensor, a tuple of arguments or a dict of keywords")
    if isinstance(example_inputs, Mapping) or hasattr(example_inputs, "keys"):
        args: tuple[Any, ...] = ()
        kwargs = dict(example_inputs.items())
    elif isinstance(example_inputs, tuple | list):
        args, kwargs = tuple(example_inputs), {}
    else:
        args, kwargs = (example_inputs,), {}
    flat, spec = pytree.tree_flatten_with_path((args, kwargs))
    tensors = tuple(value for _, value in flat if isinstance(value, Tensor))
    if not tensors:
        raise InvalidInputError("example_inputs holds no tensor")
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"example_inputs holds a tensor on {tensor.device}", "move model and inputs to the CPU"
            )
    names = _names_of(model, flat) if input_names is None else tuple(input_names)
    if len(names) != len(tensors):
        raise InvalidInputError(f"input_names has {len(names)} names, example_inputs {len(tensors)} tensors")
    if len(set(names)) != len(names):
        raise InvalidInputError("input_names holds a name twice")
    leaves = tuple(_TENSOR if isinstance(value, Tensor) else value for _, value in flat)
    return Call(names, tensors, leaves, spec)


def _names_of(model: Any, flat: list[tuple[Any, Any]]) -> tuple[str, ...]:
    try:
        forward = model.forward if isinstance(model, nn.Module) else model
        positional = [p.name for p in inspect.signature(forward).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        positional = []
    positional = getattr(model, "input_names", positional)  # of TorchScript
    names = []
    for path, value in flat:
        if not isinstance(value, Tensor):
            continue
        (kind, first), rest = (path[0].idx, path[1]), path[2:]
        if kind == 0:
            name = positional[first.idx] if first.idx < len(positional) else f"input_{first.idx}"
        else:
            name = str(first.key)
        names.append(name + "".join("." + str(getattr(k, "idx", getattr(k, "key", k))) for k in rest))
    return tuple(names)


class _Flat(nn.Module):  # type: ignore[misc]
    """The module with tensors in and tensors out, computed under the reference mode."""

    def __init__(self, model: nn.Module, call: Call, paths: list[str], keep_reduce_range: bool) -> None:
        super().__init__()
        self._keep_reduce_range = keep_reduce_range
        self.model = model
        self._call = call
        self._paths = paths

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = self._call.arguments(tensors)
        with ReferenceMode(self._keep_reduce_range):
            result = self.model(*args, **kwargs)
        flat, _ = pytree.tree_flatten_with_path(result)
        found = [(path, value) for path, value in flat if isinstance(value, Tensor)]
        self._paths[:] = [_path_name(path) for path, _ in found]
        return tuple(value for _, value in found)


def _path_name(path: Any) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


@dataclass(frozen=True)
class Captured:
    program: ExportedProgram
    call: Call
    output_names: tuple[str, ...]
    dim_names: dict[str, str]  # torch's symbols -> the names users gave


def capture(
    model: nn.Module,
    call: Call,
    *,
    output_names: Sequence[str] | None = None,
    dynamic_axes: DynamicAxes | None = None,
    keep_reduce_range: bool = False,
) -> Captured:
    axes = checked_axes(call, dynamic_axes or {}, output_names)
    paths: list[str] = []
    flat = _Flat(unpacked(model), call, paths, keep_reduce_range)
    tensors = enlarged(call, axes)
    shapes = tuple(dict.fromkeys(axes.get(name, {}), Dim.AUTO) or None for name in call.names)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(flat, tensors, dynamic_shapes=(shapes,), strict=False)
    except (InvalidInputError, UnsupportedError):
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be traced: {first_line(error)}",
            "torch.export must be able to run it with example_inputs; see the error above this one",
        ) from error
    dims = dim_names(program, call, axes)
    return Captured(program, call, _output_names(paths, output_names), dims)


def checked_axes(call: Call, given: DynamicAxes, output_names: Sequence[str] | None) -> dict[str, dict[int, str]]:
    result: dict[str, dict[int, str]] = {}
    rank = {name: tensor.dim() for name, tensor in zip(call.names, call.tensors, strict=True)}
    for name, axes in given.items():
        if name not in rank:
            if name in (output_names or ()):
                continue  # the dims of outputs follow from those of inputs
            raise InvalidInputError(
                f"dynamic_axes names '{name}', which is no input or output", f"inputs: {', '.join(rank)}"
            )
        named = dict(axes) if isinstance(axes, Mapping) else {int(a): f"{name}_dim_{a}" for a in axes}
        for axis, label in named.items():
            if not -rank[name] <= axis < rank[name]:
                raise InvalidInputError(f"dynamic_axes: '{name}' has {rank[name]} dims and no axis {axis}")
            result.setdefault(name, {})[axis % rank[name]] = str(label)
    return result


def enlarged(call: Call, axes: dict[str, dict[int, str]]) -> tuple[Tensor, ...]:
    """A tracer takes a dim of 1 for a constant: dims that are to be free are traced with at least 2."""
    small: set[str] = set()
    for name, tensor in zip(call.names, call.tensors, strict=True):
        for axis, label in axes.get(name, {}).items():
            if tensor.shape[axis] == 0:
                raise InvalidInputError(
                    f"example_inputs: '{name}' has no elements along axis {axis}, which is to be free"
                )
            if tensor.shape[axis] == 1:
                small.add(label)
    result = []
    for name, tensor in zip(call.names, call.tensors, strict=True):
        for axis, label in axes.get(name, {}).items():
            if label in small:
                tensor = torch.cat([tensor, tensor], dim=axis)
        result.append(tensor.detach())
    return tuple(result)


def dim_names(program: ExportedProgram, call: Call, axes: dict[str, dict[int, str]]) -> dict[str, str]:
    names: dict[str, str] = {}
    inputs = [n for n in program.graph.nodes if n.op == "placeholder"][-len(call.names) :]
    for name, node in zip(call.names, inputs, strict=True):
        shape = node.meta["val"].shape
        for axis, label in axes.get(name, {}).items():
            size = shape[axis]
            if not isinstance(size, torch.SymInt) or size.node.expr.is_number:
                raise InvalidInputError(
                    f"dynamic_axes: axis {axis} of '{name}' cannot be free: the model fixes it to {size}",
                    "leave it out of dynamic_axes, or make the model independent of it",
                )
            names.setdefault(str(size.node.expr), label)
    return names


def _output_names(paths: list[str], given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        plain = ["output"] if len(paths) == 1 else [f"output_{i}" for i in range(len(paths))]
        return tuple(path if path and not path[0].isdigit() else name for path, name in zip(paths, plain, strict=True))
    if len(given) > len(paths):
        raise InvalidInputError(f"output_names has {len(given)} names, the model {len(paths)} outputs")
    if len(set(given)) != len(given):
        raise InvalidInputError("output_names holds a name twice")
    return tuple(given) + tuple(path or f"output_{i}" for i, path in enumerate(paths))[len(given) :]
