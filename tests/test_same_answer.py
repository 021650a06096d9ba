"""Answers that were wrong without a word: each test here failed once."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import cli, make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[..., Path]

F32, F16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
INF = np.float32(np.inf)
NARROW = {F16: np.float16, BF16: ml_dtypes.bfloat16}


def run(path: Path, *inputs: Any, opt_level: int = 3) -> dict[str, Any]:
    return ingot.compile(path, opt_level=opt_level).inference(list(inputs))


def unary(op: str, shape: list[int], **attrs: Any) -> onnx.ModelProto:
    return make_model([helper.make_node(op, ["x"], ["y"], **attrs)], [("x", F32, shape)], [("y", F32, shape)])


# --- rounding to 16 bits inside a fused loop


@pytest.mark.parametrize("narrow", [F16, BF16])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_cast_to_16_bits_and_back_rounds(save: Save, narrow: int, level: int) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=narrow),
        helper.make_node("Cast", ["b"], ["c"], to=F32),
        helper.make_node("Sub", ["c", "x"], ["y"]),
    ]
    model = make_model(nodes, [("x", F32, [513])], [("y", F32, [513])], {"two": np.float32(2)})
    x = np.random.default_rng(0).standard_normal(513).astype(np.float32)
    x[:3] = 35000, -35000, 1e-6
    with np.errstate(over="ignore"):
        expected = (x * 2).astype(NARROW[narrow]).astype(np.float32) - x
    np.testing.assert_array_equal(run(save(model), x, opt_level=level)["y"], expected)


@pytest.mark.parametrize("narrow", [F16, BF16])
def test_every_tensor_of_a_16_bit_model_is_rounded(save: Save, narrow: int) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "y"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["c"]),
        helper.make_node("Mul", ["c", "c"], ["d"]),
        helper.make_node("Max", ["d", "y"], ["e"]),
    ]
    ports = [("x", narrow, ["n"]), ("y", narrow, ["n"])]
    path = save(make_model(nodes, ports, [("e", narrow, ["n"]), ("c", narrow, ["n"])]))
    random = np.random.default_rng(1)
    x, y = (random.standard_normal(1000).astype(NARROW[narrow]) for _ in range(2))
    c = np.maximum(x * y, NARROW[narrow](0)) + x
    found = run(path, x, y)
    np.testing.assert_array_equal(found["c"], c)
    np.testing.assert_array_equal(found["e"], np.maximum(c * c, y))


# --- operators


def test_erf_reaches_one(save: Save) -> None:
    model = make_model(
        [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("Floor", ["e"], ["y"])],
        [("x", F32, ["n"])],
        [("y", F32, ["n"]), ("e", F32, ["n"])],
    )
    x = np.array([3.92, 4, 5, 50, INF, -4, -INF, 3.9, np.nan], np.float32)
    found = run(save(model), x)
    np.testing.assert_array_equal(found["y"], [1, 1, 1, 1, 1, -1, -1, 0, np.nan])
    np.testing.assert_array_equal(found["e"], [np.float32(math.erf(v)) for v in x])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("bounds", [("", "m"), ("m",), ()])
def test_clip_without_a_bound_is_finite(save: Save, dtype: type, bounds: tuple[str, ...]) -> None:
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Clip", ["x", *bounds], ["y"])
    x: np.ndarray[Any, Any] = np.array([-np.inf, -2, 0, 3, np.inf, np.nan], dtype)
    model = make_model([node], [("x", onnx_type, [6])], [("y", onnx_type, [6])], {"m": np.array(1, dtype)})
    most = np.finfo(dtype).max
    low, high = (-most if bounds != ("m",) else dtype(1)), (dtype(1) if len(bounds) == 2 else most)
    for level in (0, 3):
        np.testing.assert_array_equal(run(save(model), x, opt_level=level)["y"], np.clip(x, low, high))


@pytest.mark.parametrize("level", [0, 1, 3])
def test_bounds_of_shape_1_do_not_change_the_rank(save: Save, level: int) -> None:
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["c"]), helper.make_node("Neg", ["c"], ["y"])]
    bounds = {"low": np.array([0], np.float32), "high": np.array([6], np.float32)}
    model = make_model(nodes, [("x", F32, [])], [("y", F32, [])], bounds)
    found = run(save(model), np.array(9, np.float32), opt_level=level)["y"]
    assert found.shape == ()
    assert found == -6


@pytest.mark.parametrize("narrow", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2])
@pytest.mark.parametrize("constant", [True, False])
def test_numbers_of_less_than_a_byte_become_strings(save: Save, narrow: int, constant: bool) -> None:
    signed, width = (
        narrow in (TensorProto.INT4, TensorProto.INT2),
        4 if "INT4" in TensorProto.DataType.Name(narrow) else 2,
    )
    w = np.arange(7) % (1 << width) - (1 << (width - 1) if signed else 0)
    nodes = [
        helper.make_node("Cast", ["w"], ["q"], to=narrow),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.STRING),
    ]
    inputs = [] if constant else [("w", TensorProto.INT64, [7])]
    model = make_model(nodes, inputs, [("y", TensorProto.STRING, [7])], {"w": w} if constant else {}, opset=25)
    for level in (0, 3):
        found = run(save(model), *([] if constant else [w]), opt_level=level)["y"]
        assert found.tolist() == [str(v) for v in w]


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 8])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, ml_dtypes.bfloat16])
def test_few_rows_meet_narrow_weights_alike_in_native_and_specialised_kernels(
    save: Save, rows: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native kernel has tiles of one row, which are summed as the rows of a higher tile are."""
    random = np.random.default_rng(rows)
    weights: dict[str, Any] = {"w": random.integers(0, 100, (72, 100)).astype(dtype)}
    node = helper.make_node("Cast", ["w"], ["d"], to=F32)
    if dtype != ml_dtypes.bfloat16:
        weights["s"] = np.float32(0.013)
        node = helper.make_node("DequantizeLinear", ["w", "s"], ["d"])
    nodes = [node, helper.make_node("MatMul", ["x", "d"], ["y"])]
    path = save(make_model(nodes, [("x", F32, ["n", 72])], [("y", F32, ["n", 100])], weights))
    x = random.standard_normal((rows, 72)).astype(np.float32)
    monkeypatch.setenv("INGOT_WAIT", "0")
    native = ingot.compile(path, opt_level=1).inference([x])["y"]
    specialised = ingot.compile(path, wait=True).inference([x])["y"]
    np.testing.assert_array_equal(native, specialised)


