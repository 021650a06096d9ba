"""What a host may limit: time, cancelling, memory, compiling. A run that ends early leaves everything usable."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import ROOT, cli, make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Save = Callable[..., Path]

F32, I64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
X = np.array([1, 2], np.float32)
FOREVER, FEW = np.array(10**15), np.array(3)


def loop_model() -> onnx.ModelProto:
    """y = x + turns, one turn at a time."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "one"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, []) for n, t in (("i", I64), ("c", BOOL))]
        + [helper.make_tensor_value_info("s", F32, [2])],
        [helper.make_tensor_value_info("d", BOOL, []), helper.make_tensor_value_info("t", F32, [2])],
    )
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)]
    ports = [("turns", I64, []), ("x", F32, [2])]
    return make_model(nodes, ports, [("y", F32, [2])], {"one": np.array(1, np.float32)})


def long_model() -> onnx.ModelProto:
    """One step that takes about half a minute."""
    ports: Any = [("x", I64, ["n", "n"])]
    return make_model([helper.make_node("MatMul", ["x", "x"], ["y"])], ports, [("y", I64, None)])


def long_inputs() -> list[Any]:
    return [np.ones((4000, 4000), np.int64)]


@pytest.fixture(params=["graph", "library"])
def loop(save: Save, tmp_path: Path, request: pytest.FixtureRequest) -> ingot.Graph:
    graph = ingot.compile(save(loop_model()))
    if request.param == "graph":
        return graph
    graph.emit(tmp_path / "model.so")
    return ingot.load(tmp_path / "model.so")


def check_usable(graph: ingot.Graph) -> None:
    np.testing.assert_array_equal(graph.inference([FEW, X])["y"], X + 3)
    np.testing.assert_array_equal(graph.inference([FEW, X], timeout=100, cancel=ingot.Cancel())["y"], X + 3)


