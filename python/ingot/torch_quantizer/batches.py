"""Calibration data as calls of the model.

A batch is what a data loader gives: a tensor, positional arguments (tuple or list), keywords (dict, BatchEncoding), or
one of these with labels behind it. Labels do not belong to a call and are dropped:
 - of a dict: what forward does not name, and `label`, `labels`, `label_ids`;
 - of a pair whose first part is itself a dict, tuple or list: the second part;
 - of other tuples: what exceeds forward's parameters, and, at the end, what has at most one value per sample (a class,
   a score) and is not required by forward.
example_inputs, where given, decides: its arguments are the model's, all others are dropped.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ingot.errors import InvalidInputError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

LABELS = ("label", "labels", "label_ids")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def watch(model: nn.Module, calls: Iterable[Arguments], hooks: Iterable[RemovableHandle]) -> None:
    """Runs the model on each call, and takes away the hooks that watched it."""
    try:
        with torch.no_grad():
            for args, kwargs in calls:
                model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()


class CallForm:
    """Calls in any spelling that forward takes, brought to one: the same arguments by position and by keyword.

    A graph takes its arguments only in the way of the call it was captured with.
    """

    def __init__(self, module: nn.Module) -> None:
        self._signature = inspect.signature(module.forward)
        self.names: tuple[str, ...] | None = None  # of the arguments that belong to the model, once these are known

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return self._signature.parameters

    def fix(self, call: Arguments) -> Arguments:
        """Takes the arguments of this call for those of the model."""
        bound = self._bound(call)
        self.names = tuple(_flat_names(bound))
        return bound.args, bound.kwargs

    def arrange(self, call: Arguments) -> Arguments:
        """The call with exactly the model's arguments."""
        bound = self._bound(call)
        found = _flat_names(bound)
        if self.names is not None and set(found) != set(self.names):
            given = ", ".join(found) or "nothing"
            raise InvalidInputError(f"the model takes {', '.join(self.names)}; given: {given}")
        return bound.args, bound.kwargs

    def by_name(self, call: Arguments) -> dict[str, Any]:
        arguments = dict(self._bound(call).arguments)
        for name, parameter in self.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        return arguments

    def of_batch(self, batch: Any) -> Arguments:
        """The call that a batch of a data loader means."""
        args, kwargs = self._split(batch)
        args, kwargs = pytree.tree_map(_as_tensor, (args, kwargs))
        if self.names is not None:
            bound = self._bound((args, kwargs))
            for name in [name for name in bound.arguments if name not in self.names and self._is_named(name)]:
                del bound.arguments[name]
            args, kwargs = bound.args, bound.kwargs
        if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
            raise InvalidInputError("it holds no tensor")
        return self.arrange((args, kwargs))

    def _is_named(self, name: str) -> bool:
        return self.parameters[name].kind in (*POSITIONAL, inspect.Parameter.KEYWORD_ONLY)

    def _bound(self, call: Arguments) -> inspect.BoundArguments:
        try:
            bound = self._signature.bind(*call[0], **call[1])
        except TypeError as error:
            raise InvalidInputError(f"{error}", f"forward{self._signature}") from None
        for name, value in list(bound.arguments.items()):
            default = self.parameters[name].default
            if value is default or (not isinstance(value, Tensor) and _equal(value, default)):
                del bound.arguments[name]
        return bound

    def _split(self, batch: Any) -> Arguments:
        if isinstance(batch, Mapping) or hasattr(batch, "keys"):
            return (), self._keywords(batch)
        if not isinstance(batch, tuple | list):
            return (batch,), {}
        if not batch:
            raise InvalidInputError("it is empty")
        if len(batch) == 2 and (isinstance(batch[0], Mapping | tuple | list) or hasattr(batch[0], "keys")):
            return self._split(batch[0])
        return self._without_labels(list(batch)), {}

    def _keywords(self, batch: Any) -> dict[str, Any]:
        named = {name for name in self.parameters if self._is_named(name)}
        kinds = {p.kind for p in self.parameters.values()}
        takes_all = not named and inspect.Parameter.VAR_KEYWORD in kinds
        wanted = self.names or [k for k in batch if k not in LABELS and (takes_all or k in named)]
        return {str(key): batch[key] for key in batch if key in wanted}

    def _without_labels(self, values: list[Any]) -> tuple[Any, ...]:
        positional = [p for p in self.parameters.values() if p.kind in POSITIONAL]
        required = sum(p.default is p.empty for p in positional)
        if not any(p.kind is p.VAR_POSITIONAL for p in self.parameters.values()):
            values = values[: len(positional)]
        while self.names is None and len(values) > max(required, 1) and _is_label(values[-1]):
            values.pop()
        return tuple(values)


def _flat_names(bound: inspect.BoundArguments) -> list[str]:
    names: list[str] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        names.extend(value if kind is inspect.Parameter.VAR_KEYWORD else [name])
    return names


def _equal(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except (TypeError, ValueError, RuntimeError):
        return False


def _is_label(value: Any) -> bool:
    return isinstance(value, int | float | str) or (isinstance(value, Tensor | np.ndarray) and value.ndim <= 1)


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def batches_of(calib: Any) -> Iterator[Any]:
    """A tensor, a mapping or a tuple is one batch; every other iterable gives batches."""
    if isinstance(calib, Tensor | np.ndarray | Mapping | tuple) or hasattr(calib, "keys"):
        return iter([calib])
    if isinstance(calib, str | bytes) or (not isinstance(calib, Iterable) and not hasattr(calib, "__getitem__")):
        raise InvalidInputError(
            f"calib is {type(calib).__name__}, not data", "a DataLoader, a list of batches, or one batch"
        )
    return iter(calib)


def first_and_all(calib: Any) -> tuple[Any, Iterator[Any]]:
    """The first batch, and all of them."""
    batches = batches_of(calib)
    first = next(batches, None)
    if first is None:
        raise InvalidInputError("calib is empty", "static quantization needs sample data")
    return first, itertools.chain([first], batches)


def size_of(call: Arguments) -> int:
    """Samples in a batch: the first dim of its first tensor."""
    for leaf in pytree.tree_leaves(call):
        if isinstance(leaf, Tensor):
            return int(leaf.shape[0]) if leaf.dim() else 1
    return 1
