"""Models of 16-bit floats, made from those of 32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import cli, make_model, mlp
from onnx import TensorProto, helper
from test_quantize import conv_net, images

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[..., Path]

FLOAT = TensorProto.FLOAT
TYPES = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
TYPE_NAMES: list[Any] = list(TYPES)


def ort(path: Path, inputs: dict[str, Any]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    result: list[NDArray[Any]] = onnxruntime.InferenceSession(str(path), options).run(None, inputs)
    return result


def norm_model() -> onnx.ModelProto:
    """A normalization by hand, whose squares do not fit f16, and one as an operator; a mask of the largest number."""
    random = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "w": random.standard_normal((64, 64), np.float32) * 0.1,
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "gamma": np.ones(64, np.float32),
        "beta": np.zeros(64, np.float32),
        "least": np.float32(np.finfo(np.float32).min),
    }
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="product"),
        node("ReduceMean", ["p"], ["m"], name="mean", axes=[-1]),
        node("Sub", ["p", "m"], ["d"], name="sub"),
        node("Pow", ["d", "two"], ["s"], name="square"),
        node("ReduceMean", ["s"], ["v"], name="variance", axes=[-1]),
        node("Add", ["v", "eps"], ["ve"], name="eps"),
        node("Sqrt", ["ve"], ["r"], name="root"),
        node("Div", ["d", "r"], ["n"], name="norm"),
        node("LayerNormalization", ["n", "gamma", "beta"], ["l"], name="again"),
        node("Cast", ["mask"], ["hidden"], name="cast", to=TensorProto.BOOL),
        node("Where", ["hidden", "least", "l"], ["z"], name="where"),
        node("Softmax", ["z"], ["y"], name="softmax"),
    ]
    ports: Any = [("x", FLOAT, ["n", 64]), ("mask", TensorProto.INT64, [64])]
    return make_model(nodes, ports, [("y", FLOAT, ["n", 64])], weights, 17)


@pytest.mark.parametrize("to", TYPE_NAMES)
@pytest.mark.parametrize("keep_io", [True, False])
@pytest.mark.parametrize("make", [conv_net, mlp, norm_model])
def test_models(save: Save, tmp_path: Path, to: Any, keep_io: bool, make: Callable[[], onnx.ModelProto]) -> None:
    path, out = save(make()), tmp_path / "narrow.onnx"
    given: dict[str, Any]
    if make is conv_net:
        given = images(1)[0]
    elif make is mlp:
        given = {"x": np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)}
    else:
        x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32) * 1000
        given = {"x": x, "mask": np.arange(64) % 3 // 2}
    exact = ort(path, given)[0]
    stays = ingot.convert(path, out, to=to, keep_io=keep_io)
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    kept = FLOAT if keep_io else TYPES[to]
    assert model.graph.output[0].type.tensor_type.elem_type == kept
    assert model.graph.input[0].type.tensor_type.elem_type == kept
    assert [i.name for i in model.graph.input] == list(given) and model.graph.output[0].name == "y"
    assert all(t.data_type != FLOAT for t in model.graph.initializer if np.prod(t.dims) > 1)
    if make is norm_model:
        assert any("square" in line and "range of f16" in line for line in stays) == (to == "fp16")
    if not keep_io and to == "bf16":
        return
    if not keep_io:
        given = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in given.items()}
    tolerance = (0.01 if to == "fp16" else 0.06) * float(np.abs(exact).max())
    ours = next(iter(ingot.compile(out).inference(given).values()))
    np.testing.assert_allclose(ours.astype(np.float32), exact, atol=tolerance)
    if to == "fp16":
        np.testing.assert_allclose(ort(out, given)[0].astype(np.float32), exact, atol=tolerance)


def test_size_and_report(save: Save, tmp_path: Path) -> None:
    path, out = save(norm_model()), tmp_path / "o.onnx"
    done = cli("convert", path, "-o", out, "--to", "fp16", "--report", tmp_path / "r.json")
    assert done.code == 0, done.err
    assert "'least'" in done.out and "clamped" in done.out
    assert out.stat().st_size < 0.7 * path.stat().st_size
    assert '"square"' in (tmp_path / "r.json").read_text()


def test_older_opsets_take_fewer_types(save: Save, tmp_path: Path) -> None:
    path, out = save(conv_net()), tmp_path / "o.onnx"
    stays = ingot.convert(path, out, to="bf16", opset=17)
    assert any("conv1" in line and "no bf16 in opset 17" in line for line in stays)
    onnx.checker.check_model(onnx.load(out), full_check=True)


def test_nothing_to_do(save: Save, tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    path = save(make_model(nodes, [("x", TensorProto.INT64, [2])], [("y", TensorProto.INT64, [2])]))
    with pytest.raises(ingot.InvalidInputError, match="nothing to convert to fp16"):
        ingot.convert(path, tmp_path / "o.onnx", to="fp16")
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize("to", TYPE_NAMES)
def test_numbers_are_rounded_to_the_nearest(save: Save, tmp_path: Path, to: Any) -> None:
    """Normal, subnormal and special numbers, and ties."""
    import ml_dtypes

    random = np.random.default_rng(0)
    w = np.ldexp(random.uniform(-1, 1, 4096), random.integers(-30, 16, 4096)).astype(np.float32)
    w[:16] = [0, -0.0, np.inf, -np.inf, np.nan, 65504, 2**-24, 2**-25, 3 * 2**-26, 2**-14, 1 + 2**-11, 1 + 3 * 2**-11,
              1 + 2**-8, 1 + 3 * 2**-9, 2**-15, 6e-8]  # fmt: skip
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    path = save(make_model(nodes, [("x", FLOAT, [4096])], [("y", FLOAT, [4096])], {"w": w}))
    ingot.convert(path, tmp_path / "o.onnx", to=to)
    (t,) = onnx.load(tmp_path / "o.onnx").graph.initializer
    wanted = w.astype(np.float16 if to == "fp16" else ml_dtypes.bfloat16)
    found = np.frombuffer(t.raw_data, wanted.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
