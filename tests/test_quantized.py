"""Quantized models: products of integers are exact, and QDQ, QLinear, QOperator and dynamic forms agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import yaml  # type: ignore[import-untyped]
from assembly import assembly_of, busiest_block
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import ingot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

RANDOM = np.random.default_rng(11)
BYTE_TYPES = [np.uint8, np.int8]


def model_of(
    nodes: list[Any], inputs: dict[str, Any], output: str, constants: dict[str, Any], opset: int = 21
) -> bytes:
    """A model with these nodes; inputs are arrays whose types and shapes are taken."""

    def port(name: str, x: Any) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)

    graph = helper.make_graph(
        nodes,
        "quantized",
        [port(k, v) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def run(model: bytes, inputs: dict[str, Any], tmp_path: Path, **options: Any) -> NDArray[Any]:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    return next(iter(ingot.compile(path, **options).inference(inputs).values()))


def whole_range(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("a_type", BYTE_TYPES)
@pytest.mark.parametrize("b_type", BYTE_TYPES)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
def test_matmul_integer_is_exact(a_type: Any, b_type: Any, constant: bool, march: str, tmp_path: Path) -> None:
    for m, k, n in [(1, 20000, 5), (3, 768, 70), (17, 333, 129), (64, 64, 64), (49, 3000, 9)]:
        a, b = whole_range((m, k), a_type), whole_range((k, n), b_type)
        a_zero, b_zero = whole_range((), a_type), whole_range((n,), b_type)
        operands = {"a": a, "b": b, "az": a_zero, "bz": b_zero}
        inputs = {"a": a} if constant else {"a": a, "b": b, "az": a_zero}
        constants = {name: x for name, x in operands.items() if name not in inputs}
        node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
        y = run(model_of([node], inputs, "y", constants), inputs, tmp_path, march=march)
        expected = (a.astype(np.int64) - a_zero.astype(np.int64)) @ (b.astype(np.int64) - b_zero.astype(np.int64))
        np.testing.assert_array_equal(y, expected.astype(np.int32))


@pytest.mark.parametrize(("rows", "single"), [(1, True), (4, True), (5, False), (None, False)])
def test_few_rows_are_taken_one_by_one(
    rows: int | None, single: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is known that they are few, and no instruction adds products of bytes in 32 bits."""
    monkeypatch.setenv("INGOT_CACHE", "off")
    a, b = whole_range((rows or 2, 96), np.uint8), whole_range((96, 64), np.int8)
    model = onnx.load_from_string(
        model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {"a": a}, "y", {"b": b})
    )
    if rows is None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        model.graph.output[0].type.tensor_type.ClearField("shape")
    file = model.SerializeToString()
    np.testing.assert_array_equal(
        run(file, {"a": a}, tmp_path, march="x86-64-v3"), a.astype(np.int32) @ b.astype(np.int32)
    )
    monkeypatch.setenv("INGOT_DUMP", str(tmp_path / "dump"))
    ingot.compile(tmp_path / "model.onnx", march="x86-64-v3").emit(tmp_path / "model.so")  # all kernels anew
    assert bool(list((tmp_path / "dump").glob("ingot_gemm_i8_rows*.o"))) == single


