"""onnxruntime's own operators (com.microsoft) on tensors, strings and packed weights, against onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_microsoft import I8, MICROSOFT, U8, Case, F, P, Q, Y, built, f32, i8, normal, u8, zero
from test_operators import one_node, onnxruntime, run

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]
    Inputs = list[NDArray[Any] | None]

RANDOM = np.random.default_rng(17)
F16, F64, I32, I64 = TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64
STRING, U32 = TensorProto.STRING, TensorProto.UINT32


def whole(low: int, high: int, *shape: int, dtype: Any = np.int64) -> NDArray[Any]:
    return RANDOM.integers(low, high, shape).astype(dtype)


def words(*values: str) -> NDArray[Any]:
    return np.array(values, object)


def regular(x: NDArray[Any]) -> NDArray[Any]:
    """Matrices that are far from singular."""
    result: NDArray[Any] = x + 4 * np.eye(x.shape[-1], dtype=x.dtype)
    return result


# ---- tensors of numbers ----

TOKENS = np.array([[1, 2, 3, 1, 2, 4, 1, 2], [5, 5, 5, 5, 1, 1, 5, 5]])
SCORES = normal(2, 9)
IMAGE, GRID = normal(2, 3, 6, 5), (RANDOM.random((2, 4, 7, 2)) * 2.6 - 1.3).astype(np.float32)
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.3, 0.8, 0.9], [-0.2, 0.1, 1.3, 0.7], [0.9, 0.8, 0.2, 0.1]], np.float32)
CROPS = [IMAGE, BOXES, np.array([0, 1, 1, 0], np.int32)]
TENSORS: dict[str, Case] = {
    "distances": ("CDist", [normal(5, 3), normal(4, 3)], [F], {"metric": "euclidean"}),
    "squared distances": ("CDist", [normal(5, 3), normal(4, 3)], [F], {"metric": "sqeuclidean"}),
    "distances of doubles": (
        "CDist",
        [RANDOM.random((6, 2)), RANDOM.random((3, 2))],
        [F64],
        {"metric": "euclidean"},
    ),
    "inverse": ("Inverse", [regular(normal(2, 3, 5, 5))], [F], {}),
    "inverse of doubles": ("Inverse", [regular(RANDOM.random((4, 4)))], [F64], {}),
    "inverse of halves": ("Inverse", [regular(normal(3, 3)).astype(np.float16)], [F16], {}),
    "pad": ("Pad", [normal(3, 4), np.array([1, 0, 2, 3]), f32(1.5)], [F], {}),
    "pad, in a row": ("Pad", [normal(3, 4), np.array([[0, 2, 0, 1]]), np.array([2.5], np.float32)], [F], {}),
    "pad, cut": ("Pad", [normal(3, 4), np.array([0, -1, 1, 0])], [F], {"mode": "constant"}),
    "pad, reflected": ("Pad", [normal(5, 4), np.array([2, 1, 1, 3])], [F], {"mode": "reflect"}),
    "pad, edge": ("Pad", [normal(2, 3), np.array([1, 1, 0, 2])], [F], {"mode": "edge"}),
    "unique": ("Unique", [np.array([2, 1, 1, 3, 4, 3, 2], np.float32)], [F, I64, I64], {}),
    "range": ("Range", [np.array(2, np.int64), np.array(9, np.int64)], [I64], {}),
    "range of lists of one": (
        "Range",
        [np.array([1], np.float32), np.array([-2], np.float32), np.array([-0.5], np.float32)],
        [F],
        {},
    ),
    "range of i16": ("Range", [np.array(2, np.int16), np.array([9], np.int16), np.array(3, np.int16)], [5], {}),
    "windows": ("UnfoldTensor", [normal(2, 9)], [F], {"size": 4, "step": 2}),
    "windows along 0": ("UnfoldTensor", [whole(0, 99, 7, 3)], [I64], {"dim": 0, "size": 3}),
    "windows in the middle": ("UnfoldTensor", [normal(2, 8, 3)], [F], {"dim": -2, "size": 3, "step": 3}),
    "n-grams of 1": ("NGramRepeatBlock", [TOKENS, SCORES], [F], {"ngram_size": 1}),
    "n-grams of 2": ("NGramRepeatBlock", [TOKENS, SCORES], [F], {"ngram_size": 2}),
    "n-grams of 3": ("NGramRepeatBlock", [TOKENS, SCORES], [F], {"ngram_size": 3}),
    "n-grams as long as the row": ("NGramRepeatBlock", [TOKENS, SCORES], [F], {"ngram_size": 8}),
    "n-grams longer than the row": ("NGramRepeatBlock", [TOKENS[:, :3], SCORES], [F], {"ngram_size": 6}),
    "hash": ("MurmurHash3", [whole(-99, 99, 2, 3, dtype=np.int32)], [U32], {"seed": 7}),
    "hash of i64, with sign": ("MurmurHash3", [whole(-99, 99, 5)], [I32], {"positive": 0}),
    "hash of u64": ("MurmurHash3", [whole(0, 99, 5, dtype=np.uint64)], [U32], {}),
    "hash of floats": ("MurmurHash3", [normal(4)], [U32], {}),
    "hash of doubles": ("MurmurHash3", [RANDOM.random(4)], [U32], {"seed": 1}),
    "hash of strings": ("MurmurHash3", [words("", "a", "ab", "abc", "abcd", "Straße 5")], [I32], {"positive": 0}),
    "crop": ("CropAndResize", [*CROPS, np.array([4, 3], np.int32)], [F], {}),
    "crop, nearest": (
        "CropAndResize",
        [*CROPS, np.array([5, 2], np.int32)],
        [F],
        {"mode": "nearest", "extrapolation_value": -3.0},
    ),
    "crop to one pixel": ("CropAndResize", [*CROPS, np.array([1, 1], np.int32)], [F], {"extrapolation_value": 2.0}),
}
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        if (mode, padding) == ("bicubic", "border"):
            continue  # ONNX clamps the position, onnxruntime each of its 16 pixels
        TENSORS[f"grid, {mode}, {padding}"] = (
            "GridSample",
            [IMAGE, GRID],
            [F],
            {"mode": mode, "padding_mode": padding, "align_corners": int(padding == "border")},
        )

# ---- quantized images with their channels together ----

CONV: Inputs = [u8(2, 9, 8, 4), *Q, i8(6, 4, 3, 3), f32(0.02), zero(0, np.int8), f32(0.3), zero(120)]
BY_CHANNEL: Inputs = [
    i8(1, 6, 7, 4),
    f32(0.02),
    zero(3, np.int8),
    i8(4, 1, 3, 3),
    f32(0.01, 0.02, 0.03, 0.02),
    np.zeros(4, np.int8),
    f32(0.05),
    zero(-2, np.int8),
    whole(-999, 999, 4, dtype=np.int32),
]
SIGNED = [i8(3, 4), f32(0.02), zero(1, np.int8)]
IMAGES: dict[str, Case] = {
    "where": ("QLinearWhere", [whole(0, 2, 2, 3, 5).astype(bool), u8(2, 3, 5), *Q, u8(5), *P, *Y], [U8], {}),
    "where s8": (
        "QLinearWhere",
        [whole(0, 2, 3, 1).astype(bool), *SIGNED, i8(3, 4), f32(0.03), zero(-4, np.int8), f32(0.04), zero(2, np.int8)],
        [I8],
        {},
    ),
    "convolution": ("QLinearConv", CONV, [U8], {"channels_last": 1, "pads": [1, 0, 1, 2], "strides": [2, 1]}),
    "convolution, channels second": ("QLinearConv", [u8(2, 4, 9, 8), *CONV[1:]], [U8], {"kernel_shape": [3, 3]}),
    "depthwise convolution": ("QLinearConv", BY_CHANNEL, [I8], {"channels_last": 1, "group": 4}),
    "max pool": (
        "NhwcMaxPool",
        [u8(2, 9, 8, 5)],
        [U8],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    ),
    "max pool s8": ("NhwcMaxPool", [i8(1, 7, 3)], [I8], {"kernel_shape": [3], "dilations": [2]}),
    "average pool": (
        "QLinearAveragePool",
        [u8(1, 9, 8, 3), *Q, *Y],
        [U8],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1, "channels_last": 1},
    ),
    "global average pool": ("QLinearGlobalAveragePool", [u8(2, 6, 7, 5), *Q, *Y], [U8], {"channels_last": 1}),
}

# ---- experts ----


def experts(activation: str, k: int, width: int = 1, biased: bool = True, **more: Any) -> Case:
    tokens, hidden, inner, count = 7, 8, 12, 4
    inputs: Inputs = [normal(tokens, hidden), normal(tokens, count), normal(count, width * inner, hidden, scale=0.3)]
    inputs += [normal(count, width * inner)] if biased else [None]
    inputs += [normal(count, hidden, inner, scale=0.3)] + ([normal(count, hidden)] if biased else [])
    return "MoE", inputs, [F], {"activation_type": activation, "k": k, **more}


EXPERTS = {
    "relu": experts("relu", 1),
    "gelu": experts("gelu", 2, biased=False),
    "silu": experts("silu", 3, normalize_routing_weights=1),
    "identity": experts("identity", 4),
    "swiglu": experts("swiglu", 2, 2, swiglu_fusion=1),
    "swiglu with limits": experts(
        "swiglu", 2, 2, swiglu_fusion=1, swiglu_limit=0.7, activation_alpha=1.702, activation_beta=1.0
    ),
}
CASES = TENSORS | IMAGES | {f"experts, {name}": case for name, case in EXPERTS.items()}


def agree(actual: list[NDArray[Any]], expected: list[NDArray[Any]], steps: int = 0) -> None:
    """steps: how far results of 8 bits may lie apart."""
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        if e.dtype.kind == "f":
            np.testing.assert_allclose(
                a, e, rtol=1e-4 if e.itemsize > 2 else 1e-2, atol=2e-5 if e.itemsize > 2 else 1e-3
            )
        elif e.dtype.kind in "iu" and steps:
            assert np.abs(a.astype(int) - e.astype(int)).max(initial=0) <= steps
        else:
            np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(save: Save, name: str, fixed: bool) -> None:
    expected = onnxruntime(*built(CASES[name], True))
    agree(run(save, *built(CASES[name], fixed)), expected, steps=1 if name in IMAGES else 0)


def test_experts_of_three_products(save: Save) -> None:
    """onnxruntime's CPU has none of these."""
    op, inputs, types, attributes = experts("silu", 4, biased=False)
    x, router, w1, w2 = (np.asarray(inputs[i]) for i in (0, 1, 2, 4))
    w3 = normal(*w1.shape, scale=0.3)
    model, feed = built((op, [x, router, w1, None, w2, None, w3], types, attributes), True)
    p = np.exp(router) / np.exp(router).sum(1, keepdims=True)
    gate = np.einsum("th,enh->etn", x, w1)
    inner = gate / (1 + np.exp(-gate)) * np.einsum("th,enh->etn", x, w3)
    expected = np.einsum("etn,ehn,te->th", inner, w2, p)
    np.testing.assert_allclose(run(save, model, feed)[0], expected, rtol=1e-4, atol=1e-5)


