"""If, Loop, Scan, sequences, optionals and strings in models as users write them: nested, capturing, in every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import cli
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from pathlib import Path

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def value(name: str, dtype: int, shape: list[Any] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    return helper.make_graph(nodes, "g", inputs, outputs, tensors)


def save(tmp_path: Path, g: onnx.GraphProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def all_ways(path: Path, tmp_path: Path, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """In process, without optimisation, through IR and through a library."""
    compiled = ingot.compile(path)
    compiled.save(tmp_path / "ir")
    compiled.emit(tmp_path / "model.so")
    graphs = [
        compiled,
        ingot.compile(path, opt_level=0),
        ingot.load(tmp_path / "ir"),
        ingot.load(tmp_path / "model.so"),
    ]
    return [g.inference(inputs) for g in graphs]


def doubling_loop() -> onnx.GraphProto:
    """y = x doubled n times plus a captured bias each time; all turns collected."""
    body = graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Add", ["twice", "bias"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None)],
        [value("go", B, []), value("next", F, None), value("seen", F, None)],
    )
    return graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)],
        [value("n", I64, []), value("x", F, ["b", 3]), value("bias", F, [3])],
        [value("y", F, None), value("all", F, None)],
    )


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_loop_carries_captures_and_collects(tmp_path: Path, turns: int) -> None:
    path = save(tmp_path, doubling_loop())
    bias = np.array([1, 2, 3], np.float32)
    expected, seen = X, []
    for _ in range(turns):
        expected = expected * 2 + bias
        seen.append(expected)
    for out in all_ways(path, tmp_path, {"n": np.array(turns), "x": X, "bias": bias}):
        np.testing.assert_allclose(out["y"], expected)
        assert out["all"].shape[0] == turns
        if turns:
            np.testing.assert_allclose(out["all"], np.stack(seen))


def test_a_loop_of_no_turns_gives_the_same_shape_in_every_form(tmp_path: Path) -> None:
    """What it would collect depends on a state, whose shape was forgotten when IR was loaded."""
    body = graph(
        [
            helper.make_node("Tanh", ["v"], ["next"]),
            helper.make_node("Expand", ["next", "shape"], ["seen"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, [])],
        [value("go", B, []), value("next", F, []), value("seen", F, [None])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    outputs = [value("y", F, None), value("all", F, None)]
    weights = {"n": np.array(0), "shape": np.array([4])}
    path = save(tmp_path, graph([loop], [value("x", F, [])], outputs, weights))
    for found in all_ways(path, tmp_path, {"x": np.float32(1)}):
        assert found["all"].shape == (0, 4)


def test_one_compiled_loop_serves_any_batch(tmp_path: Path) -> None:
    compiled = ingot.compile(save(tmp_path, doubling_loop()))
    for batch in (1, 5, 2, 0):
        x = np.ones((batch, 3), np.float32)
        out = compiled.inference({"n": np.array(2), "x": x, "bias": np.zeros(3, np.float32)})
        np.testing.assert_allclose(out["y"], 4 * x)


def nested_if() -> onnx.GraphProto:
    """The sum's sign chooses a branch; inside one, its size chooses again. All branches capture x."""

    def branch(op: str, name: str) -> onnx.GraphProto:
        return graph([helper.make_node(op, ["x"], [name])], [], [value(name, F, None)])

    inner = graph(
        [
            helper.make_node("Less", ["total", "limit"], ["small"]),
            helper.make_node("If", ["small"], ["p"], then_branch=branch("Neg", "p1"), else_branch=branch("Exp", "p2")),
        ],
        [],
        [value("p", F, None)],
        {"limit": np.float32(10)},
    )
    return graph(
        [
            helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["y"], then_branch=inner, else_branch=branch("Abs", "q")),
            helper.make_node("Mul", ["y", "two"], ["z"]),
        ],
        [value("x", F, ["a", "b"])],
        [value("z", F, None)],
        {"zero": np.float32(0), "two": np.float32(2)},
    )


@pytest.mark.parametrize(("x", "expected"), [(X / 10, -X / 5), (X, 2 * np.exp(X)), (-X, 2 * X)])
def test_if_chooses_by_data(tmp_path: Path, x: Any, expected: Any) -> None:
    for out in all_ways(save(tmp_path, nested_if()), tmp_path, {"x": x}):
        np.testing.assert_allclose(out["z"], expected, rtol=1e-6)


