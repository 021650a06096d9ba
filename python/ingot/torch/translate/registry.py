"""The rules: which function translates which operator. Each file of rules registers its own by decorator."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

# rule(emitter, *args, **kwargs), with the arguments of the operator: Tensors and Scalars in place of nodes.
Rule = Callable[..., Any]
_Function = TypeVar("_Function", bound=Rule)

_RULES: dict[Any, Rule] = {}
_COMPLEX_RULES: dict[Any, Rule] = {}
_MODULES = (
    "attention",
    "casts",
    "complex_numbers",
    "convolution",
    "creation",
    "elementwise",
    "gradients",
    "indexing",
    "linear",
    "normalization",
    "pooling",
    "quantized",
    "recurrent",
    "reductions",
    "resize",
    "scalars",
    "scatter",
    "shapes",
    "sorting",
    "views",
)
_loaded = False


def rule(*targets: Any) -> Callable[[_Function], _Function]:
    """The decorated function translates these operators: OpOverloads, their names where they may not be loaded, or
    Python functions on symbolic numbers."""

    return _registering(_RULES, targets)


def complex_rule(*targets: Any) -> Callable[[_Function], _Function]:
    """The same for calls with complex operands or results, to which no other rule is applied."""
    return _registering(_COMPLEX_RULES, targets)


def _registering(rules: dict[Any, Rule], targets: tuple[Any, ...]) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        for target in targets:
            assert target not in rules, target
            rules[target] = function
        return function

    return register


def find_rule(target: Any) -> Rule | None:
    """The rule for an operator; None when it has none of its own."""
    _load()
    found = _RULES.get(target)
    return _RULES.get(str(target)) if found is None else found


def find_complex_rule(target: Any) -> Rule | None:
    """The rule for an operator called with complex tensors."""
    _load()
    return _COMPLEX_RULES.get(target)


def _load() -> None:
    global _loaded
    if not _loaded:
        for module in _MODULES:
            importlib.import_module(f"ingot.torch.translate.rules.{module}")
        _loaded = True


def known_targets() -> list[Any]:
    """All operators that have a rule."""
    find_rule(None)
    return list(_RULES)