# ---- strings ----

TEXTS = words("abcdef", " one,two;; three", "", "Grüße, Wörter und 中文字", "a1b22c333")
TOKENIZERS: dict[str, dict[str, Any]] = {
    "characters": {"separators": [""], "mincharnum": 1},
    "characters by expression": {"tokenexp": ".", "mincharnum": 1, "mark": 1},
    "separator": {"separators": [" "], "mincharnum": 1},
    "separators in turn": {"separators": [",", ";", r"\s+"], "mincharnum": 2, "mark": 1, "pad_value": "#"},
    "the longest separator": {"separators": ["b|bcd|bc"], "mincharnum": 1},
    "expression": {"tokenexp": "[a-z]+", "mincharnum": 2, "pad_value": "<pad>"},
    "the longest token": {"tokenexp": "a|ab|abc", "mincharnum": 1},
    "other characters": {"tokenexp": "[^ ,;]+", "mincharnum": 3},
    "numbers": {"tokenexp": r"\d+", "mincharnum": 2, "mark": 1},
}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizer(save: Save, name: str, rank: int) -> None:
    attributes = {"mark": 0, "pad_value": "", **TOKENIZERS[name]}
    texts = TEXTS if rank == 1 else TEXTS.reshape(5, 1)
    made = built(("Tokenizer", [texts], [STRING], attributes), False)
    agree(run(save, *made), onnxruntime(*made))


