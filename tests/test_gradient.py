"""ai.onnx.preview.training.Gradient against torch.autograd, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]

TRAINING = "ai.onnx.preview.training"
Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A dash stands for an operand that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def gradient(inputs: str, outputs: str, xs: str, y: str, zs: str = "") -> onnx.NodeProto:
    extra = {"zs": zs.split()} if zs else {}
    return node("Gradient", inputs, outputs, domain=TRAINING, xs=xs.split(), y=y, name="grad", **extra)


def model(
    nodes: Nodes,
    inputs: dict[str, NDArray[Any]],
    outputs: Sequence[str],
    constants: dict[str, NDArray[Any]] | None = None,
    free: bool = True,
) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(v.dtype), [f"{name}_{d}" for d in range(v.ndim)] if free else v.shape
        )
        for name, v in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    weights = [onnx.numpy_helper.from_array(v, name) for name, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", ports, results, weights)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def random(*shape: int, low: float = -2, high: float = 2) -> NDArray[Any]:
    return np.random.default_rng(sum(shape) + len(shape)).uniform(low, high, shape).astype(np.float32)


I64 = np.int64
T = torch
C: dict[str, NDArray[Any]] = {
    "axes": np.array([1], I64),
    "starts": np.array([3, 0], I64),
    "ends": np.array([-100, 2], I64),
    "both": np.array([1, 2], I64),
    "steps": np.array([-2, 1], I64),
    "rows": np.array([[0, 2], [2, 1]], I64),
    "shape": np.array([2, -1], I64),
    "pads": np.array([0, 1, 2, 3], I64),
    "last": np.array([0, -1], I64),
    "wide": np.array([3, 1, 1], I64),
    "half": np.array(0.5, np.float32),
    "low": np.array(-0.7, np.float32),
    "high": np.array(1.1, np.float32),
    "three": np.array(3, np.float32),
    "axis": np.array(1, I64),
    "repeats": np.array([2, 1, 3], I64),
}
CUBE = [random(2, 4, 5)]
POSITIVE = [random(2, 4, 5, low=0.2, high=3)]
SMALL = [random(2, 4, 5, low=-0.9, high=0.9)]
LARGE = [random(2, 4, 5, low=1.1, high=3)]
PAIR = [random(2, 4, 5), random(4, 1, low=0.3)]

# ONNX nodes from x0, x1, ... to y; the same in torch; the values
RULES: dict[str, tuple[Nodes, Callable[..., Any], list[NDArray[Any]]]] = {
    "Abs": ([node("Abs", "x0")], T.abs, CUBE),
    "Acos": ([node("Acos", "x0")], T.acos, SMALL),
    "Acosh": ([node("Acosh", "x0")], T.acosh, LARGE),
    "Asin": ([node("Asin", "x0")], T.asin, SMALL),
    "Asinh": ([node("Asinh", "x0")], T.asinh, CUBE),
    "Atan": ([node("Atan", "x0")], T.atan, CUBE),
    "Atanh": ([node("Atanh", "x0")], T.atanh, SMALL),
    "Cos": ([node("Cos", "x0")], T.cos, CUBE),
    "Cosh": ([node("Cosh", "x0")], T.cosh, CUBE),
    "Elu": ([node("Elu", "x0", alpha=0.7)], lambda x: T.nn.functional.elu(x, 0.7), CUBE),
    "Erf": ([node("Erf", "x0")], T.erf, CUBE),
    "Exp": ([node("Exp", "x0")], T.exp, CUBE),
    "Floor": ([node("Floor", "x0", "f"), node("Add", "f x0")], lambda x: T.floor(x) + x, CUBE),
    "Gelu": ([node("Gelu", "x0")], T.nn.functional.gelu, CUBE),
    "Gelu tanh": (
        [node("Gelu", "x0", approximate="tanh")],
        lambda x: T.nn.functional.gelu(x, approximate="tanh"),
        CUBE,
    ),
    "HardSigmoid": ([node("HardSigmoid", "x0", alpha=1 / 6)], T.nn.functional.hardsigmoid, [random(40) * 3]),
    "LeakyRelu": ([node("LeakyRelu", "x0", alpha=0.1)], lambda x: T.nn.functional.leaky_relu(x, 0.1), CUBE),
    "Log": ([node("Log", "x0")], T.log, POSITIVE),
    "Neg": ([node("Neg", "x0")], T.neg, CUBE),
    "Reciprocal": ([node("Reciprocal", "x0")], T.reciprocal, POSITIVE),
    "Relu": ([node("Relu", "x0")], T.relu, CUBE),
    "Sigmoid": ([node("Sigmoid", "x0")], T.sigmoid, CUBE),
    "Sin": ([node("Sin", "x0")], T.sin, CUBE),
    "Sinh": ([node("Sinh", "x0")], T.sinh, CUBE),
    "Softplus": ([node("Softplus", "x0")], T.nn.functional.softplus, CUBE),
    "Softsign": ([node("Softsign", "x0")], T.nn.functional.softsign, CUBE),
    "Sqrt": ([node("Sqrt", "x0")], T.sqrt, POSITIVE),
    "Swish": ([node("Swish", "x0", alpha=1.5)], lambda x: x * T.sigmoid(1.5 * x), CUBE),
    "Tan": ([node("Tan", "x0")], T.tan, SMALL),
    "Tanh": ([node("Tanh", "x0")], T.tanh, CUBE),
    "Clip": ([node("Clip", "x0 low high")], lambda x: x.clip(-0.7, 1.1), CUBE),
    "Cast": (
        [node("Cast", "x0", "d", to=TensorProto.DOUBLE), node("Cast", "d", to=TensorProto.FLOAT)],
        lambda x: x.double().float(),
        CUBE,
    ),
    "Add": ([node("Add", "x0 x1")], T.add, PAIR),
    "Sub": ([node("Sub", "x0 x1")], T.sub, PAIR),
    "Mul": ([node("Mul", "x1 x0")], lambda a, b: b * a, PAIR),
    "Div": ([node("Div", "x0 x1")], T.div, PAIR),
    "Div scalar": ([node("Div", "x0 x1")], T.div, [random(3, 2), np.array(1.5, np.float32)]),
    "Pow": ([node("Pow", "x0 x1")], T.pow, [POSITIVE[0], PAIR[1]]),
    "Pow constant": ([node("Pow", "x0 three")], lambda x: x**3, CUBE),
    "Max": ([node("Max", "x0 x1")], T.maximum, PAIR),
    "Max ties": ([node("Max", "x0 x1")], T.maximum, [CUBE[0], CUBE[0].copy()]),
    "Min": ([node("Min", "x0 x1 half")], lambda a, b: T.minimum(T.minimum(a, b), T.tensor(0.5)), PAIR),
    "Mean": ([node("Mean", "x0 x1")], lambda a, b: (a + b) / 2, PAIR),
    "Sum": ([node("Sum", "x0 x1 x0")], lambda a, b: a + b + a, PAIR),
    "Where": (
        [node("Less", "x0 half", "c"), node("Where", "c x0 x1")],
        lambda a, b: T.where(a < 0.5, a, b),
        PAIR,
    ),
    "PRelu": ([node("PRelu", "x0 x1")], lambda a, b: T.where(a > 0, a, a * b), PAIR),
    "MatMul": ([node("MatMul", "x0 x1")], T.matmul, [random(2, 1, 3, 4), random(5, 4, 6)]),
    "MatMul row": ([node("MatMul", "x0 x1")], T.matmul, [random(4), random(5, 4, 6)]),
    "MatMul column": ([node("MatMul", "x0 x1")], T.matmul, [random(2, 3, 4), random(4)]),
    "MatMul dot": ([node("MatMul", "x0 x1")], T.matmul, [random(4), random(4) * 2]),
    "Gemm": (
        [node("Gemm", "x0 x1 x2", alpha=0.5, beta=2.0)],
        lambda a, b, c: 0.5 * a @ b + 2 * c,
        [random(3, 4), random(4, 5), random(5)],
    ),
    "Gemm turned": (
        [node("Gemm", "x0 x1 x2", transA=1, transB=1)],
        lambda a, b, c: a.T @ b.T + c,
        [random(4, 3), random(5, 4), random(3, 1)],
    ),
    "ReduceSum": ([node("ReduceSum", "x0 axes", keepdims=0)], lambda x: x.sum(1), CUBE),
    "ReduceSum all": ([node("ReduceSum", "x0", keepdims=0)], T.sum, CUBE),
    "ReduceMean": ([node("ReduceMean", "x0 axes")], lambda x: x.mean(1, keepdim=True), CUBE),
    "ReduceL1": ([node("ReduceL1", "x0 axes")], lambda x: x.abs().sum(1, keepdim=True), CUBE),
    "ReduceL2": ([node("ReduceL2", "x0 axes", keepdims=0)], lambda x: x.norm(dim=1), CUBE),
    "ReduceSumSquare": ([node("ReduceSumSquare", "x0 both")], lambda x: (x * x).sum((1, 2), keepdim=True), CUBE),
    "ReduceLogSum": ([node("ReduceLogSum", "x0 axes")], lambda x: x.sum(1, keepdim=True).log(), POSITIVE),
    "ReduceLogSumExp": ([node("ReduceLogSumExp", "x0 axes", keepdims=0)], lambda x: x.logsumexp(1), CUBE),
    "ReduceMax": ([node("ReduceMax", "x0 axes", keepdims=0)], lambda x: x.amax(1), [np.round(CUBE[0])]),
    "ReduceMin": ([node("ReduceMin", "x0 axes")], lambda x: x.amin(1, keepdim=True), [np.round(CUBE[0])]),
    "Softmax": ([node("Softmax", "x0", axis=1)], lambda x: x.softmax(1), CUBE),
    "LogSoftmax": ([node("LogSoftmax", "x0", axis=-1)], lambda x: x.log_softmax(-1), CUBE),
    "LayerNormalization": (
        [node("LayerNormalization", "x0 x1 x2", axis=-1)],
        lambda x, s, b: T.nn.functional.layer_norm(x, (5,), s, b),
        [CUBE[0], random(5), random(5) + 1],
    ),
    "CumSum": ([node("CumSum", "x0 axis", exclusive=1)], lambda x: x.cumsum(1) - x, CUBE),
    "Reshape": ([node("Reshape", "x0 shape")], lambda x: x.reshape(2, -1), CUBE),
    "Flatten": ([node("Flatten", "x0", axis=2)], lambda x: x.reshape(8, 5), CUBE),
    "Squeeze": ([node("Unsqueeze", "x0 axes", "u"), node("Squeeze", "u axes")], lambda x: x + 0, CUBE),
    "Transpose": ([node("Transpose", "x0", perm=[1, 2, 0])], lambda x: x.permute(1, 2, 0), CUBE),
    "Expand": ([node("Expand", "x0 wide")], lambda x: x.expand(3, 4, 5), [random(1, 4, 5)]),
    "Concat": ([node("Concat", "x0 x1", axis=-1)], lambda a, b: T.cat([a, b], -1), [random(2, 3), random(2, 4)]),
    "Split": (
        [node("Split", "x0", "a b", axis=1, num_outputs=2), node("Mul", "b b")],
        lambda x: x[:, 2:] ** 2,
        CUBE,
    ),
    "Slice": ([node("Slice", "x0 starts ends both steps")], lambda x: x[:, [3, 1]][:, :, :2], CUBE),
    "Gather": ([node("Gather", "x0 rows", axis=1)], lambda x: x[:, T.tensor([[0, 2], [2, 1]])], CUBE),
    "Pad": ([node("Pad", "x0 pads - last")], lambda x: T.nn.functional.pad(x, (1, 3, 0, 0, 0, 2)), CUBE),
    "Tile": ([node("Tile", "x0 repeats")], lambda x: x.repeat(2, 1, 3), CUBE),
}


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_rule_agrees_with_autograd(save: Save, name: str, free: bool) -> None:
    nodes, function, values = RULES[name]
    names = [f"x{i}" for i in range(len(values))]
    tensors = [torch.tensor(v, requires_grad=True) for v in values]
    result = function(*tensors)
    # Of a sum with weights, so that what a rule mixes up between elements shows.
    weights = np.linspace(0.5, 1.5, result.numel(), dtype=np.float32).reshape(tuple(result.shape))
    (result * torch.tensor(weights)).sum().backward()
    graph = [
        *nodes,
        node("Mul", "y weights", "z"),
        gradient(" ".join(names), " ".join(f"d{n}" for n in names), " ".join(names), "z"),
    ]
    used = {n for x in nodes for n in x.input}
    constants = {k: v for k, v in C.items() if k in used} | {"weights": weights}
    built = model(graph, dict(zip(names, values, strict=True)), [f"d{n}" for n in names], constants, free)
    actual = ingot.compile(save(built)).inference(values)
    for name_, tensor in zip(names, tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(actual[f"d{name_}"], tensor.grad.numpy(), rtol=2e-4, atol=2e-5)


def test_gradient_at_other_values(save: Save) -> None:
    """The operands are the values of what xs and zs name: here h = x * z at (5, 7), not at the graph's own inputs."""
    nodes = [node("Mul", "x z", "h"), node("Mul", "h h", "y"), gradient("a b", "dx", "x", "y", "z")]
    inputs = {name: np.array(v, np.float32) for name, v in {"x": 2, "z": 3, "a": 5, "b": 7}.items()}
    actual = ingot.compile(save(model(nodes, inputs, ["dx", "y"]))).inference(inputs)
    assert actual["dx"] == 2 * 5 * 7 * 7
    assert actual["y"] == 36


