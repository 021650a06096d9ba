"""Captured PyTorch operators, translated and run, beside PyTorch itself: over types and shapes, fixed and free."""

from __future__ import annotations

import operator
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import ingot  # noqa: E402
from ingot._ingot import GraphBuilder  # noqa: E402
from ingot.torch.translate import Interface, Translation, translate, unsupported  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

aten = torch.ops.aten
# The operators' own meaning is at stake, not the compiler's: machine code is made for them in other tests.
LEVEL = int(os.environ.get("INGOT_TEST_LEVEL", "0"))

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
FLOATS = (F32, F64, F16, BF16)
INTEGERS = (I64, I32, I16, I8, U8)


def sample(dtype: Any, *shape: int, low: int = -4, high: int = 5, seed: int = 0) -> Any:
    """Numbers of small size: whole for integers, with halves and quarters between for floats."""
    g = torch.Generator().manual_seed(seed + sum(shape))
    if dtype is BOOL:
        return torch.randint(0, 2, shape, generator=g).bool()
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=g) * (high - low) + low).to(dtype)
    return torch.randint(max(low, 0) if dtype is U8 else low, high, shape, generator=g).to(dtype)


def translated(function: Callable[..., Any], args: Sequence[Any], mode: str) -> Translation:
    """Captured with fixed shapes before autograd ("fake"), or with free ones after it ("symbolic")."""
    captured = make_fx(lambda *given: function(*given), tracing_mode=mode, pre_dispatch=mode == "fake")(*args)
    missing = unsupported(captured.graph)
    assert not missing, missing
    return translate(captured.graph)


TOLERANCES = {F32: 2e-6, F64: 1e-12, F16: 2e-3, BF16: 1.6e-2, torch.complex64: 2e-6, torch.complex128: 1e-12}


def compare(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (
        found.dtype,
        found.shape,
        wanted.dtype,
        wanted.shape,
    )
    tolerance = TOLERANCES.get(wanted.dtype, 0.0)
    finite = wanted[wanted.isfinite()].abs() if tolerance else wanted
    largest = float(finite.max()) if tolerance and finite.numel() else 0.0
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, largest), equal_nan=True)


def check(function: Callable[..., Any], *args: Any, modes: Sequence[str] = ("fake", "symbolic")) -> None:
    wanted = pytree.tree_leaves(function(*args))
    for mode in modes:
        translation = translated(function, args, mode)
        call = translation.bind(translation.graph(opt_level=LEVEL))
        found = call(*pytree.tree_leaves(args))
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            if isinstance(b, torch.Tensor):
                compare(a, b)
            else:
                assert a == b


# f(x) for x of these types; the third entry is the range of x.
UNARY: dict[str, tuple[Any, Sequence[Any], tuple[int, int]]] = {
    "abs": (torch.abs, (F32, F64, BF16, *INTEGERS), (-4, 5)),
    "acos": (torch.acos, (F32, F64), (-1, 1)),
    "acosh": (torch.acosh, (F32,), (1, 5)),
    "asin": (torch.asin, (F32,), (-1, 1)),
    "asinh": (torch.asinh, (F32,), (-4, 5)),
    "atan": (torch.atan, (F32, I64), (-4, 5)),
    "atanh": (torch.atanh, (F32,), (-1, 1)),
    "ceil": (torch.ceil, (F32, F64, I32), (-4, 5)),
    "celu": (lambda x: F.celu(x, 0.7), (F32,), (-4, 5)),
    "cos": (torch.cos, (*FLOATS, I64, BOOL), (-4, 5)),
    "cosh": (torch.cosh, (F32,), (-4, 5)),
    "elu": (lambda x: F.elu(x, 0.7), (F32, F16), (-4, 5)),
    "erf": (torch.erf, (F32, F64), (-4, 5)),
    "exp": (torch.exp, (*FLOATS, I64), (-4, 5)),
    "exp2": (torch.exp2, (F32,), (-4, 5)),
    "expm1": (torch.expm1, (F32, F64), (-4, 5)),
    "floor": (torch.floor, (F32, BF16, I64), (-4, 5)),
    "frac": (torch.frac, (F32,), (-4, 5)),
    "gelu": (F.gelu, FLOATS, (-4, 5)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (F32, BF16), (-4, 5)),
    "glu": (lambda x: F.glu(x, 1), (F32,), (-4, 5)),
    "hardsigmoid": (F.hardsigmoid, (F32,), (-4, 5)),
    "hardswish": (F.hardswish, (F32, BF16), (-4, 5)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 2.0), (F32,), (-4, 5)),
    "isfinite": (torch.isfinite, (F32, I64), (-4, 5)),
    "isinf": (torch.isinf, (F32, I64), (-4, 5)),
    "isnan": (torch.isnan, (F32, F64, I64), (-4, 5)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), (F32, F64), (-4, 5)),
    "log": (torch.log, (F32, F64, I64), (1, 5)),
    "log10": (torch.log10, (F32,), (1, 5)),
    "log1p": (torch.log1p, (F32, F64), (-1, 5)),
    "log2": (torch.log2, (F32,), (1, 5)),
    "log_sigmoid": (F.logsigmoid, (F32,), (-4, 5)),
    "logical_not": (torch.logical_not, (F32, I64, BOOL), (-1, 2)),
    "bitwise_not": (torch.bitwise_not, (I64, U8, BOOL), (-4, 5)),
    "mish": (F.mish, (F32,), (-4, 5)),
    "nan_to_num": (torch.nan_to_num, (F32, I64), (-4, 5)),
    "neg": (torch.neg, (F32, I64, I8, U8), (-4, 5)),
    "reciprocal": (torch.reciprocal, (F32, I64), (1, 5)),
    "relu": (torch.relu, (*FLOATS, I64, I8), (-4, 5)),
    "relu6": (F.relu6, (F32,), (-4, 9)),
    "round": (torch.round, (F32, F64, I64), (-4, 5)),
    "rsqrt": (torch.rsqrt, (F32, I64), (1, 5)),
    "selu": (F.selu, (F32,), (-4, 5)),
    "sigmoid": (torch.sigmoid, (*FLOATS, I64), (-4, 5)),
    "sign": (torch.sign, (F32, I64, I8), (-4, 5)),
    "silu": (F.silu, FLOATS, (-4, 5)),
    "sin": (torch.sin, (F32, F64), (-4, 5)),
    "sinh": (torch.sinh, (F32,), (-4, 5)),
    "softplus": (lambda x: F.softplus(x, 2.0, 3.0), (F32,), (-4, 5)),
    "softsign": (F.softsign, (F32,), (-4, 5)),
    "sqrt": (torch.sqrt, (*FLOATS, I64), (0, 5)),
    "square": (torch.square, (F32, I64), (-4, 5)),
    "tan": (torch.tan, (F32,), (-1, 1)),
    "tanh": (torch.tanh, (*FLOATS, I64), (-4, 5)),
    "tanhshrink": (F.tanhshrink, (F32,), (-4, 5)),
    "threshold": (lambda x: F.threshold(x, 0.5, -3.0), (F32,), (-4, 5)),
    "trunc": (torch.trunc, (F32, I64), (-4, 5)),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_tensor(name: str) -> None:
    function, types, (low, high) = UNARY[name]
    for dtype in types:
        x = sample(dtype, 3, 8, low=low, high=high)
        check(function, x, modes=("fake", "symbolic") if dtype is types[0] else ("fake",))
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.5, 1.5, -2.5])
    if F32 in types and name not in ("glu", "atanh", "gelu"):
        check(function, special, modes=("fake",))
    if name != "glu":
        check(function, sample(types[0], low=low, high=high), modes=("fake",))
        check(function, sample(types[0], 0, 3, low=low, high=high), modes=("fake",))


