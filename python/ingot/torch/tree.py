"""Arguments and results of any structure as flat lists, and back: lists, tuples, dicts, dataclasses, ModelOutputs, and
objects that hold tensors in attributes, such as the caches of transformers.

A spec is a nested tuple that can be hashed; tensors and numbers are taken out of it into lists. Unlike pytree's, it
knows which containers are the caller's own, so that what a model writes into them can be written there too.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import torch

TENSOR = "tensor"
LITERAL = "literal"
# Values that are compared as they are; anything unknown is compared by identity.
LITERALS = (
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    torch.layout,
    slice,
)
MAX_DEPTH = 12

Spec = Any


class Same:
    """An object that is only equal to itself; kept alive, so that its identity stays its own."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def literal_key(value: Any) -> Any:
    """Equal for values that no program can tell apart: True is not 1, 1 not 1.0, 0.0 not -0.0, and NaN is NaN."""
    kind = type(value)
    if kind is str:
        return value
    if kind is float:
        return (kind, value.hex())
    return (kind, repr(value)) if kind in (complex, slice) else (kind, value)


def is_structure_sequence(kind: type) -> bool:
    """The tuples of C code: torch.return_types.max and such."""
    return issubclass(kind, tuple) and hasattr(kind, "n_sequence_fields")


class Flattener:
    """Takes a structure apart. known: containers that are referred to instead of being taken apart."""

    __slots__ = ("containers", "known", "leaves", "literals", "opaque")

    def __init__(self, known: list[Any] | None = None) -> None:
        self.leaves: list[Any] = []  # tensors, and symbolic numbers while capturing
        self.literals: list[Any] = []
        self.containers: list[Any] = []
        self.opaque: list[Any] = []  # what is compared by identity
        self.known = {id(c): i for i, c in enumerate(known or ())}

    def flatten(self, value: Any, depth: int = 0) -> Spec:
        if isinstance(value, torch.Tensor):
            self.leaves.append(value)
            return TENSOR
        kind = type(value)
        if kind in LITERALS:
            self.literals.append(value)
            return LITERAL
        if kind is tuple:
            return ("tuple", *[self.flatten(v, depth + 1) for v in value])
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.leaves.append(value)
            return TENSOR
        if self.known and id(value) in self.known:
            return ("known", self.known[id(value)])
        return self._container(value, kind, depth)

    def _container(self, value: Any, kind: type, depth: int) -> Spec:
        if depth > MAX_DEPTH or not is_container(value, kind):
            self.opaque.append(value)
            return ("opaque", Same(value))
        if isinstance(value, tuple):
            return ("named", kind, *[self.flatten(v, depth + 1) for v in value])
        self.containers.append(value)
        return self.contents(value, depth)

    def contents(self, value: Any, depth: int = 0) -> Spec:
        """The spec of a container, whether it is known or not."""
        if isinstance(value, list):
            return ("list", type(value), *[self.flatten(v, depth + 1) for v in value])
        name, items = ("dict", value) if isinstance(value, dict) else ("object", vars(value))
        children = [self.flatten(v, depth + 1) for v in items.values()]
        return (name, type(value), tuple(items), tuple(map(literal_key, items)), *children)


def is_container(value: Any, kind: type) -> bool:
    if isinstance(value, (list, dict)):
        return True
    if isinstance(value, tuple):
        return hasattr(kind, "_fields") or is_structure_sequence(kind)
    if isinstance(value, (torch.nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return dataclasses.is_dataclass(kind) or holds_tensors(value)


def holds_tensors(value: Any, depth: int = 0) -> bool:
    """An object of the kind of a cache: tensors in its attributes, or places where they will be."""
    if any(base.__name__ in ("Cache", "CacheLayerMixin") for base in type(value).__mro__):
        return True
    return depth < 3 and any(
        isinstance(v, torch.Tensor)
        or (isinstance(v, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in v))
        or (hasattr(v, "__dict__") and not isinstance(v, (type, torch.nn.Module)) and holds_tensors(v, depth + 1))
        for v in vars(value).values()
    )


class Builder:
    """Puts a structure together again, with other leaves and literals. containers: for specs that refer to them."""

    def __init__(self, leaves: Any, literals: Any, containers: list[Any] | None = None) -> None:
        self.leaves, self.literals = iter(leaves), iter(literals)
        self.given = containers or []
        self.containers: list[Any] = []  # those made, in the order of flattening

    def build(self, spec: Spec) -> Any:
        if spec is TENSOR or spec == TENSOR:
            return next(self.leaves)
        if spec == LITERAL:
            return next(self.literals)
        kind = spec[0]
        if kind == "tuple":
            return tuple([self.build(s) for s in spec[1:]])
        if kind == "known":
            return self.given[spec[1]]
        if kind == "opaque":
            return spec[1].value
        if kind == "named":
            items = [self.build(s) for s in spec[2:]]
            return spec[1](items) if is_structure_sequence(spec[1]) else spec[1](*items)
        place = len(self.containers)
        self.containers.append(None)
        made = self._container(spec)
        self.containers[place] = made
        return made

    def _container(self, spec: Spec) -> Any:
        kind, cls = spec[0], spec[1]
        if kind == "list":
            items = [self.build(s) for s in spec[2:]]
            return items if cls is list else cls(items)
        values = dict(zip(spec[2], [self.build(s) for s in spec[4:]], strict=True))
        if kind == "dict":
            return make_dict(cls, values)
        made = cls.__new__(cls)
        vars(made).update(values)
        return made

    def refill(self, container: Any, spec: Spec) -> None:
        """Gives a container other contents."""
        if spec[0] == "list":
            container[:] = [self.build(s) for s in spec[2:]]
            return
        values = dict(zip(spec[2], [self.build(s) for s in spec[4:]], strict=True))
        target = container if spec[0] == "dict" else vars(container)
        for key in [k for k in target if k not in values]:
            del target[key]
        target.update(values)


def make_dict(cls: Any, values: dict[Any, Any]) -> Any:
    if cls is dict:
        return values
    if dataclasses.is_dataclass(cls):  # ModelOutput
        make: Any = cls
        return make(**values)
    if cls is OrderedDict:
        return OrderedDict(values)
    made = cls.__new__(cls)
    made.update(values)
    return made
