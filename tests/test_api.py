"""The Python package: compiling, running, arrays in and out, errors."""

from __future__ import annotations

import pickle
import timeit
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import in_threads, make_model, mlp, run_mlp
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[[onnx.ModelProto], Path]

X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)


def identity(dtype: int) -> onnx.ModelProto:
    node = helper.make_node("Identity", ["x"], ["y"])
    return make_model([node], [("x", dtype, ["n", "m"])], [("y", dtype, ["n", "m"])])


def test_inference_agrees_with_numpy(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path)
    np.testing.assert_allclose(graph.inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)


def test_inputs_by_list_tuple_dict_mapping_and_call(mlp_path: Path) -> None:
    from collections import UserDict

    graph = ingot.compile(mlp_path)
    expected = graph.inference([X])["y"]
    for result in (
        graph.inference((X,)),
        graph.inference({"x": X}),
        graph.inference(UserDict(x=X)),
        graph(X),
        graph(x=X),
    ):
        np.testing.assert_array_equal(result["y"], expected)


def test_signature_has_names_types_and_symbolic_dims(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path)
    assert [(p.name, p.dtype, p.shape) for p in graph.inputs] == [("x", "float32", ("batch", 4))]
    assert [(p.name, p.dtype, p.shape) for p in graph.outputs] == [("y", "float32", ("batch", 3))]
    assert "x: f32[batch, 4]" in repr(graph)
    assert np.zeros((2, 4), graph.inputs[0].dtype).dtype == np.float32


def test_outputs_are_fresh_and_in_order(save: Save) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["zz"]), helper.make_node("Abs", ["x"], ["aa"])]
    port = ("x", TensorProto.FLOAT, [2, 4])
    graph = ingot.compile(save(make_model(nodes, [port], [("zz", *port[1:]), ("aa", *port[1:])])))
    first = graph.inference([X[:2]])
    assert list(first) == ["zz", "aa"]
    kept = first["zz"].copy()
    assert first["zz"].flags.writeable
    second = graph.inference([X[2:4]])
    assert not np.shares_memory(first["zz"], second["zz"])
    np.testing.assert_array_equal(first["zz"], kept)
    del graph, second
    np.testing.assert_array_equal(first["zz"], kept)


def test_large_outputs_use_memory_again_and_never_while_held(save: Save) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    path = save(make_model([node], [("x", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, ["n"])]))
    graph = ingot.compile(path)
    x = np.arange(100_000, dtype=np.float32)
    held = [graph.inference([x + i])["y"] for i in range(4)]
    addresses = {y.ctypes.data for y in held}
    assert len(addresses) == 4
    part = held.pop()[5:10]  # keeps the memory of the whole
    again = graph.inference([x])["y"]
    assert again.ctypes.data not in addresses
    np.testing.assert_array_equal(part, -(x + 3)[5:10])
    dropped = held.pop().ctypes.data
    assert graph.inference([x[:-1]])["y"].ctypes.data == dropped  # about as large
    for i, y in enumerate(held):
        np.testing.assert_array_equal(y, -(x + i))


@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, lambda a: a[::-1][::-1], lambda a: np.repeat(a, 2, 1)[:, ::2], lambda a: a.astype(">f4")],
)
def test_any_layout_of_numpy_is_read(mlp_path: Path, layout: Callable[[Any], Any]) -> None:
    graph = ingot.compile(mlp_path)
    np.testing.assert_array_equal(graph.inference([layout(X)])["y"], graph.inference([X])["y"])


def test_torch_tensors_and_other_dlpack(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path)
    expected = graph.inference([X])["y"]
    t = torch.from_numpy(X)
    np.testing.assert_array_equal(graph.inference([t])["y"], expected)
    np.testing.assert_array_equal(graph.inference([t.T.contiguous().T])["y"], expected)

    class OnlyDlpack:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return t.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return t.__dlpack_device__()

    np.testing.assert_array_equal(graph.inference([OnlyDlpack()])["y"], expected)


@pytest.mark.parametrize(
    ("onnx_type", "dtype"),
    [
        (TensorProto.FLOAT, np.float32),
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.INT8, np.int8),
        (TensorProto.INT16, np.int16),
        (TensorProto.INT32, np.int32),
        (TensorProto.INT64, np.int64),
        (TensorProto.UINT8, np.uint8),
        (TensorProto.UINT16, np.uint16),
        (TensorProto.UINT32, np.uint32),
        (TensorProto.UINT64, np.uint64),
        (TensorProto.BOOL, np.bool_),
    ],
)
def test_every_element_type_passes_through(save: Save, onnx_type: int, dtype: Any) -> None:
    graph = ingot.compile(save(identity(onnx_type)))
    x = np.array([[0, 1, 2], [3, 100, 7]]).astype(dtype)
    y = graph.inference([x])["y"]
    assert y.dtype == x.dtype == np.dtype(graph.inputs[0].dtype)
    np.testing.assert_array_equal(y, x)
    assert graph.inference([x[:0]])["y"].shape == (0, 3)