BINARY: dict[str, tuple[Any, Sequence[tuple[Any, Any]]]] = {
    "add": (
        torch.add,
        ((F32, F32), (F32, I64), (I64, I32), (U8, I8), (BOOL, BOOL), (BOOL, I64), (F16, F32), (BF16, BF16)),
    ),
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=3), ((F32, F32), (I64, I32), (F32, I64))),
    "sub": (torch.sub, ((F32, F32), (I64, F32), (U8, U8), (F64, F32))),
    "sub_alpha": (lambda x, y: torch.sub(x, y, alpha=2), ((F32, F32), (I64, I64))),
    "rsub": (lambda x, y: torch.rsub(x, y, alpha=2), ((F32, F32),)),
    "mul": (torch.mul, ((F32, F32), (I64, F32), (BOOL, BOOL), (BOOL, F32), (I8, I8), (F16, F16))),
    "div": (torch.div, ((F32, F32), (I64, I64), (I64, F32), (BOOL, I64), (F64, F64))),
    "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), ((F32, F32), (I64, I64), (I32, I8), (F64, F64))),
    "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), ((F32, F32), (I64, I64), (I32, I32))),
    "floor_divide": (torch.floor_divide, ((F32, F32), (I64, I64))),
    "remainder": (torch.remainder, ((F32, F32), (I64, I64), (I64, F32), (F64, F64))),
    "fmod": (torch.fmod, ((F32, F32), (I64, I64))),
    "maximum": (torch.maximum, ((F32, F32), (I64, F32), (BOOL, BOOL), (I8, I8))),
    "minimum": (torch.minimum, ((F32, F32), (I64, I32), (BOOL, BOOL))),
    "fmax": (torch.fmax, ((F32, F32), (I64, I64))),
    "fmin": (torch.fmin, ((F32, F32), (I64, I64))),
    "eq": (torch.eq, ((F32, F32), (I64, F32), (BOOL, BOOL))),
    "ne": (torch.ne, ((F32, F32), (I64, I32), (BOOL, I64))),
    "lt": (torch.lt, ((F32, F32), (I64, F32), (BOOL, BOOL), (I8, U8))),
    "le": (torch.le, ((F32, F32), (I64, I64))),
    "gt": (torch.gt, ((F32, F32), (F16, F32))),
    "ge": (torch.ge, ((F32, F32), (I32, I64))),
    "logical_and": (torch.logical_and, ((F32, I64), (BOOL, BOOL))),
    "logical_or": (torch.logical_or, ((F32, F32), (BOOL, I64))),
    "logical_xor": (torch.logical_xor, ((I64, F32), (BOOL, BOOL))),
    "bitwise_and": (torch.bitwise_and, ((I64, I32), (BOOL, BOOL), (U8, U8))),
    "bitwise_or": (operator.or_, ((I64, I64), (BOOL, BOOL))),
    "bitwise_xor": (operator.xor, ((I64, I64), (BOOL, BOOL))),
    "atan2": (torch.atan2, ((F32, F32), (I64, F32))),
    "hypot": (torch.hypot, ((F32, F32),)),
    "copysign": (torch.copysign, ((F32, F32),)),
    "logaddexp": (torch.logaddexp, ((F32, F32),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), ((F32, F32),)),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y, value=0.5), ((F32, F32),)),
    "addcdiv": (lambda x, y: torch.addcdiv(x, y, y.abs() + 1, value=0.5), ((F32, F32),)),
    "where": (lambda x, y: torch.where(x > 0, x, y), ((F32, F32), (F32, I64), (I64, I64))),
    "where_number": (lambda x, y: torch.where(y > 0, x, 1.5), ((F32, F32), (I64, F32))),
    "masked_fill": (lambda x, y: x.masked_fill(y > 0, -2), ((F32, F32), (I64, F32), (BOOL, I64))),
    "clamp_tensor": (lambda x, y: torch.clamp(x, y, y + 1), ((F32, F32), (I64, I64))),
    "pow": (lambda x, y: torch.pow(x.abs() + 1, y), ((F32, F32), (F32, I64), (F64, F64))),
    "outer_add": (lambda x, y: x.unsqueeze(0) + y.unsqueeze(1), ((F32, F32),)),
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tensors(name: str) -> None:
    function, types = BINARY[name]
    divides = name in ("div", "div_floor", "div_trunc", "floor_divide", "remainder", "fmod")
    for a, b in types:
        x, y = sample(a, 3, 8), sample(b, 3, 8, seed=1)
        if divides:
            y = torch.where(y == 0, torch.ones_like(y), y)
        check(function, x, y, modes=("fake",))
        if name != "outer_add":
            check(function, x, y[0, 0], modes=("fake",))
    check(function, sample(types[0][0], 3, 8), sample(types[0][1], 1, 8), modes=("symbolic",))
    check(function, x[:0], y[:0], modes=("fake",))
    a, b = types[0]
    if a is F32 and name not in ("addcdiv", "pow", "outer_add", "clamp_tensor"):
        special = torch.tensor([0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0])
        check(function, special.repeat(6), special.repeat_interleave(6), modes=("fake",))


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "add_float": lambda x: x + 1.5,
    "radd_bool": lambda x: x + True,
    "rsub": lambda x: 3 - x,
    "mul": lambda x: x * 2.5,
    "div": lambda x: x / 2,
    "rdiv": lambda x: 6.0 / (x.abs() + 1),
    "floordiv": lambda x: x // 3,
    "remainder": lambda x: x % 3,
    "remainder_negative": lambda x: x % -3,
    "fmod": lambda x: torch.fmod(x, -3),
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "pow_half": lambda x: x.abs() ** 0.5,
    "pow_base": lambda x: 2 ** x.abs(),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp_min": lambda x: x.clamp_min(1),
    "clamp_max": lambda x: x.clamp(max=1),
    "clamp_crossed": lambda x: x.clamp(3, 1),
    "compare": lambda x: (x > 1) & (x <= 3.5),
    "equal": lambda x: x == 2,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", [F32, F64, BF16, I64, I32, U8])
def test_numbers_take_part_in_promotion(name: str, dtype: Any) -> None:
    check(NUMBERS[name], sample(dtype, 3, 8), modes=("symbolic",) if dtype is F32 else ("fake",))


def test_shifts() -> None:
    x = sample(I64, 3, 8)
    check(lambda x: (x << 2, x >> 1), x)
    check(lambda x: x.to(torch.uint8) >> 1, x.abs())


