"""Models with quantization marks, as an exporter leaves them, made into their final files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import cli, make_model
from onnx import TensorProto, helper, numpy_helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[..., Path]
    Arrays = dict[str, NDArray[Any]]

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
FORMS = ("qdq", "qlinear")
node = helper.make_node


class Marked:
    """A graph under construction, with marks on what is named."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: Arrays = {}

    def constant(self, name: str, value: Any) -> str:
        self.weights[name] = np.asarray(value)
        return name

    def add(self, op: str, inputs: Sequence[str], out: str, **attrs: Any) -> str:
        self.nodes.append(node(op, list(inputs), [out], name=attrs.pop("name", out), **attrs))
        return out

    def activation(self, x: str, scale: float = 0.02, zero: int = 128, dtype: Any = np.uint8) -> str:
        """x rounded to 8 bits."""
        parameters = [self.constant(f"{x}_s", np.float32(scale)), self.constant(f"{x}_z", dtype(zero))]
        self.add("QuantizeLinear", [x, *parameters], f"{x}_q")
        return self.add("DequantizeLinear", [f"{x}_q", *parameters], f"{x}_dq")

    def dynamic(self, x: str) -> str:
        self.nodes.append(node("DynamicQuantizeLinear", [x], [f"{x}_q", f"{x}_s", f"{x}_z"], name=f"{x}_dyn"))
        return self.add("DequantizeLinear", [f"{x}_q", f"{x}_s", f"{x}_z"], f"{x}_dq")

    def rows(self, x: str, affine: bool = False) -> str:
        """Each row of x rounded with a scale of its own."""
        low, high = self.constant("low", np.float32(-127)), self.constant("high", np.float32(127))
        self.add("ReduceMax", [self.add("Abs", [x], f"{x}_abs")], f"{x}_max", axes=[-1])
        self.add("Div", [f"{x}_max", high], f"{x}_s")
        q = self.add("Round", [self.add("Div", [x, f"{x}_s"], f"{x}_d")], f"{x}_r")
        if affine:
            self.constant("three", np.int8(3))
            self.add("Expand", ["three", self.add("Shape", [f"{x}_s"], f"{x}_shape")], f"{x}_zi")
            q = self.add("Add", [q, self.add("Cast", [f"{x}_zi"], f"{x}_z", to=FLOAT)], f"{x}_rz")
        q = self.add("Cast", [self.add("Clip", [q, low, high], f"{x}_c")], f"{x}_q", to=TensorProto.INT8)
        real = self.add("Cast", [q], f"{x}_f", to=FLOAT)
        if affine:
            real = self.add("Sub", [real, f"{x}_z"], f"{x}_fz")
        return self.add("Mul", [real, f"{x}_s"], f"{x}_dq")

    def weight(self, name: str, *dims: int, axis: int | None = None, dtype: Any = np.int8) -> str:
        """Integers of the whole range, with one scale or one for each index along the axis."""
        info = np.iinfo(dtype)
        self.constant(f"{name}_q", self.random.integers(info.min, info.max, dims, dtype=dtype, endpoint=True))
        count = () if axis is None else (dims[axis],)
        self.constant(f"{name}_s", self.random.uniform(0.002, 0.01, count).astype(np.float32))
        zero = 128 if dtype == np.uint8 else 0
        self.constant(f"{name}_z", np.full(count, zero, dtype))
        attrs = {} if axis is None else {"axis": axis}
        return self.add("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], name, **attrs)

    def bias(self, name: str, size: int) -> str:
        return self.constant(name, self.random.standard_normal(size).astype(np.float32))

    def model(self, inputs: Any, outputs: Any, opset: int = 17) -> onnx.ModelProto:
        return make_model(self.nodes, inputs, outputs, self.weights, opset)


def ort(path: Path, inputs: Arrays, exact: bool = False) -> list[NDArray[Any]]:
    """exact: every mark by itself, products in fp32."""
    options = onnxruntime.SessionOptions()
    if exact:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    result: list[NDArray[Any]] = onnxruntime.InferenceSession(str(path), options).run(None, inputs)
    return result


def ops(path: Path) -> Counter[str]:
    return Counter(n.op_type for n in onnx.load(path, load_external_data=False).graph.node)


def forms(report: ingot.ConversionReport) -> dict[str, str]:
    return {entry["name"]: entry["form"] for entry in report.data["quantized"]}


def finished(save: Save, tmp_path: Path, model: onnx.ModelProto, inputs: Arrays, quantum: float, **options: Any) -> Any:
    """Both forms: valid, the same bits in Ingot, at most a step away from exact arithmetic on the marks elsewhere."""
    source = save(model)
    exact = ort(source, inputs, exact=True)
    reports, results = {}, {}
    for form in FORMS:
        out = tmp_path / f"{form}.onnx"
        reports[form] = ingot.finish_export(source, out, quant_format=form, **options)  # type: ignore[arg-type]
        written = onnx.load(out)
        onnx.checker.check_model(written, full_check=True)
        assert {o.domain for o in written.opset_import} == {""}
        results[form] = list(ingot.compile(out).inference(inputs).values())
        # Where only weights are quantized, onnxruntime rounds activations too, unless it is told not to optimise.
        alone = any(e["form"] == "weight-only" for e in reports[form].data["quantized"])
        for a, b, c in zip(exact, results[form], ort(out, inputs, exact=alone), strict=True):
            assert np.abs(a.astype(np.float64) - b).max() <= quantum * 1.01
            assert np.abs(a.astype(np.float64) - c).max() <= quantum * 1.01
    for a, b in zip(results["qdq"], results["qlinear"], strict=True):
        np.testing.assert_array_equal(a, b)
    return reports


BIASES = [None, "int32", "fp32", "fp32_trailing"]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("weight", [None, "u8"])
def test_convolutions(save: Save, tmp_path: Path, bias: Any, weight: Any) -> None:
    m = Marked()
    m.add("Conv", [m.activation("x"), m.weight("w1", 6, 3, 3, 3, axis=0), m.bias("b1", 6)], "c1", pads=[1, 1, 1, 1])
    m.add("Relu", ["c1"], "r1")
    r1 = m.activation("r1", 0.03, 0)
    m.add("Conv", [r1, m.weight("w2", 6, 6, 1, 1), m.bias("b2", 6)], "c2")
    m.add("Add", [m.activation("c2", 0.1), r1], "sum")
    m.add("MaxPool", [m.activation("sum", 0.12)], "pool", kernel_shape=[2, 2], strides=[2, 2])
    model = m.model([("x", FLOAT, ["n", 3, 8, 8])], [(m.activation("pool", 0.12), FLOAT, ["n", 6, 4, 4])])
    x = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    reports = finished(save, tmp_path, model, x, 0.12, bias=bias, weight=weight)
    assert forms(reports["qdq"]) == dict.fromkeys(("c1", "c2", "sum", "pool"), "QDQ")
    found = forms(reports["qlinear"])
    # QLinearConv has biases of 32 bits only.
    form = "ConvInteger" if bias in ("fp32", "fp32_trailing") else "QLinearConv"
    assert found["c1"] == found["c2"] == form and found["sum"] == "QDQ" and found["pool"] == "integer"
    graph = onnx.load(tmp_path / "qdq.onnx").graph
    types = {t.name: t.data_type for t in graph.initializer}
    conv = next(n for n in graph.node if n.name == "c1")
    makers = {o: n for n in graph.node for o in n.output}
    stored = types[makers[conv.input[2]].input[0]] if conv.input[2] in makers else types[conv.input[2]]
    assert stored == (TensorProto.INT32 if bias == "int32" else FLOAT)
    w1 = types[makers[conv.input[1]].input[0]]
    assert w1 == (TensorProto.UINT8 if weight == "u8" else TensorProto.INT8)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("spelling", ["gemm", "transpose"])
@pytest.mark.parametrize("ends", ["rounded", "fp32"])
@pytest.mark.parametrize("axis", [None, 0])
def test_linear_layers(save: Save, tmp_path: Path, bias: Any, spelling: str, ends: str, axis: int | None) -> None:
    """Weights [out, in], as PyTorch has them: of a Gemm, or turned around for a MatMul of any rank."""
    m = Marked()
    x, w, b = m.activation("x"), m.weight("w", 5, 16, axis=axis), m.bias("b", 5)
    if spelling == "gemm":
        dims: list[Any] = ["n", 16]
        m.add("Gemm", [x, w, b], "y", name="linear", transB=1)
    else:
        dims = ["n", 3, 16]
        m.add("MatMul", [x, m.add("Transpose", [w], "wt", perm=[1, 0])], "p", name="linear")
        m.add("Add", ["p", b], "y")
    out = m.activation("y", 0.05) if ends == "rounded" else "y"
    model = m.model([("x", FLOAT, dims)], [(out, FLOAT, [*dims[:-1], 5])])
    given = {"x": np.random.default_rng(0).standard_normal((4, *dims[1:])).astype(np.float32)}
    # The int32 bias is rounded to steps of the product.
    quantum = 0.05 if ends == "rounded" else 2e-4 if bias == "int32" else 1e-5
    reports = finished(save, tmp_path, model, given, quantum, bias=bias)
    assert forms(reports["qdq"])["linear"] == "QDQ"
    assert forms(reports["qlinear"])["linear"] == "MatMulInteger"
    assert ops(tmp_path / "qdq.onnx")["Transpose"] == 0
    stored = [t.data_type for t in onnx.load(tmp_path / "qdq.onnx").graph.initializer]
    assert (TensorProto.INT32 in stored) == (bias == "int32")


def test_product_without_bias(save: Save, tmp_path: Path) -> None:
    m = Marked()
    m.add("MatMul", [m.activation("x"), m.weight("w", 16, 5)], "y", name="linear")
    model = m.model([("x", FLOAT, ["n", 16])], [(m.activation("y", 0.05), FLOAT, ["n", 5])])
    given = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    reports = finished(save, tmp_path, model, given, 0.05)
    assert forms(reports["qlinear"])["linear"] == "QLinearMatMul"


@pytest.mark.parametrize("axis", [None, 0])
def test_dynamic_products(save: Save, tmp_path: Path, axis: int | None) -> None:
    m = Marked()
    m.add("Gemm", [m.dynamic("x"), m.weight("w", 6, 16, axis=axis), m.bias("b", 6)], "h", name="first", transB=1)
    m.add("MatMul", [m.dynamic("h"), m.weight("v", 6, 4, axis=None if axis is None else 1)], "y", name="second")
    model = m.model([("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 4])])
    given = {"x": np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)}
    reports = finished(save, tmp_path, model, given, 1e-4)
    assert forms(reports["qdq"]) == {"first": "dynamic QDQ", "second": "dynamic QDQ"}
    assert forms(reports["qlinear"]) == {"first": "MatMulInteger", "second": "MatMulInteger"}


def test_dynamic_convolution(save: Save, tmp_path: Path) -> None:
    m = Marked()
    m.add("Conv", [m.dynamic("x"), m.weight("w", 4, 3, 3, 3, axis=0), m.bias("b", 4)], "y", name="conv")
    model = m.model([("x", FLOAT, ["n", 3, 6, 6])], [("y", FLOAT, ["n", 4, 4, 4])])
    given = {"x": np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}
    assert forms(finished(save, tmp_path, model, given, 1e-4)["qlinear"]) == {"conv": "ConvInteger"}


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_scales_of_rows(save: Save, tmp_path: Path, affine: bool, rank: int) -> None:
    m = Marked()
    x = m.rows("x", affine)
    m.add("MatMul", [x, m.add("Transpose", [m.weight("w", 5, 16, axis=0)], "wt", perm=[1, 0])], "p", name="linear")
    m.add("Add", ["p", m.bias("b", 5)], "y")
    dims: list[Any] = ["n", *([3] * (rank - 2)), 16]
    model = m.model([("x", FLOAT, dims)], [("y", FLOAT, [*dims[:-1], 5])])
    given = {"x": np.random.default_rng(0).standard_normal((4, *dims[1:])).astype(np.float32)}
    source = save(model)
    exact = ort(source, given, exact=True)[0]
    for form in ("qdq", "qlinear"):  # ONNX has no DequantizeLinear by rows: integer products in both
        out = tmp_path / "o.onnx"
        report = ingot.finish_export(source, out, quant_format=form)
        assert forms(report) == {"linear": "MatMulInteger"}
        onnx.checker.check_model(onnx.load(out), full_check=True)
        np.testing.assert_allclose(next(iter(ingot.compile(out).inference(given).values())), exact, atol=1e-4)
        np.testing.assert_allclose(ort(out, given)[0], exact, atol=1e-4)


@pytest.mark.parametrize("axis", [None, 0])
def test_weights_only_tables_and_recurrent_layers(save: Save, tmp_path: Path, axis: int | None) -> None:
    """A table that rows are taken from, tied with the last product; an LSTM; a product with fp32 activations."""
    m = Marked()
    table = m.weight("table", 40, 8, axis=axis)
    m.add("Gather", [table, "ids"], "e", name="embed")
    m.nodes.append(
        node("LSTM", ["e", m.weight("W", 1, 32, 8), m.weight("R", 1, 32, 8)], ["h4"], name="lstm", hidden_size=8)
    )
    m.add("Squeeze", ["h4", m.constant("one", np.array([1]))], "h")
    m.add("MatMul", ["h", m.add("Transpose", [table], "turned", perm=[1, 0])], "p", name="tied")
    m.add("MatMul", ["p", m.constant("last", np.eye(40, dtype=np.float32))], "y", name="left")
    model = m.model([("ids", INT64, ["n", 2])], [("y", FLOAT, ["n", 2, 40])])
    given = {"ids": np.array([[3, 39], [0, 7]])}
    reports = finished(save, tmp_path, model, given, 1e-4)
    for form in FORMS:
        found = forms(reports[form])
        assert found == {"embed": "integer", "lstm": "weight-only", "tied": "weight-only"}
        assert [e["name"] for e in reports[form].data["not_quantized"]] == ["left"]
    assert "no integer operator" in next(e for e in reports["qdq"].data["quantized"] if e["name"] == "lstm")["reason"]
    stored = {t.data_type for t in onnx.load(tmp_path / "qdq.onnx").graph.initializer if np.prod(t.dims) == 320}
    assert stored == {TensorProto.INT8}


def test_signed_activations_and_opset(save: Save, tmp_path: Path) -> None:
    m = Marked()
    x = m.activation("x", 0.02, 0, np.int8)
    m.add("Gemm", [x, m.weight("w", 5, 16), m.bias("b", 5)], "y", name="linear", transB=1)
    model = m.model([("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 5])])
    given = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    finished(save, tmp_path, model, given, 1e-5, opset=13)
    assert onnx.load(tmp_path / "qlinear.onnx").opset_import[0].version == 13


@pytest.mark.parametrize("ends", ["rounded", "fp32"])
def test_signed_activations_of_convolutions(save: Save, tmp_path: Path, ends: str) -> None:
    m = Marked()
    x = m.activation("x", 0.02, -3, np.int8)
    m.add("Conv", [x, m.weight("w", 6, 3, 3, 3, axis=0), m.bias("b", 6)], "c", name="conv")
    out = m.activation("c", 0.1, 5, np.int8) if ends == "rounded" else "c"
    model = m.model([("x", FLOAT, ["n", 3, 8, 8])], [(out, FLOAT, ["n", 6, 6, 6])])
    given = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    reports = finished(save, tmp_path, model, given, 0.1 if ends == "rounded" else 1e-5)
    assert forms(reports["qlinear"]) == {"conv": "QLinearConv" if ends == "rounded" else "ConvInteger"}


def test_quantized_constants_of_float_files(save: Save, tmp_path: Path) -> None:
    """A weight that is rounded where it stands, as quantization-aware training leaves it, becomes integers."""
    m = Marked()
    m.constant("w", m.random.standard_normal((16, 5)).astype(np.float32))
    m.add("MatMul", [m.activation("x"), m.activation("w", 0.02, 0, np.int8)], "y", name="linear")
    model = m.model([("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 5])])
    given = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    finished(save, tmp_path, model, given, 1e-5)
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "qdq.onnx").graph.initializer}
    assert [t.dtype for t in tensors.values() if t.shape == (16, 5)] == [np.int8]


def test_nothing_quantized_is_an_error(save: Save, tmp_path: Path) -> None:
    m = Marked()
    m.add("MatMul", ["x", m.constant("w", np.eye(4, dtype=np.float32))], "y")
    path = save(m.model([("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])]))
    with pytest.raises(ingot.InvalidInputError, match="nothing to convert"):
        ingot.finish_export(path, tmp_path / "o.onnx")
    with pytest.raises(ingot.InvalidInputError, match="it is one of"):
        ingot.finish_export(path, tmp_path / "o.onnx", bias="int16")  # type: ignore[arg-type]
    assert not (tmp_path / "o.onnx").exists()


def test_command_line(save: Save, tmp_path: Path) -> None:
    m = Marked()
    m.add("Gemm", [m.activation("x"), m.weight("w", 5, 16), m.bias("b", 5)], "y", name="linear", transB=1)
    path, out = save(m.model([("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 5])])), tmp_path / "o.onnx"
    done = cli("convert", path, "-o", out, "--to", "qlinear", "--bias", "int32", "--weight", "u8", "--opset", "14",
               "--report", tmp_path / "r.json")  # fmt: skip
    assert done.code == 0, done.err
    assert '"form": "MatMulInteger"' in (tmp_path / "r.json").read_text()


# --- facts: taken out of a graph, and put back


def everything() -> tuple[onnx.ModelProto, Arrays]:
    """Weights by channel, shared and looked up; activations rounded once, twice, and at the end."""
    m = Marked()
    m.add("Gather", [m.weight("table", 40, 16), "ids"], "e", name="embed")
    e = m.activation("e")
    m.add("MatMul", [e, m.weight("w", 16, 8, axis=1)], "p", name="first")
    m.add("Add", ["p", m.bias("b", 8)], "h", name="bias")
    m.add("Gemm", [m.activation("h", 0.1), m.weight("v", 6, 8), m.bias("c", 6)], "g", name="second", transB=1)
    m.add("Add", [m.activation("g", 0.3), "g"], "s", name="both")
    model = m.model([("ids", INT64, ["n"])], [(m.activation("s", 0.5), FLOAT, ["n", 6])])
    return model, {"ids": np.array([3, 39, 0])}


@pytest.mark.parametrize("bias", ["fp32", "int32"])
def test_facts_taken_out_and_put_back(save: Save, tmp_path: Path, bias: Any) -> None:
    model, given = everything()
    qdq, real, facts = tmp_path / "qdq.onnx", tmp_path / "float.onnx", tmp_path / "facts.json"
    ingot.finish_export(save(model), qdq, bias=bias)
    assert ingot.convert(qdq, real, to="float", facts=facts) == []
    assert not [op for op in ops(real) if "Quantize" in op]
    back = tmp_path / "back.onnx"
    ingot.quantize_onnx(real, back, facts=facts)
    assert ops(back) == ops(qdq)
    for engine in (lambda p: ort(p, given, exact=True)[0], lambda p: ingot.compile(p).inference(given)["s_dq"]):
        np.testing.assert_array_equal(engine(qdq), engine(back))
    integers = [
        sorted(numpy_helper.to_array(t).tobytes() for t in onnx.load(p).graph.initializer if t.data_type != FLOAT)
        for p in (qdq, back)
    ]
    assert integers[0] == integers[1]
    done = cli("quantize", real, "-o", tmp_path / "cli.onnx", "--facts", facts, "--format", "qlinear", "--opset", "15")
    assert done.code == 0, done.err
    assert ops(tmp_path / "cli.onnx")["MatMulInteger"] == 2


def test_dynamic_facts(save: Save, tmp_path: Path) -> None:
    m = Marked()
    m.add("MatMul", [m.dynamic("x"), m.weight("w", 16, 5)], "y", name="linear")
    path = save(m.model([("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 5])]))
    ingot.convert(path, tmp_path / "float.onnx", to="float", facts=tmp_path / "facts.json")
    report = ingot.quantize_onnx(tmp_path / "float.onnx", tmp_path / "back.onnx", facts=tmp_path / "facts.json")
    assert report.data["quantized"][0]["form"] == "dynamic QDQ"
    assert ops(path) == ops(tmp_path / "back.onnx")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"tensors": {"nowhere": {"scale": [1.0]}}}, "no tensor 'nowhere'"),
        ({"nodes": {"nowhere": [0]}}, "no node 'nowhere'"),
        ({"nodes": {"product": [0]}}, "no scale is given"),
        ({"tensors": {"x": {"scale": [-1.0]}}}, "not a positive number"),
        ({"tensors": {"x": {"scale": "much"}}}, "tensors.x.scale: expected a list"),
        ({"tensors": {"x": {"scale": [1.0], "dtype": "f32"}}}, "not a type to quantize"),
        ({"tensors": {"x": {"scale": [1.0], "dtype": "q8"}}}, "tensors.x.dtype"),
        ({"tensors": {"x": {"scale": [1.0], "zero_point": [300]}}}, "zero point 300"),
        ({"tensors": {"x": {"size": 1}}}, "no 'size'"),
        ({"bias": "int7"}, "int7"),
        ({"more": 1}, "no 'more'"),
        ([1], "expected an object"),
    ],
)
def test_facts_that_are_none(save: Save, tmp_path: Path, facts: Any, message: str) -> None:
    node_ = node("MatMul", ["x", "w"], ["y"], name="product")
    weights = {"w": np.eye(4, dtype=np.float32)}
    path = save(make_model([node_], [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])], weights))
    with pytest.raises(ingot.InvalidInputError, match=message):
        ingot.quantize_onnx(path, tmp_path / "q.onnx", facts=facts)
    assert not (tmp_path / "q.onnx").exists()
