"""Operators that work element by element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.registry import rule
from ingot.torch.translate.symbols import floor_divide
from ingot.torch.translate.values import Number, Tensor, Unsupported, is_integer, result_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten
Operand = Tensor | Number


def _is_float(dtype: torch.dtype) -> bool:
    return not is_integer(dtype) and dtype is not torch.bool


# f(x), after x became the type of the result.
_FUNCTIONS = {
    "Acos": aten.acos,
    "Acosh": aten.acosh,
    "Asin": aten.asin,
    "Asinh": aten.asinh,
    "Atan": aten.atan,
    "Atanh": aten.atanh,
    "Cos": aten.cos,
    "Cosh": aten.cosh,
    "Erf": aten.erf,
    "Exp": aten.exp,
    "HardSwish": aten.hardswish,
    "Log": aten.log,
    "Mish": aten.mish,
    "Reciprocal": aten.reciprocal,
    "Relu": aten.relu,
    "Sigmoid": aten.sigmoid,
    "Sin": aten.sin,
    "Sinh": aten.sinh,
    "Sqrt": aten.sqrt,
    "Tan": aten.tan,
    "Tanh": aten.tanh,
}


def _function(op: str) -> Callable[[Emitter, Tensor], Tensor]:
    return lambda e, x: e.op(op, e.cast(x, e.out.dtype))


for _name, _packet in _FUNCTIONS.items():
    rule(_packet.default)(_function(_name))


@rule(aten.neg.default)
def _neg(e: Emitter, x: Tensor) -> Tensor:
    return e.sub(e.number(0, x.dtype), x) if x.dtype is torch.uint8 else e.op("Neg", x)


@rule(aten.sign.default, aten.sgn.default)
def _sign(e: Emitter, x: Tensor) -> Tensor:
    if x.dtype is torch.bool:
        return x
    if is_integer(x.dtype):
        return e.op("Sign", x)
    # Of NaN, PyTorch says 0.
    zero = e.number(0, x.dtype)
    above, below = (e.cast(e.compare(op, x, zero), x.dtype) for op in ("Greater", "Less"))
    return e.sub(above, below)


def _rounding(op: str) -> Callable[[Emitter, Tensor], Tensor]:
    return lambda e, x: e.op(op, x) if _is_float(x.dtype) else x


rule(aten.ceil.default)(_rounding("Ceil"))
rule(aten.floor.default)(_rounding("Floor"))
rule(aten.round.default)(_rounding("Round"))


@rule(aten.abs.default)
def _abs(e: Emitter, x: Tensor) -> Tensor:
    return x if x.dtype in (torch.bool, torch.uint8) else e.op("Abs", x)


@rule(aten.positive.default)
def _positive(e: Emitter, x: Tensor) -> Tensor:
    return x


@rule(aten.trunc.default, aten.fix.default)
def _trunc(e: Emitter, x: Tensor) -> Tensor:
    return e.trunc(x)


@rule(aten.frac.default)
def _frac(e: Emitter, x: Tensor) -> Tensor:
    return e.sub(x, e.trunc(x))


@rule(aten.rsqrt.default)
def _rsqrt(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Reciprocal", e.op("Sqrt", e.cast(x, e.out.dtype)))


@rule(aten.square.default)
def _square(e: Emitter, x: Tensor) -> Tensor:
    x = e.cast(x, e.out.dtype)
    return e.mul(x, x)


@rule(aten.expm1.default)
def _expm1(e: Emitter, x: Tensor) -> Tensor:
    # exp(x) - 1 = tanh(x/2) (exp(x) + 1): nothing cancels for small x.
    x = e.cast(x, e.out.dtype)
    half = e.op("Tanh", e.mul(x, e.number(0.5, x.dtype)))
    return e.mul(half, e.add(e.op("Exp", x), e.number(1, x.dtype)))


@rule(aten.log1p.default)
def _log1p(e: Emitter, x: Tensor) -> Tensor:
    # log(1 + x) = 2 atanh(x / (2 + x)); far from zero nothing is lost by adding.
    x = e.cast(x, e.out.dtype)
    small = e.compare("Less", e.op("Abs", x), e.number(0.5, x.dtype))
    near = e.op("Atanh", e.div(x, e.add(x, e.number(2, x.dtype))))
    far = e.op("Log", e.add(x, e.number(1, x.dtype)))
    return e.where(small, e.mul(near, e.number(2, x.dtype)), far)


def _logarithm(base: float) -> Callable[[Emitter, Tensor], Tensor]:
    def translate(e: Emitter, x: Tensor) -> Tensor:
        log = e.op("Log", e.cast(x, e.out.dtype))
        return e.mul(log, e.number(1 / math.log(base), log.dtype))

    return translate


rule(aten.log2.default)(_logarithm(2))
rule(aten.log10.default)(_logarithm(10))


@rule(aten.exp2.default)
def _exp2(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Pow", e.number(2, e.out.dtype), e.cast(x, e.out.dtype))


# Activations


@rule(aten.gelu.default)
def _gelu(e: Emitter, x: Tensor, *, approximate: str = "none") -> Tensor:
    return e.op("Gelu", x, approximate=approximate)


@rule(aten.silu.default)
def _silu(e: Emitter, x: Tensor) -> Tensor:
    return e.mul(x, e.op("Sigmoid", x))


def _attribute(x: Tensor, value: float) -> float:
    """A number as an attribute, which holds 32 bits; PyTorch's own formula does better for wider elements."""
    if x.dtype is torch.float64 and float(torch.tensor(value, dtype=torch.float32)) != value:
        raise Unsupported(f"the parameter {value} in 64 bits")
    return float(value)