def test_a_deadline_ends_a_loop(loop: ingot.Graph) -> None:
    check_usable(loop)
    with pytest.raises(ingot.DeadlineError, match=r"not done in 0\.\d+ s") as caught:
        loop.inference([FOREVER, X], timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert "timeout" in caught.value.hint
    check_usable(loop)


def test_another_thread_cancels(loop: ingot.Graph) -> None:
    cancel = ingot.Cancel()
    timer = threading.Timer(0.2, cancel.cancel)
    timer.start()
    with pytest.raises(ingot.CancelledError, match="cancelled"):
        loop.inference([FOREVER, X], cancel=cancel)
    assert cancel.cancelled
    with pytest.raises(ingot.CancelledError):
        loop.inference([FEW, X], cancel=cancel)
    check_usable(loop)


def test_ctrl_c_ends_a_run(loop: ingot.Graph, request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loop.inference([FOREVER, X])
    check_usable(loop)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_a_positive_number(loop: ingot.Graph, timeout: float) -> None:
    with pytest.raises(ingot.InvalidInputError, match="timeout"):
        loop.inference([FEW, X], timeout=timeout)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_deadline_ends_a_long_step(save: Save, threads: int) -> None:
    program = """if True:
        import sys, numpy as np, ingot
        sys.path.insert(0, sys.argv[2])
        from test_limits import long_inputs
        graph = ingot.compile(sys.argv[1], threads=int(sys.argv[3]), opt_level=1)
        try:
            graph.inference(long_inputs(), timeout=0.5)
        except ingot.DeadlineError:
            print("late")
    """
    command = [sys.executable, "-c", program, str(save(long_model())), str(ROOT / "tests"), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.stdout == "late\n", done.stderr


def test_regular_expressions_and_sorts_end(save: Save) -> None:
    match = helper.make_node("RegexFullMatch", ["s"], ["m"], pattern="(a|b|ab)*c?")
    graph = ingot.compile(save(make_model([match], [("s", STRING, ["n"])], [("m", BOOL, ["n"])])))
    with pytest.raises(ingot.DeadlineError):
        graph.inference([np.array(["ab" * 2_000_000] * 50)], timeout=0.1)
    assert graph.inference([np.array(["abab", "x"])], timeout=50)["m"].tolist() == [True, False]
    unique = helper.make_node("Unique", ["x"], ["y"])
    graph = ingot.compile(save(make_model([unique], [("x", F32, ["n"])], [("y", F32, ["u"])])))
    with pytest.raises(ingot.DeadlineError):
        graph.inference([np.random.default_rng(0).random(2_000_000, np.float32)], timeout=0.05)
    assert graph.inference([X], timeout=50)["y"].tolist() == [1, 2]


# --- states


def state_model() -> onnx.ModelProto:
    """A sequence of rows that grows, beside a loop that takes as long as it is told."""
    model = loop_model()
    model.graph.node.append(helper.make_node("Concat", ["past", "x"], ["present"], axis=0))
    model.graph.input.append(helper.make_tensor_value_info("past", F32, ["n"]))
    model.graph.output.append(helper.make_tensor_value_info("present", F32, ["m"]))
    return model


@pytest.mark.parametrize("form", ["graph", "library"])
def test_a_state_is_as_it_was_after_a_run_that_was_late(save: Save, tmp_path: Path, form: str) -> None:
    graph = ingot.compile(save(state_model()))
    if form == "library":
        graph.emit(tmp_path / "model.so")
        graph = ingot.load(tmp_path / "model.so")
    state = graph.bind_state({"past": "present"})
    state.inference({"turns": FEW, "x": X})
    with pytest.raises(ingot.DeadlineError):
        state.inference({"turns": FOREVER, "x": X}, timeout=0.2)
    np.testing.assert_array_equal(state["past"], X)
    state.inference({"turns": FEW, "x": X + 1}, timeout=100)
    np.testing.assert_array_equal(state["past"], [1, 2, 2, 3])


def test_a_state_changed_in_place_is_whole_or_lost(save: Save) -> None:
    """ScatterND writes into the state; the long step comes before or after it."""
    model = long_model()
    model.graph.input.append(helper.make_tensor_value_info("past", F32, [4]))
    model.graph.input.append(helper.make_tensor_value_info("u", F32, [1]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([[1]]), "at"))
    model.graph.node.append(helper.make_node("ScatterND", ["past", "at", "u"], ["present"]))
    model.graph.output.append(helper.make_tensor_value_info("present", F32, [4]))
    state = ingot.compile(save(model), opt_level=1).bind_state({"past": "present"})
    state["past"] = np.array([1, 2, 3, 4], np.float32)
    given = {"x": long_inputs()[0], "u": np.array([9], np.float32)}
    with pytest.raises(ingot.DeadlineError):
        state.inference(given, timeout=0.5)
    try:
        np.testing.assert_array_equal(state["past"], [1, 2, 3, 4])
    except ingot.InvalidInputError:
        with pytest.raises(ingot.InvalidInputError, match="lost"):
            state.inference(given, timeout=0.5)
        state["past"] = np.array([5, 6, 7, 8], np.float32)
        np.testing.assert_array_equal(state["past"], [5, 6, 7, 8])


# --- the C interface


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * 8),
    ]


POLL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class RunOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("timeout", ctypes.c_double),
        ("cancel", ctypes.POINTER(ctypes.c_int32)),
        ("poll", POLL),
        ("poll_data", ctypes.c_void_p),
    ]


class CreateOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("plans", ctypes.c_int32),
        ("memory_bytes", ctypes.c_uint64),
    ]


def tensor(array: Any, dtype: int) -> Tensor:
    return Tensor(array.ctypes.data, array.nbytes, 0, dtype, array.ndim, (ctypes.c_int64 * 8)(*array.shape))


