"""States: outputs that become inputs of the next run stay inside, bit-equal to a loop that passes them along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import in_threads
from onnx import TensorProto, helper, numpy_helper
from test_operators import onnxruntime

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

F, I64, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
F16, BF16 = TensorProto.FLOAT16, TensorProto.BFLOAT16
NUMPY_TYPES = {t: helper.tensor_dtype_to_np_dtype(t) for t in (F, F16, BF16)}
VOCABULARY, WIDTH, HEAD, HEADS = 50, 64, 16, 4
LENGTHS = [5, *[1] * 70, 4, *[1] * 60, 3, 2]  # tokens of each call; the rows pass 64 and 128


class Builder:
    """Nodes of a decoder with random weights."""

    def __init__(self, dtype: int = F) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def add(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        to = to or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [to], **attributes))
        return to

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self.random.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))
        return self.add("MatMul", x, self.floats(weight))

    def floats(self, value: Any) -> str:
        return self.constant(np.asarray(value).astype(NUMPY_TYPES[self.dtype]))

    def by_heads(self, x: str, heads: int) -> str:
        """[batch, tokens, heads * HEAD] -> [batch, heads, tokens, HEAD]"""
        split = self.add("Reshape", x, self.ints(0, 0, heads, HEAD))
        return self.add("Transpose", split, perm=[0, 2, 1, 3])

    def port(self, name: str, dtype: int, *dims: int | str) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def result(self, name: str, *dims: int | str | None) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, self.dtype, dims))
        return name

    def model(self, opset: int = 20) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def spelled_attention(b: Builder, q: str, k: str, v: str, layer: int) -> str:
    """GPT-2's: keys and values behind those of the past, softmax written out."""
    for name in ("key", "value"):
        b.port(f"past.{layer}.{name}", b.dtype, "batch", HEADS, "past", HEAD)
        b.result(f"present.{layer}.{name}", "batch", HEADS, "all", HEAD)
    keys = b.add("Concat", f"past.{layer}.key", k, to=f"present.{layer}.key", axis=2)
    values = b.add("Concat", f"past.{layer}.value", v, to=f"present.{layer}.value", axis=-2)
    scores = b.add("MatMul", q, b.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = b.add("Mul", scores, b.floats(np.float32(0.25)))
    return b.add("MatMul", b.add("Softmax", scores, axis=-1), values)


def onnx_attention(b: Builder, q: str, k: str, v: str, layer: int) -> str:
    """The operator, with fewer heads of keys and values, as Llama has them."""
    names = {name: (f"past_key_values.{layer}.{name}", f"present.{layer}.{name}") for name in ("key", "value")}
    for past, present in names.values():
        b.port(past, b.dtype, "batch", 2, "past", HEAD)
        b.result(present, "batch", 2, "all", HEAD)
    y = f"attended{layer}"
    b.nodes.append(
        helper.make_node(
            "Attention",
            [q, k, v, "", names["key"][0], names["value"][0]],
            [y, names["key"][1], names["value"][1]],
            is_causal=1,
        )
    )
    return y


def looked_at_attention(b: Builder, q: str, k: str, v: str, layer: int) -> str:
    """Somebody else reads what the state becomes: no memory to grow in."""
    y = spelled_attention(b, q, k, v, layer)
    most = b.add("ReduceMax", f"present.{layer}.value", b.ints(1, 2, 3))
    return b.add("Add", y, most)


def static_attention(b: Builder, q: str, k: str, v: str, layer: int) -> str:
    """A cache of 200 rows, written at the positions that an input gives."""
    op = "ScatterND" if layer else "TensorScatter"
    for name, fresh in (("key", k), ("value", v)):
        b.port(f"past.{layer}.{name}", b.dtype, 1, HEADS, 200, HEAD)
        b.result(f"present.{layer}.{name}", 1, HEADS, 200, HEAD)
        past, present = f"past.{layer}.{name}", f"present.{layer}.{name}"
        if op == "TensorScatter":
            b.nodes.append(helper.make_node(op, [past, fresh, "start"], [present], axis=2))
        else:
            heads = b.ints(*range(HEADS))
            heads = b.add("Expand", b.add("Reshape", heads, b.ints(1, HEADS, 1, 1)), "index_shape")
            at = b.add("Expand", b.add("Reshape", "positions", b.ints(1, 1, -1, 1)), "index_shape")
            zero = b.add("Mul", heads, b.ints(0))
            b.add(op, past, b.add("Concat", zero, heads, at, axis=3), fresh, to=present)
    scores = b.add("MatMul", q, b.add("Transpose", f"present.{layer}.key", perm=[0, 1, 3, 2]))
    seen = b.add("LessOrEqual", b.ints(*range(200)), b.add("Reshape", "positions", b.ints(1, 1, -1, 1)))
    scores = b.add("Where", seen, scores, b.floats(np.float32(-np.inf)))
    return b.add("MatMul", b.add("Softmax", scores, axis=-1), f"present.{layer}.value")


def microsoft_attention(b: Builder, q: str, k: str, v: str, layer: int) -> str:
    """onnxruntime's operator, as its model builder writes it: lengths from a mask."""
    flat = [b.add("Reshape", b.add("Transpose", t, perm=[0, 2, 1, 3]), b.ints(0, 0, -1)) for t in (q, k, v)]
    if layer == 0:
        mask = b.port("mask", I64, "batch", "all")
        last = b.add("Sub", b.add("ReduceSum", mask, b.ints(1), keepdims=0), b.ints(1))
        total = b.add("Gather", b.add("Shape", mask), b.constant(np.int64(1)))
        for name, value in (("lengths", last), ("total", total)):
            b.nodes.append(helper.make_node("Cast", [value], [name], to=I32))
    names = {name: (f"past_key_values.{layer}.{name}", f"present.{layer}.{name}") for name in ("key", "value")}
    for past, present in names.values():
        b.port(past, b.dtype, "batch", 2, "past", HEAD)
        b.result(present, "batch", 2, "present", HEAD)
    y = f"grouped{layer}"
    inputs = [*flat, names["key"][0], names["value"][0], "lengths", "total"]
    outputs = [y, names["key"][1], names["value"][1]]
    heads = {"num_heads": HEADS, "kv_num_heads": 2}
    b.nodes.append(helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **heads))
    return b.by_heads(y, HEADS)