CONVOLUTIONS = [
    {"x": (1, 8, 14, 14), "w": (16, 8, 3, 3), "pads": [1, 1, 1, 1]},
    {"x": (2, 16, 9, 11), "w": (24, 16, 1, 1), "strides": [2, 2]},
    {"x": (1, 3, 32, 32), "w": (8, 3, 7, 7), "pads": [3, 3, 3, 3], "strides": [2, 2]},
    {"x": (1, 12, 10, 10), "w": (12, 1, 3, 3), "group": 12, "pads": [1, 1, 1, 1]},
    {"x": (1, 16, 8, 8), "w": (32, 8, 3, 3), "group": 2, "dilations": [2, 2]},
    {"x": (1, 5, 40), "w": (7, 5, 5), "pads": [2, 2]},
    {"x": (1, 4, 6, 7, 8), "w": (9, 4, 3, 2, 3), "pads": [1, 0, 1, 1, 1, 1], "strides": [1, 2, 1]},
    {"x": (1, 8, 14, 14), "w": (16, 8, 3, 3), "auto_pad": "SAME_UPPER", "strides": [2, 2]},
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: "x".join(map(str, c["w"])))
@pytest.mark.parametrize("x_type", BYTE_TYPES)
@pytest.mark.parametrize("w_type", BYTE_TYPES)
@pytest.mark.parametrize("constant", [True, False])
def test_conv_integer_is_exact(case: dict[str, Any], x_type: Any, w_type: Any, constant: bool, tmp_path: Path) -> None:
    attributes = {name: value for name, value in case.items() if name not in "xw"}
    x, w = whole_range(case["x"], x_type), whole_range(case["w"], w_type)
    x_zero, w_zero = whole_range((), x_type), whole_range((w.shape[0],), w_type)
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attributes)
    inputs = {"x": x} if constant else {"x": x, "w": w}
    constants = {name: v for name, v in {"w": w, "xz": x_zero, "wz": w_zero}.items() if name not in inputs}
    y = run(model_of([node], inputs, "y", constants), inputs, tmp_path)
    # The same in double, which is exact here; padding is with the zero point, so with 0 of the centred image.
    centred = w.astype(np.float64) - w_zero.astype(np.float64).reshape(-1, *[1] * (w.ndim - 1))
    plain = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    image = x.astype(np.float64) - float(x_zero)
    expected = run(model_of([plain], {"x": image}, "y", {"w": centred}), {"x": image}, tmp_path)
    np.testing.assert_array_equal(y, expected.astype(np.int32))


