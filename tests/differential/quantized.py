"""Families of quantized islands: QDQ around products, QLinear and Integer operators, weights of 4 and 8 bits.

Scales are powers of 2 where results have to be exact: then every program computes the same numbers. With others, a
result may be one step off where floats are rounded to integers.
"""

from __future__ import annotations

import numpy as np
from differential.builder import Attrs, Builder, Family, NothingFitsError, Value, numpy_type
from onnx import TensorProto as T

BYTES = (T.UINT8, T.INT8)
RANGE = {
    T.UINT8: (0, 256),
    T.INT8: (-128, 128),
    T.INT4: (-8, 8),
    T.UINT4: (0, 16),
    T.INT16: (-32768, 32768),
    T.UINT16: (0, 65536),
}


def numbers(b: Builder, dtype: int, shape: tuple[int, ...], constant: bool | None = None) -> Value:
    low, high = RANGE[dtype]
    array = b.numbers.integers(low, high, shape).astype(numpy_type(dtype))
    return b.source(dtype, shape, constant, array, high)


def small(b: Builder, dtype: int, shape: tuple[int, ...]) -> Value:
    """Constants of 7 bits: onnxruntime adds larger ones in 16 bits where the CPU has no VNNI, and saturates."""
    low, high = RANGE[dtype]
    return b.source(dtype, shape, True, b.numbers.integers(low // 2, high // 2, shape).astype(numpy_type(dtype)), high)


def scale(b: Builder, n: int | None = None, exact: bool = True) -> str:
    shape = () if n is None else (n,)
    array = (
        np.exp2(b.numbers.integers(-4, 0, shape).astype(np.float32)) if exact else b.numbers.uniform(0.01, 0.1, shape)
    )
    return b.constant(array, T.FLOAT)


def zero_point(b: Builder, dtype: int, n: int | None = None) -> str:
    low, high = RANGE[dtype]
    if b.chance(0.4):
        array = np.zeros(() if n is None else n, np.int64)
    else:
        array = b.numbers.integers(max(low, -20), min(high, 140), () if n is None else (n,))
    return b.constant(array, dtype)


def quantize(b: Builder) -> None:
    """QuantizeLinear, perhaps with its DequantizeLinear; per tensor or along an axis."""
    v = b.take((T.FLOAT,), lambda r: r >= 1, where=lambda v: v.size > 0 and v.kind == "exact" and v.grain is not None)
    dtype = b.choice((*BYTES, *((T.INT16, T.UINT16) if b.opset >= 21 else ())))
    axis = b.random.randrange(v.rank) if b.chance(0.4) else None
    n = None if axis is None else v.shape[axis]
    attrs: Attrs = {} if axis is None else {"axis": axis}
    s, z = scale(b, n), zero_point(b, dtype, n)
    q = b.add("QuantizeLinear", [v, s, z], dtype, v.shape, "exact", RANGE[dtype][1], **attrs)
    if b.chance(0.8):
        bound = RANGE[dtype][1] * 2
        b.add("DequantizeLinear", [q, s, z], T.FLOAT, v.shape, "exact", bound, 4, **attrs)


def dequantize_weights(b: Builder) -> None:
    """A product with constant weights of 4 or 8 bits, per tensor, per column or in blocks along K."""
    m, k, n = b.dim(), b.choice((8, 16, 32)), b.dim()
    dtype = b.choice((T.INT8, T.UINT8, *((T.INT4, T.UINT4) if b.opset >= 21 else ())))
    w = numbers(b, dtype, (k, n), True)
    form = b.choice(("tensor", "column", *(("block",) if b.opset >= 21 else ())))
    shape: tuple[int, ...] = {"tensor": (), "column": (n,), "block": (k // 8, n)}[form]
    s = b.constant(np.exp2(b.numbers.integers(-4, 0, shape).astype(np.float32)), T.FLOAT)
    attrs: Attrs = {"tensor": {}, "column": {"axis": 1}, "block": {"axis": 0, "block_size": 8}}[form]
    z = [b.constant(b.numbers.integers(0, 7, shape), dtype)] if b.chance(0.5) else []
    high = RANGE[dtype][1] * 2
    d = b.add("DequantizeLinear", [w, s, *z], T.FLOAT, (k, n), "exact", high, 4, **attrs)
    x = b.source(T.FLOAT, (m, k), False)
    grain = None if x.grain is None else x.grain + 4
    bound = x.bound * high * k
    kind = b.arithmetic(T.FLOAT, bound, grain, x) if dtype in BYTES else "close"  # 4 bits are widened with a rounding
    b.add("MatMul", [x, d], T.FLOAT, (m, n), kind, bound, grain)


def integer_product(b: Builder) -> None:
    """MatMulInteger, ConvInteger."""
    x_type, w_type = b.choice(((T.UINT8, T.INT8), (T.UINT8, T.UINT8), (T.INT8, T.INT8)))
    if b.chance(0.5):
        m, k, n = b.dim(), b.dim(), b.dim()
        x, w = numbers(b, x_type, (m, k), False), numbers(b, w_type, (k, n))
        more = [zero_point(b, x_type), zero_point(b, w_type)][: b.random.randint(0, 2)]
        q = b.add("MatMulInteger", [x, w, *more], T.INT32, (m, n), "exact", k * 4e5)
    else:
        c, side = b.choice((1, 3, 4, 16)), b.choice((4, 7))
        kernel, out = b.choice((1, 3)), b.choice((1, 4))
        x, w = numbers(b, x_type, (1, c, side, side), False), numbers(b, w_type, (out, c, kernel, kernel))
        size = side - kernel + 1
        more = [zero_point(b, x_type)] if b.chance(0.6) else []
        q = b.add("ConvInteger", [x, w, *more], T.INT32, (1, out, size, size), "exact", c * kernel**2 * 4e5)
    if b.chance(0.5):  # dequantized by hand
        f = b.add("Cast", [q], T.FLOAT, q.shape, "exact", q.bound, 0, to=T.FLOAT)
        kind = "exact" if q.bound < 2**24 else "close"
        b.add("Mul", [f, b.constant(2.0**-12, T.FLOAT)], T.FLOAT, q.shape, kind, q.bound * 2.0**-12, 12)


def qlinear(b: Builder) -> None:
    x_type = b.choice(BYTES)
    w_type = T.INT8 if x_type == T.INT8 else b.choice(BYTES)
    exact = b.chance(0.7)
    sx, sw, sy = scale(b, None, exact), scale(b, None, exact), scale(b, None, exact)
    zx, zw, zy = zero_point(b, x_type), zero_point(b, w_type), zero_point(b, x_type)
    kind = "exact" if exact else "step"
    if b.chance(0.5):
        m, k, n = b.dim(), b.dim(), b.dim()
        x, w = numbers(b, x_type, (m, k), False), numbers(b, w_type, (k, n))
        b.add("QLinearMatMul", [x, sx, zx, w, sw, zw, sy, zy], x_type, (m, n), kind, 256)
    else:
        c, side, out = b.choice((1, 3, 8)), b.choice((5, 8)), b.choice((2, 8))
        group = b.choice((1, c))
        out = c if group == c else out
        x, w = numbers(b, x_type, (1, c, side, side), False), small(b, w_type, (out, c // group, 3, 3))
        bias = b.numbers.integers(-500, 500, out).astype(np.int32)
        more = [b.source(T.INT32, (out,), True, bias, 500)] if b.chance(0.6) else []
        if w_type == T.INT8:
            zw = b.constant(0, w_type)
        operands: list[Value | str] = [x, sx, zx, w, sw, zw, sy, zy, *more]
        b.add("QLinearConv", operands, x_type, (1, out, side, side), kind, 256, group=group, pads=[1, 1, 1, 1])


def qdq(b: Builder) -> None:
    """DequantizeLinear of both operands, a product, QuantizeLinear of its result."""
    exact = b.chance(0.7)
    x_type = b.choice(BYTES)
    x = numbers(b, x_type, (b.dim(), 16), False)
    n = b.choice((4, 8, 17))
    w = numbers(b, T.INT8, (16, n), True)
    columns = b.chance(0.5)
    x_scale, w_scale, y_scale = scale(b, None, exact), scale(b, n if columns else None, exact), scale(b, None, exact)
    x_zero, y_zero = zero_point(b, x_type), zero_point(b, x_type)
    w_zero = b.constant(np.zeros(n if columns else (), np.int8), T.INT8)
    kind = "exact" if exact else "close"
    attrs: Attrs = {"axis": 1} if columns else {}
    dx = b.add("DequantizeLinear", [x, x_scale, x_zero], T.FLOAT, x.shape, kind, 256, 4)
    dw = b.add("DequantizeLinear", [w, w_scale, w_zero], T.FLOAT, w.shape, kind, 64, 4, **attrs)
    y = b.add("MatMul", [dx, dw], T.FLOAT, (x.shape[0], n), "close", 16 * 256 * 64)
    if b.chance(0.5):
        y = b.add("Relu", [y], T.FLOAT, y.shape, "close", y.bound)
    q = b.add("QuantizeLinear", [y, y_scale, y_zero], x_type, y.shape, "step", 256)
    b.add("DequantizeLinear", [q, y_scale, y_zero], T.FLOAT, y.shape, "wild", 64)


def dynamic(b: Builder) -> None:
    """DynamicQuantizeLinear and what reads its three results."""
    v = b.take((T.FLOAT,), 2, where=lambda v: v.size > 0 and v.kind == "exact")
    if v.kind != "exact":
        raise NothingFitsError
    names = b.node("DynamicQuantizeLinear", [v.name], 3)
    q = b.result(names[0], T.UINT8, v.shape, "wild", 255)
    b.root.kinds[names[0]] = "step"
    w = numbers(b, T.INT8, (v.shape[1], b.dim()), True)
    y = b.add("MatMulInteger", [q, w, names[2]], T.INT32, (v.shape[0], w.shape[1]), "wild", 1e9)
    f = b.add("Cast", [y], T.FLOAT, y.shape, "wild", 1e6, to=T.FLOAT)
    b.add("Mul", [f, names[1]], T.FLOAT, y.shape, "wild", 1e3)


FAMILIES: dict[Family, int] = {quantize: 3, dequantize_weights: 2, integer_product: 3, qlinear: 3, qdq: 3, dynamic: 1}