def test_bfloat16_from_torch(save: Save) -> None:
    graph = ingot.compile(save(identity(TensorProto.BFLOAT16)))
    y = graph.inference([torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)])["y"]
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), [[1.5, -2.0]])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([X.astype(np.float64)], ["'x'", "f32", "f64"]),
        ([X[0]], ["'x'", "rank"]),
        ([X[:, :3]], ["'x'", "3", "4"]),
        ([X, X], ["1", "2"]),
        ([], ["1", "0"]),
        ({"z": X}, ["'x'", "missing"]),
        ({"x": X, "z": X}, ["'z'"]),
        ([[1.0, 2.0]], ["'x'", "list"]),
        ([None], ["'x'", "NoneType"]),
        ([np.array([["a"]])], ["'x'", "<U1"]),
        (X, ["ndarray"]),
        (3, ["int"]),
    ],
)
def test_wrong_inputs_name_the_input_and_the_rule(mlp_path: Path, inputs: Any, words: list[str]) -> None:
    graph = ingot.compile(mlp_path)
    with pytest.raises(ingot.InvalidInputError) as caught:
        graph.inference(inputs)
    for word in words:
        assert word in str(caught.value)
    # The graph is none the worse for it.
    assert graph.inference([X])["y"].shape == (5, 3)


def test_errors_are_typed_carry_hints_and_pickle() -> None:
    with pytest.raises(ingot.IoError) as caught:
        ingot.compile("no/such/model.onnx")
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ingot.Error)
    error = ingot.InvalidModelError("what", "do this")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.message, copy.hint, str(copy)) == (type(error), "what", "do this", "what\nhint: do this")


def test_save_load_and_emit_agree(mlp_path: Path, tmp_path: Path) -> None:
    graph = ingot.compile(mlp_path)
    expected = graph.inference([X])["y"]
    graph.save(tmp_path / "ir")
    assert sorted(p.name for p in (tmp_path / "ir").iterdir()) == ["graph.yaml", "weights.bin"]
    np.testing.assert_array_equal(ingot.load(tmp_path / "ir").inference([X])["y"], expected)
    np.testing.assert_array_equal(ingot.load(mlp_path).inference([X])["y"], expected)
    assert (tmp_path / "ir" / "graph.yaml").read_text().startswith("format:")
    assert "second" in graph.yaml


def test_nodes_report_and_dump(mlp_path: Path) -> None:
    plain = ingot.compile(mlp_path, opt_level=0)
    assert [(n.op, n.name) for n in plain.nodes] == [
        ("MatMul", "first"),
        ("Add", "bias"),
        ("Relu", "relu"),
        ("MatMul", "second"),
    ]
    assert plain.nodes[0].inputs == ["x", "w"]
    values = plain.dump_tensors(["h", "r"], [X])
    np.testing.assert_array_equal(np.maximum(values["h"], 0), values["r"])
    fused = ingot.compile(mlp_path)
    assert len(fused.nodes) <= len(plain.nodes)
    assert all(entry.fusion and entry.node and entry.outcome for entry in fused.report)


def test_unknown_tensor_to_dump_is_named(mlp_path: Path) -> None:
    with pytest.raises(ingot.Error, match="nowhere"):
        ingot.compile(mlp_path).dump_tensors(["nowhere"], [X])


def test_shapes_can_be_fixed(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path, shapes={"x": [2, 4]})
    assert graph.inputs[0].shape == (2, 4)
    assert graph.outputs[0].shape == (2, 3)
    assert graph.inference([X[:2]])["y"].shape == (2, 3)
    with pytest.raises(ingot.InvalidInputError, match="'x'"):
        graph.inference([X])


@pytest.mark.parametrize(
    "options",
    [
        {"march": "pdp-11"},
        {"opt_level": 9},
        {"patterns": {"no_such_fusion": False}},
        {"shapes": {"nope": [1]}},
        {"shapes": {"x": [1, 5]}},
        {"shapes": {"x": [1]}},
    ],
)
def test_wrong_options_are_refused(mlp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ingot.Error):
        ingot.compile(mlp_path, **options).inference([X[:1]])


@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3", "native"])
@pytest.mark.parametrize("opt_level", [0, 1, 3])
def test_levels_agree(mlp_path: Path, march: str, opt_level: int) -> None:
    graph = ingot.compile(mlp_path, march=march, opt_level=opt_level)
    np.testing.assert_allclose(graph.inference([X])["y"], run_mlp(mlp(), X), rtol=1e-5, atol=1e-6)


def test_many_threads_share_one_graph(mlp_path: Path) -> None:
    graph = ingot.compile(mlp_path)
    batches = [np.random.default_rng(n).standard_normal((n, 4), dtype=np.float32) for n in range(1, 9)]
    expected = [run_mlp(mlp(), x) for x in batches]
    wrong: list[int] = []

    def work(first: int) -> None:
        for i in range(200):
            k = (first + i) % len(batches)
            if not np.allclose(graph.inference([batches[k]])["y"], expected[k], rtol=1e-5, atol=1e-6):
                wrong.append(k)

    in_threads(4, work)
    assert not wrong


def test_a_call_costs_microseconds(save: Save) -> None:
    """The bound is loose, since machines are shared: what it catches is a slow path, not noise."""
    port = (TensorProto.FLOAT, [4])
    node = helper.make_node("Add", ["x", "y"], ["z"])
    graph = ingot.compile(save(make_model([node], [("x", *port), ("y", *port)], [("z", *port)])), threads=1)
    inputs = [np.ones(4, np.float32), np.ones(4, np.float32)]
    graph.inference(inputs)
    seconds = min(timeit.repeat(lambda: graph.inference(inputs), number=1000, repeat=20)) / 1000
    assert seconds < 10e-6


def test_importing_changes_nothing_global() -> None:
    import subprocess
    import sys

    code = (
        "import sys, warnings, logging, signal; import numpy\n"
        "def state():\n"
        "    return list(warnings.filters), logging.root.handlers[:], signal.getsignal(signal.SIGINT), sys.path[:]\n"
        "before = state()\n"
        "import ingot\n"
        "assert state() == before\n"
        "assert 'torch' not in sys.modules and 'onnx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
