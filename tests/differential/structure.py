"""Families of control flow, sequences and strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from differential import elementwise, movement, products
from differential.builder import FLOATS, PLAIN, WORDS, Attrs, Builder, Family, NothingFitsError, Value, broadcast
from onnx import TensorProto as T
from onnx import helper

if TYPE_CHECKING:
    import onnx

INSIDE: dict[Family, int] = elementwise.FAMILIES | movement.FAMILIES | {products.matmul: 4, products.gemm: 2}


def body(b: Builder, values: list[Value], count: int) -> Builder:
    """A builder of a body that sees what is outside and has these values of its own."""
    inner = Builder(0, b)
    inner.pool += values
    grow(inner, count, INSIDE)
    return inner


def grow(b: Builder, count: int, families: dict[Family, int]) -> None:
    made = 0
    for _ in range(5 * count):
        family = b.random.choices(list(families), list(families.values()))[0]
        try:
            family(b)
            made += 1
        except NothingFitsError:
            continue
        if made == count:
            return


def as_type(b: Builder, inner: Builder, dtype: int, shape: tuple[int, ...]) -> Value:
    """Something made inside, as a tensor of this type and shape: expanded from the sum of all of it, if need be."""
    made = [v for v in inner.pool[len(b.pool) :] if v.dtype in PLAIN and v.kind in ("exact", "close", "wild")]
    alike = [v for v in made if v.dtype == dtype and v.shape == shape]
    if alike:
        return alike[-1]
    numbers = [v for v in made if v.dtype in (T.FLOAT, T.INT64, T.INT32)]
    if not numbers:
        raise NothingFitsError
    v = numbers[-1]
    most = inner.add("ReduceMax", [v], v.dtype, (), v.kind, v.bound, v.grain, keepdims=0) if v.size else None
    if most is None:
        raise NothingFitsError
    kind = v.kind if v.dtype == dtype or v.kind == "exact" else "wild"
    cast = inner.add("Cast", [most], dtype, (), kind, most.bound, None, to=dtype)
    return inner.add("Expand", [cast, inner.constant(list(shape))], dtype, shape, kind, most.bound)


def graph_of(inner: Builder, inputs: list[onnx.ValueInfoProto], outputs: list[Value]) -> onnx.GraphProto:
    """Results get names of their own: what is outside cannot be a result of a body by itself."""
    ports = []
    for v in outputs:
        (name,) = inner.node("Identity", [v.name])
        inner.root.kinds[name] = v.kind
        ports.append(helper.make_tensor_value_info(name, v.dtype, [None] * v.rank))
    return helper.make_graph(inner.nodes, "body", inputs, ports)


def branch(b: Builder) -> None:
    if b.depth >= 2:
        raise NothingFitsError
    exact = [v for v in b.pool if v.dtype == T.BOOL and v.kind == "exact" and v.size == 1]
    condition = b.choice(exact) if exact and b.chance(0.5) else b.source(T.BOOL, ())
    dtype, shape = b.choice((T.FLOAT, T.FLOAT, T.INT64, T.FLOAT16)), b.dims(b.choice((0, 1, 2)))
    graphs, results = [], []
    for _ in range(2):
        inner = body(b, [], b.random.randint(1, 4))
        result = as_type(b, inner, dtype, shape)
        graphs.append(graph_of(inner, [], [result]))
        results.append(result)
    kind, bound = b.worst(*results), max(r.bound for r in results)
    b.add("If", [condition], dtype, shape, kind, bound, then_branch=graphs[0], else_branch=graphs[1])


def loop(b: Builder) -> None:
    """A carried tensor, and one result of every turn."""
    if b.depth >= 2:
        raise NothingFitsError
    carried = b.take((T.FLOAT, T.INT64, T.DOUBLE), where=lambda v: v.size > 0 and v.size < 500)
    turns = b.random.randint(0, 4)
    names = [b.name() for _ in range(3)]
    b.root.kinds |= dict.fromkeys(names, "exact")
    kind = "close" if carried.dtype in FLOATS else carried.kind
    values = [Value(names[0], T.INT64, (), 9), Value(names[2], carried.dtype, carried.shape, 4, None, kind)]
    inner = body(b, values, b.random.randint(1, 4))
    state = as_type(b, inner, carried.dtype, carried.shape)
    if carried.dtype in FLOATS:  # stays small over the turns
        state = inner.add("Tanh", [state], carried.dtype, carried.shape, b.rounded(state), 1)
    each = as_type(b, inner, b.choice((T.FLOAT, T.INT64)), b.dims(1))
    going = Value(inner.node("Identity", [names[1]])[0], T.BOOL, ())
    ports = [
        helper.make_tensor_value_info(names[0], T.INT64, []),
        helper.make_tensor_value_info(names[1], T.BOOL, []),
        helper.make_tensor_value_info(names[2], carried.dtype, carried.shape),
    ]
    graph = graph_of(inner, ports, [going, state, each])
    inputs = [b.constant(turns), b.choice(("", b.constant(True, T.BOOL))), carried.name]
    out = b.node("Loop", inputs, 2, body=graph)
    kind = b.worst(carried, state)
    b.result(
        out[0],
        carried.dtype,
        carried.shape,
        "close" if kind == "exact" and carried.dtype in FLOATS else kind,
        max(carried.bound, 1),
    )
    b.result(out[1], each.dtype, (turns, *each.shape), "wild" if each.kind != "exact" else "exact", each.bound)


def scan(b: Builder) -> None:
    if b.depth >= 2:
        raise NothingFitsError
    over = b.take((T.FLOAT,), lambda r: r >= 2, where=lambda v: v.size > 0 and v.size < 500)
    state = b.source(T.FLOAT, over.shape[1:])
    names = [b.name() for _ in range(2)]
    b.root.kinds |= dict.fromkeys(names, "exact")
    close = "wild" if over.kind == "wild" else "close"
    values = [Value(n, T.FLOAT, over.shape[1:], 4, None, close) for n in names]
    inner = body(b, values, b.random.randint(1, 4))
    inner.add("Add", [values[0], values[1]], T.FLOAT, over.shape[1:], close, 8)
    each = inner.pool[-1]
    after = inner.add("Tanh", [each], T.FLOAT, each.shape, close, 1)
    ports = [helper.make_tensor_value_info(n, T.FLOAT, over.shape[1:]) for n in names]
    graph = graph_of(inner, ports, [after, each])
    attrs = {"num_scan_inputs": 1, "scan_input_directions": [b.choice((0, 1))], "body": graph}
    out = b.node("Scan", [state.name, over.name], 2, **attrs)
    b.result(out[0], T.FLOAT, after.shape, close, 1)
    b.result(out[1], T.FLOAT, over.shape, close, 8)


def sequences(b: Builder) -> None:
    v = b.take((T.FLOAT, T.INT64), lambda r: r >= 1, where=lambda v: v.size > 0)
    if b.chance(0.5):
        (s,) = b.node("SplitToSequence", [v.name], axis=0, keepdims=1)
        count, shape = v.shape[0], (1, *v.shape[1:])
    else:
        other = b.source(v.dtype, v.shape)
        (s,) = b.node("SequenceConstruct", [v.name, other.name, v.name])
        count, shape = 3, v.shape
        v = Value(v.name, v.dtype, v.shape, max(v.bound, other.bound), None, v.kind)
    use = b.choice(("SequenceAt", "ConcatFromSequence", "SequenceLength", "SequenceErase"))
    if use == "SequenceErase":
        (s,) = b.node(use, [s, b.constant(0)])
        count -= 1
        use = "SequenceLength" if count == 0 else "ConcatFromSequence"
    if use == "SequenceAt":
        b.add(use, [s, b.constant(b.random.randrange(count))], v.dtype, shape, v.kind, v.bound)
    elif use == "SequenceLength":
        b.add(use, [s], T.INT64, (), "exact", count)
    else:
        b.add(use, [s], v.dtype, (count * shape[0], *shape[1:]), v.kind, v.bound, axis=0)


def strings(b: Builder) -> None:
    """Text; with LabelEncoder and Cast from and to numbers."""
    op = b.choice(
        ("StringConcat", "RegexFullMatch", "StringSplit", "StringNormalizer", "LabelEncoder", "Cast", "parse")
    )
    if op in ("StringConcat", "RegexFullMatch", "StringSplit") and b.opset < 20:
        raise NothingFitsError
    v = b.take((T.STRING,), lambda r: r >= 1, where=lambda v: v.size > 0)
    if op == "StringConcat":
        other = elementwise.partner(b, v)
        b.add(op, [v, other], T.STRING, broadcast(v.shape, other.shape), "exact")
    elif op == "RegexFullMatch":
        b.add(
            op,
            [v],
            T.BOOL,
            v.shape,
            "exact",
            pattern=b.choice((r"[a-z ]+", r"\d+", r"(a|B).*", r"-?[0-9]+(\.[0-9]+)?")),
        )
    elif op == "StringSplit":  # as many columns as the data say: of a source of its own
        words = np.array([b.choice(WORDS) for _ in range(b.dim())], object)
        source = b.source(T.STRING, words.shape, array=words)
        columns = max((len(w.split()) for w in words), default=0)
        names = b.node(op, [source.name], 2)
        b.result(names[0], T.STRING, (*words.shape, columns), "exact")
        b.result(names[1], T.INT64, words.shape, "exact", columns)
    elif op == "StringNormalizer":
        words = np.array([b.choice(WORDS) for _ in range(b.dim())], object)
        source = b.source(T.STRING, words.shape, array=words)
        b.add(op, [source], T.STRING, words.shape, "exact", case_change_action=b.choice(("LOWER", "UPPER", "NONE")))
    elif op == "LabelEncoder":
        keys, values = WORDS[1:6], [3, 1, 4, 1, 5]
        attrs: Attrs = {"keys_strings": keys, "values_int64s": values, "default_int64": -9}
        b.add(op, [v], T.INT64, v.shape, "exact", 9, domain="ai.onnx.ml", **attrs)
    elif op == "Cast":
        n = b.take((T.INT32, T.INT64, T.UINT8), where=lambda v: v.kind == "exact")
        b.add(op, [n], T.STRING, n.shape, "exact", to=T.STRING)
    else:
        words = np.array([b.choice(("0", "12", "-7", "99")) for _ in range(b.dim())], object)
        source = b.source(T.STRING, words.shape, array=words)
        b.add("Cast", [source], T.INT64, words.shape, "exact", 100, to=T.INT64)


FAMILIES: dict[Family, int] = {branch: 2, loop: 2, scan: 1, sequences: 2, strings: 3}