def test_qlinear_conv_of_an_image_of_unknown_rank(tmp_path: Path) -> None:
    """As behind an If whose branches have other ranks: the filters tell it."""
    image = whole_range((1, 2, 5, 6), np.uint8)
    constants = {
        "xs": np.float32(0.1),
        "xz": np.uint8(3),
        "w": np.arange(-36, 36).reshape(4, 2, 3, 3).astype(np.int8),
        "ws": np.array([0.02, 0.03, 0.04, 0.05], np.float32),
        "wz": np.zeros(4, np.int8),
        "ys": np.float32(0.5),
        "yz": np.uint8(7),
        "b": np.arange(4, dtype=np.int32),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("QLinearConv", ["r", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]
    inputs = {"x": image.ravel(), "shape": np.array(image.shape)}
    model = onnx.load_from_string(model_of(nodes, inputs, "y", constants))
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "rank"
    expected = ort.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    np.testing.assert_array_equal(run(model.SerializeToString(), inputs, tmp_path), expected)


TRANSPOSED_CONVOLUTIONS = [
    {"x": (2, 16, 7, 9), "w": (16, 12, 3, 3), "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"x": (1, 8, 5, 5), "w": (8, 5, 2, 2), "group": 2, "strides": [2, 2]},
    {"x": (1, 33, 20), "w": (33, 7, 4), "dilations": [2], "pads": [1, 2]},
    {"x": (1, 6, 4, 3, 5), "w": (6, 4, 3, 2, 2), "strides": [1, 2, 2]},
    {"x": (1, 300, 3, 3), "w": (300, 20, 3, 3)},
]


@pytest.mark.parametrize("case", TRANSPOSED_CONVOLUTIONS, ids=lambda c: "x".join(map(str, c["w"])))
@pytest.mark.parametrize("x_type", BYTE_TYPES)
@pytest.mark.parametrize("w_type", BYTE_TYPES)
@pytest.mark.parametrize("constant", [True, False])
def test_transposed_convolution_is_exact(
    case: dict[str, Any], x_type: Any, w_type: Any, constant: bool, tmp_path: Path
) -> None:
    attributes = {name: value for name, value in case.items() if name not in "xw"}
    x, w = whole_range(case["x"], x_type), whole_range(case["w"], w_type)
    x_zero, w_zero = whole_range((), x_type), whole_range((), w_type)
    per_channel = "group" not in case and w_type == np.int8
    channels = w.shape[1] * case.get("group", 1)
    w_scale = (2.0 ** RANDOM.integers(-3, 3, w.shape[1] if per_channel else ())).astype(np.float32)
    if per_channel:
        w_zero = np.zeros(w.shape[1], w_type)
    bias = RANDOM.integers(-1000, 1000, channels).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        helper.make_node("ConvTranspose", ["xf", "wf", "b"], ["y"], **attributes),
    ]
    operands = {"w": w, "xs": np.float32(0.5), "xz": x_zero, "ws": w_scale, "wz": w_zero, "b": bias}
    inputs = {"x": x} if constant else {"x": x, "w": w}
    constants = {name: v for name, v in operands.items() if name not in inputs}
    model = model_of(nodes, inputs, "y", constants)
    y = run(model, inputs, tmp_path)
    assert "ConvTransposeInteger" in ingot.compile(tmp_path / "model.onnx").yaml
    spread = [-1, *[1] * (x.ndim - 2)]
    plain = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    centred = {"x": x.astype(np.float64) - float(x_zero), "w": w - w_zero.astype(np.float64).reshape(1, *spread)}
    sums = run(model_of([plain], {"x": centred["x"]}, "y", {"w": centred["w"]}), {"x": centred["x"]}, tmp_path)
    scale = 0.5 * (w_scale if per_channel else np.full(channels, w_scale))
    expected = sums.astype(np.float32) * scale.reshape(spread) + bias.reshape(spread)  # powers of two: exact
    np.testing.assert_array_equal(y, expected.astype(np.float32))


@pytest.mark.parametrize("x_type", BYTE_TYPES)
@pytest.mark.parametrize("w_type", BYTE_TYPES)
@pytest.mark.parametrize(
    ("march", "instruction", "sums"),
    [("x86-64-v3+vnni", "vpdpbusd", 12), ("x86-64-v4+vnni", "vpdpbusd", 24), ("x86-64-v4+amx", "tdpbusd", 4)],
)
def test_code_of_byte_products(
    march: str, instruction: str, sums: int, x_type: Any, w_type: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loops are as they should be, also where this CPU cannot run them; where it can, results are the same."""
    x, w = whole_range((1, 16, 6, 514), x_type), whole_range((40, 16, 3, 3), w_type)
    depthwise, matrix = whole_range((40, 1, 3, 3), w_type), whole_range((512, 336), w_type)
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["c"], ["b"], to=helper.np_dtype_to_tensor_dtype(np.dtype(x_type))),
        helper.make_node("ConvInteger", ["b", "depthwise", "xz"], ["d"], group=40),
        helper.make_node("Cast", ["d"], ["e"], to=helper.np_dtype_to_tensor_dtype(np.dtype(x_type))),
        helper.make_node("MatMulInteger", ["e", "matrix", "xz"], ["y"]),
    ]
    constants = {"w": w, "depthwise": depthwise, "matrix": matrix, "xz": x_type(3), "wz": whole_range((40,), w_type)}
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, {"x": x}, "y", constants))
    monkeypatch.setenv("INGOT_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("INGOT_CACHE", "off")
    ingot.compile(path, march=march).emit(tmp_path / "model.so")
    monkeypatch.delenv("INGOT_DUMP")
    name = "tiles" if instruction == "tdpbusd" else "dot"
    products = list((tmp_path / "dump").glob(f"ingot_gemm_i8_{name}*.o"))
    assert len(products) == 2
    for file in products:
        block = busiest_block(assembly_of(file), instruction)
        multiply = [i for i, line in enumerate(block) if instruction in line]
        assert len({block[i].split()[-1] for i in multiply}) == sums, "all sums stay in registers"
        loop = [line for line in block[multiply[0] : multiply[-1]] if "ymm" in line or "zmm" in line]
        assert not any("(%rsp)" in line for line in loop), "\n".join(loop)
    (filters,) = (tmp_path / "dump").glob("ingot_depthwise_i8*.o")
    assert "vpdpwssd" in assembly_of(filters)
    expected = ingot.compile(path, march="x86-64-v2").inference({"x": x})["y"]
    try:
        graph = ingot.load(tmp_path / "model.so")
    except ingot.Error as error:
        assert f"compiled for {march}, which this CPU does not run" in str(error)
        return
    np.testing.assert_array_equal(graph.inference({"x": x})["y"], expected)


def rounded(sums: NDArray[Any], zero: Any) -> NDArray[Any]:
    """What a QLinear operator stores whose scales make 2^-8."""
    limits = np.iinfo(zero.dtype)
    values: NDArray[Any] = np.clip(np.rint(sums * 2.0**-8) + int(zero), limits.min, limits.max)
    return values.astype(zero.dtype)


@pytest.mark.parametrize("march", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", BYTE_TYPES)
@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.parametrize("options", [{"wait": True}, {"opt_level": 1}], ids=["specialised", "native"])
def test_results_in_bytes_of_any_width(
    options: dict[str, Any], rows: int, dtype: Any, march: str, tmp_path: Path
) -> None:
    """Bytes of four vectors are stored at once, then those of one, then the last."""
    zero = dtype(7)
    scales = {"s": np.float32(2.0**-4), "t": np.float32(1), "z": zero}
    for width in (1, 7, 8, 16, 31, 32, 33, 48, 63, 64, 65, 129):
        x, w = whole_range((rows, 24), dtype), whole_range((24, width), np.int8)
        nodes = [helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "s", "wz", "t", "z"], ["y"])]
        model = model_of(nodes, {"x": x}, "y", {"w": w, "wz": np.int8(0), **scales})
        y = run(model, {"x": x}, tmp_path, march=march, **options)
        np.testing.assert_array_equal(y, rounded((x.astype(np.int64) - int(zero)) @ w.astype(np.int64), zero))

        image, taps = whole_range((1, width, 6, 3 + rows), dtype), whole_range((width, 1, 3, 3), np.int8)
        nodes = [helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "wz", "t", "z"], ["y"], group=width)]
        model = model_of(nodes, {"x": image}, "y", {"w": taps, "wz": np.int8(0), **scales})
        y = run(model, {"x": image}, tmp_path, march=march, **options)
        windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.int64) - int(zero), (3, 3), axis=(2, 3))
        np.testing.assert_array_equal(y, rounded(np.einsum("ncijhw,chw->ncij", windows, taps[:, 0].astype(int)), zero))


@pytest.mark.parametrize("dtype", BYTE_TYPES)
@pytest.mark.parametrize(("march", "form"), [("x86-64-v3", "pairs"), ("x86-64-v4+vnni", "dot")])
def test_bytes_are_stored_many_at_a_time(
    march: str, form: str, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = whole_range((64, 64), np.uint8), whole_range((64, 192), np.int8)
    scales = {"s": np.float32(0.01), "xz": np.uint8(0), "wz": np.int8(0), "yz": dtype(1)}
    nodes = [helper.make_node("QLinearMatMul", ["x", "s", "xz", "w", "s", "wz", "s", "yz"], ["y"])]
    (tmp_path / "model.onnx").write_bytes(model_of(nodes, {"x": x}, "y", {"w": w, **scales}))
    monkeypatch.setenv("INGOT_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("INGOT_CACHE", "off")
    ingot.compile(tmp_path / "model.onnx", march=march).emit(tmp_path / "model.so")
    (file,) = (tmp_path / "dump").glob(f"ingot_gemm_i8_{form}*.o")
    block = busiest_block(assembly_of(file), "vpackuswb" if dtype == np.uint8 else "vpacksswb")
    assert sum("vcvtps2dq" in line for line in block) in (3, 4), "\n".join(block)


@pytest.mark.parametrize("count", [1, 7, 4095, 4097, 30000])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_dynamic_range_of_any_length(count: int, sign: int, tmp_path: Path) -> None:
    """The smallest and the largest number may lie anywhere; a range has 0 in it."""
    x = RANDOM.standard_normal(count).astype(np.float32)
    x = np.abs(x) * sign if sign else x
    for at in {0, count // 2, count - 1}:
        x[at] = 9 * (sign or 1)
        x[count - 1 - at] = -9 * (sign <= 0)
        node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
        path = tmp_path / "model.onnx"
        path.write_bytes(model_of([node], {"x": x}, "y", {}))
        low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
        scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
        zero = np.clip(np.rint(-low / scale), 0, 255)
        y = ingot.compile(path).inference({"x": x})["y"]
        np.testing.assert_array_equal(y, np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8))


def test_reshapes_leave_a_dynamic_linear_layer(tmp_path: Path) -> None:
    """onnxruntime's tools flatten the batch around MatMul; the activation joins the product all the same."""
    x, w = RANDOM.standard_normal((1, 24, 32)).astype(np.float32), whole_range((32, 48), np.int8)
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        helper.make_node("DynamicQuantizeLinear", ["rows"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "w", "qz"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["qs", "ws"], ["s"]),
        helper.make_node("Mul", ["real", "s"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "batch"], ["stack"]),
        helper.make_node("Gelu", ["stack"], ["y"]),
    ]
    constants = {
        "flat": np.array([-1, 32], np.int64),
        "batch": np.array([1, -1, 48], np.int64),
        "w": w,
        "ws": np.linspace(1e-4, 2e-3, 48, dtype=np.float32),
    }
    y = run(model_of(nodes, {"x": x}, "y", constants), {"x": x}, tmp_path)
    operators = yaml.safe_load(ingot.compile(tmp_path / "model.onnx").yaml)["operator"].values()
    assert sorted(o["type"] for o in operators) == ["DynamicQuantizeLinear", "MatMulInteger", "Mul"]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    expected = ort.InferenceSession((tmp_path / "model.onnx").read_bytes(), options).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Iterable[dict[str, Any]]) -> None:
        self.samples = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.samples, None)


def exported(module: torch.nn.Module, x: torch.Tensor, path: Path) -> Path:
    with torch.no_grad():
        torch.onnx.export(
            module.eval(), (x,), path, input_names=["x"], output_names=["y"], opset_version=18, verbose=False
        )
    model = onnx.load(path)
    del model.graph.value_info[:]  # of weights too, which onnxruntime's quantizer turns around
    onnx.save(model, path)
    return path


def small_net() -> torch.nn.Module:
    """Convolutions with and without groups, a residual, poolings, a linear layer: what quantizers wrap."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 16, 3, padding=1, stride=2)
            self.second = torch.nn.Conv2d(16, 16, 3, padding=1)
            self.grouped = torch.nn.Conv2d(16, 32, 3, padding=1, groups=4)
            self.depthwise = torch.nn.Conv2d(32, 32, 3, padding=1, groups=32)
            self.linear = torch.nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            x = torch.nn.functional.max_pool2d(x, 2)
            x = torch.relu(self.second(x) + x)
            x = torch.relu(self.depthwise(torch.relu(self.grouped(x))))
            return self.linear(x.mean((2, 3)))

    torch.manual_seed(5)
    return Net()


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One network, quantized by onnxruntime in every format."""
    folder = tmp_path_factory.mktemp("quantized")
    plain = exported(small_net(), torch.zeros(1, 3, 32, 32), folder / "plain.onnx")
    out = {"plain": plain}

    def static(name: str, form: QuantFormat, activations: QuantType, per_channel: bool) -> None:
        random = np.random.default_rng(0)
        samples = Samples({"x": random.standard_normal((1, 3, 32, 32), np.float32)} for _ in range(8))
        out[name] = folder / f"{name}.onnx"
        quantize_static(
            plain,
            out[name],
            samples,
            quant_format=form,
            per_channel=per_channel,
            activation_type=activations,
            weight_type=QuantType.QInt8,
        )

    static("qdq", QuantFormat.QDQ, QuantType.QUInt8, True)
    static("qoperator", QuantFormat.QOperator, QuantType.QUInt8, True)
    static("qdq_tensor", QuantFormat.QDQ, QuantType.QUInt8, False)
    static("qdq_signed", QuantFormat.QDQ, QuantType.QInt8, True)
    out["dynamic"] = folder / "dynamic.onnx"
    quantize_dynamic(
        plain, out["dynamic"], weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm", "Conv"]
    )
    return out


def exact_session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    return ort.InferenceSession(path, options)


def output_quantum(path: Path) -> float:
    """The largest scale in the model bounds what one step of a quantized tensor is worth at the output."""
    model = onnx.load(path)
    scales = {n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear" and "y" in n.output}
    found = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name in scales]
    return float(max(x.max() for x in found)) if found else 0.02


@pytest.mark.parametrize("name", ["qdq", "qoperator", "qdq_tensor", "qdq_signed", "dynamic"])
def test_onnxruntime_quantized_models(quantized: dict[str, Path], name: str) -> None:
    graph, peer = ingot.compile(quantized[name]), exact_session(quantized[name])
    step = output_quantum(quantized[name])
    for _ in range(5):
        x = RANDOM.standard_normal((1, 3, 32, 32), np.float32)
        difference = np.abs(graph.inference([x])["y"] - peer.run(None, {"x": x})[0]).max()
        assert difference <= step * 1.01, f"{difference / step} steps"


def fused_operators(path: Path, folder: Path) -> list[tuple[str, str]]:
    ingot.compile(path).save(folder)
    nodes = yaml.safe_load((folder / "graph.yaml").read_text())["operator"].values()
    return sorted((n["type"], str(n.get("attr", {}).get("epilogue", ""))) for n in nodes)


def test_qdq_and_qlinear_are_one_graph(quantized: dict[str, Path], tmp_path: Path) -> None:
    first, second = (fused_operators(quantized[name], tmp_path / name) for name in ("qdq", "qoperator"))
    assert first == second
    graphs = [ingot.compile(quantized[name]) for name in ("qdq", "qoperator")]
    for _ in range(5):
        x = RANDOM.standard_normal((1, 3, 32, 32), np.float32)
        a, b = (g.inference([x])["y"] for g in graphs)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("turned", ["Transpose", "Gemm"])
def test_weights_by_output_channel(turned: str, tmp_path: Path) -> None:
    """As PyTorch's linear layers have them: [out, in], a scale for each output, turned around where they are read."""
    x, w = whole_range((5, 64), np.uint8), whole_range((24, 64), np.int8)
    scales = RANDOM.uniform(0.01, 0.1, 24).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wf"], axis=0),
    ]
    if turned == "Gemm":
        nodes.append(helper.make_node("Gemm", ["xf", "wf"], ["y"], transB=1))
    else:
        nodes.append(helper.make_node("Transpose", ["wf"], ["wt"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", ["xf", "wt"], ["y"]))
    constants = {"xs": np.float32(0.5), "xz": np.uint8(113), "w": w, "ws": scales}
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, {"x": x}, "y", constants))
    graph = ingot.compile(path)
    assert [n.op for n in graph.nodes] == ["ingot.MatMulInteger"]
    expected = (x.astype(np.int64) - 113) @ w.T.astype(np.int64) * (0.5 * scales)
    np.testing.assert_allclose(graph.inference([x])["y"], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_what_follows_an_integer_product_may_compute_in_16_bits(dtype: Any, tmp_path: Path) -> None:
    """The product's result is rounded to 16 bits by a node of its own."""
    a, b = whole_range((5, 8), np.uint8), whole_range((8, 6), np.int8)
    weight = np.eye(6, dtype=dtype)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["narrow"], to=to),
        helper.make_node("MatMul", ["narrow", "weight"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"b": b, "scale": np.float32(0.001), "weight": weight}
    y = run(model_of(nodes, {"a": a}, "y", constants), {"a": a}, tmp_path)
    scaled = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * np.float32(0.001)
    np.testing.assert_array_equal(y, scaled.astype(dtype).astype(np.float32))


def test_bytes_stay_bytes(quantized: dict[str, Path], tmp_path: Path) -> None:
    """Between the quantized operators of the network no float tensor is stored."""
    ingot.compile(quantized["qdq"]).save(tmp_path / "ir")
    graph = yaml.safe_load((tmp_path / "ir" / "graph.yaml").read_text())
    kinds = [n["type"] for n in graph["operator"].values()]
    assert kinds.count("ConvInteger") == 4
    assert kinds.count("MatMulInteger") == 1
    assert not {"Conv", "MatMul", "QuantizeLinear", "DequantizeLinear"} & set(kinds)


def test_thread_counts_agree(quantized: dict[str, Path]) -> None:
    x = RANDOM.standard_normal((1, 3, 32, 32), np.float32)
    one, three = (ingot.compile(quantized["qdq"], threads=n).inference([x])["y"] for n in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_smart_turn() -> None:
    """A Whisper encoder with static QDQ, as its package carries it: no further from the definition than onnxruntime."""
    spec = importlib.util.find_spec("pipecat")
    assert spec is not None
    assert spec.origin is not None
    path = next(Path(spec.origin).parent.glob("audio/turn/smart_turn/data/smart-turn-*-cpu.onnx"))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    definition, exact, graph = ort.InferenceSession(path, options), exact_session(path), ingot.compile(path)

    def logit(p: NDArray[Any]) -> float:
        return float(np.log(p / (1 - p)).item())

    mine, peer = [], []
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 80, 800)).astype(np.float32)
        wanted = logit(definition.run(None, {"input_features": x})[0])
        mine.append(abs(logit(graph.inference([x])["logits"]) - wanted))
        peer.append(abs(logit(exact.run(None, {"input_features": x})[0]) - wanted))
    assert max(mine) <= max(0.2, 1.5 * max(peer)), (mine, peer)


BAD_PARAMETERS = {
    "zero": (np.float32(0), np.uint8(1), "scale 0 is 0"),
    "negative": (np.float32(-1), np.uint8(1), "scale 0 is -1"),
    "nan": (np.float32("nan"), np.uint8(1), "scale 0 is nan"),
    "infinite": (np.float32("inf"), np.uint8(1), "scale 0 is inf"),
    "shape": (np.array([1, 2], np.float32), np.uint8(1), "scale"),
    "count": (np.array([1, 2, 3], np.float32), np.array([1, 2, 3], np.uint8), "axis"),
}


@pytest.mark.parametrize("kind", BAD_PARAMETERS)
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_bad_quantization_parameters(kind: str, op: str, tmp_path: Path) -> None:
    scale, zero, words = BAD_PARAMETERS[kind]
    x = np.zeros((2, 4), np.float32 if op == "QuantizeLinear" else np.uint8)
    model = model_of([helper.make_node(op, ["x", "s", "z"], ["y"])], {"x": x}, "y", {"s": scale, "z": zero})
    with pytest.raises(ingot.Error, match=words):
        run(model, {"x": x}, tmp_path)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_zero_points_along_an_axis_that_are_an_input(axis: int, tmp_path: Path) -> None:
    names = ["x", "s", "z"]
    nodes = [
        helper.make_node("QuantizeLinear", names, ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    scales = np.array([0.125, 0.25], np.float32)
    ports = [("x", TensorProto.FLOAT, ["n", "n", "m"]), ("z", TensorProto.UINT8, [2])]
    inputs = [helper.make_tensor_value_info(*port) for port in ports]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "qdq", inputs, outputs, [numpy_helper.from_array(scales, "s")])
    path = tmp_path / "qdq.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    x = np.random.default_rng(0).standard_normal((2, 2, 2 if axis == 2 else 1), dtype=np.float32) * 4
    z = np.array([3, 200], np.uint8)
    along = [-1 if a == axis else 1 for a in range(3)]
    s, zero = scales.reshape(along), z.reshape(along).astype(np.float32)
    expected = (np.clip(np.rint(x / s) + zero, 0, 255) - zero) * s
    np.testing.assert_array_equal(ingot.compile(path).inference([x, z])["y"], expected)


def test_float8_product(tmp_path: Path) -> None:
    """QLinearMatMul of 8-bit floats multiplies the numbers they stand for."""
    shapes = ((4, 8), (8, 3))
    a, b = (RANDOM.standard_normal(s).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) for s in shapes)
    float8 = TensorProto.FLOAT8E4M3FN

    def small(name: str, x: NDArray[Any]) -> Any:
        return helper.make_tensor(name, float8, x.shape, x.ravel())

    one = {name: numpy_helper.from_array(np.float32(1), name) for name in ("as", "bs", "ys")}
    zero = [helper.make_tensor(name, float8, (), [0.0]) for name in ("az", "bz", "yz")]
    graph = helper.make_graph(
        [
            helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["q"]),
            helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
        ],
        "float8",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
        [small("a", a), small("b", b), *one.values(), *zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    y = run(bytes(model.SerializeToString()), {}, tmp_path)
    np.testing.assert_array_equal(y, (a @ b).astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
