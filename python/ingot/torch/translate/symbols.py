"""Symbolic sizes: sympy expressions as dims of inputs, and as computations in the graph."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.values import Scalar, Tensor, Unsupported, expression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingot.torch.translate.emitter import Emitter


class DimNames:
    """Dims of inputs as a GraphBuilder takes them: a sum of products of symbols stays one, so that sizes can be told
    to be equal; any other expression is a symbol of its own."""

    def __init__(self) -> None:
        self._opaque: dict[Any, str] = {}

    def dims(self, shape: Sequence[Any]) -> list[int | str]:
        return [self._dim(expression(size)) for size in shape]

    def _dim(self, expr: Any) -> int | str:
        if isinstance(expr, int):
            return expr
        terms = [_term(t) for t in expr.expand().as_ordered_terms()]
        if any(t is None for t in terms):
            if expr not in self._opaque:
                word = re.sub(r"\W+", "_", str(expr)).strip("_")
                self._opaque[expr] = f"d{len(self._opaque)}_{word}"
            return self._opaque[expr]
        text = ""
        for sign, factors in (t for t in terms if t is not None):
            product = "*".join(factors)
            text = f"{text} {sign} {product}" if text else (product if sign == "+" else f"0 - {product}")
        return text


def _term(term: Any) -> tuple[str, list[str]] | None:
    """Sign and factors of a product of an integer and symbols."""
    coefficient, rest = term.as_coeff_Mul()
    if not coefficient.is_integer:
        return None
    factors: list[str] = []
    for base, exponent in rest.as_powers_dict().items():
        if base.is_number:
            if base != 1:
                return None
        elif base.is_Symbol and exponent.is_integer and exponent > 0:
            factors += [str(base)] * int(exponent)
        else:
            return None
    number = abs(int(coefficient))
    return ("-" if coefficient < 0 else "+"), ([str(number)] if number != 1 or not factors else []) + sorted(factors)


def scalar_of(e: Emitter, value: Any) -> Scalar:
    """The number that a SymInt stands for, computed from sizes that are known."""
    if not isinstance(value, torch.SymInt):
        raise Unsupported(f"the symbolic number {value}")
    return Scalar(value, int, lambda: _compute(e, value.node.expr))


def _compute(e: Emitter, expr: Any) -> Tensor:
    if expr not in e.known_sizes:
        e.known_sizes[expr] = Scalar(None, int, lambda: _from_parts(e, expr)).tensor
    return e.known_sizes[expr]()


def _from_parts(e: Emitter, expr: Any) -> Tensor:
    if expr.is_Integer:
        return e.ints([int(expr)])
    kind = type(expr).__name__
    if kind == "Symbol" or not expr.args:
        raise Unsupported(f"the size {expr} is not that of any input")
    if kind == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return _fold(e, "Mul", [expr.args[0]] * int(expr.args[1]))
    if kind in _FOLDS:
        return _fold(e, _FOLDS[kind], expr.args)
    if kind in ("FloorDiv", "CleanDiv"):
        a, b = expr.args
        exact = kind == "CleanDiv" or (a.is_nonnegative and b.is_nonnegative)
        return floor_divide(e, _compute(e, a), _compute(e, b), exact)
    if kind in ("Mod", "PythonMod"):
        return e.op("Mod", *(_compute(e, a) for a in expr.args), shape=(1,))
    raise Unsupported(f"the size {expr}")


_FOLDS = {"Add": "Add", "Mul": "Mul", "Max": "Max", "Min": "Min"}


def _fold(e: Emitter, op: str, args: Sequence[Any]) -> Tensor:
    result = _compute(e, args[0])
    for arg in args[1:]:
        result = e.op(op, result, _compute(e, arg), shape=(1,))
    return result


def floor_divide(e: Emitter, a: Tensor, b: Tensor, exact: bool = False) -> Tensor:
    """Integers, toward minus infinity; `exact`: nothing is left over, or both are known not to be negative."""
    if not exact:
        a = e.op("Sub", a, e.op("Mod", a, b, shape=a.shape), shape=a.shape)
    return e.op("Div", a, b, shape=a.shape)