ATTENTIONS: dict[str, tuple[Callable[..., str], int]] = {
    "concat": (spelled_attention, HEADS),
    "grouped": (onnx_attention, 2),
    "looked at": (looked_at_attention, HEADS),
    "microsoft": (microsoft_attention, 2),
    "static": (static_attention, HEADS),
}


def decoder(kind: str, layers: int = 2, dtype: int = F) -> onnx.ModelProto:
    attention, kv_heads = ATTENTIONS[kind]
    b = Builder(dtype)
    ids = b.port("ids", I64, 1 if kind == "static" else "batch", "tokens")
    if kind == "static":
        b.port("positions", I64, "tokens")
        b.port("start", I64, 1)
        tokens = b.add("Shape", "positions")
        b.add("Concat", b.ints(1, HEADS), tokens, b.ints(1), axis=0, to="index_shape")
    x = b.add("Gather", b.floats(b.random.standard_normal((VOCABULARY, WIDTH), dtype=np.float32)), ids)
    for layer in range(layers):
        q, k, v = (b.by_heads(b.linear(x, WIDTH, n * HEAD), n) for n in (HEADS, kv_heads, kv_heads))
        y = b.add("Transpose", attention(b, q, k, v, layer), perm=[0, 2, 1, 3])
        x = b.add("Add", x, b.linear(b.add("Reshape", y, b.ints(0, 0, WIDTH)), WIDTH, WIDTH))
    b.add("Identity", b.linear(x, WIDTH, VOCABULARY), to="logits")
    b.result("logits", None, None, VOCABULARY)
    return b.model({"grouped": 23, "static": 24}.get(kind, 20))


def pairs_of(graph: ingot.Graph) -> dict[str, str]:
    present = [p.name for p in graph.outputs if p.name != "logits"]
    return dict(zip((p.name for p in graph.inputs if p.name.startswith("past")), present, strict=True))