REDUCTIONS: dict[str, tuple[Any, Sequence[Any]]] = {
    "sum": (torch.sum, (F32, F64, I64, I32, BOOL, U8, BF16)),
    "sum_dim": (lambda x: x.sum(1), (F32, I64, BOOL)),
    "sum_dims": (lambda x: x.sum((0, -1), keepdim=True), (F32,)),
    "sum_no_dims": (lambda x: x.sum([]), (F32,)),
    "sum_dtype": (lambda x: x.sum(-1, dtype=F64), (F32, I64)),
    "mean": (torch.mean, (F32, F64, F16)),
    "mean_dim": (lambda x: x.mean((1, 2), keepdim=True), (F32, BF16)),
    "mean_dtype": (lambda x: x.mean(1, dtype=F32), (I64,)),
    "prod": (torch.prod, (F32, I64)),
    "prod_dim": (lambda x: x.prod(1, keepdim=True), (F32, I64)),
    "amax": (lambda x: x.amax((0, 2)), (F32, I64, BOOL, U8)),
    "amin": (lambda x: x.amin(-1, keepdim=True), (F32, I64, BOOL)),
    "max_all": (torch.max, (F32, I64, BOOL)),
    "min_all": (torch.min, (F32, I32)),
    "max_dim": (lambda x: torch.max(x, 1), (F32, I64)),
    "min_dim": (lambda x: torch.min(x, -1, keepdim=True), (F32, F64)),
    "argmax": (torch.argmax, (F32, I64)),
    "argmax_dim": (lambda x: x.argmax(1), (F32, I32)),
    "argmin_keep": (lambda x: x.argmin(-1, keepdim=True), (F32,)),
    "argmax_keep_all": (lambda x: torch.argmax(x, None, True), (F32,)),
    "any": (torch.any, (BOOL, F32, I64)),
    "any_dim": (lambda x: x.any(1), (BOOL, F32)),
    "all": (torch.all, (BOOL, I64)),
    "all_dim": (lambda x: x.all(-1, keepdim=True), (BOOL, F32)),
    "count_nonzero": (lambda x: torch.count_nonzero(x, 1), (F32, BOOL)),
    "var": (torch.var, (F32, F64)),
    "var_dim": (lambda x: x.var((1, 2), keepdim=True, correction=0), (F32,)),
    "std_dim": (lambda x: x.std(-1), (F32, F64)),
    "var_mean": (lambda x: torch.var_mean(x, 1, correction=2), (F32,)),
    "logsumexp": (lambda x: torch.logsumexp(x, (0, 2)), (F32, F64)),
    "norm_2": (lambda x: torch.linalg.vector_norm(x, 2, 1), (F32,)),
    "norm_1": (lambda x: torch.linalg.vector_norm(x, 1, (0, 1), keepdim=True), (F32,)),
    "norm_inf": (lambda x: torch.linalg.vector_norm(x, float("inf"), 1), (F32,)),
    "norm_0": (lambda x: torch.linalg.vector_norm(x, 0, 1), (F32,)),
    "norm_3": (lambda x: torch.linalg.vector_norm(x, 3, 1), (F32,)),
    "normalize": (lambda x: F.normalize(x, dim=1), (F32,)),
    "softmax": (lambda x: x.softmax(1), (F32, F64, BF16)),
    "softmax_dtype": (lambda x: x.softmax(-1, dtype=F32), (F16, BF16)),
    "log_softmax": (lambda x: x.log_softmax(-1), (F32,)),
    "cumsum": (lambda x: x.cumsum(1), (F32, I64, I32, BOOL)),
    "cumprod": (lambda x: x.cumprod(-1), (F32,)),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (F32,)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    function, types = REDUCTIONS[name]
    for dtype in types:
        check(function, sample(dtype, 3, 4, 5), modes=("fake", "symbolic") if dtype is types[0] else ("fake",))


def test_extremes_of_nan() -> None:
    x = torch.tensor([[1.0, float("nan"), 3.0], [2.0, 5.0, -1.0]])
    check(lambda x: (x.amax(1), x.amin(1), x.clamp(0, 2), torch.relu(x)), x)
    check(lambda x: (x.max(), torch.maximum(x, x.flip(1)), torch.minimum(x, x.flip(0))), x)


def test_reductions_of_numbers_and_nothing() -> None:
    check(
        lambda x: (x.sum(), x.mean(), x.amax(), x.argmax(), x.softmax(0), x.cumsum(0)),
        torch.tensor(2.5),
        modes=("fake",),
    )
    check(lambda x: (x.sum(0), x.prod(0), x.any(0), x.all(0)), torch.zeros(0, 3), modes=("fake",))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(x.shape[0], -1),
    "view_merge": lambda x: x.view(-1, x.shape[2]),
    "view_heads": lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2),
    "reshape_flat": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, -1)),
    "unsqueeze": lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None, :, None]),
    "squeeze": lambda x: (x[:1].squeeze(0), x[:1].squeeze(), x.squeeze(1), x[:1, :, :1].squeeze((0, 2))),
    "permute": lambda x: x.permute(2, 0, -2),
    "transpose": lambda x: x.transpose(0, -1),
    "mT": lambda x: x.mT,
    "movedim": lambda x: (x.movedim(0, -1), x.movedim((0, 1), (2, 0))),
    "expand": lambda x: (x[:1].expand(4, -1, -1), x[0].expand(2, *x.shape[1:]), x[:, :1].expand_as(x)),
    "slice": lambda x: (x[1:], x[:, :-1], x[..., ::2], x[:, 1:3], x[:, -2:], x[:, 5:3], x[:, :100]),
    "select": lambda x: (x[0], x[:, -1], x[..., 2]),
    "narrow": lambda x: (x.narrow(1, 1, 2), x.narrow(1, -2, 2)),
    "unbind": lambda x: x[:, :3].unbind(1),
    "split": lambda x: (x.split(2, 2), x.split([1, 3, 2], dim=-1), x.chunk(3, -1)),
    "cat": lambda x: (torch.cat([x, x[:, :1]], 1), torch.cat([x, x.to(F64)]), torch.cat([x.new_zeros(0), x[0, 0]])),
    "stack": lambda x: (torch.stack([x, x + 1]), torch.stack([x, x], -1)),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1), torch.tile(x, (2,))),
    "repeat_interleave": lambda x: (x.repeat_interleave(2, 1), x[0].repeat_interleave(3)),
    "flip": lambda x: (x.flip(0), x.flip(1, -1)),
    "roll": lambda x: (x.roll(1, 0), x.roll((2, -1), (1, 2)), x.roll(3)),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, -1), value=3.0), F.pad(x, (1, 2), mode="reflect")),
    "pad_edges": lambda x: (F.pad(x, (2, 1), mode="replicate"), F.pad(x, (2, 1), mode="circular")),
    "tril": lambda x: (x.tril(), x.tril(-1), x.triu(1), (x > 0).tril()),
    "diagonal": lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-1, 2, 0)),
    "unfold": lambda x: (x.unfold(2, 3, 2), x.unfold(1, 2, 1)),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy"),
    "slice_scatter": lambda x: (
        torch.slice_scatter(x, x[:, :2] + 1, 1, 1, 3),
        torch.slice_scatter(x, x[..., ::2] * 2, 2, 0, 100, 2),
    ),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "copy": lambda x: (x.clone(), x.detach(), x.contiguous(), aten.copy(x, x[0])),
    "to": lambda x: (x.to(I64), x.to(BF16), x.double(), x.bool(), x.type_as(x.half())),
    "like": lambda x: (
        torch.zeros_like(x),
        torch.ones_like(x, dtype=I64),
        torch.full_like(x, 2.5),
        x.new_full((2, 3), 4),
    ),
    "new": lambda x: (x.new_zeros(x.shape[0], 2), x.new_ones(3, dtype=BOOL)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(x.shape[0], 4, -1, 2), 2),
    "bits": lambda x: x.view(I32),
    "einsum": lambda x: (
        torch.einsum("bij,bkj->bik", x, x),
        torch.einsum("bij->b", x),
        torch.einsum("...i,...i", x, x),
    ),
    "channel_shuffle": lambda x: F.channel_shuffle(x.unsqueeze(-1), 2),
}


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "cdist": lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x * 2, p=1.0)),
    "fold": lambda x: F.fold(F.unfold(x[:, None], (2, 3), padding=1), x.shape[1:], (2, 3), padding=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0), dim=-1),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(1)),
    "cross_entropy": lambda x: F.cross_entropy(x[0], torch.tensor([0, 2, 1, 5])),
    "mse_loss": lambda x: (F.mse_loss(x, x * 2), F.l1_loss(x, x * 2), F.smooth_l1_loss(x, x * 2)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float()),
    "kron": lambda x: torch.kron(x[0], x[1]),
    "cross": lambda x: torch.linalg.cross(x[..., :3], x[..., 3:]),
    "diag_embed": lambda x: torch.diag_embed(x[0]),
    "rot90": lambda x: torch.rot90(x, 1, (1, 2)),
    "nansum": lambda x: torch.nansum(x.masked_fill(x > 3, float("nan")), 1),
    "logcumsumexp": lambda x: x.exp().cumsum(1).log(),
    "isin": lambda x: torch.isin(x.round(), torch.tensor([1.0, 2.0])),
    "trapezoid": lambda x: torch.trapezoid(x),
    "tensordot": lambda x: torch.tensordot(x, x, ([1, 2], [1, 2])),
    "weight_norm": lambda x: torch._weight_norm(x, x[:, :1, :1], 0),
    "softmin": lambda x: F.softmin(x, -1),
    "hardshrink": lambda x: (F.hardshrink(x), F.softshrink(x)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_operators_made_of_others(name: str) -> None:
    check(COMPOSED[name], sample(F32, 3, 4, 6), modes=("fake",))


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_shapes(name: str) -> None:
    check(VIEWS[name], sample(F32, 3, 4, 6))


@pytest.mark.parametrize("dtype", [BOOL, U8, I32, I64, F16, BF16, F64])
def test_moving_elements_of_any_type(dtype: Any) -> None:
    x = sample(dtype, 3, 4, 6)
    check(
        lambda x: (x.transpose(1, 2), x[:, 1:], torch.cat([x, x], 2), x.flip(1), F.pad(x, (1, 1)), x.repeat(1, 2, 1)), x
    )
    check(lambda x: (x[[2, 0]], x.gather(1, torch.zeros_like(x, dtype=I64)), torch.where(x > 0, x, x), x.roll(1, 1)), x)


def index_cases() -> dict[str, Callable[[Any, Any, Any], Any]]:
    return {
        "one": lambda x, i, j: x[i],
        "second": lambda x, i, j: x[:, i],
        "matrix": lambda x, i, j: x[:, i.view(1, -1).expand(2, -1)],
        "two": lambda x, i, j: x[i, j],
        "two_behind": lambda x, i, j: x[:, i, j],
        "apart": lambda x, i, j: x[i, :, j],
        "broadcast": lambda x, i, j: x[i[:, None], j],
        "negative": lambda x, i, j: x[-i - 1],
        "mask": lambda x, i, j: torch.where(x[..., 0] > 0, 1, 0),
        "embedding": lambda x, i, j: F.embedding(i, x[0], padding_idx=0),
        "index_select": lambda x, i, j: (x.index_select(1, i), x.index_select(-1, j[:2])),
        "take": lambda x, i, j: torch.take(x, i * 5),
        "gather": lambda x, i, j: x.gather(2, i.view(1, -1, 1).expand(2, 3, 4)),
        "put": lambda x, i, j: x.index_put((i,), x[i] * 2),
        "put_two": lambda x, i, j: x.index_put((i, j), torch.tensor(7.0)),
        "put_behind": lambda x, i, j: aten.index_put(x, [None, i], x[:, :1] * 0 + 5),
        "put_add": lambda x, i, j: x.index_put((i * 0, j * 0), x[i, j], accumulate=True),
        "put_masked_list": lambda x, i, j: x.index_put((x > -9,), torch.arange(60.0)),
        "put_mask": lambda x, i, j: x.index_put((x > 1,), torch.tensor(-1.0)),
        "index_add": lambda x, i, j: x.index_add(1, j * 0, x[:, :3], alpha=2),
        "index_copy": lambda x, i, j: x.index_copy(0, i, x[i] * 3),
        "index_fill": lambda x, i, j: (x.index_fill(1, i, 9.0), x.index_fill(-1, j, torch.tensor(3.0))),
        "scatter": lambda x, i, j: x.scatter(1, i.view(1, -1, 1).expand(3, 3, 2), x * 2),
        "scatter_value": lambda x, i, j: x.scatter(0, i.view(1, -1, 1), 5.0),
        "scatter_add": lambda x, i, j: x.scatter_add(1, (i * 0).view(1, -1, 1).expand(3, 3, 4), x),
        "scatter_reduce": lambda x, i, j: (
            x.scatter_reduce(1, i.view(1, -1, 1), x[:1] * 2, "amax"),
            x.scatter_reduce(1, i.view(1, -1, 1), x[:1] * 2, "sum", include_self=False),
            x.scatter_reduce(1, i.view(1, -1, 1), x[:1] * 2, "prod"),
        ),
        "one_hot": lambda x, i, j: F.one_hot(i, 5),
        "bucketize": lambda x, i, j: (
            torch.bucketize(x, x[0, 0].sort()[0]),
            torch.bucketize(x, x[0, 0].sort()[0], right=True),
        ),
    }


@pytest.mark.parametrize("name", index_cases())
def test_indices(name: str) -> None:
    check(index_cases()[name], sample(F32, 3, 4, 5), torch.tensor([2, 0, 1]), torch.tensor([1, 3, 0]))


def test_sizes_that_data_decide() -> None:
    x = sample(F32, 3, 4)
    check(lambda x: (torch.nonzero(x > 0), torch.masked_select(x, x > 1)), x, modes=("symbolic",))
    check(lambda x: x[x[:, 0] > -9] * 2, x, modes=("symbolic",))
    check(lambda x: x.masked_scatter(x > 0, torch.arange(12.0)), x)


ORDERS: dict[str, Callable[[Any], Any]] = {
    "topk": lambda x: x.topk(3),
    "topk_small": lambda x: x.topk(2, 0, largest=False),
    "sort": lambda x: x.sort(),
    "sort_down": lambda x: torch.sort(x, dim=0, descending=True, stable=True),
    "argsort": lambda x: x.argsort(-1),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("dtype", [F32, I64, U8])
def test_orders(name: str, dtype: Any) -> None:
    x = torch.arange(20).mul(7).remainder(20).view(4, 5).to(dtype)
    check(ORDERS[name], x, modes=("fake", "symbolic") if dtype is F32 else ("fake",))


def test_making_tensors() -> None:
    x = sample(F32, 3, 4)
    check(lambda x: (torch.arange(5), torch.arange(1, 9, 2), torch.arange(0, 1, 0.25), torch.arange(3, dtype=F16)), x)
    check(
        lambda x: (torch.arange(x.shape[0]), torch.arange(2, x.shape[1] * 3, 2), torch.arange(x.shape[0], dtype=F32)), x
    )
    check(
        lambda x: (torch.full((2, 3), 7), torch.full(x.shape, 0.5), torch.zeros(2), torch.ones(x.shape[1], dtype=BOOL)),
        x,
    )
    check(lambda x: (torch.eye(3), torch.eye(x.shape[0], 4), torch.linspace(0, 1, 5), torch.tensor(x.shape[0])), x)


def test_numbers_that_shapes_decide() -> None:
    def sizes(x: Any) -> Any:
        n, m = x.shape
        return (
            x.new_zeros(n * 2 + 1),
            x.new_zeros(max(n, m) - 1),
            x * (n // 2) + m % 2,
            x / n,
            x[: n // 2],
            torch.arange((n + 3) // 2),
            x.view(n * m // 2, 2),
            torch.full((n,), m),
            x * (m**0.5),
            n,
            m - n,
        )

    check(sizes, sample(F32, 3, 4))


LINEAR: dict[str, Callable[..., Any]] = {
    "mm": lambda a, b, c: a[0] @ b[0],
    "bmm": lambda a, b, c: torch.bmm(a, b),
    "matmul": lambda a, b, c: (a @ b[0], a @ b[0, :, 0], a[0, 0] @ b, a[None] @ b),
    "dot": lambda a, b, c: torch.dot(a[0, 0], b[0, :, 0]),
    "mv": lambda a, b, c: torch.mv(a[0], b[0, :, 0]),
    "linear": lambda a, b, c: (F.linear(a, b[0].T, c), F.linear(a[0], b[0].T, c), F.linear(a[0], b[0].T)),
    "addmm": lambda a, b, c: (torch.addmm(c, a[0], b[0]), torch.addmm(c, a[0], b[0], beta=0.5, alpha=2)),
    "addmm_nothing": lambda a, b, c: torch.addmm(c * float("nan"), a[0], b[0], beta=0),
    "baddbmm": lambda a, b, c: torch.baddbmm(c, a, b, beta=2, alpha=0.5),
    "outer": lambda a, b, c: torch.outer(c, c),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", [F32, F64, I64])
def test_products(name: str, dtype: Any) -> None:
    if dtype is I64 and name in ("addmm", "addmm_nothing", "baddbmm"):
        pytest.skip("fractions")
    modes = ("fake", "symbolic") if dtype is F32 else ("fake",)
    check(LINEAR[name], sample(dtype, 2, 3, 4), sample(dtype, 2, 4, 5, seed=1), sample(dtype, 5, seed=2), modes=modes)


def test_convolutions() -> None:
    x1, x2, x3 = sample(F32, 2, 4, 9), sample(F32, 2, 4, 7, 9), sample(F32, 1, 4, 5, 6, 7)
    w1, w2, w3 = sample(F32, 6, 4, 3), sample(F32, 6, 2, 3, 2), sample(F32, 2, 4, 2, 2, 2)
    b = sample(F32, 6)
    check(lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), x1, w1, b, modes=("fake",))
    check(lambda x, w, b: F.conv1d(x, w, b, padding="same", dilation=2), x1, w1, b, modes=("fake",))
    check(lambda x, w: F.conv1d(x[0], w, padding="valid"), x1, w1, modes=("fake",))
    check(lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 0), groups=2), x2, w2, b)
    check(lambda x, w: F.conv2d(x, w, groups=4), x2, sample(F32, 8, 1, 3, 3), modes=("fake",))
    check(lambda x, w: F.conv3d(x, w, padding=1, stride=2), x3, w3, modes=("fake",))
    check(
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        x1,
        sample(F32, 4, 3, 3),
        modes=("fake",),
    )
    check(lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), x2, sample(F32, 4, 3, 2, 2))
    check(lambda x, w: F.conv_transpose3d(x, w, dilation=2), x3, sample(F32, 4, 2, 2, 2, 2), modes=("fake",))


POOLS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max_pad": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "max_places": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "max_1d": lambda x: F.max_pool1d(x[:, :, 0], 3, 2),
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg_pad": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_without_pad": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "avg_1d": lambda x: F.avg_pool1d(x[:, :, 0], 2),
    "avg_single": lambda x: F.avg_pool2d(x[0], 2),
    "avg_larger_than_input": lambda x: F.avg_pool2d(x, 20, ceil_mode=True),
    "avg_larger_one_side": lambda x: F.avg_pool2d(x, (3, 30), padding=(1, 2), ceil_mode=True, count_include_pad=False),
    "max_larger_than_input": lambda x: F.max_pool2d(x, 4, 30, dilation=(1, 4), ceil_mode=True),
    "adaptive_1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_even": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_uneven": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "adaptive_one_side": lambda x: F.adaptive_avg_pool2d(x, (None, 1)),
    "adaptive_1d": lambda x: F.adaptive_avg_pool1d(x[:, :, 0], 4),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str) -> None:
    static = (name.startswith("adaptive") and name != "adaptive_1") or "larger" in name
    check(POOLS[name], sample(F32, 2, 3, 8, 9), modes=("fake",) if static else ("fake", "symbolic"))


C64, C128 = torch.complex64, torch.complex128
COMPLEX: dict[str, Callable[..., Any]] = {  # of z [2, 3, 4], w [3, 4], both complex, and the real x [2, 3, 4]
    "fft": lambda z, w, x: torch.fft.fft(z),
    "fft_of_real": lambda z, w, x: torch.view_as_real(torch.fft.fft(x)),
    "fft_dim": lambda z, w, x: torch.fft.fft(z, dim=-2, norm="ortho"),
    "fft_longer": lambda z, w, x: torch.fft.fft(z, n=7),
    "fft_forward": lambda z, w, x: torch.fft.fft(z, norm="forward"),
    "fft2": lambda z, w, x: torch.fft.fft2(z),
    "fftn": lambda z, w, x: torch.fft.fftn(x, norm="ortho").real,
    "fnet": lambda z, w, x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "ifft": lambda z, w, x: torch.fft.ifft(z),
    "ifft_ortho": lambda z, w, x: torch.fft.ifft(z, norm="ortho", dim=1),
    "ifft_forward": lambda z, w, x: torch.fft.ifft2(z, norm="forward"),
    "rfft": lambda z, w, x: torch.fft.rfft(x),
    "rfft2": lambda z, w, x: torch.fft.rfft2(x, norm="ortho"),
    "irfft": lambda z, w, x: torch.fft.irfft(z),
    "irfft_odd": lambda z, w, x: torch.fft.irfft(z, n=7),
    "irfft2": lambda z, w, x: torch.fft.irfft2(z, norm="ortho"),
    "hfft": lambda z, w, x: torch.fft.hfft(z),
    "fftshift": lambda z, w, x: torch.fft.fftshift(z, dim=-1),
    "convolution": lambda z, w, x: torch.fft.irfft(torch.fft.rfft(x, n=8) * torch.fft.rfft(x[0], n=8), n=8)[..., :4],
    "parts": lambda z, w, x: (z.real + z.imag, torch.complex(x, z.real), torch.view_as_real(z)),
    "polar": lambda z, w, x: torch.polar(x.abs(), x),
    "rotary": lambda z, w, x: torch.view_as_real(torch.view_as_complex(x.reshape(2, 3, 2, 2)) * z[:, :, :2]).flatten(2),
    "abs": lambda z, w, x: (z.abs(), z.angle()),
    "conj": lambda z, w, x: (z.conj() * w, torch.conj_physical(z), z.conj().imag),
    "add": lambda z, w, x: (z + w, z + x, x - z, z + 2, 1.5 - z, z + (1 - 2j), torch.add(z, w, alpha=3)),
    "mul": lambda z, w, x: (z * w, z * x, x * z, z * 2.5, (0.5 + 1j) * z, x * w),
    "div": lambda z, w, x: (z / w, z / (x + 5), x / (w + 1), z / 2, 1 / z, z / (1 - 1j)),
    "functions": lambda z, w, x: (z.exp(), z.log(), z**2, z**3, -z, z.reciprocal()),
    "sums": lambda z, w, x: (z.sum(), z.sum(1), z.mean((0, -1), keepdim=True), z.cumsum(1)),
    "matmul": lambda z, w, x: (w @ w.T, z @ z.transpose(1, 2), z @ w.mT, z.reshape(6, 4) @ w.t()),
    "einsum": lambda z, w, x: torch.einsum("bix,ox->boix", z, w),
    "where": lambda z, w, x: torch.where(x > 0, z, w),
    "types": lambda z, w, x: (z.to(C128), x.to(C64) + z, torch.zeros_like(z), torch.full((2, 3), 1 + 2j)),
    "views": lambda z, w, x: (
        z.reshape(6, 4).t(),
        z.permute(2, 0, 1),
        z.transpose(-1, 0),
        z[:, -1, 1:],
        z.unsqueeze(-1).squeeze(-1),
        w.expand(2, 3, 4),
        z.flip(-1),
        z.roll(1, -1),
        torch.cat([z, z], -1),
        torch.stack([z, z], -1),
        z.unbind(-1)[1],
        z.split(2, -1)[1],
        w.repeat(2, 1),
        F.pad(z, (1, 2)),
        z[:, torch.tensor([2, 0])],
        z.index_select(-1, torch.tensor([3, 0])),
    ),
}


@pytest.mark.parametrize("kind", (C64, C128), ids=("c64", "c128"))
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str, kind: Any) -> None:
    real = kind.to_real()
    z, w = (torch.complex(sample(real, *s), sample(real, *s, seed=1)) for s in ((2, 3, 4), (3, 4)))
    check(COMPLEX[name], z, w, sample(real, 2, 3, 4, seed=2))


def test_large_complex_numbers_are_divided() -> None:
    z = torch.tensor([3e30 + 4e30j, 1e-30 - 1e-30j])
    check(lambda z: (1 / z, z / z), z)


def test_complex_ends_of_an_export_say_why_not() -> None:
    graph = make_fx(lambda z: torch.view_as_real(z))(torch.zeros(2, dtype=C64)).graph
    with pytest.raises(ingot.UnsupportedError, match="complex"):
        translate(graph, interface=Interface(["y"]))
    graph = make_fx(torch.view_as_complex)(torch.zeros(3, 2)).graph
    with pytest.raises(ingot.UnsupportedError, match="complex"):
        translate(graph, interface=Interface(["y"]))


RESIZES: dict[str, Callable[[Any], Any]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest_size": lambda x: F.interpolate(x, size=(7, 13)),
    "nearest_down": lambda x: F.interpolate(x, size=(3, 5)),
    "nearest_exact": lambda x: F.interpolate(x, size=(7, 13), mode="nearest-exact"),
    "nearest_1d": lambda x: F.interpolate(x[:, :, 0], scale_factor=3),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear_fraction": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, size=(7, 13), mode="bilinear", align_corners=True),
    "bilinear_down": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear"),
    "bilinear_antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    "linear": lambda x: F.interpolate(x[:, :, 0], size=11, mode="linear"),
    "bicubic": lambda x: F.interpolate(x, size=(7, 13), mode="bicubic"),
    "bicubic_corners": lambda x: F.interpolate(x, size=(7, 13), mode="bicubic", align_corners=True),
    "bicubic_antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bicubic", antialias=True),
    "to_size_of_other": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] + 1), mode="bilinear"),
}


