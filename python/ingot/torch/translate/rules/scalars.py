"""Arithmetic on symbolic numbers, and the way between numbers and tensors."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.symbols import floor_divide
from ingot.torch.translate.values import Number, Scalar, Tensor, Unsupported, axis_of, expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


def _kind(value: Any) -> type:
    return bool if isinstance(value, torch.SymBool) else float if isinstance(value, torch.SymFloat) else int


def _operand(e: Emitter, x: Number, kind: type) -> Tensor:
    """A number the way numbers of this kind are kept."""
    if kind is int:
        return e.size_tensor(x)
    return e.number(x, torch.float64)


def _is_float(x: Number) -> bool:
    return isinstance(x, float) or (isinstance(x, Scalar) and x.kind is float)


def _result(e: Emitter, make: Callable[[], Tensor]) -> Scalar:
    scalar = Scalar(e.out, _kind(e.out), make)
    if isinstance(e.out, torch.SymInt):
        e.known_sizes.setdefault(expression(e.out), scalar.tensor)
    return scalar


def _binary(op: str) -> Callable[..., Any]:
    def translate(e: Emitter, a: Number, b: Number) -> Scalar:
        kind = _kind(e.out)
        shape = (1,) if kind is int else ()
        return _result(e, lambda: e.op(op, _operand(e, a, kind), _operand(e, b, kind), shape=shape))

    return translate


for _op, _functions in {
    "Add": (operator.add,),
    "Sub": (operator.sub,),
    "Mul": (operator.mul,),
    "Pow": (operator.pow,),
    "Max": (torch.sym_max, max),
    "Min": (torch.sym_min, min),
}.items():
    rule(*_functions)(_binary(_op))


@rule(operator.truediv)
def _truediv(e: Emitter, a: Number, b: Number) -> Scalar:
    return _result(e, lambda: e.op("Div", _operand(e, a, float), _operand(e, b, float), shape=()))


@rule(operator.floordiv)
def _floordiv(e: Emitter, a: Number, b: Number) -> Scalar:
    if _kind(e.out) is not int:
        raise Unsupported("a floor division of floats that are not known")
    return _result(e, lambda: floor_divide(e, e.size_tensor(a), e.size_tensor(b)))


@rule(operator.mod)
def _mod(e: Emitter, a: Number, b: Number) -> Scalar:
    kind = _kind(e.out)
    return _result(e, lambda: e.op("Mod", _operand(e, a, kind), _operand(e, b, kind)))


@rule(operator.neg)
def _neg(e: Emitter, a: Number) -> Scalar:
    kind = _kind(e.out)
    return _result(e, lambda: e.op("Neg", _operand(e, a, kind)))


@rule(torch.sym_float)
def _sym_float(e: Emitter, a: Number) -> Scalar:
    return _result(e, lambda: e.number(a, torch.float64))


@rule(torch.sym_int, math.trunc)
def _sym_int(e: Emitter, a: Number) -> Scalar:
    return _to_int(e, a, e.trunc)


@rule(math.floor)
def _floor(e: Emitter, a: Number) -> Scalar:
    return _to_int(e, a, lambda x: e.op("Floor", x))


@rule(math.ceil)
def _ceil(e: Emitter, a: Number) -> Scalar:
    return _to_int(e, a, lambda x: e.op("Ceil", x))


@rule(round)
def _round(e: Emitter, a: Number) -> Scalar:
    return _to_int(e, a, lambda x: e.op("Round", x))


def _to_int(e: Emitter, a: Number, whole: Callable[[Tensor], Tensor]) -> Scalar:
    def make() -> Tensor:
        x = e.cast(whole(e.number(a, torch.float64)), torch.int64)
        return e.op("Reshape", x, e.ints([1]), shape=(1,))

    return _result(e, make)


def _comparison(op: str, negate: bool = False) -> Callable[..., Any]:
    def translate(e: Emitter, a: Number, b: Number) -> Scalar:
        def make() -> Tensor:
            dtype = torch.float64 if _is_float(a) or _is_float(b) else torch.int64
            result = e.op(op, e.number(a, dtype), e.number(b, dtype), dtype=torch.bool, shape=())
            return e.op("Not", result, shape=()) if negate else result

        return _result(e, make)

    return translate


for _op, _function in {
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
}.items():
    rule(_function)(_comparison(_op))
rule(operator.ne)(_comparison("Equal", negate=True))


@rule(operator.and_)
def _and(e: Emitter, a: Number, b: Number) -> Scalar:
    return _result(e, lambda: e.op("And", e.number(a, torch.bool), e.number(b, torch.bool), shape=()))


@rule(operator.or_)
def _or(e: Emitter, a: Number, b: Number) -> Scalar:
    return _result(e, lambda: e.op("Or", e.number(a, torch.bool), e.number(b, torch.bool), shape=()))


@rule(torch.sym_not)
def _not(e: Emitter, a: Number) -> Scalar:
    return _result(e, lambda: e.op("Not", e.number(a, torch.bool), shape=()))


@rule(torch.sym_ite)
def _ite(e: Emitter, condition: Number, a: Number, b: Number) -> Scalar:
    kind = _kind(e.out)
    return _result(e, lambda: e.where(e.number(condition, torch.bool), _operand(e, a, kind), _operand(e, b, kind)))


@rule(torch._sym_sqrt)
def _sqrt(e: Emitter, a: Number) -> Scalar:
    return _result(e, lambda: e.op("Sqrt", e.number(a, torch.float64), shape=()))


@rule(aten.sym_size.int)
def _sym_size(e: Emitter, x: Tensor, dim: int) -> Number:
    return e.size(x, axis_of(dim, x.rank))


@rule(aten.sym_numel.default)
def _sym_numel(e: Emitter, x: Tensor) -> Number:
    return e.product([e.size(x, i) for i in range(x.rank)])


@rule(aten._local_scalar_dense.default, aten.item.default)
def _item(e: Emitter, x: Tensor) -> Number:
    def make() -> Tensor:
        dtype, shape = {int: (torch.int64, (1,)), float: (torch.float64, ()), bool: (torch.bool, ())}[_kind(e.out)]
        return e.op("Reshape", e.cast(x, dtype), e.ints(shape), shape=shape)

    # Now, not when it is used: `out` is that of this node.
    tensor = make()
    return _result(e, lambda: tensor)


@rule(aten.scalar_tensor.default)
def _scalar_tensor(e: Emitter, value: Number, **_: Any) -> Tensor:
    return e.number(value, e.out.dtype)


@rule(
    aten._assert_scalar.default,
    aten._assert_async.msg,
    aten._assert_tensor_metadata.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
    torch._check,
)
def _assertion(e: Emitter, *_: Any, **__: Any) -> None:
    """PyTorch's own guards see to these."""