UNARY = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Gelu",
    "Log",
    "Mish",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Softplus",
    "Sqrt",
    "Tan",
    "Tanh",
]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("neighbour", [0.25, 1e9, math.inf, math.nan])
def test_an_element_does_not_depend_on_its_neighbours(save: Save, op: str, neighbour: float) -> None:
    """Sin and Cos once took another function for the whole vector where one lane of it was large."""
    path = save(unary(op, [400]))
    x = np.linspace(-3, 3, 400, dtype=np.float32)
    mixed = x.copy()
    mixed[::3] = neighbour
    found, expected = run(path, mixed)["y"], run(path, x)["y"]
    found[::3] = expected[::3] = 0
    np.testing.assert_array_equal(found, expected)


# --- inputs


def of_free_sizes(op: str) -> tuple[list[onnx.NodeProto], list[Any], dict[str, Any], list[Any]]:
    """Nodes, ports, weights, and inputs that do not fit: the model leaves open what the operator needs."""
    ones = np.ones
    if op == "Conv":
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
        ports = [("x", F32, [1, 4, 9, 9]), ("b", F32, ["n"])]
        return [node], ports, {"w": ones((16, 4, 3, 3), np.float32)}, [ones((1, 4, 9, 9)), ones(2)]
    if op == "MatMul":
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
        ports = [("x", F32, ["m", 8]), ("b", F32, ["n"])]
        return nodes, ports, {"w": ones((8, 16), np.float32)}, [ones((3, 8)), ones(2)]
    node = helper.make_node("Squeeze", ["x", "axes"], ["y"])
    return [node], [("x", F32, ["a", "b", "c"])], {"axes": np.array([1])}, [ones((2, 2, 2))]


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Squeeze"])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_sizes_that_a_model_leaves_open_are_compared_in_the_run(save: Save, op: str, level: int) -> None:
    """A bias that is too short was read past its end."""
    nodes, ports, weights, inputs = of_free_sizes(op)
    path = save(make_model(nodes, ports, [("y", F32, None)], weights))
    with pytest.raises(ingot.InvalidInputError):
        run(path, *(array.astype(np.float32) for array in inputs), opt_level=level)


def test_signs_and_conjugations_that_torch_has_not_done_yet(save: Save) -> None:
    graph = ingot.compile(save(unary("Identity", [4])))
    z = torch.complex(torch.arange(4.0), torch.arange(4.0) + 1)
    pending = z.conj().imag
    assert pending.is_neg()
    contiguous = torch._neg_view(torch.arange(4.0))
    for tensor in (pending, contiguous):
        np.testing.assert_array_equal(graph.inference([tensor])["y"], tensor.numpy(force=True))
        (found,) = graph.run([tensor], torch.Tensor)
        torch.testing.assert_close(found, tensor.resolve_neg())


def test_clamp_with_one_bound_keeps_infinity() -> None:
    x = torch.tensor([-torch.inf, -5.0, 5.0])
    found = torch.compile(lambda x: x.clamp(max=1), backend="ingot")(x)
    assert found.tolist() == [-torch.inf, -5.0, 1.0]


# --- the environment


@pytest.mark.parametrize("value", ["abc", "-1", "2x", "257"])
def test_a_wrong_number_of_threads_is_refused(save: Save, value: str) -> None:
    done = cli("version", INGOT_NUM_THREADS=value)
    assert done.code == 5, done
    assert f"INGOT_NUM_THREADS={value}" in done.err


def test_denormals_are_kept_unless_told(save: Save) -> None:
    path = save(unary("Neg", [256]))
    x = np.full(256, 1e-40, np.float32)
    np.testing.assert_array_equal(run(path, x)["y"], -x)
    half = {"half": np.float32(0.5)}
    scaled = make_model([helper.make_node("Mul", ["x", "half"], ["y"])], [("x", F32, [256])], [("y", F32, [256])], half)
    np.savez(path.parent / "x.npz", x=x)
    out = path.parent / "y.npz"
    for mode in ("keep", "flush"):
        done = cli("run", save(scaled), "--input", path.parent / "x.npz", "--output", out, INGOT_DENORMALS=mode)
        assert done.code == 0, done
        assert (np.load(out)["y"] == 0).all() == (mode == "flush")
    assert cli("run", path, "--random", INGOT_DENORMALS="maybe").code == 5


# --- threads


def test_plans_that_are_evicted_while_threads_use_them(save: Save) -> None:
    """More shapes that depend on data than plans are kept, from many threads."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["y"], keepdims=0),
    ]
    model = make_model(nodes, [("x", F32, [1]), ("shape", TensorProto.INT64, [1])], [("y", F32, [])])
    graph = ingot.compile(save(model), opt_level=1, threads=1)
    wrong: list[int] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for n in random.integers(1, 60, 150):
            found = graph.inference([np.ones(1, np.float32), np.array([n])])["y"]
            if found != n:
                wrong.append(int(n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