@pytest.mark.parametrize("name", RESIZES)
def test_resizes(name: str) -> None:
    check(RESIZES[name], sample(F32, 2, 3, 5, 6))


def test_grid_samples() -> None:
    x, grid = sample(F32, 2, 3, 5, 6), sample(F32, 2, 4, 4, 2) / 4
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                function = partial(F.grid_sample, mode=mode, padding_mode=padding, align_corners=corners)
                check(function, x, grid, modes=("fake",))


NORMS: dict[str, Callable[..., Any]] = {
    "layer": lambda x, w, b: F.layer_norm(x, (6,), w, b, 1e-5),
    "layer_plain": lambda x, w, b: F.layer_norm(x, (6,)),
    "layer_two": lambda x, w, b: F.layer_norm(x, (4, 6)),
    "layer_native": lambda x, w, b: aten.native_layer_norm(x, [6], w, b, 1e-5),
    "rms": lambda x, w, b: F.rms_norm(x, (6,), w, 1e-6),
    "rms_plain": lambda x, w, b: F.rms_norm(x, (6,)),
    "batch": lambda x, w, b: F.batch_norm(x.transpose(1, 2), b, w.abs() + 1, w, b),
    "batch_plain": lambda x, w, b: F.batch_norm(x.transpose(1, 2), b, w.abs() + 1),
    "group": lambda x, w, b: F.group_norm(x.transpose(1, 2), 3, w, b),
    "group_one": lambda x, w, b: F.group_norm(x.transpose(1, 2), 1),
    "instance": lambda x, w, b: F.instance_norm(x.transpose(1, 2), weight=w, bias=b),
    "local_response": lambda x, w, b: F.local_response_norm(x.unsqueeze(-1), 3),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalizations(name: str) -> None:
    modes = ("fake",) if name in ("group", "group_one", "instance") else ("fake", "symbolic")
    check(NORMS[name], sample(F32, 3, 4, 6), sample(F32, 6, seed=1), sample(F32, 6, seed=2), modes=modes)


def attention_masks(batch: int, heads: int, rows: int, columns: int) -> dict[str, Any]:
    boolean = sample(BOOL, batch, 1, rows, columns)
    boolean[0, :, 0] = False  # a query that sees nothing
    return {
        "none": None,
        "boolean": boolean,
        "numbers": sample(F32, batch, heads, rows, columns),
        "rows": sample(BOOL, rows, columns) | torch.eye(rows, columns).bool(),
        "columns": torch.tensor([True] * (columns - 1) + [False]).view(1, 1, 1, columns),
    }


@pytest.mark.parametrize("mask", ["none", "boolean", "numbers", "rows", "columns"])
def test_attention(mask: str) -> None:
    q, k, v = sample(F32, 2, 4, 5, 8), sample(F32, 2, 4, 7, 8, seed=1), sample(F32, 2, 4, 7, 8, seed=2)
    bias = attention_masks(2, 4, 5, 7)[mask]
    given = () if bias is None else (bias,)
    check(lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m), q, k, v, *given)
    scaled = partial(F.scaled_dot_product_attention, scale=0.3)
    check(scaled, q, k, v, *given, modes=("fake",))