@rule(aten.hardsigmoid.default)
def _hardsigmoid(e: Emitter, x: Tensor) -> Tensor:
    _attribute(x, 1 / 6)
    return e.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@rule(aten.leaky_relu.default)
def _leaky_relu(e: Emitter, x: Tensor, slope: float = 0.01) -> Tensor:
    return e.op("LeakyRelu", x, alpha=_attribute(x, slope))


@rule(aten.elu.default)
def _elu(e: Emitter, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if scale == 1 and input_scale == 1:
        return e.op("Elu", x, alpha=_attribute(x, alpha))
    zero = e.number(0, x.dtype)
    below = e.op("Elu", e.mul(x, e.number(input_scale, x.dtype)), alpha=_attribute(x, alpha))
    positive = e.compare("Greater", x, zero)
    return e.mul(e.where(positive, x, below), e.number(scale, x.dtype))


@rule(aten.celu.default)
def _celu(e: Emitter, x: Tensor, alpha: float = 1) -> Tensor:
    return e.op("Celu", x, alpha=_attribute(x, alpha))


@rule(aten.selu.default)
def _selu(e: Emitter, x: Tensor) -> Tensor:
    _attribute(x, 1.0507009873554804934193349852946)
    return e.op("Selu", x)


@rule(aten.softplus.default)
def _softplus(e: Emitter, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = x if beta == 1 else e.mul(x, e.number(beta, x.dtype))
    soft = e.op("Softplus", scaled)
    if beta != 1:
        soft = e.div(soft, e.number(beta, x.dtype))
    linear = e.compare("Greater", scaled, e.number(threshold, x.dtype))
    return e.where(linear, x, soft)


@rule(aten.log_sigmoid.default)
def _log_sigmoid(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Neg", e.op("Softplus", e.op("Neg", x)))


@rule(aten.log_sigmoid_forward.default)
def _log_sigmoid_forward(e: Emitter, x: Tensor) -> list[Tensor]:
    """And exp(-|x|), which the gradient is made of."""
    return [_log_sigmoid(e, x), e.op("Exp", e.op("Neg", e.op("Abs", x)))]


@rule(aten.relu6.default)
def _relu6(e: Emitter, x: Tensor) -> Tensor:
    return _clamp_numbers(e, x, 0, 6)


@rule(aten.threshold.default)
def _threshold(e: Emitter, x: Tensor, threshold: Number, value: Number) -> Tensor:
    below = e.compare("LessOrEqual", x, e.number(threshold, x.dtype))
    return e.where(below, e.number(value, x.dtype), x)


@rule(aten.glu.default)
def _glu(e: Emitter, x: Tensor, dim: int = -1) -> Tensor:
    axis = dim % x.rank
    a, b = e.ops("Split", [x], [x.dtype, x.dtype], axis=axis, num_outputs=2)
    return e.mul(a, e.op("Sigmoid", b))


@rule(aten.prelu.default, aten._prelu_kernel.default)
def _prelu(e: Emitter, x: Tensor, weight: Tensor) -> Tensor:
    if weight.rank == 1 and x.rank > 2:
        weight = e.reshape(weight, [weight.dims[0]] + [1] * (x.rank - 2))
    return e.op("PRelu", x, weight)


# Two operands of any types: both become the type of the result.


def _pair(e: Emitter, x: Operand, y: Operand, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    dtype = dtype or e.out.dtype
    return e.tensor(x, dtype), e.tensor(y, dtype)


def _scaled(e: Emitter, x: Operand, alpha: Number, dtype: torch.dtype) -> Tensor:
    x = e.tensor(x, dtype)
    if isinstance(alpha, (int, float)) and alpha == 1:
        return x
    if dtype is torch.bool:
        return e.op("And", x, e.number(bool(alpha), dtype))
    return e.mul(x, e.number(alpha, dtype))


@rule(aten.add.Tensor, aten.add.Scalar)
def _add(e: Emitter, x: Operand, y: Operand, alpha: Number = 1) -> Tensor:
    dtype = e.out.dtype
    return e.op("Or" if dtype is torch.bool else "Add", e.tensor(x, dtype), _scaled(e, y, alpha, dtype))


@rule(aten.sub.Tensor, aten.sub.Scalar)
def _sub(e: Emitter, x: Operand, y: Operand, alpha: Number = 1) -> Tensor:
    return e.sub(e.tensor(x, e.out.dtype), _scaled(e, y, alpha, e.out.dtype))


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(e: Emitter, x: Operand, y: Operand, alpha: Number = 1) -> Tensor:
    return _sub(e, y, x, alpha)


@rule(aten.mul.Tensor, aten.mul.Scalar)
def _mul(e: Emitter, x: Operand, y: Operand) -> Tensor:
    return e.op("And" if e.out.dtype is torch.bool else "Mul", *_pair(e, x, y))


@rule(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def _div(e: Emitter, x: Operand, y: Operand) -> Tensor:
    return e.div(*_pair(e, x, y))


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(e: Emitter, x: Operand, y: Operand, *, rounding_mode: str | None) -> Tensor:
    if rounding_mode is None:
        return _div(e, x, y)
    if rounding_mode == "floor":
        return _floor_divide(e, x, y)
    return e.trunc(e.div(*_pair(e, x, y)))


@rule(aten.floor_divide.default, aten.floor_divide.Scalar)
def _floor_divide(e: Emitter, x: Operand, y: Operand) -> Tensor:
    a, b = _pair(e, x, y)
    if is_integer(a.dtype):
        return floor_divide(e, a, b)
    # (a - remainder) / b is whole but for the last bit; of a division by zero the quotient is left as it is.
    zero, one = e.number(0, b.dtype), e.number(1, b.dtype)
    left = e.op("Mod", a, b, fmod=1)
    quotient = e.div(e.sub(a, left), b)
    below = e.op("Xor", e.compare("Less", b, zero), e.compare("Less", left, zero))
    below = e.op("And", below, e.op("Not", e.compare("Equal", left, zero)))
    whole = e.op("Round", e.where(below, e.sub(quotient, one), quotient))
    return e.where(e.compare("Equal", b, zero), e.div(a, b), whole)


@rule(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(e: Emitter, x: Operand, y: Operand) -> Tensor:
    return e.op("Mod", *_pair(e, x, y))


@rule(aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(e: Emitter, x: Operand, y: Operand) -> Tensor:
    return e.op("Mod", *_pair(e, x, y), fmod=1)


@rule(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def _pow(e: Emitter, x: Operand, y: Operand) -> Tensor:
    if isinstance(y, (int, float)) and isinstance(x, Tensor):
        if y == 0.5:
            return e.op("Sqrt", e.cast(x, e.out.dtype))
        if y == -0.5:
            return _rsqrt(e, x)
        if y == 1:
            return e.cast(x, e.out.dtype)
    dtype = e.out.dtype
    narrow = is_integer(dtype) and dtype.itemsize < 4
    return e.cast(e.op("Pow", *_pair(e, x, y, torch.int64 if narrow else dtype)), dtype)


def _is_negative(e: Emitter, x: Tensor) -> Tensor:
    """The sign bit, also of a zero."""
    zero = e.number(0, x.dtype)
    below = e.compare("Less", e.op("Reciprocal", x), zero)
    return e.where(e.compare("Equal", x, zero), below, e.compare("Less", x, zero))


@rule(aten.signbit.default)
def _signbit(e: Emitter, x: Tensor) -> Tensor:
    if _is_float(x.dtype):
        return _is_negative(e, x)
    return e.compare("Less", e.cast(x, torch.int64), e.number(0, torch.int64))


@rule(aten.copysign.Tensor, aten.copysign.Scalar)
def _copysign(e: Emitter, x: Operand, y: Operand) -> Tensor:
    a, b = _pair(e, x, y)
    size = e.op("Abs", a)
    return e.where(_is_negative(e, b), e.op("Neg", size), size)


@rule(aten.hypot.default)
def _hypot(e: Emitter, x: Tensor, y: Tensor) -> Tensor:
    # large sqrt(1 + (small / large)^2): no square overflows.
    a, b = (e.op("Abs", t) for t in _pair(e, x, y))
    small, large = e.op("Min", a, b), e.op("Max", a, b)
    ratio = e.div(small, large)
    whole = e.mul(large, e.op("Sqrt", e.add(e.mul(ratio, ratio), e.number(1, a.dtype))))
    whole = e.where(e.compare("Equal", large, e.number(0, a.dtype)), large, whole)
    return e.where(e.op("Or", _isinf(e, a), _isinf(e, b)), e.number(math.inf, a.dtype), whole)


@rule(aten.atan2.default)
def atan2(e: Emitter, y: Tensor, x: Tensor) -> Tensor:
    # The angle within the first eighth, then mirrored to where the point lies.
    y, x = _pair(e, y, x)
    across, along = e.op("Abs", x), e.op("Abs", y)
    small, large = e.op("Min", across, along), e.op("Max", across, along)
    ratio = e.div(small, large)
    ratio = e.where(e.compare("Equal", small, large), e.number(1, x.dtype), ratio)
    ratio = e.where(e.compare("Equal", small, e.number(0, x.dtype)), e.number(0, x.dtype), ratio)
    angle = e.op("Atan", ratio)
    steep = e.compare("Greater", along, across)
    angle = e.where(steep, e.sub(e.number(math.pi / 2, x.dtype), angle), angle)
    angle = e.where(_is_negative(e, x), e.sub(e.number(math.pi, x.dtype), angle), angle)
    angle = e.where(_is_negative(e, y), e.op("Neg", angle), angle)
    unknown = e.op("Or", _isnan(e, x), _isnan(e, y))
    return e.where(unknown, e.number(math.nan, x.dtype), angle)


def _extreme(op: str) -> Callable[[Emitter, Operand, Operand], Tensor]:
    logical = "Or" if op == "Max" else "And"

    def translate(e: Emitter, x: Operand, y: Operand) -> Tensor:
        return e.op(logical if e.out.dtype is torch.bool else op, *_pair(e, x, y))

    return translate


rule(aten.maximum.default, aten.max.other)(_extreme("Max"))
rule(aten.minimum.default, aten.min.other)(_extreme("Min"))


def _extreme_number(op: str) -> Callable[[Emitter, Operand, Operand], Tensor]:
    """NaN counts as missing."""
    plain = _extreme(op)

    def translate(e: Emitter, x: Operand, y: Operand) -> Tensor:
        if not _is_float(e.out.dtype):
            return plain(e, x, y)
        a, b = _pair(e, x, y)
        first = e.where(e.op("IsNaN", a, dtype=torch.bool), b, a)
        second = e.where(e.op("IsNaN", b, dtype=torch.bool), a, b)
        return e.op(op, first, second)

    return translate


rule(aten.fmax.default)(_extreme_number("Max"))
rule(aten.fmin.default)(_extreme_number("Min"))


def _clamp(e: Emitter, x: Tensor, low: Operand = None, high: Operand = None) -> Tensor:
    x = e.cast(x, e.out.dtype)
    if low is not None:
        x = e.op("Max", x, e.tensor(low, x.dtype))
    if high is not None:
        x = e.op("Min", x, e.tensor(high, x.dtype))
    return x


@rule(aten.clamp.default, aten.clip.default)
def _clamp_numbers(e: Emitter, x: Tensor, min: Number = None, max: Number = None) -> Tensor:  # noqa: A002
    if min is None or max is None:  # Clip would bound the other side by the finite numbers
        return _clamp(e, x, min, max)
    x = e.cast(x, e.out.dtype)
    return e.op("Clip", x, e.number(min, x.dtype), e.number(max, x.dtype))


@rule(aten.hardtanh.default)
def _hardtanh(e: Emitter, x: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    return _clamp_numbers(e, x, min_val, max_val)


rule(aten.clamp.Tensor)(_clamp)


@rule(aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(e: Emitter, x: Tensor, min: Operand) -> Tensor:  # noqa: A002
    return _clamp(e, x, low=min)


@rule(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(e: Emitter, x: Tensor, max: Operand) -> Tensor:  # noqa: A002
    return _clamp(e, x, high=max)


# Comparisons: both operands become the type PyTorch promotes them to.


def _comparison(op: str, negate: bool = False) -> Callable[[Emitter, Operand, Operand], Tensor]:
    def translate(e: Emitter, x: Operand, y: Operand) -> Tensor:
        dtype = result_type(x, y)
        if dtype is torch.bool and op != "Equal":
            dtype = torch.uint8  # ONNX orders no booleans
        result = e.compare(op, *_pair(e, x, y, dtype))
        return e.op("Not", result) if negate else result

    return translate


for _name, _packet in {
    "Equal": aten.eq,
    "Less": aten.lt,
    "LessOrEqual": aten.le,
    "Greater": aten.gt,
    "GreaterOrEqual": aten.ge,
}.items():
    rule(_packet.Tensor, _packet.Scalar)(_comparison(_name))
rule(aten.ne.Tensor, aten.ne.Scalar)(_comparison("Equal", negate=True))


# Logic


def _logical(op: str) -> Callable[[Emitter, Operand, Operand], Tensor]:
    return lambda e, x, y: e.op(op, *_pair(e, x, y, torch.bool))


rule(aten.logical_and.default)(_logical("And"))
rule(aten.logical_or.default)(_logical("Or"))
rule(aten.logical_xor.default)(_logical("Xor"))


@rule(aten.logical_not.default)
def _logical_not(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Not", e.cast(x, torch.bool))


def _bitwise(op: str) -> Callable[[Emitter, Operand, Operand], Tensor]:
    return lambda e, x, y: e.op(op if e.out.dtype is torch.bool else f"Bitwise{op}", *_pair(e, x, y))


for _name, _packets in {
    "And": (aten.bitwise_and, aten.__and__),
    "Or": (aten.bitwise_or, aten.__or__),
    "Xor": (aten.bitwise_xor, aten.__xor__),
}.items():
    for _packet in _packets:
        rule(_packet.Tensor, _packet.Scalar)(_bitwise(_name))


@rule(aten.bitwise_not.default)
def _bitwise_not(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Not" if x.dtype is torch.bool else "BitwiseNot", x)


def _shift(direction: str) -> Callable[[Emitter, Operand, Operand], Tensor]:
    return lambda e, x, y: e.op("BitShift", *_pair(e, x, y), direction=direction)


for _direction, _packets in {
    "LEFT": (aten.bitwise_left_shift, aten.__lshift__),
    "RIGHT": (aten.bitwise_right_shift, aten.__rshift__),
}.items():
    rule(_packets[0].Tensor, _packets[0].Tensor_Scalar, _packets[1].Tensor, _packets[1].Scalar)(_shift(_direction))


@rule(aten.isnan.default)
def _isnan(e: Emitter, x: Tensor) -> Tensor:
    return _test(e, "IsNaN", x)


@rule(aten.isinf.default)
def _isinf(e: Emitter, x: Tensor) -> Tensor:
    return _test(e, "IsInf", x)


@rule(aten.isposinf.default)
def _isposinf(e: Emitter, x: Tensor) -> Tensor:
    return _test(e, "IsInf", x, detect_negative=0)


@rule(aten.isneginf.default)
def _isneginf(e: Emitter, x: Tensor) -> Tensor:
    return _test(e, "IsInf", x, detect_positive=0)


@rule(aten.isfinite.default)
def _isfinite(e: Emitter, x: Tensor) -> Tensor:
    return e.op("Not", e.op("Or", _isnan(e, x), _isinf(e, x)))


def _test(e: Emitter, op: str, x: Tensor, **attrs: Any) -> Tensor:
    if not _is_float(x.dtype):
        return e.fill([e.size(x, i) for i in range(x.rank)], False, torch.bool)
    return e.op(op, x, dtype=torch.bool, **attrs)


# Choices and mixtures


@rule(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def _where(e: Emitter, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    return e.where(e.cast(condition, torch.bool), *_pair(e, x, y))


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(e: Emitter, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return e.where(e.cast(mask, torch.bool), e.tensor(value, x.dtype), x)


@rule(aten.lerp.Scalar, aten.lerp.Tensor)
def _lerp(e: Emitter, x: Tensor, end: Tensor, weight: Operand) -> Tensor:
    x, end, w = (e.tensor(t, e.out.dtype) for t in (x, end, weight))
    step = e.sub(end, x)
    small = e.compare("Less", e.op("Abs", w), e.number(0.5, w.dtype))
    below = e.add(x, e.mul(w, step))
    above = e.sub(end, e.mul(step, e.sub(e.number(1, w.dtype), w)))
    return e.where(small, below, above)


@rule(aten.addcmul.default)
def _addcmul(e: Emitter, x: Tensor, a: Tensor, b: Tensor, *, value: Number = 1) -> Tensor:
    return e.add(e.cast(x, e.out.dtype), _scaled(e, e.mul(*_pair(e, a, b)), value, e.out.dtype))


@rule(aten.addcdiv.default)
def _addcdiv(e: Emitter, x: Tensor, a: Tensor, b: Tensor, *, value: Number = 1) -> Tensor:
    return e.add(e.cast(x, e.out.dtype), _scaled(e, e.div(*_pair(e, a, b)), value, e.out.dtype))


@rule(aten.dropout.default, aten.alpha_dropout.default, aten.feature_dropout.default)
def _dropout(e: Emitter, x: Tensor, p: float, train: bool) -> Tensor:
    if train and p > 0:
        raise Unsupported("dropout in training")
    return x


@rule(aten.native_dropout.default)
def _native_dropout(e: Emitter, x: Tensor, p: float, train: bool | None) -> list[Tensor]:
    if (train is None or train) and p > 0:
        raise Unsupported("dropout in training")
    return [x, e.fill([e.size(x, i) for i in range(x.rank)], True, torch.bool)]


@rule(aten.nan_to_num.default)
def _nan_to_num(
    e: Emitter, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if not _is_float(x.dtype):
        return x
    info = torch.finfo(x.dtype)
    for test, attrs, value in (
        ("IsNaN", {}, 0.0 if nan is None else nan),
        ("IsInf", {"detect_negative": 0}, info.max if posinf is None else posinf),
        ("IsInf", {"detect_positive": 0}, info.min if neginf is None else neginf),
    ):
        x = e.where(_test(e, test, x, **attrs), e.number(value, x.dtype), x)
    return x
