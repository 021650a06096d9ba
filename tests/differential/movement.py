"""Families that move elements, find them, or reduce them."""

from __future__ import annotations

import numpy as np
from differential.builder import FLOATS, NUMBERS, PLAIN, Attrs, Builder, Family, NothingFitsError, numpy_type
from onnx import TensorProto as T

ANY = (*PLAIN, T.STRING)


def factors(b: Builder, n: int) -> list[int]:
    """A random shape of n elements."""
    shape: list[int] = []
    while n > 1 and len(shape) < 3:
        d = b.choice([d for d in range(1, n + 1) if n % d == 0])
        shape.append(d)
        n //= d
    return [*shape, n]


def reshape(b: Builder) -> None:
    v = b.take(ANY)
    kind = b.choice(("Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"))
    if kind == "Reshape":
        sizes = factors(b, v.size)
        given = list(sizes)
        if b.chance(0.5) and v.size:
            given[b.random.randrange(len(given))] = -1
        b.moved("Reshape", v, tuple(sizes), [b.constant(given)])
    elif kind == "Flatten":
        axis = b.random.randint(0, v.rank)
        b.moved("Flatten", v, (int(np.prod(v.shape[:axis])), int(np.prod(v.shape[axis:]))), axis=axis)
    elif kind == "Squeeze":
        ones = [i for i, n in enumerate(v.shape) if n == 1]
        axes = [i for i in ones if b.chance(0.7)]
        if not axes:
            raise NothingFitsError
        shape = tuple(n for i, n in enumerate(v.shape) if i not in axes)
        b.moved("Squeeze", v, shape, [b.constant([i - v.rank if b.chance(0.3) else i for i in axes])])
    else:
        if v.rank > 4:
            raise NothingFitsError
        axis = b.random.randint(0, v.rank)
        b.moved("Unsqueeze", v, (*v.shape[:axis], 1, *v.shape[axis:]), [b.constant([axis])])


def transpose(b: Builder) -> None:
    v = b.take(ANY, lambda r: r >= 2)
    perm = list(range(v.rank))
    b.random.shuffle(perm)
    b.moved("Transpose", v, tuple(v.shape[i] for i in perm), perm=perm)