@pytest.mark.parametrize("dtype", [F64, F16, BF16])
def test_attention_in_other_types(dtype: Any) -> None:
    q, k, v = (sample(dtype, 2, 4, 6, 8, seed=i) / 4 for i in range(3))
    mask = sample(BOOL, 2, 1, 6, 6)
    mask[0, :, 0] = False
    check(F.scaled_dot_product_attention, q, k, v, mask, modes=("fake",))
    check(lambda x: aten._safe_softmax(x.masked_fill(x < 0, float("-inf")), -1), sample(dtype, 4, 2), modes=("fake",))


def test_attention_causal_grouped_and_of_other_ranks() -> None:
    q, k, v = (sample(F32, 2, 4, 6, 8, seed=i) for i in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :, :4], v[:, :, :4], is_causal=True), q, k, v)
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True), q, k, v, modes=("fake",)
    )
    check(lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]), q, k, v)
    check(lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None]), q, k, v)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_nets(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(5, 6, num_layers=2, bidirectional=bidirectional, batch_first=not bidirectional).eval()
    x = sample(F32, 3, 4, 5)
    program = torch.export.export(net, (x,), strict=False)
    constants = {
        s.arg.name: program.state_dict[s.target]
        for s in program.graph_signature.input_specs
        if s.kind.name == "PARAMETER"
    }
    translation = translate(program.graph, constants)
    arguments = [x if n.name == "input" else None for n in program.graph.find_nodes(op="placeholder")]
    found = translation.bind(translation.graph(opt_level=LEVEL))(*arguments)
    for a, b in zip(found, pytree.tree_leaves(net(x)), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-5, atol=1e-5)


def test_quantized_numbers() -> None:
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed
    x = sample(F32, 3, 8) / 3
    scales, zeros = torch.tensor([0.02, 0.03, 0.05]), torch.tensor([0, 3, -2])
    check(lambda x: q.quantize_per_tensor(x, 0.02, 3, -128, 127, I8), x, modes=("symbolic",))
    check(lambda x: q.quantize_per_tensor(x, 0.02, 3, 0, 127, U8), x, modes=("symbolic",))
    check(
        lambda x: q.dequantize_per_tensor(q.quantize_per_tensor(x, 0.02, 3, 0, 255, U8), 0.02, 3, 0, 255, U8),
        x,
        modes=("symbolic",),
    )
    check(
        lambda x, s, z: q.dequantize_per_channel(
            q.quantize_per_channel(x, s, z, 0, -127, 127, I8), s, z, 0, -127, 127, I8
        ),
        x,
        scales,
        zeros,
        modes=("symbolic",),
    )

    def dynamic(x: Any) -> Any:
        scale, zero = q.choose_qparams.tensor(x, 0, 255, 1.1920928955078125e-07, U8)
        y = q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, U8)
        return scale, zero, q.dequantize_per_tensor.tensor(y, scale, zero, 0, 255, U8)

    check(dynamic, x, modes=("symbolic",))