def test_if_with_a_constant_condition_is_no_branch(tmp_path: Path) -> None:
    g = nested_if()
    del g.node[1]
    g.initializer.append(onnx.numpy_helper.from_array(np.array(False), "positive"))
    compiled = ingot.compile(save(tmp_path, g))
    assert "If" not in {node.op for node in compiled.nodes}
    np.testing.assert_allclose(compiled.inference([-X])["z"], 2 * X)


def test_a_branch_that_does_not_fit_the_shapes_matters_only_if_taken(tmp_path: Path) -> None:
    def branch(axis: int) -> onnx.GraphProto:
        weights = {"axes": np.array([axis])}
        return graph([helper.make_node("Squeeze", ["x", "axes"], ["y"])], [], [value("y", F, None)], weights)

    g = graph(
        [helper.make_node("If", ["c"], ["z"], then_branch=branch(0), else_branch=branch(1))],
        [value("c", B, []), value("x", F, [1, 6])],
        [value("z", F, None)],
    )
    compiled = ingot.compile(save(tmp_path, g))
    assert compiled.inference([np.array(True), X.reshape(1, 6)])["z"].shape == (6,)
    with pytest.raises(ingot.Error, match=r"Squeeze.*axis 1"):
        compiled.inference([np.array(False), X.reshape(1, 6)])


def test_a_branch_whose_expansion_does_not_fit_matters_only_if_taken(tmp_path: Path) -> None:
    """Einsum has no kernel: without its expansion the branch cannot be compiled."""
    wrong = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Einsum", ["a", "x"], ["t"], equation="ijk,jk->i")]
    g = graph(
        [
            helper.make_node(
                "If",
                ["c"],
                ["z"],
                then_branch=graph(wrong, [], [value("t", F, None)]),
                else_branch=graph([helper.make_node("Neg", ["x"], ["n"])], [], [value("n", F, None)]),
            )
        ],
        [value("c", B, []), value("x", F, [2, 3])],
        [value("z", F, None)],
    )
    path = save(tmp_path, g)
    for out in all_ways(path, tmp_path, {"c": np.array(False), "x": X}):
        np.testing.assert_array_equal(out["z"], -X)
    for way in (path, tmp_path / "ir", tmp_path / "model.so"):
        compiled = ingot.load(way) if way != path else ingot.compile(path)
        with pytest.raises(ingot.InvalidModelError, match=r"Einsum.*ijk"):
            compiled.inference([np.array(True), X])


def test_what_follows_data_sized_results_is_planned_again(tmp_path: Path) -> None:
    g = graph(
        [
            helper.make_node("NonZero", ["x"], ["at"]),
            helper.make_node("Transpose", ["at"], ["index"]),
            helper.make_node("GatherND", ["x", "index"], ["kept"]),
            helper.make_node("Mul", ["kept", "kept"], ["y"]),
        ],
        [value("x", F, [2, 3])],
        [value("y", F, None)],
    )
    compiled = ingot.compile(save(tmp_path, g))
    for x in (X, np.zeros_like(X), X - 3):
        np.testing.assert_allclose(compiled.inference([x])["y"], x[x != 0] ** 2)


