"""Families of products, convolutions, pools, normalizations, recurrent layers, and formulas that fusions look for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from differential.builder import FLOATS, Attrs, Builder, Family, NothingFitsError, Value, broadcast, numpy_type
from onnx import TensorProto as T

WIDE = (T.FLOAT, T.DOUBLE)


def product(
    b: Builder, op: str, v: Value, w: Value, k: int, shape: tuple[int, ...], *more: Value | str, **attrs: Any
) -> Value:
    """A node whose elements are sums of k products of elements of v and w, and of `more`."""
    third = [m for m in more if isinstance(m, Value)]
    grain = None if v.grain is None or w.grain is None else v.grain + w.grain
    if grain is not None and third:
        grain = None if third[0].grain is None else max(grain, third[0].grain)
    bound = k * v.bound * w.bound + sum(t.bound for t in third)
    kind = b.arithmetic(v.dtype, bound, grain, v, w, *third)
    return b.add(op, [v, w, *more], v.dtype, shape, kind, bound, grain, **attrs)


def matmul(b: Builder) -> None:
    v = b.take((*FLOATS, T.INT32), lambda r: r >= 1, where=lambda v: v.size > 0 and v.bound <= 1e3)
    k = v.shape[-1]
    n = b.dim()
    alike = [
        o for o in b.pool if o.dtype == v.dtype and o.rank >= 2 and o.shape[-2] == k and o.kind != "step" and o.size
    ]
    alike = [o for o in alike if o.bound <= 1e3 and fits(v.shape[:-2], o.shape[:-2])]
    if alike and b.chance(0.4):
        w = b.choice(alike)
    elif b.chance(0.15):
        w = b.source(v.dtype, (k,))
    else:
        batch = tuple(m if b.chance(0.6) else 1 for m in v.shape[:-2]) if v.rank > 2 and b.chance(0.4) else ()
        w = b.source(v.dtype, (*batch, k, n))
    rows = v.shape[-2:-1]
    columns = w.shape[-1:] if w.rank >= 2 else ()
    made = product(b, "MatMul", v, w, k, (*broadcast(v.shape[:-2], w.shape[:-2]), *rows, *columns))
    follow(b, made)


def fits(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    try:
        return bool(np.prod(broadcast(x, y), dtype=np.int64) <= 1000)
    except ValueError:
        return False


def follow(b: Builder, v: Value) -> None:
    """What often stands behind a product: a bias, a residual, an activation, a scale."""
    if v.dtype not in FLOATS or v.rank == 0:
        return
    for _ in range(b.random.randint(0, 3)):
        op = b.choice(("bias", "Relu", "Tanh", "Sigmoid", "residual", "gelu", "scale", "Clip", "swish"))
        if op in ("bias", "scale", "residual"):
            shape = v.shape if op == "residual" else v.shape[-1:] if op == "bias" else ()
            w = b.source(v.dtype, shape)
            grains = None if v.grain is None or w.grain is None else (v.grain, w.grain)
            if op == "scale":
                bound, grain = v.bound * w.bound, sum(grains) if grains else None
            else:
                bound, grain = v.bound + w.bound, max(grains) if grains else None
            kind = b.arithmetic(v.dtype, bound, grain, v, w)
            v = b.add("Mul" if op == "scale" else "Add", [v, w], v.dtype, v.shape, kind, bound, grain)
        elif op == "Clip":
            v = b.add(op, [v, b.constant(0, v.dtype), b.constant(6, v.dtype)], v.dtype, v.shape, v.kind, 6, v.grain)
        elif op == "Relu":
            v = b.add(op, [v], v.dtype, v.shape, v.kind, v.bound, v.grain)
        elif op == "swish":
            s = b.add("Sigmoid", [v], v.dtype, v.shape, b.rounded(v), 1)
            v = b.add("Mul", [v, s], v.dtype, v.shape, b.rounded(s), v.bound)
        elif op == "gelu":
            v = spelled_gelu(b, v)
        else:
            v = b.add(op, [v], v.dtype, v.shape, b.rounded(v), 1)


def spelled_gelu(b: Builder, v: Value) -> Value:
    kind = b.rounded(v)
    x = b.add("Div", [v, b.constant(math.sqrt(2), v.dtype)], v.dtype, v.shape, kind, v.bound)
    x = b.add("Erf", [x], v.dtype, v.shape, kind, 1) if v.dtype == T.FLOAT else x
    x = b.add("Add", [x, b.constant(1, v.dtype)], v.dtype, v.shape, kind, v.bound + 2)
    x = b.add("Mul", [v, x], v.dtype, v.shape, kind, v.bound * (v.bound + 2))
    return b.add("Mul", [x, b.constant(0.5, v.dtype)], v.dtype, v.shape, kind, v.bound * (v.bound + 2))


def gemm(b: Builder) -> None:
    v = b.take((T.FLOAT, T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16), 2, where=lambda v: v.size > 0 and v.bound <= 1e3)
    across, down = b.choice((0, 1)), b.choice((0, 1))
    m, k = v.shape[::-1] if across else v.shape
    n = b.dim()
    w = b.source(v.dtype, (n, k) if down else (k, n))
    more = [b.source(v.dtype, b.choice(((n,), (1, n), (m, n), (1,), (m, 1))))] if b.chance(0.7) else []
    attrs = {"transA": across, "transB": down}
    if b.chance(0.3):
        attrs |= {"alpha": b.choice((0.5, 2.0)), "beta": b.choice((1.0, 0.5))}
    wide = Value("", v.dtype, v.shape, v.bound * 2, None if v.grain is None else v.grain + 1, v.kind)
    grain = None if wide.grain is None or w.grain is None else wide.grain + w.grain
    if grain is not None and more:
        grain = None if more[0].grain is None else max(grain, more[0].grain + 1)
    bound = k * wide.bound * w.bound + sum(t.bound for t in more)
    kind = b.arithmetic(v.dtype, bound, grain, v, w, *more)
    follow(b, b.add("Gemm", [v, w, *more], v.dtype, (m, n), kind, bound, grain, **attrs))


def einsum(b: Builder) -> None:
    equation, left, right, shape = b.choice((
        ("bij,bjk->bik", "bij", "bjk", "bik"), ("ij,kj->ik", "ij", "kj", "ik"),
        ("bhid,bhjd->bhij", "bhid", "bhjd", "bhij"),
        ("ij,ij->i", "ij", "ij", "i"), ("i,j->ij", "i", "j", "ij"), ("bij,jk->bki", "bij", "jk", "bki"),
    ))  # fmt: skip
    size = {letter: b.dim() if not b.large else b.choice((2, 8, 16)) for letter in "bhijkd"}
    dtype = b.choice(WIDE)
    v, w = (b.source(dtype, tuple(size[x] for x in side)) for side in (left, right))
    k = int(np.prod([size[x] for x in {*left, *right} - set(shape)]))
    grain = None if v.grain is None or w.grain is None else v.grain + w.grain
    bound = k * v.bound * w.bound
    kind = b.arithmetic(dtype, bound, grain, v, w)
    b.add("Einsum", [v, w], dtype, tuple(size[x] for x in shape), kind, bound, grain, equation=equation)


def images(b: Builder, types: tuple[int, ...] = (T.FLOAT, T.FLOAT, T.FLOAT16, T.DOUBLE)) -> Value:
    """(N, C, spatial...), out of the pool or new."""
    channels = (1, 2, 3, 4, 8) if not b.large else (3, 8, 16, 32)
    rank = b.choice((3, 4, 4, 4, 5))
    side = (4, 5, 7, 9) if not b.large else (8, 14, 17)
    fresh = (b.choice((1, 2)), b.choice(channels), *(b.choice(side if rank < 5 else (3, 4)) for _ in range(rank - 2)))

    def fits_window(v: Value) -> bool:
        return v.size > 0 and min(v.shape[2:]) >= 3 and v.size <= 20000 and v.bound <= 1e3

    return b.take(types, rank, fits_window, fresh)


def window(b: Builder, v: Value, kernel: list[int]) -> tuple[Attrs, tuple[int, ...]]:
    """Attributes of a window that slides over v, and how often it fits."""
    n = v.rank - 2
    strides = [b.choice((1, 1, 2)) for _ in range(n)]
    dilations = [b.choice((1, 1, 1, 2)) for _ in range(n)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [[b.choice((0, 1, min(1, k - 1))) if k > 1 else 0 for k in kernel] for _ in range(2)]
    sizes = [s + p + q for s, p, q in zip(v.shape[2:], *pads, strict=True)]
    if any(size < r for size, r in zip(sizes, reach, strict=True)):
        raise NothingFitsError
    out = tuple((size - r) // s + 1 for size, r, s in zip(sizes, reach, strides, strict=True))
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads[0] + pads[1]}, out


def conv(b: Builder) -> None:
    v = images(b)
    n, c = v.shape[:2]
    group = b.choice([g for g in (1, 1, 2, c) if c % g == 0])
    out = group * b.choice((1, 2, 4) if not b.large else (1, 4, 8))
    kernel = [b.choice((1, 2, 3, 3)) for _ in range(v.rank - 2)]
    attrs, size = window(b, v, kernel)
    w = b.source(v.dtype, (out, c // group, *kernel))
    more = [b.source(v.dtype, (out,))] if b.chance(0.6) else []
    k = c // group * int(np.prod(kernel))
    made = product(b, "Conv", v, w, k, (n, out, *size), *more, group=group, **attrs)
    if b.large and kernel == [3, 3]:  # Winograd's algorithm divides
        loosen(b, made)
        made = b.pool[-1]
    if b.chance(0.3) and made.dtype == T.FLOAT:
        made = batch_norm(b, made)
    if b.chance(0.6):
        op = b.choice(("Relu", "Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu"))
        if op == "Relu":
            b.add(op, [made], made.dtype, made.shape, made.kind, made.bound, made.grain)
        else:
            b.add(op, [made], made.dtype, made.shape, b.rounded(made), made.bound + 1)


def loosen(b: Builder, v: Value) -> None:
    """Takes v for rounded from now on."""
    b.pool = [o for o in b.pool if o.name != v.name]
    b.result(v.name, v.dtype, v.shape, b.rounded(v), v.bound)


def conv_transpose(b: Builder) -> None:
    v = images(b, (T.FLOAT,))
    n, c = v.shape[:2]
    out = b.choice((1, 2, 3))
    group = b.choice([g for g in (1, 1, 2) if c % g == 0])
    kernel = [b.choice((1, 2, 3)) for _ in range(v.rank - 2)]
    strides = [b.choice((1, 2)) for _ in kernel]
    pads = [0] * (2 * len(kernel))
    w = b.source(v.dtype, (c, out, *kernel))
    size = tuple((s - 1) * stride + k for s, stride, k in zip(v.shape[2:], strides, kernel, strict=True))
    more = [b.source(v.dtype, (out * group,))] if b.chance(0.5) else []
    k = c * int(np.prod(kernel))
    attrs = {"group": group, "kernel_shape": kernel, "strides": strides, "pads": pads}
    product(b, "ConvTranspose", v, w, k, (n, out * group, *size), *more, **attrs)


def pool(b: Builder) -> None:
    op = b.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"))
    v = images(b, (T.FLOAT, T.FLOAT16) if op != "LpPool" else (T.FLOAT,))
    if op.startswith("Global"):
        kind = v.kind if "Max" in op else b.rounded(v)
        b.add(op, [v], v.dtype, (*v.shape[:2], *([1] * (v.rank - 2))), kind, v.bound, v.grain)
        return
    kernel = [b.choice((2, 3)) for _ in range(v.rank - 2)]
    attrs, size = window(b, v, kernel)
    if op == "AveragePool":
        attrs["count_include_pad"] = b.choice((0, 1))
        if b.opset < 19 and attrs.pop("dilations") != [1] * len(kernel):
            raise NothingFitsError
    kind = v.kind if op == "MaxPool" else b.rounded(v)
    b.add(op, [v], v.dtype, (*v.shape[:2], *size), kind, v.bound * 9, v.grain, **attrs)


def batch_norm(b: Builder, v: Value) -> Value:
    c = v.shape[1]
    scale, bias, mean = (b.source(v.dtype, (c,), constant=True) for _ in range(3))
    spread = b.source(v.dtype, (c,), True, b.numbers.uniform(0.5, 2, c).astype(numpy_type(v.dtype)), 2)
    operands = [v, scale, bias, mean, spread]
    return b.add(
        "BatchNormalization", operands, v.dtype, v.shape, b.rounded(v), 2 * (v.bound + 4) * scale.bound + bias.bound
    )


def normalization(b: Builder) -> None:
    op = b.choice((
        "Softmax", "Softmax", "LogSoftmax", "LayerNormalization", "spelled", "BatchNormalization",
        "InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN", "LpNormalization",
    ))  # fmt: skip
    if op in ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN"):
        v = images(b, (T.FLOAT,))
    else:
        v = b.take((T.FLOAT, T.FLOAT, T.FLOAT16, T.DOUBLE), lambda r: r >= 1, lambda v: v.size > 0)
    kind = b.rounded(v)
    axis = b.random.randrange(v.rank)
    if op in ("Softmax", "LogSoftmax"):
        b.add(op, [v], v.dtype, v.shape, kind, 1 if op == "Softmax" else 2 * v.bound + 8, axis=b.choice((axis, -1)))
    elif op in ("LayerNormalization", "RMSNormalization"):
        if op[0] == "R" and b.opset < 23:
            raise NothingFitsError
        scale = b.source(v.dtype, v.shape[axis:])
        more = [b.source(v.dtype, v.shape[axis:])] if op[0] == "L" and b.chance(0.7) else []
        b.add(op, [v, scale, *more], v.dtype, v.shape, kind, 20, axis=axis, epsilon=0.1)
    elif op == "spelled":
        spelled_layer_norm(b, v)
    elif op == "BatchNormalization":
        batch_norm(b, v)
    elif op == "InstanceNormalization":
        scale, bias = b.source(v.dtype, v.shape[1:2]), b.source(v.dtype, v.shape[1:2])
        b.add(op, [v, scale, bias], v.dtype, v.shape, kind, 100, epsilon=0.1)
    elif op == "GroupNormalization":
        c = v.shape[1]
        groups = b.choice([g for g in (1, 2, 4) if c % g == 0])
        n = c if b.opset >= 21 else groups
        scale, bias = b.source(v.dtype, (n,)), b.source(v.dtype, (n,))
        b.add(op, [v, scale, bias], v.dtype, v.shape, kind, 100, num_groups=groups, epsilon=0.1)
    elif op == "LRN":
        b.add(op, [v], v.dtype, v.shape, kind, v.bound, size=3, alpha=0.01)
    else:
        if v.dtype == T.FLOAT16:
            raise NothingFitsError
        one = b.source(v.dtype, v.shape)
        size = b.add("Abs", [one], v.dtype, v.shape, "exact", one.bound, one.grain)
        v = b.add("Add", [size, b.constant(1, v.dtype)], v.dtype, v.shape, b.rounded(one), one.bound + 1)
        b.add(op, [v], v.dtype, v.shape, b.rounded(v), 1, axis=axis, p=b.choice((1, 2)))


def spelled_layer_norm(b: Builder, v: Value) -> None:
    kind, last = b.rounded(v), b.constant([-1])
    row = (*v.shape[:-1], 1)
    mean = b.add("ReduceMean", [v, last], v.dtype, row, kind, v.bound)
    x = b.add("Sub", [v, mean], v.dtype, v.shape, kind, 2 * v.bound)
    if b.chance(0.5):
        square = b.add("Mul", [x, x], v.dtype, v.shape, kind, 4 * v.bound**2)
    else:
        square = b.add("Pow", [x, b.constant(2, v.dtype)], v.dtype, v.shape, kind, 4 * v.bound**2)
    variance = b.add("ReduceMean", [square, last], v.dtype, row, kind, 4 * v.bound**2)
    safe = b.add("Add", [variance, b.constant(0.1, v.dtype)], v.dtype, row, kind, 4 * v.bound**2)
    root = b.add("Sqrt", [safe], v.dtype, row, kind, 2 * v.bound)
    x = b.add("Div", [x, root], v.dtype, v.shape, kind, 20)
    x = b.add("Mul", [x, b.source(v.dtype, v.shape[-1:], True)], v.dtype, v.shape, kind, 40)
    b.add("Add", [x, b.source(v.dtype, v.shape[-1:], True)], v.dtype, v.shape, kind, 44)


def attention(b: Builder) -> None:
    """softmax(q k^T / s + mask) v, spelled out or as one operator."""
    n, heads, rows, columns, d = b.choice((1, 2)), b.choice((1, 2, 4)), b.dim(), b.dim(), b.choice((4, 8, 16))
    dtype = b.choice((T.FLOAT, T.FLOAT, T.FLOAT16))
    q = b.source(dtype, (n, heads, rows, d), False)
    k, v = (b.source(dtype, (n, heads, columns, d), False) for _ in range(2))
    if b.opset >= 23 and b.chance(0.5):
        b.add("Attention", [q, k, v], dtype, q.shape, "close", v.bound)
        return
    kt = b.moved("Transpose", k, (n, heads, d, columns), perm=[0, 1, 3, 2])
    s = b.add("MatMul", [q, kt], dtype, (n, heads, rows, columns), "close", d * q.bound * k.bound)
    s = b.add("Div", [s, b.constant(math.sqrt(d), dtype)], dtype, s.shape, "close", s.bound)
    if b.chance(0.5):
        mask = b.source(dtype, b.choice(((n, 1, 1, columns), (rows, columns), s.shape)))
        s = b.add("Add", [s, mask], dtype, s.shape, "close", s.bound + mask.bound)
    p = b.add("Softmax", [s], dtype, s.shape, "close", 1, axis=-1)
    y = b.add("MatMul", [p, v], dtype, q.shape, "close", v.bound)
    y = b.moved("Transpose", y, (n, rows, heads, d), perm=[0, 2, 1, 3])
    b.moved("Reshape", y, (n, rows, heads * d), [b.constant([0, 0, -1])])


def recurrent(b: Builder) -> None:
    op, gates = b.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    steps, batch, size, hidden = b.choice((1, 3, 5)), b.choice((1, 2)), b.choice((2, 4)), b.choice((3, 4, 8))
    direction = b.choice(("forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    x = b.take((T.FLOAT,), 3, lambda v: v.shape == (steps, batch, size), (steps, batch, size))
    w, r = b.source(T.FLOAT, (d, gates * hidden, size), True), b.source(T.FLOAT, (d, gates * hidden, hidden), True)
    bias = b.source(T.FLOAT, (d, 2 * gates * hidden), True).name if b.chance(0.7) else ""
    lengths = ""
    if b.chance(0.3):
        lengths = b.source(
            T.INT32, (batch,), array=b.numbers.integers(1, steps + 1, batch).astype(np.int32), bound=9
        ).name
    attrs = {"linear_before_reset": b.choice((0, 1))} if op == "GRU" else {}
    names = b.node(op, [x.name, w.name, r.name, bias, lengths], 2, hidden_size=hidden, direction=direction, **attrs)
    b.result(names[0], T.FLOAT, (steps, d, batch, hidden), b.rounded(x), 1)
    b.result(names[1], T.FLOAT, (d, batch, hidden), b.rounded(x), 1)


def resize(b: Builder) -> None:
    v = b.take((T.FLOAT,), 4, lambda v: 0 < v.size <= 5000)
    mode = b.choice(("nearest", "linear"))
    scales = [1.0, 1.0, b.choice((1.0, 2.0)), b.choice((2.0, 3.0))]
    shape = tuple(int(n * s) for n, s in zip(v.shape, scales, strict=True))
    place = b.choice(("half_pixel", "asymmetric", "align_corners"))
    kind = v.kind if mode == "nearest" else b.rounded(v)
    if mode == "nearest" and place == "align_corners":
        kind = "wild"  # a place that lies on the border between two elements
    attrs = {"mode": mode, "coordinate_transformation_mode": place}
    b.add("Resize", [v, "", b.constant(scales, T.FLOAT)], v.dtype, shape, kind, v.bound, v.grain, **attrs)


FAMILIES: dict[Family, int] = {
    matmul: 9,
    gemm: 4,
    einsum: 2,
    conv: 7,
    conv_transpose: 2,
    pool: 3,
    normalization: 6,
    attention: 2,
    recurrent: 2,
    resize: 1,
}