def written_cases() -> dict[str, Callable[[Any], Any]]:
    def in_turn(x: Any) -> Any:
        y = x + 1
        y.mul_(2)
        z = y.view(-1)
        w = z.clone()
        w.add_(w)
        return z, w

    def through_views(x: Any) -> Any:
        y = x + 1
        row, turned = y[0], y.t()
        y[:, 1:].mul_(3)
        turned[0].zero_()
        y.view(-1)[:2] = 7
        return y, row, turned

    def halves(x: Any) -> Any:
        y = torch.empty(x.shape[0], 2 * x.shape[1])
        y[:, ::2] = x
        y[:, 1::2] = -x
        return y

    return {"in_turn": in_turn, "through_views": through_views, "halves": halves}


@pytest.mark.parametrize("name", written_cases())
def test_operators_that_write(name: str) -> None:
    check(written_cases()[name], sample(F32, 2, 3))


def refused(function: Callable[..., Any], *args: Any) -> str:
    captured = make_fx(function, tracing_mode="fake", pre_dispatch=True)(*args)
    reasons = unsupported(captured.graph)
    assert reasons
    with pytest.raises(ingot.UnsupportedError) as error:
        translate(captured.graph)
    node, reason = next(iter(reasons.items()))
    assert node.name in str(error.value) and reason in str(error.value)
    return reason