def test_sequences_strings_and_optionals_cross_every_border(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info
    g = graph(
        [
            helper.make_node("SequenceInsert", ["words", "word"], ["more"]),
            helper.make_node("SequenceLength", ["more"], ["count"]),
            helper.make_node("ConcatFromSequence", ["more"], ["joined"], axis=0),
            helper.make_node("StringConcat", ["joined", "mark"], ["loud"]),
            helper.make_node("Equal", ["joined", "word"], ["same"]),
        ],
        [sequence("words", TensorProto.STRING, None), value("word", TensorProto.STRING, [1])],
        [
            sequence("more", TensorProto.STRING, None),
            value("count", I64, []),
            value("loud", TensorProto.STRING, None),
            value("same", B, None),
        ],
        {"mark": np.array(["!"], dtype=object)},
    )
    words = [np.array(["na\u00efve"], dtype=object), np.array(["b", "c"], dtype=object)]
    for out in all_ways(save(tmp_path, g), tmp_path, {"words": words, "word": np.array(["b"], dtype=object)}):
        assert [list(w) for w in out["more"]] == [["na\u00efve"], ["b", "c"], ["b"]]
        assert out["count"] == 3
        assert list(out["loud"]) == ["na\u00efve!", "b!", "c!", "b!"]
        assert list(out["same"]) == [False, True, False, True]


def test_strings_of_a_planned_graph_are_not_numbers_outside(tmp_path: Path) -> None:
    """Only moves strings, so all of it is planned; the command line, which writes arrays of numbers, must say no."""
    g = graph(
        [helper.make_node("Gather", ["names", "i"], ["y"])],
        [value("i", I64, ["n"])],
        [value("y", TensorProto.STRING, ["n"])],
        {"names": np.array(["zero", "one", "two"], dtype=object)},
    )
    path = save(tmp_path, g)
    for out in all_ways(path, tmp_path, {"i": np.array([2, 0, 2])}):
        assert list(out["y"]) == ["two", "zero", "two"]
    assert [p.form for p in ingot.compile(path).outputs] == ["tensor"]
    np.save(tmp_path / "i.npy", np.array([1]))
    done = cli("run", path, "--input", tmp_path / "i.npy", "--output", tmp_path / "y.npy")
    assert done.code == 4 and "'y'" in done.err
    assert not (tmp_path / "y.npy").exists()


def test_wrong_kinds_of_input_are_refused(tmp_path: Path) -> None:
    g = graph(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"])],
        [helper.make_tensor_sequence_value_info("s", F, None), value("i", I64, [])],
        [value("y", F, None)],
    )
    compiled = ingot.compile(save(tmp_path, g))
    np.testing.assert_array_equal(compiled.inference([[X, X + 1], np.array(-1)])["y"], X + 1)
    with pytest.raises(ingot.InvalidInputError, match=r"'s'.*not a list"):
        compiled.inference([X, np.array(0)])
    with pytest.raises(ingot.InvalidInputError, match="'s' must be a sequence of tensors of f32"):
        compiled.inference([[X.astype(np.int32)], np.array(0)])
    with pytest.raises(ingot.InvalidInputError, match=r"SequenceAt.*position 2 is outside \[-2, 1\]"):
        compiled.inference([[X, X], np.array(2)])


def test_a_body_that_does_not_fit_its_node_is_refused(tmp_path: Path) -> None:
    g = doubling_loop()
    del g.node[0].attribute[0].g.output[2]
    with pytest.raises(ingot.InvalidModelError, match=r"Loop.*carries 1 values and gives 2 results, its body gives 2"):
        ingot.compile(save(tmp_path, g))


def dense_loop(turns: int) -> onnx.GraphProto:
    """v = tanh(v W^T + b), W and b passed as states that the body hands on: TensorFlow's and Paddle's way."""
    body = graph(
        [
            helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
            helper.make_node("MatMul", ["v", "turned"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["w"], ["same_w"]),
            helper.make_node("Unsqueeze", ["b", "axis"], ["wide"]),
            helper.make_node("Add", ["wide", "nothing"], ["more"]),
            helper.make_node("Squeeze", ["more", "axis"], ["same_b"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None), value("w", F, None), value("b", F, None)],
        [value("go", B, []), value("next", F, None), value("same_w", F, None), value("same_b", F, None)],
        {"axis": np.array([0]), "nothing": np.zeros(1, np.float32)},
    )
    random = np.random.default_rng(5)
    weights = {
        "w0": random.standard_normal((8, 8)).astype(np.float32),
        "b0": random.standard_normal(8).astype(np.float32),
    }
    return graph(
        [helper.make_node("Loop", ["n", "", "x", "w0", "b0"], ["y", "w1", "b1"], body=body)],
        [value("x", F, [2, 8])],
        [value("y", F, None), value("w1", F, None), value("b1", F, None)],
        {**weights, "n": np.array(turns)},
    )


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_states_that_never_change_become_constants(tmp_path: Path, turns: int) -> None:
    g = dense_loop(turns)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in g.initializer}
    path, x = save(tmp_path, g), np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    expected = x
    for _ in range(turns):
        expected = np.tanh(expected @ weights["w0"].T + weights["b0"])
    for out in all_ways(path, tmp_path, {"x": x}):
        np.testing.assert_allclose(out["y"], expected, atol=1e-5)
        np.testing.assert_array_equal(out["w1"], weights["w0"])
        np.testing.assert_array_equal(out["b1"], weights["b0"])
    (loop,) = (n for n in ingot.compile(path).nodes if n.op == "Loop")
    assert len(loop.outputs) == 1, "the weights are no results of the loop any more"
    assert "w0" not in loop.inputs


def test_work_that_no_turn_changes_is_done_before_the_loop(tmp_path: Path) -> None:
    body = graph(
        [
            helper.make_node("MatMul", ["a", "b"], ["product"]),
            helper.make_node("Add", ["v", "product"], ["next"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None)],
        [value("go", B, []), value("next", F, None)],
    )
    g = graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [value("n", I64, []), value("x", F, [2, 2]), value("a", F, [2, 3]), value("b", F, [3, 2])],
        [value("y", F, None)],
    )
    path = save(tmp_path, g)
    assert "ingot.MatMul" in {n.op for n in ingot.compile(path).nodes}
    start = np.ones((2, 2), np.float32)
    for turns in (0, 3):
        feed = {"n": np.array(turns), "x": start, "a": X, "b": X.T.copy()}
        for out in all_ways(path, tmp_path, feed):
            np.testing.assert_allclose(out["y"], start + turns * (X @ X.T))


def test_what_could_fail_stays_in_a_loop_that_may_not_run(tmp_path: Path) -> None:
    body = graph(
        [
            helper.make_node("Gather", ["table", "at"], ["row"]),
            helper.make_node("Add", ["v", "row"], ["next"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None)],
        [value("go", B, []), value("next", F, None)],
    )
    g = graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [value("n", I64, []), value("x", F, [3]), value("table", F, [2, 3]), value("at", I64, [])],
        [value("y", F, None)],
    )
    compiled = ingot.compile(save(tmp_path, g))
    feed = {"n": np.array(0), "x": X[0], "table": X, "at": np.array(7)}
    np.testing.assert_array_equal(compiled.inference(feed)["y"], X[0])
    with pytest.raises(ingot.InvalidInputError, match="out of range"):
        compiled.inference({**feed, "n": np.array(1)})
    # The failed run leaves nothing behind.
    out = compiled.inference({**feed, "n": np.array(2), "at": np.array(1)})
    np.testing.assert_array_equal(out["y"], X[0] + 2 * X[1])


def test_states_may_grow_and_change_their_rank(tmp_path: Path) -> None:
    body = graph(
        [
            helper.make_node("Concat", ["grows", "one"], ["longer"], axis=0),
            helper.make_node("Unsqueeze", ["wide", "axis"], ["wider"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("grows", F, None), value("wide", F, None)],
        [value("go", B, []), value("longer", F, None), value("wider", F, None)],
        {"one": np.ones(1, np.float32), "axis": np.array([0])},
    )
    g = graph(
        [helper.make_node("Loop", ["n", "", "x", "x"], ["y", "z"], body=body)],
        [value("n", I64, []), value("x", F, [3])],
        [value("y", F, None), value("z", F, None)],
    )
    path = save(tmp_path, g)
    for turns in (0, 1, 4):
        for out in all_ways(path, tmp_path, {"n": np.array(turns), "x": X[1]}):
            np.testing.assert_array_equal(out["y"], np.concatenate([X[1], np.ones(turns, np.float32)]))
            assert out["z"].shape == (1,) * turns + (3,)


def test_each_turn_may_take_another_part(tmp_path: Path) -> None:
    """Slice with bounds that data decide: planned alone, so that the rest of the body is planned once."""
    body = graph(
        [
            helper.make_node("Unsqueeze", ["i", "axis"], ["from"]),
            helper.make_node("Add", ["from", "two"], ["to"]),
            helper.make_node("Slice", ["x", "from", "to", "axis"], ["part"]),
            helper.make_node("ReduceSum", ["part"], ["sum"], keepdims=0),
            helper.make_node("Add", ["v", "sum"], ["next"]),
            helper.make_node("Identity", ["sum"], ["seen"]),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None)],
        [value("go", B, []), value("next", F, None), value("seen", F, None)],
        {"axis": np.array([0]), "two": np.array([2])},
    )
    g = graph(
        [helper.make_node("Loop", ["n", "", "v0"], ["y", "all"], body=body)],
        [value("n", I64, []), value("v0", F, []), value("x", F, ["k"])],
        [value("y", F, None), value("all", F, None)],
    )
    path, x = save(tmp_path, g), np.arange(1, 41, dtype=np.float32)
    sums = np.array([x[i : i + 2].sum() for i in range(40)])
    for out in all_ways(path, tmp_path, {"n": np.array(40), "v0": np.float32(0), "x": x}):
        np.testing.assert_array_equal(out["all"], sums)
        assert out["y"] == sums.sum()


@pytest.mark.parametrize(("axis", "reverse"), [(0, 0), (1, 0), (-1, 1), (0, 1)])
def test_scan_collects_along_any_axis(tmp_path: Path, axis: int, reverse: int) -> None:
    body = graph(
        [helper.make_node("Add", ["s", "e"], ["next"]), helper.make_node("Neg", ["next"], ["out"])],
        [value("s", F, None), value("e", F, None)],
        [value("next", F, None), value("out", F, None)],
    )
    attributes = {"scan_input_axes": [1], "scan_output_axes": [axis], "scan_output_directions": [reverse]}
    g = graph(
        [helper.make_node("Scan", ["s0", "x"], ["y", "all"], body=body, num_scan_inputs=1, **attributes)],
        [value("s0", F, [2]), value("x", F, [2, "n"])],
        [value("y", F, None), value("all", F, None)],
    )
    sums = X.cumsum(1)
    turns = [-sums[:, i] for i in range(3)]
    expected = np.stack(turns[::-1] if reverse else turns, axis)
    for out in all_ways(save(tmp_path, g), tmp_path, {"s0": np.zeros(2, np.float32), "x": X}):
        np.testing.assert_array_equal(out["y"], sums[:, -1])
        np.testing.assert_array_equal(out["all"], expected)


def test_bodies_may_hand_on_what_they_are_given(tmp_path: Path) -> None:
    """Outputs of bodies that are inputs, constants and the same tensor twice."""
    taken = graph([], [], [value("x", F, None), value("k", F, None)], {"k": np.array([7], np.float32)})
    other = graph([helper.make_node("Neg", ["x"], ["m"])], [], [value("m", F, None), value("m", F, None)])
    swap = graph(
        [helper.make_node("Identity", ["cond"], ["go"])],
        [value("i", I64, []), value("cond", B, []), value("a", F, None), value("b", F, None)],
        [value("go", B, []), value("b", F, None), value("a", F, None), value("b", F, None)],
    )
    g = graph(
        [
            helper.make_node("If", ["c"], ["p", "q"], then_branch=taken, else_branch=other),
            helper.make_node("Loop", ["n", "", "p", "q"], ["r", "s", "all"], body=swap),
        ],
        [value("c", B, []), value("n", I64, []), value("x", F, [3])],
        [value("r", F, None), value("s", F, None), value("all", F, None)],
    )
    path, k = save(tmp_path, g), np.array([7], np.float32)
    for out in all_ways(path, tmp_path, {"c": np.array(False), "n": np.array(3), "x": X[1]}):
        np.testing.assert_array_equal(out["r"], -X[1])
        np.testing.assert_array_equal(out["all"], [-X[1]] * 3)
    for out in all_ways(path, tmp_path, {"c": np.array(True), "n": np.array(1), "x": X[1]}):
        np.testing.assert_array_equal(out["r"], k)
        np.testing.assert_array_equal(out["s"], X[1])


def test_a_branch_may_change_the_rank_of_a_state(tmp_path: Path) -> None:
    """The first turn's rank, taken for all turns at first, must not stay in the graph of the If inside."""
    again = graph([helper.make_node("Add", ["v", "one"], ["p"])], [], [value("p", F, None)], {"one": np.float32(1)})
    first = graph(
        [helper.make_node("Unsqueeze", ["v", "axis"], ["q"])], [], [value("q", F, None)], {"axis": np.array([0])}
    )
    body = graph(
        [
            helper.make_node("Greater", ["i", "none"], ["later"]),
            helper.make_node("If", ["later"], ["next"], then_branch=again, else_branch=first),
            helper.make_node("Identity", ["cond"], ["go"]),
        ],
        [value("i", I64, []), value("cond", B, []), value("v", F, None)],
        [value("go", B, []), value("next", F, None)],
        {"none": np.array(0)},
    )
    g = graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        [value("n", I64, []), value("x", F, [])],
        [value("y", F, None)],
    )
    for out in all_ways(save(tmp_path, g), tmp_path, {"n": np.array(3), "x": np.float32(5)}):
        np.testing.assert_array_equal(out["y"], [7])
