"""What a captured graph takes for granted besides its arguments: whatever a module's forward may read.

Parameters, buffers, submodules, flags and hooks of every part; and, found by reading the code that a forward may run,
the globals, closures, class attributes and attributes it names, with all that these hold: lists, dicts, sets, objects.
Code of torch, numpy and Python's own library is not read: what is theirs is not the model's.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from ingot._ingot import ObjectWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "sympy", "ingot", "builtins"}
SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, range, slice)
# Methods that are not called by name; those that make, copy and show objects are no part of a forward.
IMPLICIT = ("__call__", "__getattr__", "__getattribute__", "__getitem__", "__iter__", "__next__", "__len__", "__bool__",
            "__contains__", "__enter__", "__exit__", "__eq__", "__float__", "__int__", "__index__", "__get__",
            "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__",
            "forward")  # fmt: skip
COPIED = (set, frozenset, collections.deque, bytearray)


def is_of_library(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in LIBRARIES


class Reads:
    """Walks from a module's parts, its forward and other objects that it is given over all that code may read."""

    def __init__(self, module: torch.nn.Module, forward: Callable[..., Any], given: Iterable[Any] = ()) -> None:
        self.slots: list[tuple[dict[Any, Any], Any]] = []
        self.sizes: list[dict[Any, Any]] = []
        self.lists: list[list[Any]] = []
        self.cells: list[types.CellType] = []
        self.copies: list[tuple[Any, Any]] = []
        self.tensors: list[torch.Tensor] = []  # that are no parameters or buffers
        self.arrays: list[torch.Tensor] = []  # those of numpy: constants of a graph that are copies
        self.shared: list[Any] = []  # containers and objects without modules in them
        self.given = list(given)
        self._names: set[str] = set(IMPLICIT)
        self._spaces: list[tuple[dict[Any, Any], set[Any]]] = []  # of which only what is named is read; and what was
        self._seen: set[int] = set()
        self._left: list[Any] = []
        for part in module.modules():
            self._part(part)
        self.sizes += [torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks]
        self._left += [forward, *self.given]
        self._walk()

    def watch(self) -> ObjectWatch:
        return ObjectWatch(self.slots, self.sizes, self.lists, self.cells, self.copies)

    def contents(self) -> list[tuple[Any, Any]]:
        """Containers and what they hold now, to be put back if capturing changes it."""
        containers: list[Any] = [*self.lists, *self.sizes, *(space for space, _ in self._spaces)]
        containers += [c for c, _ in self.copies if not isinstance(c, frozenset)]
        return [(c, c.copy()) for c in containers]

    # The walk

    def _walk(self) -> None:
        while True:
            while self._left:
                self._value(self._left.pop())
            for space, done in self._spaces:
                for name in [n for n in space if n in self._names and n not in done]:
                    done.add(name)
                    self.slots.append((space, name))
                    self._left.append(space[name])
            if not self._left:
                return

    def _part(self, part: torch.nn.Module) -> None:
        if id(part) in self._seen:
            return
        self._seen.add(id(part))
        for table in (part._parameters, part._buffers, part._modules):
            self._all_of(table)
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            self._all_of(hooks)
            self._left += hooks.values()
        attributes = vars(part)
        simple = {name for name, value in attributes.items() if isinstance(value, (*SIMPLE, tuple, torch.Tensor))}
        self.slots += [(attributes, name) for name in simple]
        self._left += [attributes[name] for name in simple]
        self._spaces.append((attributes, simple))
        self._class(type(part))

    def _all_of(self, table: dict[Any, Any]) -> None:
        self.slots += [(table, key) for key in table]
        self.sizes.append(table)

    def _value(self, value: Any) -> None:
        if isinstance(value, SIMPLE) or id(value) in self._seen:
            return
        if isinstance(value, torch.nn.Module):
            self._part(value)
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        elif isinstance(
            value, (types.FunctionType, types.MethodType, functools.partial, property, staticmethod, classmethod)
        ):
            self._callable(value)
        elif isinstance(value, types.ModuleType):
            if not is_of_library(value.__name__):
                self._spaces.append((vars(value), set()))
        elif isinstance(value, type):
            self._class(value)
        else:
            self._container(value)

    def _callable(self, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self._left += [value.__func__, value.__self__]
        elif isinstance(value, functools.partial):
            self._left += [value.func, value.args, value.keywords]
        elif isinstance(value, property):
            self._left.append(value.fget)
        elif isinstance(value, (staticmethod, classmethod)):
            self._left.append(value.__func__)
        else:
            self._function(value)

    def _function(self, function: types.FunctionType) -> None:
        if is_of_library(function.__globals__.get("__name__")):
            # A decorator of theirs around a function of the model.
            self._left += [c for c in map(contents_of, function.__closure__ or ()) if callable(c)]
            return
        codes = [function.__code__]
        read: set[str] = set()
        while codes:
            code = codes.pop()
            read.update(code.co_names)
            read.update(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        self._names |= read
        table = function.__globals__
        for name in read & table.keys():
            self.slots.append((table, name))
            self._left.append(table[name])
        for cell in function.__closure__ or ():
            self.cells.append(cell)
            self._left.append(contents_of(cell))
        self._left += function.__defaults__ or ()
        self._left += (function.__kwdefaults__ or {}).values()
        self._left += [v for v in vars(function).values() if callable(v)]  # __wrapped__

    def _class(self, cls: type) -> None:
        for base in cls.__mro__:
            if id(base) not in self._seen and not is_of_library(base.__module__):
                self._seen.add(id(base))
                # The dict behind the proxy, which is the same as long as the class lives.
                self._spaces.append((gc.get_referents(base.__dict__)[0], set()))

    def _container(self, value: Any) -> None:
        if isinstance(value, tuple):
            self._left += value
            return
        if isinstance(value, COPIED):
            self.copies.append((value, value.copy()))
            self._share(value)
            return
        if isinstance(value, list):
            self.lists.append(value)
            self._left += value
            self._share(value)
        elif isinstance(value, dict):
            self._all_of(value)
            self._left += value.values()
            self._share(value)
        if type(value).__module__ == "numpy" and isinstance(getattr(value, "nbytes", None), int):
            self._array(value)
        elif hasattr(value, "__dict__") and not is_of_library(type(value).__module__):
            self._spaces.append((vars(value), set()))
            self.sizes.append(vars(value))
            self._class(type(value))
            self._share(value)

    def _array(self, value: Any) -> None:
        import numpy as np

        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size:
            self.arrays.append(torch.as_tensor(value))

    def _share(self, value: Any) -> None:
        if not holds_module(value, set()):
            self.shared.append(value)


def contents_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # still empty
        return None


def holds_module(value: Any, seen: set[int]) -> bool:
    """True if a module can be reached: such objects are copied with it when it is captured."""
    if isinstance(value, (torch.nn.Module, types.MethodType)):
        return True
    if isinstance(value, (*SIMPLE, torch.Tensor, type, types.FunctionType, types.ModuleType)) or id(value) in seen:
        return False
    seen.add(id(value))
    inside: list[Any] = []
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        inside += value
    elif isinstance(value, dict):
        inside += value.values()
    if hasattr(value, "__dict__"):
        inside += vars(value).values()
    return any(holds_module(v, seen) for v in inside)


def put_back(contents: list[tuple[Any, Any]]) -> None:
    """Gives containers what they held."""
    for container, held in contents:
        if isinstance(container, list):
            if not same_items(container, held):
                container[:] = held
        elif isinstance(container, dict):
            if container.keys() != held.keys() or not same_items(container.values(), held.values()):
                restore_dict(container, held)
        elif container != held:
            container.clear()
            container.extend(held) if hasattr(container, "extend") else container.update(held)


def same_items(now: Iterable[Any], then: Iterable[Any]) -> bool:
    a, b = list(now), list(then)
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def restore_dict(table: dict[Any, Any], held: Mapping[Any, Any]) -> None:
    for key in [k for k in table if k not in held]:
        del table[key]
    for key, value in held.items():
        if table.get(key, table) is not value:
            table[key] = value