def test_limits_of_the_c_interface(save: Save, tmp_path: Path) -> None:
    ingot.compile(save(loop_model())).emit(tmp_path / "model.so")
    library = ctypes.CDLL(str(tmp_path / "model.so"))
    library.ingot_error.restype = ctypes.c_char_p
    model = ctypes.c_void_p()
    create = CreateOptions(ctypes.sizeof(CreateOptions), 1, 4, 1 << 30)
    assert library.ingot_create_with(ctypes.byref(create), ctypes.byref(model)) == 0

    def run(turns: Any, options: RunOptions | None) -> tuple[int, list[float]]:
        inputs = (Tensor * 2)(tensor(turns, 7), tensor(X, 1))
        outputs = (Tensor * 1)()
        given = ctypes.byref(options) if options else None
        status = library.ingot_run_with(model, given, inputs, ctypes.c_size_t(2), outputs, ctypes.c_size_t(1))
        if status != 0:
            assert not outputs[0].data
            return status, []
        values = list((ctypes.c_float * 2).from_address(outputs[0].data))
        library.ingot_release(ctypes.byref(outputs[0]))
        return status, values

    size = ctypes.sizeof(RunOptions)
    cancelled, deadline, invalid_input = 7, 8, 3
    assert run(FEW, None) == (0, [4, 5])
    assert run(FOREVER, RunOptions(size=size, timeout=0.1)) == (deadline, [])
    assert b"0.1 s" in library.ingot_error()
    word = ctypes.c_int32(0)
    timer = threading.Timer(0.1, lambda: setattr(word, "value", 1))
    timer.start()
    assert run(FOREVER, RunOptions(size=size, cancel=ctypes.pointer(word))) == (cancelled, [])
    asked = []

    def poll(_: int | None) -> int:
        asked.append(1)
        return int(len(asked) == 3)

    callback = POLL(poll)
    assert run(FOREVER, RunOptions(size=size, poll=callback)) == (cancelled, [])
    assert len(asked) == 3
    # A program that knows only the first fields, and one that does not say.
    assert run(FOREVER, RunOptions(size=16, timeout=0.1, cancel=ctypes.pointer(word))) == (deadline, [])
    assert run(FEW, RunOptions(size=0)) == (invalid_input, [])
    assert run(FEW, RunOptions(size=size, timeout=-1)) == (invalid_input, [])
    assert run(FEW, RunOptions(size=size, timeout=100)) == (0, [4, 5])
    library.ingot_destroy(model)
    create.plans = -1
    assert library.ingot_create_with(ctypes.byref(create), ctypes.byref(model)) == invalid_input


# --- the command line


def test_the_command_line_has_a_timeout(save: Save, tmp_path: Path) -> None:
    path = save(loop_model())
    np.savez(tmp_path / "in.npz", turns=FOREVER, x=X)
    done = cli("run", path, "--input", tmp_path / "in.npz", "--timeout", "0.2")
    assert (done.code, done.out) == (8, "")
    assert "not done in 0.2 s" in done.err
    np.savez(tmp_path / "in.npz", turns=FEW, x=X)
    assert cli("run", path, "--input", tmp_path / "in.npz", "--timeout", "100").code == 0
    assert cli("run", path, "--input", tmp_path / "in.npz", "--timeout", "-1").code == 2
    assert cli("run", path, "--random", "--limit", "nonsense=1").code == 5
    assert cli("run", path, "--random", "--limit", "plans=many").code == 5


# --- budgets


def test_unknown_limits_and_values_are_refused(save: Save) -> None:
    path = save(loop_model())
    with pytest.raises(ingot.InvalidInputError, match="no limit 'memory'") as caught:
        ingot.compile(path, limits={"memory": 1})
    assert "memory_bytes" in caught.value.hint
    for value in (-1, float("nan"), 1e300):
        with pytest.raises(ingot.InvalidInputError, match="limit memory_bytes"):
            ingot.compile(path, limits={"memory_bytes": value})


def expand_model() -> onnx.ModelProto:
    nodes = [helper.make_node("Expand", ["x", "shape"], ["e"]), helper.make_node("Exp", ["e"], ["y"])]
    return make_model(nodes, [("x", F32, [1, 1]), ("shape", I64, [2])], [("y", F32, ["a", "b"])])