def test_tokenizer_without_tokens(save: Save) -> None:
    made = built(
        ("Tokenizer", [words("   ", "")], [STRING], {"separators": [" "], "mincharnum": 1, "mark": 1, "pad_value": ""}),
        False,
    )
    agree(run(save, *made), onnxruntime(*made))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"separators": ["("], "mincharnum": 1}, r"expression '\('"),
        ({"separators": [" "], "mincharnum": 0}, "mincharnum is 0"),
        ({"mincharnum": 1}, "either separators or a tokenexp"),
    ],
)
def test_bad_tokenizer(save: Save, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.Error, match=message):
        run(save, *built(("Tokenizer", [TEXTS], [STRING], attributes), False))


# ---- weights of few bits ----

NBITS: dict[str, tuple[list[NDArray[Any] | None], dict[str, Any]]] = {
    "2 bits": ([normal(2, 3, 40), u8(5, 3, 4), normal(5, 3)], {"K": 40, "N": 5, "bits": 2, "block_size": 16}),
    "2 bits, zero points and bias": (
        [normal(3, 64), u8(8, 2, 8), normal(8, 2), u8(8, 1), None, normal(8)],
        {"K": 64, "N": 8, "bits": 2, "block_size": 32},
    ),
    "2 bits, zero points of floats": (
        [normal(1, 128), u8(8, 4, 8), normal(8, 4), normal(8, 4)],
        {"K": 128, "N": 8, "bits": 2, "block_size": 32},
    ),
}