def feeds(kind: str, lengths: list[int], batch: int = 1) -> list[dict[str, NDArray[Any]]]:
    random = np.random.default_rng(1)
    out, start = [], 0
    for n in lengths:
        feed: dict[str, NDArray[Any]] = {"ids": random.integers(0, VOCABULARY, (batch, n))}
        if kind == "microsoft":
            feed["mask"] = np.ones((batch, start + n), np.int64)
        if kind == "static":
            feed |= {"positions": np.arange(start, start + n), "start": np.array([start])}
        out.append(feed)
        start += n
    return out


class Plain:
    """The same loop with everything passed along."""

    def __init__(self, graph: ingot.Graph, batch: int = 1, dtype: int = F) -> None:
        self.graph, self.pairs, self.past = graph, pairs_of(graph), {}
        for port in graph.inputs:
            if port.name in self.pairs:
                dims = [d if isinstance(d, int) else batch if d == "batch" else 0 for d in port.shape or ()]
                self.past[port.name] = np.zeros(dims, NUMPY_TYPES[dtype])

    def step(self, feed: dict[str, NDArray[Any]]) -> NDArray[Any]:
        out = self.graph.inference(feed | self.past)
        self.past = {past: out[present] for past, present in self.pairs.items()}
        logits: NDArray[Any] = out["logits"]
        return logits


def check_same(
    graph: ingot.Graph, state: ingot.State, kind: str, lengths: list[int], batch: int = 1, dtype: int = F
) -> None:
    plain = Plain(graph, batch, dtype)
    for feed in feeds(kind, lengths, batch):
        np.testing.assert_array_equal(state.inference(feed)["logits"], plain.step(feed))
    assert set(state.keys()) == set(plain.past)
    for name, value in plain.past.items():
        np.testing.assert_array_equal(state[name], value)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_growing_loop_equals_plain_runs(save: Save, kind: str, threads: int) -> None:
    graph = ingot.compile(save(decoder(kind)), threads=threads)
    state = graph.bind_state()
    assert [p.name for p in state.inputs] == [p.name for p in graph.inputs if not p.name.startswith("past")]
    assert [p.name for p in state.outputs] == ["logits"]
    assert state.length == (None if kind == "static" else 0)
    check_same(graph, state, kind, LENGTHS)
    if kind != "static":
        assert state.length == sum(LENGTHS)
    state.reset()
    assert state.length == (None if kind == "static" else 0)
    check_same(graph, state, kind, [3, 1, 1], 1 if kind == "static" else 3)  # another batch, after a reset


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("kind", ["concat", "grouped", "static"])
def test_rows_of_16_bits(save: Save, kind: str, dtype: int) -> None:
    graph = ingot.compile(save(decoder(kind, dtype=dtype)))
    state = graph.bind_state()
    check_same(graph, state, kind, LENGTHS, dtype=dtype)
    wide = ingot.compile(save(decoder(kind))).bind_state()
    state.reset()
    for feed in feeds(kind, [5, 1, 1, 4, 1]):
        expected = wide.inference(feed)["logits"]
        tolerance = {F16: 0.02, BF16: 0.15}[dtype] * np.abs(expected).max()
        np.testing.assert_allclose(state.inference(feed)["logits"].astype(np.float32), expected, atol=tolerance)


@pytest.mark.parametrize("kind", ["concat", "grouped"])
def test_results_are_those_of_onnxruntime(save: Save, kind: str) -> None:
    model = decoder(kind)
    graph = ingot.compile(save(model))
    state, past = graph.bind_state(pairs_of(graph)), Plain(graph).past
    for feed in feeds(kind, [4, 1, 1, 2, 9]):
        *present, logits = onnxruntime(model, feed | past)
        np.testing.assert_allclose(state.inference(feed)["logits"], logits, rtol=1e-4, atol=1e-5)
        past = dict(zip(past, present, strict=True))


def test_a_state_can_be_read_and_set(save: Save) -> None:
    graph = ingot.compile(save(decoder("grouped")))
    first, second = graph.bind_state(), graph.bind_state()
    for feed in feeds("grouped", [6, 1, 1]):
        first.inference(feed)
    for name, value in dict(first).items():
        second[name] = value
    assert second.length == first.length == 8
    for feed in feeds("grouped", [1] * 70):
        np.testing.assert_array_equal(first(feed["ids"])["logits"], second(ids=feed["ids"])["logits"])
    assert repr(first) == "<ingot.State of 4 tensors, length 78>"