def test_gradient_of_an_intermediate_tensor_and_of_what_y_does_not_use(save: Save) -> None:
    nodes = [node("Exp", "x", "h"), node("Mul", "h h", "y"), gradient("h u", "dh du", "h u", "y")]
    inputs = {"x": random(3), "u": random(2, 2)}
    actual = ingot.compile(save(model(nodes, inputs, ["dh", "du"]))).inference(inputs)
    np.testing.assert_allclose(actual["dh"], 2 * np.exp(inputs["x"]), rtol=1e-5)
    np.testing.assert_array_equal(actual["du"], np.zeros((2, 2)))


def test_one_value_for_two_variables(save: Save) -> None:
    nodes = [node("Mul", "x z", "y"), gradient("a a", "dx dz", "x z", "y")]
    inputs = {name: np.array(v, np.float32) for name, v in {"x": 2, "z": 3, "a": 5}.items()}
    actual = ingot.compile(save(model(nodes, inputs, ["dx", "dz"]))).inference(inputs)
    assert (actual["dx"], actual["dz"]) == (5, 5)


def test_second_derivative(save: Save) -> None:
    nodes = [node("Pow", "x three", "y"), gradient("x", "dx", "x", "y"), gradient("x", "ddx", "x", "dx")]
    nodes[-1].name = "again"
    inputs = {"x": random(4)}
    actual = ingot.compile(save(model(nodes, inputs, ["dx", "ddx"], {"three": C["three"]}))).inference(inputs)
    np.testing.assert_allclose(actual["ddx"], 6 * inputs["x"], rtol=1e-4, atol=1e-5)