def test_what_has_no_translation_says_why() -> None:
    x = sample(F32, 4, 4)
    assert "of complex tensors" in refused(lambda x: torch.complex(x, x).acosh().abs(), x)
    assert "random" in refused(lambda x: x + torch.rand_like(x), x)
    assert "training" in refused(lambda x: F.dropout(x, 0.5, True), x)
    assert "no translation" in refused(torch.linalg.inv, x)
    assert "shares" in refused(_writes_through_diagonal, x)
    assert "not a result of this graph" in refused(lambda x: x.add_(1), x)


def _writes_through_diagonal(x: Any) -> Any:
    y = x + 1
    y.diagonal().zero_()
    return y


def test_others_are_translated_around_a_node_that_is_not() -> None:
    def function(x: Any) -> Any:
        return (torch.linalg.eigvalsh(x + 1) * 2).sum(0)

    captured = make_fx(function, tracing_mode="fake")(torch.eye(3) * 3)
    failed = unsupported(captured.graph)
    assert failed and "linalg_eigh" in str(next(iter(failed)).target)


def test_parts_in_another_mode() -> None:
    class Part(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                y = x * 2
                z = y.cos()
            return y + z + x

    x = sample(F32, 3, 4)
    program = torch.export.export(Part(), (x,), strict=False)
    assert any("set_grad_enabled" in str(n.target) for n in program.graph.nodes)
    translation = translate(program.graph)
    compare(translation.bind(translation.graph(opt_level=0))(x)[0], Part()(x))


def test_numbers_as_inputs() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(torch.zeros(3, 4))
    graph = torch.fx.Graph()
    n, a = graph.placeholder("n"), graph.placeholder("a")
    n.meta["val"], a.meta["val"] = mode.shape_env.create_unbacked_symint(), x
    y = graph.call_function(aten.mul.Tensor, (a, n))
    y.meta["val"] = x
    m = graph.call_function(operator.add, (n, 2))
    m.meta["val"] = n.meta["val"] + 2
    graph.output((y, m))
    translation = translate(graph)
    assert [(i.name, i.symbolic) for i in translation.inputs] == [("a", False), ("n", True)]
    given = sample(F32, 3, 4)
    found = translation.bind(translation.graph(opt_level=0))(7, given)
    assert torch.equal(found[0], given * 7) and found[1] == 9


def test_names_lead_from_nodes_to_tensors() -> None:
    captured = make_fx(lambda x: torch.relu(x * 2) + 1, tracing_mode="symbolic")(sample(F32, 2, 3))
    translation = translate(captured.graph)
    graph = translation.graph(opt_level=0)
    x = sample(F32, 4, 3)
    inside = graph.dump_tensors([translation.names["mul"], translation.names["relu"]], [x.numpy()])
    assert torch.equal(torch.from_numpy(inside["mul"]), x * 2)
    assert torch.equal(torch.from_numpy(inside["relu"]), torch.relu(x * 2))


def test_constants_stay_where_they_are() -> None:
    weight = torch.randn(64, 64)
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    x.meta["val"], w.meta["val"] = torch.empty(2, 64), torch.empty(64, 64)
    y = graph.call_function(aten.mul.Tensor, (x, w))
    graph.erase_node(y)
    y = graph.call_function(aten.mm.default, (x, w))
    y.meta["val"] = torch.empty(2, 64)
    graph.output(y)
    translation = translate(graph, {"w": weight})
    assert translation.builder.constant_bytes == weight.numel() * 4
    assert [i.name for i in translation.inputs] == ["x"]
    model = translation.graph(opt_level=0)
    given = torch.randn(2, 64)
    expected = given @ weight
    compare(translation.bind(model)(given, None)[0], expected)
    # The parameter is given other data: the model keeps what it was made from.
    weight.data = torch.zeros(64, 64)
    compare(translation.bind(model)(given, None)[0], expected)


@pytest.mark.parametrize("pre_dispatch", [True, False])  # aten.linear, or addmm of matrices between views
def test_weights_are_not_turned_before_they_are_packed(pre_dispatch: bool) -> None:
    weight, bias = torch.randn(48, 64), torch.randn(48)
    captured = make_fx(F.linear, tracing_mode="fake", pre_dispatch=pre_dispatch)(torch.randn(2, 3, 64), weight, bias)
    _, w, b = captured.graph.find_nodes(op="placeholder")
    translation = translate(captured.graph, {w.name: weight, b.name: bias})
    graph = translation.graph()
    assert [(n.op, n.attrs["transB"]) for n in graph.nodes] == [("ingot.MatMul", 1)]
    assert graph.nodes[0].inputs[1] == w.name
    x = torch.randn(2, 3, 64)
    compare(translation.bind(graph)(x, None, None)[0], F.linear(x, weight, bias))


def test_batch_normalization_joins_a_linear_layer() -> None:
    def function(x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(F.linear(x, w, b), mean, var)

    values = [torch.randn(48, 64), torch.randn(48), torch.randn(48), torch.rand(48) + 0.5]
    x = torch.randn(5, 64)
    captured = make_fx(function, tracing_mode="fake")(x, *values)
    _, *own = captured.graph.find_nodes(op="placeholder")
    translation = translate(captured.graph, {p.name: v for p, v in zip(own, values, strict=True)})
    graph = translation.graph()
    assert [n.op for n in graph.nodes] == ["ingot.MatMul"]
    compare(translation.bind(graph)(x, *values)[0], function(x, *values))


def test_written_file_gives_the_same(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x).softmax(-1), x.shape[2] + 1

    x = sample(F32, 2, 2, 5, 4)
    captured = make_fx(function, tracing_mode="symbolic")(x)
    translation = translate(captured.graph)
    translation.write(tmp_path / "model.onnx")
    found = list(ingot.compile(tmp_path / "model.onnx").inference([x]).values())
    compare(torch.from_numpy(found[0]), function(x)[0])
    assert found[1].item() == 6


def test_run_takes_and_gives_tensors() -> None:
    builder = GraphBuilder("turn")
    builder.input("x", "bfloat16", ["n", 4])
    builder.node("Transpose", ["x"], ["y"], {"perm": [1, 0]})
    builder.output("y")
    graph = builder.graph()
    x = sample(BF16, 3, 4)
    for given in (x, x[::2], x[:0], x.t().contiguous().t()):
        (y,) = graph.run([given], torch.Tensor)
        assert y.dtype is BF16 and torch.equal(y, given.t())
    with pytest.raises(ingot.InvalidInputError, match="exchange"):
        graph.run([x], list)
    with pytest.raises(ingot.InvalidInputError, match="must be bf16"):
        graph.run([x.float()], torch.Tensor)


def test_a_builder_names_what_is_wrong() -> None:
    builder = GraphBuilder("wrong")
    builder.input("x", "float32", ["2*n + 1", 4])
    with pytest.raises(ingot.InvalidInputError, match="input 'y': 'n n' is not a dim"):
        builder.input("y", "float32", ["n n"])
    with pytest.raises(ingot.InvalidInputError, match="no element type 'float33'"):
        builder.input("y", "float33", [])
    with pytest.raises(ingot.InvalidInputError, match=r"node 'act' \(Relu\): tensor 'z' is not defined"):
        builder.node("Relu", ["z"], ["y"], name="act")
    with pytest.raises(ingot.InvalidInputError, match="has the name of another tensor"):
        builder.node("Relu", ["x"], ["x"])
    with pytest.raises(ingot.InvalidInputError, match="has no outputs"):
        builder.graph()
    builder.node("Nonsense", ["x"], ["y"], name="odd")
    builder.output("y")
    with pytest.raises(ingot.InvalidInputError, match="listed twice"):
        builder.output("y")
    with pytest.raises(ingot.UnsupportedError, match="Nonsense 'odd'"):
        builder.graph()


MODELS = ("mlp", "gru", "unet", "bert", "llama-cache", "t5", "swin")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", ["torch.compile", "wrapper", "export"])
def test_whole_models(name: str, form: str) -> None:
    """One artifact for two shapes, with nothing in eager."""
    import torch_zoo
    from torch_models import MODELS as ALL

    outcome = torch_zoo.run(next(m for m in ALL if m.name == name), form)
    assert outcome.passed, outcome