def test_states_of_one_graph_in_many_threads(save: Save) -> None:
    graph = ingot.compile(save(decoder("concat")))
    expected = [Plain(graph).step(feed) for feed in feeds("concat", [3])]
    states = [graph.bind_state() for _ in range(4)]

    def work(i: int) -> None:
        for _ in range(3):
            states[i].reset()
            np.testing.assert_array_equal(states[i].inference(feeds("concat", [3])[0])["logits"], expected[0])
            for feed in feeds("concat", [1] * (5 + 20 * i)):
                states[i].inference(feed)

    in_threads(4, work)
    assert [s.length for s in states] == [8, 28, 48, 68]


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_states_of_a_library(save: Save, tmp_path: Path, kind: str) -> None:
    graph = ingot.compile(save(decoder(kind, 1)), opt_level=1)
    graph.emit(tmp_path / "model.so")
    library = ingot.load(tmp_path / "model.so")
    for state in (library.bind_state(), library.bind_state(pairs_of(graph))):
        check_same(library, state, kind, [4, *[1] * 65])
        state.reset()
        check_same(library, state, kind, [2])
        with pytest.raises(ingot.InvalidInputError, match="'ids' must be i64"):
            state.inference({**feeds(kind, [1])[0], "ids": np.zeros((1, 1), np.float32)})
    with pytest.raises(ingot.InvalidInputError, match="the model has no input 'nothing'"):
        library.bind_state({"nothing": "logits"})


def test_wrong_pairs_are_named(save: Save) -> None:
    graph = ingot.compile(save(decoder("concat")))
    pairs = pairs_of(graph)
    key, value = "past.0.key", "past.0.value"
    wrong = {
        "the model has no input 'pst'": {"pst": "present.0.key"},
        "the model has no output 'past.0.key'": {key: key},
        "output 'present.0.key' is in two pairs": {key: pairs[key], value: pairs[key]},
        "input 'ids' is i64 and output 'logits' is f32": {"ids": "logits"},
        "cannot become input": {key: "logits"},
    }
    for message, names in wrong.items():
        with pytest.raises(ingot.InvalidInputError, match=message):
            graph.bind_state(names)
    shapes = {p.name: [1, 3] if p.name == "ids" else [1, HEADS, 7, HEAD] for p in graph.inputs}
    with pytest.raises(ingot.InvalidInputError, match="compile the model with free dims"):
        ingot.compile(graph.path, shapes=shapes).bind_state()


def test_a_model_without_a_state_says_so(mlp_path: Path) -> None:
    with pytest.raises(ingot.InvalidInputError, match="no output of the model is seen to be an input"):
        ingot.compile(mlp_path).bind_state()


def test_wrong_use_is_an_error_and_changes_nothing(save: Save) -> None:
    graph = ingot.compile(save(decoder("concat")))
    state, (feed,) = graph.bind_state(), feeds("concat", [2])
    with pytest.raises(ingot.InvalidInputError, match=r"'past\.0\.key' has no value"):
        state["past.0.key"]
    with pytest.raises(ingot.InvalidInputError, match="the state has no tensor 'present'"):
        state["present"]
    with pytest.raises(ingot.InvalidInputError, match="index is out of range"):
        state.inference({"ids": np.full((3, 2), VOCABULARY)})
    with pytest.raises(ingot.InvalidInputError, match=r"'past\.0\.key' has no value"):
        state["past.0.key"]
    state.inference(feed)  # of another batch than what failed
    before = dict(state)
    for wrong, message in {
        "the model has no input 'past.0.key'": {**feed, "past.0.key": before["past.0.key"]},
        "input 'ids' is missing": {},
        "index is out of range": {"ids": np.array([[VOCABULARY]])},
        "must have rank 2": {"ids": np.array([1])},
    }.items():
        with pytest.raises(ingot.InvalidInputError, match=wrong):
            state.inference(message)
    with pytest.raises(ingot.InvalidInputError, match="must have shape"):
        state["past.0.key"] = np.zeros((1, 1, 2, 3), np.float32)
    with pytest.raises(ingot.InvalidInputError, match="must be f32"):
        state["past.0.key"] = np.zeros((1, HEADS, 2, HEAD), np.int64)
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value)
    assert state.length == 2