def test_gradient_of_a_loss(save: Save) -> None:
    """Operators that are formulas are differentiated by what they are made of."""
    nodes = [
        node("Gemm", "x w", "logits"),
        node("SoftmaxCrossEntropyLoss", "logits labels", "loss"),
        gradient("w x labels", "dw", "w", "loss", "x labels"),
    ]
    inputs = {"x": random(6, 4), "w": random(4, 3), "labels": np.array([0, 1, 2, 2, 1, 0], I64)}
    weights = torch.tensor(inputs["w"], requires_grad=True)
    torch.nn.functional.cross_entropy(torch.tensor(inputs["x"]) @ weights, torch.tensor(inputs["labels"])).backward()
    actual = ingot.compile(save(model(nodes, inputs, ["dw"]))).inference(inputs)
    assert weights.grad is not None
    np.testing.assert_allclose(actual["dw"], weights.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("Det", "x", name="volume"), gradient("x", "dx", "x", "y")],
            r"grad.*no rule to differentiate Det 'volume'",
        ),
        ([node("Exp", "x"), gradient("x", "dx", "x", "nothing")], "no tensor of the graph is named 'nothing'"),
        ([node("Exp", "x"), gradient("x x", "dx", "x", "y")], "has 2 operands for the 1 tensors"),
        ([node("Pad", "x pads", mode="edge"), gradient("x", "dx", "x", "y")], "with mode 'edge'"),
    ],
)
def test_what_cannot_be_differentiated_is_named(save: Save, nodes: Nodes, message: str) -> None:
    built = model(nodes, {"x": random(3, 3)}, ["dx"], {"pads": np.zeros(4, I64)})
    with pytest.raises(ingot.Error, match=message):
        ingot.compile(save(built))