@pytest.mark.parametrize("form", ["graph", "library"])
def test_memory_of_a_run(save: Save, tmp_path: Path, form: str) -> None:
    path = save(expand_model())
    if form == "library":
        ingot.compile(path).emit(tmp_path / "model.so")
        path = tmp_path / "model.so"
    x = np.zeros((1, 1), np.float32)
    graph = ingot.load(path, limits={"memory_bytes": 1e6})
    with pytest.raises(ingot.ResourceError, match=r"needs \d+ bytes .* limit memory_bytes of 1000000"):
        graph.inference([x, np.array([1000, 1000])])
    assert graph.inference([x, np.array([10, 10])])["y"].shape == (10, 10)
    with pytest.raises(ingot.ResourceError, match="memory_bytes"):  # more than any machine has
        ingot.load(path).inference([x, np.array([1 << 24, 1 << 24])])


def test_memory_of_a_loop_that_doubles(save: Save) -> None:
    model = loop_model()
    body = model.graph.node[0].attribute[0].g
    body.node[0].CopyFrom(helper.make_node("Concat", ["s", "s"], ["t"], axis=0))
    for port in (body.input[2], body.output[1], model.graph.output[0]):
        port.type.tensor_type.shape.dim[0].Clear()
    graph = ingot.compile(save(model), limits={"memory_bytes": 1e7})
    assert graph.inference([FEW, X])["y"].shape == (16,)
    with pytest.raises(ingot.ResourceError, match="memory_bytes"):
        graph.inference([FOREVER, X])
    assert graph.inference([FEW, X])["y"].shape == (16,)


def test_nodes(save: Save) -> None:
    nodes = [helper.make_node("Abs", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(20)]
    path = save(make_model(nodes, [("x", F32, [2])], [("t20", F32, [2])]))
    with pytest.raises(ingot.InvalidModelError, match="more than 19 nodes") as caught:
        ingot.compile(path, limits={"nodes": 19})
    assert "limit nodes" in caught.value.hint
    ingot.compile(path, limits={"nodes": 20})
    # Operators that are formulas of others count as what they become.
    loss = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "l"], ["y"])
    path = save(make_model([loss], [("x", F32, [3, 4]), ("l", I64, [3])], [("y", F32, [])]))
    with pytest.raises(ingot.InvalidModelError, match="nodes, more than 2"):
        ingot.compile(path, limits={"nodes": 2})


def test_compile_seconds(save: Save) -> None:
    nodes = [helper.make_node("Ceil", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(20_000)]
    path = save(make_model(nodes, [("x", F32, [2])], [("t20000", F32, [2])]))
    with pytest.raises(ingot.DeadlineError, match=r"compiling was not done in 0\.001 s") as caught:
        ingot.compile(path, limits={"compile_seconds": 0.001})
    assert "compile_seconds" in caught.value.hint
    done = cli("compile", path, "-o", path.parent / "ir", "--limit", "compile_seconds=0.001")
    assert done.code == 8
    assert not (path.parent / "ir").exists()


@pytest.mark.parametrize("limits", [{"fold_bytes": 0.0}, {"fold_seconds": 1e-9}])
def test_what_is_not_folded_is_computed_in_every_run(save: Save, limits: dict[str, float]) -> None:
    nodes = [helper.make_node("MatMul", ["a", "a"], ["b"]), helper.make_node("Add", ["x", "b"], ["y"])]
    a = np.random.default_rng(0).random((8, 8), np.float32)
    path = save(make_model(nodes, [("x", F32, [8, 8])], [("y", F32, [8, 8])], {"a": a}))
    x = np.ones((8, 8), np.float32)
    folded, unfolded = ingot.compile(path), ingot.compile(path, limits=limits)
    assert "MatMul" not in {n.op for n in folded.nodes}
    assert any("MatMul" in n.op for n in unfolded.nodes)
    np.testing.assert_allclose(unfolded.inference([x])["y"], folded.inference([x])["y"], rtol=1e-6)


def test_plans(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path, limits={"plans": 1})
    expected = ingot.compile(mlp_path)
    for batch in (1, 2, 3, 2, 1):
        x = np.ones((batch, 4), np.float32)
        np.testing.assert_array_equal(graph.inference([x])["y"], expected.inference([x])["y"])
    with pytest.raises(ingot.InvalidInputError, match="limit plans"):
        ingot.compile(mlp_path, limits={"plans": 0})