def concat(b: Builder) -> None:
    v = b.take(ANY, lambda r: r >= 1)
    axis = b.random.randrange(v.rank)
    parts = [v]
    for _ in range(b.random.randint(1, 2)):
        alike = [o for o in b.pool if o.dtype == v.dtype and o.shape == v.shape and o.kind != "step"]
        if b.chance(0.6) and alike:
            parts.append(b.choice(alike))
        else:
            parts.append(b.source(v.dtype, (*v.shape[:axis], b.dim(), *v.shape[axis + 1 :])))
    b.random.shuffle(parts)
    shape = list(v.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    grains = [p.grain for p in parts]
    grain = None if None in grains else max(g for g in grains if g is not None)
    b.add(
        "Concat", parts, v.dtype, tuple(shape), b.worst(*parts), max(p.bound for p in parts), grain,
        axis=axis - v.rank if b.chance(0.3) else axis,
    )  # fmt: skip


def split(b: Builder) -> None:
    v = b.take(ANY, lambda r: r >= 1, where=lambda v: max(v.shape) >= 2)
    axis = int(np.argmax(v.shape))
    first = b.random.randint(1, v.shape[axis] - 1)
    sizes = [first, v.shape[axis] - first]
    names = b.node("Split", [v.name, b.constant(sizes)], 2, axis=axis)
    for name, n in zip(names, sizes, strict=True):
        b.result(name, v.dtype, (*v.shape[:axis], n, *v.shape[axis + 1 :]), v.kind, v.bound, v.grain)


def slices(b: Builder) -> None:
    v = b.take(ANY, lambda r: r >= 1, where=lambda v: v.size > 0)
    axes = [i for i in range(v.rank) if b.chance(0.6)] or [0]
    starts, ends, steps = [], [], []
    shape = list(v.shape)
    for axis in axes:
        n = v.shape[axis]
        step = b.choice((1, 1, 1, 2, -1, -2))
        start = b.random.randrange(n)
        stop = b.choice((n, n + 5, start + 1)) if step > 0 else b.choice((-n - 1, -100))
        shape[axis] = len(range(*slice(start, stop, step).indices(n)))
        starts.append(start - n if b.chance(0.3) else start)
        ends.append(stop)
        steps.append(step)
    b.moved("Slice", v, tuple(shape), [b.constant(x) for x in (starts, ends, axes, steps)])


def indices(b: Builder, n: int, shape: tuple[int, ...]) -> str:
    array = b.numbers.integers(-n, n, shape)
    return b.source(dtype := b.choice((T.INT64, T.INT32)), shape, array=array.astype(numpy_type(dtype)), bound=n).name


def gather(b: Builder) -> None:
    v = b.take(ANY, lambda r: r >= 1, where=lambda v: v.size > 0)
    axis = b.random.randrange(v.rank)
    op = b.choice(("Gather", "GatherElements", "GatherND"))
    n = v.shape[axis]
    if op == "Gather":
        where = b.dims(b.choice((0, 1, 1, 2)))
        b.moved(op, v, (*v.shape[:axis], *where, *v.shape[axis + 1 :]), [indices(b, n, where)], axis=axis)
    elif op == "GatherElements":
        shape = (*v.shape[:axis], b.dim(), *v.shape[axis + 1 :])
        b.moved(op, v, shape, [indices(b, n, shape)], axis=axis)
    else:
        k = b.random.randint(1, v.rank)
        rows = b.dim()
        array = np.stack([b.numbers.integers(-m, m, rows) for m in v.shape[:k]], -1)
        b.moved(op, v, (rows, *v.shape[k:]), [b.source(T.INT64, array.shape, array=array, bound=n).name])


def scatter(b: Builder) -> None:
    v = b.take(NUMBERS, lambda r: r >= 1, where=lambda v: v.size > 0)
    op = b.choice(("ScatterElements", "ScatterND"))
    reduction = b.choice(("none", "add", "max", "min"))
    axis = b.random.randrange(v.rank)
    n = v.shape[axis] if op == "ScatterElements" else v.shape[0]
    rows = b.random.randint(1, n)
    attrs: Attrs = {"axis": axis} if op == "ScatterElements" else {}
    # Each place once: the order of two updates of one place is not defined.
    chosen = b.numbers.permutation(n)[:rows]
    if op == "ScatterElements":
        shape = (*v.shape[:axis], rows, *v.shape[axis + 1 :])
        view = [1] * v.rank
        view[axis] = rows
        where = np.broadcast_to(chosen.reshape(view), shape).copy()
    else:
        shape, where = (rows, *v.shape[1:]), chosen[:, None]
    updates = b.source(v.dtype, shape)
    grain = None if v.grain is None or updates.grain is None else max(v.grain, updates.grain)
    bound = v.bound + updates.bound
    kind = b.arithmetic(v.dtype, bound, grain, v, updates) if reduction == "add" else b.worst(v, updates)
    place = b.source(T.INT64, where.shape, array=where, bound=n)
    b.add(op, [v, place, updates], v.dtype, v.shape, kind, bound, grain, reduction=reduction, **attrs)


def spread(b: Builder) -> None:
    """Expand, Tile, Pad."""
    v = b.take(PLAIN, where=lambda v: 0 < v.size <= 2000)
    op = b.choice(("Expand", "Tile", "Pad", "CenterCropPad", "Trilu"))
    if op == "Expand":
        sizes = [b.dim() if n == 1 else n for n in v.shape]
        asked = [1 if n == m and b.chance(0.3) else m for n, m in zip(v.shape, sizes, strict=True)]
        lead = [2] if b.chance(0.3) and v.rank < 5 else []
        b.moved(op, v, (*lead, *sizes), [b.constant([*lead, *asked])])
    elif op == "Tile":
        repeats = [b.choice((1, 1, 2, 3)) for _ in v.shape]
        b.moved(op, v, tuple(n * r for n, r in zip(v.shape, repeats, strict=True)), [b.constant(repeats)])
    elif op == "CenterCropPad":
        if v.rank == 0:
            raise NothingFitsError
        shape = b.dims(v.rank)
        b.moved(op, v, shape, [b.constant(list(shape))])
    elif op == "Trilu":
        if v.rank < 2:
            raise NothingFitsError
        b.moved(op, v, v.shape, [b.constant(b.choice((-1, 0, 1)))], upper=b.choice((0, 1)))
    else:
        if v.rank == 0:
            raise NothingFitsError
        mode = b.choice(("constant", "constant", "edge", "reflect"))
        pads = [[b.choice((0, 0, 1, 2)) for _ in v.shape] for _ in range(2)]
        if mode == "reflect":
            pads = [[min(p, n - 1) for p, n in zip(side, v.shape, strict=True)] for side in pads]
        elif mode == "constant":
            shrinks = [n > 3 and b.chance(0.1) for n in v.shape]
            pads = [[-1 if less else p for p, less in zip(side, shrinks, strict=True)] for side in pads]
        shape = tuple(n + p + q for n, p, q in zip(v.shape, *pads, strict=True))
        more = [b.constant(1, v.dtype)] if mode == "constant" and v.dtype in NUMBERS and b.chance(0.5) else []
        b.moved(op, v, shape, [b.constant(pads[0] + pads[1]), *more], mode=mode)


def blocks(b: Builder) -> None:
    v = b.take(FLOATS, 4)
    if b.chance(0.5):
        n, c, h, w = v.shape
        if c % 4:
            raise NothingFitsError
        mode = b.choice(("DCR", "CRD"))
        b.moved("DepthToSpace", v, (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)
    else:
        n, c, h, w = v.shape
        if h % 2 or w % 2:
            raise NothingFitsError
        b.moved("SpaceToDepth", v, (n, 4 * c, h // 2, w // 2), blocksize=2)


def shapes(b: Builder) -> None:
    """Shape, Size, and shapes that become operands again."""
    v = b.take(ANY, lambda r: r >= 1)
    op = b.choice(("Shape", "Size", "ConstantOfShape", "Expand", "Range", "EyeLike", "OneHot"))
    if op == "Shape":
        start = b.random.randrange(v.rank)
        b.add(op, [v], T.INT64, (v.rank - start,), "exact", max(v.shape), start=start)
    elif op == "Size":
        b.add(op, [v], T.INT64, (), "exact", v.size)
    elif op in ("ConstantOfShape", "Expand"):
        shape = b.add("Shape", [v], T.INT64, (v.rank,), "exact", max(v.shape))
        if op == "Expand":
            one = b.source(T.FLOAT, ())
            b.add(op, [one, shape], T.FLOAT, v.shape, "exact", one.bound, one.grain)
        else:
            b.add(op, [shape], T.FLOAT, v.shape, "exact", 0, 0)
    elif op == "Range":
        n = b.random.randint(0, 9)
        dtype = b.choice((T.INT64, T.INT32, T.FLOAT))
        limits = [b.constant(x, dtype) for x in (1, 1 + 2 * n, 2)]
        b.add(op, limits, dtype, (n,), "exact", 20, 0)
    elif op == "EyeLike":
        m = b.take(NUMBERS, 2)
        b.add(op, [m], m.dtype, m.shape, "exact", 1, 0, k=b.choice((-1, 0, 1)))
    else:
        ids = b.source(T.INT64, (b.dim(),), array=b.numbers.integers(-4, 4, b.dim()), bound=4)
        values = b.constant([1, 3], T.FLOAT)
        b.add(op, [ids, b.constant(4), values], T.FLOAT, (*ids.shape, 4), "exact", 3, 0, axis=-1)


def found(b: Builder) -> None:
    """ArgMax, TopK, CumSum, ReverseSequence."""
    op = b.choice(("ArgMax", "ArgMin", "TopK", "CumSum", "ReverseSequence"))
    v = b.take(
        (T.FLOAT, T.DOUBLE, T.INT32, T.INT64), lambda r: r >= 1, where=lambda v: v.size > 0 and v.kind == "exact"
    )
    axis = b.random.randrange(v.rank)
    rest = (*v.shape[:axis], *v.shape[axis + 1 :])
    if op in ("ArgMax", "ArgMin"):
        keep = b.choice((0, 1))
        shape = (*v.shape[:axis], 1, *v.shape[axis + 1 :]) if keep else rest
        last = 1 if op == "ArgMax" and b.chance(0.3) else 0
        b.add(op, [v], T.INT64, shape, b.decided(v), v.shape[axis], axis=axis, keepdims=keep, select_last_index=last)
    elif op == "TopK":
        k = b.random.randint(1, v.shape[axis])
        names = b.node(op, [v.name, b.constant([k])], 2, axis=axis, largest=b.choice((0, 1)))
        shape = (*v.shape[:axis], k, *v.shape[axis + 1 :])
        b.result(names[0], v.dtype, shape, v.kind, v.bound, v.grain)
        b.result(names[1], T.INT64, shape, b.decided(v), v.shape[axis])
    elif op == "CumSum":
        bound = v.bound * v.shape[axis]
        attrs = {"exclusive": b.choice((0, 1)), "reverse": b.choice((0, 1))}
        kind = b.arithmetic(v.dtype, bound, v.grain, v)
        b.add(op, [v, b.constant(axis)], v.dtype, v.shape, kind, bound, v.grain, **attrs)
    else:
        if v.rank < 2:
            raise NothingFitsError
        lengths = b.numbers.integers(1, v.shape[0] + 1, v.shape[1])
        b.moved(
            op, v, v.shape, [b.source(T.INT64, lengths.shape, array=lengths, bound=9).name], time_axis=0, batch_axis=1
        )


def as_large_as_the_data_say(b: Builder) -> None:
    """NonZero, Compress, Unique: their sizes are known here because their operands are sources of this family's own."""
    op = b.choice(("NonZero", "Compress", "Unique"))
    shape = b.dims(b.choice((1, 2)))
    if op == "Compress":
        v = b.take(ANY, lambda r: r >= 1, where=lambda v: v.size > 0)
        keep = b.numbers.random(v.shape[0]) < 0.6
        condition = b.source(T.BOOL, keep.shape, array=keep)
        b.moved(op, v, (int(keep.sum()), *v.shape[1:]), [condition.name], axis=0)
        return
    array = b.numbers.integers(-2, 3, shape)
    dtype = b.choice((T.INT64, T.FLOAT, T.INT8) if op == "Unique" else (T.INT64, T.FLOAT, T.INT32))
    v = b.source(dtype, shape, array=array.astype(numpy_type(dtype)), bound=2, grain=0, prefix="p")
    if op == "NonZero":
        b.add(op, [v], T.INT64, (len(shape), int((array != 0).sum())), "exact", max(shape))
    else:
        (name,) = b.node(op, [v.name], sorted=1)
        b.result(name, dtype, (len(np.unique(array)),), "exact", 2, 0)


REDUCTIONS = (
    "ReduceSum", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum",
)  # fmt: skip


def reduction(b: Builder) -> None:
    op = b.choice(REDUCTIONS)
    types = (*FLOATS, T.INT32, T.INT64) if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare") else FLOATS
    if op in ("ReduceMax", "ReduceMin"):
        types = (*types, T.INT8, T.UINT8)
    v = b.take(types, lambda r: r >= 1, where=lambda v: v.size > 0)
    axes = sorted(i for i in range(v.rank) if b.chance(0.5))
    keep = b.choice((0, 1))
    if op == "ReduceLogSum":
        v = b.add("Exp", [b.add("Tanh", [v], v.dtype, v.shape, b.rounded(v), 1)], v.dtype, v.shape, b.rounded(v), 3)
    more = [b.constant([i - v.rank if b.chance(0.3) else i for i in axes])] if axes else []
    over = axes or list(range(v.rank))
    attrs: Attrs = {"keepdims": keep}
    if not axes and b.chance(0.2):
        over, attrs["noop_with_empty_axes"] = [], 1
        if op not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"):
            raise NothingFitsError  # peers disagree about what is done to single elements
    shape = tuple(1 if i in over else n for i, n in enumerate(v.shape) if keep or i not in over)
    if not over:
        shape = v.shape
    count = int(np.prod([v.shape[i] for i in over], dtype=np.int64))
    grain = v.grain
    if op in ("ReduceMax", "ReduceMin"):
        b.add(op, [v, *more], v.dtype, shape, v.kind, v.bound, grain, **attrs)
        return
    bound = v.bound * count
    if op == "ReduceSumSquare":
        bound, grain = v.bound**2 * count, None if grain is None else 2 * grain
    if op == "ReduceProd":
        bound, grain = max(1.0, min(v.bound, 1e4)) ** min(count, 60), None if grain is None else grain * count
    if op in ("ReduceLogSumExp", "ReduceLogSum"):
        bound = v.bound + 8
    kind = b.arithmetic(v.dtype, bound, grain, v)
    if op in ("ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceLogSum"):
        kind = b.rounded(v)
    b.add(op, [v, *more], v.dtype, shape, kind, bound, grain, **attrs)


FAMILIES: dict[Family, int] = {
    reshape: 5,
    transpose: 5,
    concat: 3,
    split: 2,
    slices: 4,
    gather: 4,
    scatter: 2,
    spread: 3,
    blocks: 1,
    shapes: 3,
    found: 3,
    as_large_as_the_data_say: 2,
    reduction: 6,
}