def dequantized(
    b: NDArray[Any], scales: NDArray[Any], zeros: NDArray[Any] | None, k: int, n: int, bits: int
) -> NDArray[Any]:
    def spread(bytes_: NDArray[Any]) -> NDArray[Any]:
        parts = [bytes_ >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(*bytes_.shape[:-1], -1)

    numbers = spread(b).astype(np.float32)
    if zeros is None:
        middle: Any = 2.0 ** (bits - 1)
    elif zeros.dtype == np.uint8:
        middle = spread(zeros)[:, : scales.shape[1], None].astype(np.float32)
    else:
        middle = zeros[:, :, None]
    rows: NDArray[Any] = ((numbers - middle) * scales[:, :, None]).reshape(n, -1)
    return rows[:, :k]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", NBITS)
def test_matmul_of_2_bits(save: Save, name: str, constant: bool) -> None:
    """By definition: which of these onnxruntime runs depends on the CPU."""
    inputs, attributes = NBITS[name]
    made = one_node("MatMulNBits", inputs, [F], MICROSOFT, 1, (1, 2, 3, 5) if constant else (), **attributes)
    a, b, scales, zeros = (*inputs[:3], inputs[3] if len(inputs) > 3 else None)
    assert a is not None
    assert b is not None
    assert scales is not None
    expected = a @ dequantized(b, scales, zeros, attributes["K"], attributes["N"], 2).T
    if len(inputs) > 5:
        expected = expected + np.asarray(inputs[5])
    np.testing.assert_allclose(run(save, *made)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("k", "n", "block"), [(64, 5, 32), (40, 3, 16), (33, 3, 16)])
def test_matmul_bnb4(save: Save, kind: int, constant: bool, k: int, n: int, block: int) -> None:
    largest = np.abs(normal(-(-k * n // block)))
    inputs = [normal(2, 3, k), u8(-(-k * n // 2)), largest]
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": kind}
    made = one_node("MatMulBnb4", inputs, [F], MICROSOFT, 1, (1, 2) if constant else (), **attributes)
    agree(run(save, *made), onnxruntime(*made))


def gather_model(
    data: onnx.TensorProto,
    scales: NDArray[Any],
    zeros: onnx.TensorProto | None,
    indices: NDArray[Any],
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    names = ["data", "indices", "scales"] + (["zeros"] if zeros is not None else [])
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain=MICROSOFT, **attributes)
    index_type = helper.np_dtype_to_tensor_dtype(indices.dtype)
    graph = helper.make_graph(
        [node],
        "gather",
        [helper.make_tensor_value_info("indices", index_type, [f"i{d}" for d in range(indices.ndim)])],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(scales.dtype), None)],
        [data, onnx.numpy_helper.from_array(scales, "scales")] + ([zeros] if zeros is not None else []),
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {"indices": indices}


@pytest.mark.parametrize("with_zeros", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_gather_of_packed_bytes(save: Save, bits: int, with_zeros: bool, index: Any) -> None:
    rows, width, block = 7, 48, 16
    data = onnx.numpy_helper.from_array(u8(rows, width * bits // 8), "data")
    zeros = onnx.numpy_helper.from_array(u8(rows, -(-3 * bits // 8)), "zeros") if with_zeros else None
    indices = np.array([[3, -1, 0], [6, 3, -7]], index)
    made = gather_model(
        data, normal(rows, 3), zeros, indices, bits=bits, block_size=block, gather_axis=0, quantize_axis=1
    )
    agree(run(save, *made), onnxruntime(*made))


@pytest.mark.parametrize("with_zeros", [True, False])
@pytest.mark.parametrize("type_", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(("gather", "along"), [(0, 1), (1, 0), (0, 0), (-1, 0), (1, 1)])
def test_gather_of_4_bits(save: Save, type_: int, with_zeros: bool, gather: int, along: int) -> None:
    shape = (36, 20)
    low = -8 if type_ == TensorProto.INT4 else 0

    def numbers(name: str, dims: tuple[int, ...]) -> onnx.TensorProto:
        return helper.make_tensor(name, type_, dims, RANDOM.integers(low, low + 16, dims).ravel().tolist())

    scale_shape = tuple(-(-d // 16) if axis == along else d for axis, d in enumerate(shape))
    zeros = numbers("zeros", scale_shape) if with_zeros else None
    half = gather == 0
    scales = normal(*scale_shape).astype(np.float16 if half else np.float32)
    attributes = {"block_size": 16, "gather_axis": gather, "quantize_axis": along}
    made = gather_model(numbers("data", shape), scales, zeros, np.array([[3, -1], [0, 19]]), **attributes)
    agree(run(save, *made), onnxruntime(*made))


# ---- what is wrong is said ----

FEW: Inputs = [normal(3, 8), normal(3, 2), normal(2, 4, 8), None, normal(2, 8, 4)]
WRONG: dict[str, tuple[Case, str]] = {
    "activation": (("MoE", FEW, [F], {"activation_type": "mish", "k": 1}), "activation 'mish' is not supported"),
    "experts": (("MoE", FEW, [F], {"k": 0}), "k is 0"),
    "metric": (("CDist", [normal(2, 3), normal(4, 3)], [F], {"metric": "cosine"}), "metric 'cosine' is not known"),
    "rank": (("CDist", [normal(2, 3), normal(3)], [F], {}), "ranks 2 and 1, expected 2"),
    "rows": (("Inverse", [normal(2, 3)], [F], {}), "expected square matrices"),
    "window": (("UnfoldTensor", [normal(9)], [F], {"size": 0}), "size and step are 0 and 1"),
    "n-gram": (("NGramRepeatBlock", [TOKENS, SCORES], [F], {"ngram_size": 0}), "ngram_size is 0"),
    "token": (("NGramRepeatBlock", [TOKENS + 9, SCORES], [F], {"ngram_size": 1}), "index is out of range"),
    "mode": (("CropAndResize", [*CROPS, np.array([2, 2], np.int32)], [F], {"mode": "cubic"}), "mode 'cubic'"),
    "hash": (("MurmurHash3", [u8(3)], [U32], {}), "expected strings or numbers of 32 or 64 bits"),
    "bits": (
        ("GatherBlockQuantized", [u8(3, 8), TOKENS[:1, :2], normal(3, 1)], [F], {"bits": 3, "block_size": 16}),
        "weights of 3 bits are not supported",
    ),
    "axes": (
        ("GatherBlockQuantized", [u8(3, 8), TOKENS[:1, :2], normal(1, 8)], [F], {"quantize_axis": 0}),
        "quantize_axis that is the last",
    ),
    "kind": (
        ("MatMulBnb4", [normal(2, 32), u8(32), normal(2)], [F], {"K": 32, "N": 2, "block_size": 32, "quant_type": 2}),
        "quant_type is 2, expected 0 or 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(save: Save, name: str) -> None:
    case, message = WRONG[name]
    with pytest.raises(ingot.Error, match=message):
        run(save, *built(case, True))