def update_model(op: str, **attributes: Any) -> onnx.ModelProto:
    """y = x changed at indices; z is another output, whose index may be out of range after y was changed."""
    b = Builder()
    b.port("x", F, "n", 3)
    b.port("at", I64, "k", 1)
    b.port("values", F, "k", 3)
    b.port("other", I64, 1)
    b.result("y", "n", 3)
    b.result("z", 1, 3)
    b.add(op, "x", "at", "values", to="y", **attributes)
    b.add("Gather", "y", "other", to="z")
    return b.model()


def test_updates_in_place(save: Save) -> None:
    """Also sums of them, which a run that failed may not begin again."""
    graph = ingot.compile(save(update_model("ScatterND", reduction="add")))
    state = graph.bind_state({"x": "y"})
    feed = {"at": np.array([[1], [0]]), "values": np.ones((2, 3), np.float32), "other": np.array([1])}
    with pytest.raises(ingot.InvalidInputError, match=r"the first shape of the state 'x' \[n, 3\] is not known"):
        state.inference(feed)
    state["x"] = np.zeros((2, 3), np.float32)
    for i in range(1, 4):
        np.testing.assert_array_equal(state.inference(feed)["z"], np.full((1, 3), i, np.float32))
    with pytest.raises(ingot.InvalidInputError, match="index is out of range"):
        state.inference({**feed, "other": np.array([7])})
    with pytest.raises(ingot.InvalidInputError, match="the state of 'x' is lost"):
        state.inference(feed)
    state["x"] = np.full((2, 3), 5, np.float32)
    np.testing.assert_array_equal(state.inference(feed)["z"], np.full((1, 3), 6, np.float32))


def test_an_old_value_that_is_read_later_is_kept(save: Save) -> None:
    b = Builder()
    b.port("x", F, 2, 3)
    b.port("at", I64, 1, 1)
    b.port("values", F, 1, 3)
    b.result("y", 2, 3)
    b.result("before", 2, 3)
    b.add("ScatterND", "x", "at", "values", to="y")
    b.add("Neg", b.add("ReduceMax", "x", b.ints(0), keepdims=0), to="half")
    b.add("Add", "x", "half", to="before")
    state = ingot.compile(save(b.model())).bind_state({"x": "y"})
    feed = {"at": np.array([[1]]), "values": np.array([[1, 2, 3]], np.float32)}
    assert not state.inference(feed)["before"].any()
    np.testing.assert_array_equal(state.inference(feed)["before"], [[-1, -2, -3], [0, 0, 0]])


def test_a_graph_of_several_parts(save: Save) -> None:
    """NonZero decides how many rows are new: it stands between two planned parts."""
    b = Builder()
    b.port("past", F, "n", 2)
    b.port("x", F, "k", 2)
    b.result("present", None, 2)
    b.result("sum", 2)
    rows = b.add("Transpose", b.add("NonZero", b.add("ReduceMax", "x", b.ints(1), keepdims=0)), perm=[1, 0])
    b.add("Concat", "past", b.add("GatherND", "x", rows), axis=0, to="present")
    b.add("ReduceSum", "present", b.ints(0), keepdims=0, to="sum")
    state = ingot.compile(save(b.model())).bind_state()
    for i in range(1, 5):
        out = state.inference([np.array([[1, 2], [0, 0], [3, 4]], np.float32)])
        np.testing.assert_array_equal(out["sum"], np.array([4, 6], np.float32) * i)
        assert state.length == 2 * i


def test_memory_does_not_grow_with_the_number_of_lengths(save: Save) -> None:
    """Plans of 500 lengths: what they need is shared, and those of long ago are gone."""
    import resource

    graph = ingot.compile(save(decoder("concat")))
    past = {name: np.zeros((1, HEADS, 600, HEAD), np.float32) for name in pairs_of(graph)}

    def run(lengths: range) -> int:
        for n in lengths:
            graph.inference({"ids": np.zeros((1, 64), np.int64)} | {k: v[:, :, :n].copy() for k, v in past.items()})
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    first = run(range(560, 600))
    assert run(range(100, 560)) - first < 4000  # KB
