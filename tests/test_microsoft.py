"""onnxruntime's own operators (com.microsoft), which its quantizer and its optimizer write, against onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_operators import one_node, onnxruntime, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    Save = Callable[[onnx.ModelProto], Path]
    Inputs = list[NDArray[Any] | None]

MICROSOFT = "com.microsoft"
RANDOM = np.random.default_rng(11)
F, U8, I8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32


def normal(*shape: int, scale: float = 1) -> NDArray[Any]:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape: int) -> NDArray[Any]:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> NDArray[Any]:
    """Of 7 bits: the sums of products of more overflow in onnxruntime, on CPUs without VNNI."""
    return RANDOM.integers(-64, 64, shape).astype(np.int8)


def f32(*values: float) -> NDArray[Any]:
    return np.array(values if len(values) > 1 else values[0], np.float32)


def zero(value: int, dtype: Any = np.uint8) -> NDArray[Any]:
    return np.array(value, dtype)


Q = [f32(0.02), zero(120)]  # scale and zero point of operands
P = [f32(0.05), zero(100)]
Y = [f32(0.04), zero(110)]  # of results
BIAS = RANDOM.integers(-999, 999, 4).astype(np.int32)
EMBEDDED = [np.array([[1, 2, 3], [4, 0, 0]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32)]  # ids, segments
PLACES = np.array([[2, 1, 0], [3, 4, 4]], np.int32)
MASK = np.array([[1, 1, 1], [1, 0, 0]], np.int32)

# Operands, element types of the results, attributes.
Case = tuple[str, "Inputs", list[int], dict[str, Any]]
QUANTIZED: dict[str, Case] = {
    "add": ("QLinearAdd", [u8(2, 3, 8), *Q, u8(3, 1), *P, *Y], [U8], {}),
    "add s8": (
        "QLinearAdd",
        [i8(2, 9), f32(0.02), zero(3, np.int8), i8(2, 9), f32(0.03), zero(-5, np.int8), f32(0.04), zero(1, np.int8)],
        [I8],
        {},
    ),
    "mul": ("QLinearMul", [u8(2, 3, 8), *Q, u8(8), *P, f32(0.1), zero(128)], [U8], {}),
    "average pool": (
        "QLinearAveragePool",
        [u8(1, 3, 9, 8), *Q, *Q],
        [U8],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    ),
    "global average pool": ("QLinearGlobalAveragePool", [u8(2, 5, 6, 7), *Q, *Q], [U8], {}),
    "softmax": ("QLinearSoftmax", [u8(2, 3, 9), *Q, f32(1 / 256), zero(0)], [U8], {"axis": -1, "opset": 13}),
    "softmax of opset 12": ("QLinearSoftmax", [u8(2, 3, 9), *Q, f32(1 / 256), zero(0)], [U8], {"axis": 1, "opset": 12}),
    "softmax along 1": ("QLinearSoftmax", [u8(2, 3, 9), *Q, f32(1 / 256), zero(0)], [U8], {"axis": 1, "opset": 13}),
    "sigmoid": ("QLinearSigmoid", [u8(4, 9), *Q, f32(1 / 256), zero(0)], [U8], {}),
    "leaky relu": ("QLinearLeakyRelu", [u8(4, 9), *Q, *Y], [U8], {"alpha": 0.1}),
    "concat": ("QLinearConcat", [*Y, u8(2, 3), *Q, u8(2, 5), *P], [U8], {"axis": 1}),
    "gemm": (
        "QGemm",
        [u8(5, 7), *Q, i8(4, 7), f32(0.01, 0.02, 0.03, 0.02), np.zeros(4, np.int8), BIAS, f32(0.3), zero(128)],
        [U8],
        {"transB": 1, "alpha": 0.7},
    ),
}
FLOAT: dict[str, Case] = {
    "gemm to float": (
        "QGemm",
        [u8(5, 7), *Q, u8(7, 4), *P, BIAS, None, None],
        [F],
        {},
    ),
    "product to float": ("MatMulIntegerToFloat", [u8(2, 5, 7), u8(7, 4), *(Q[0], P[0], Q[1], P[1])], [F], {}),
    "product to float, by column": (
        "MatMulIntegerToFloat",
        [u8(5, 7), i8(7, 3), Q[0], f32(0.1, 0.2, 0.3), Q[1], i8(3), normal(3)],
        [F],
        {},
    ),
    "4 bits": (
        "MatMulNBits",
        [normal(2, 3, 40), u8(5, 3, 8), normal(5, 3)],
        [F],
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    "4 bits with zero points": (
        "MatMulNBits",
        [normal(3, 64), u8(5, 2, 16), normal(5, 2), u8(5, 1), None, normal(5)],
        [F],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
    ),
    "8 bits": (
        "MatMulNBits",
        [normal(3, 64), u8(5, 2, 32), normal(5, 2), u8(5, 2)],
        [F],
        {"K": 64, "N": 5, "bits": 8, "block_size": 32},
    ),
    "FusedConv": (
        "FusedConv",
        [normal(1, 3, 8, 8), normal(4, 3, 3, 3), normal(4)],
        [F],
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1, 1, 1, 1]},
    ),
    "FusedConv with a sum": (
        "FusedConv",
        [normal(1, 3, 8, 8), normal(4, 3, 3, 3), normal(4), normal(1, 4, 6, 6)],
        [F],
        {"activation": "Relu"},
    ),
    "FusedGemm": (
        "FusedGemm",
        [normal(4, 5), normal(5, 6), normal(6)],
        [F],
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    "FusedMatMul": ("FusedMatMul", [normal(2, 5, 4), normal(2, 6, 5)], [F], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "FusedMatMul of rows first": (
        "FusedMatMul",
        [normal(4, 2, 3, 5), normal(5, 2, 3, 6)],
        [F],
        {"transBatchA": 1, "transBatchB": 1},
    ),
    "FusedMatMul of columns first": (
        "FusedMatMul",
        [normal(5, 2, 3, 4), normal(2, 3, 5, 6)],
        [F],
        {"transBatchA": 1, "transA": 1},
    ),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)],
        [F],
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [normal(2, 3, 8), normal(2, 3, 8), normal(8)],
        [F],
        {"epsilon": 1e-5},
    ),
    "Gelu": ("Gelu", [normal(3, 7)], [F], {}),
    "BiasGelu": ("BiasGelu", [normal(3, 7), normal(7)], [F], {}),
    "FastGelu": ("FastGelu", [normal(3, 7), normal(7)], [F], {}),
    "FastGelu without bias": ("FastGelu", [normal(3, 7)], [F], {}),
    "QuickGelu": ("QuickGelu", [normal(3, 7)], [F], {"alpha": 1.5}),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [*EMBEDDED, normal(9, 8), normal(5, 8), normal(2, 8), normal(8), normal(8), MASK],
        [F, I32],
        {"epsilon": 1e-5},
    ),
    "EmbedLayerNormalization by positions": (
        "EmbedLayerNormalization",
        [EMBEDDED[0], None, normal(9, 8), normal(5, 8), None, normal(8), normal(8), None, PLACES],
        [F, I32],
        {},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        [normal(2, 3, 5, 8), np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]), normal(9, 4), normal(9, 4)],
        [F],
        {},
    ),
    "RotaryEmbedding from one position": (
        "RotaryEmbedding",
        [normal(2, 5, 24), np.array([2]), normal(9, 4), normal(9, 4)],
        [F],
        {"interleaved": 1, "num_heads": 3},
    ),
}

LENGTHS = np.array([3, 5], np.int32)
PADDING = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
QKV: Inputs = [normal(2, 5, 12), normal(12, 24), normal(24)]
THREE: Inputs = [normal(2, 5, 24), normal(2, 5, 24), normal(2, 5, 24)]
PAST: Inputs = [normal(2, 3, 4, 8), normal(2, 3, 4, 8)]
ATTENTION: dict[str, Case] = {
    "plain": ("Attention", QKV, [F], {"num_heads": 2}),
    "causal": ("Attention", QKV, [F], {"num_heads": 2, "unidirectional": 1}),
    "lengths": ("Attention", [*QKV, LENGTHS], [F], {"num_heads": 2}),
    "ends and starts": ("Attention", [*QKV, np.array([3, 5, 1, 0], np.int32)], [F], {"num_heads": 2}),
    "padding": ("Attention", [*QKV, PADDING], [F], {"num_heads": 2, "scale": 0.3}),
    "added": ("Attention", [*QKV, PADDING, None, normal(1, 2, 5, 5)], [F], {"num_heads": 2}),
    "past": ("Attention", [*QKV, None, normal(2, 2, 2, 3, 4)], [F, F], {"num_heads": 2, "unidirectional": 1}),
    "other widths": (
        "Attention",
        [normal(2, 5, 12), normal(12, 20), normal(20)],
        [F],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]},
    ),
    "heads": ("MultiHeadAttention", THREE, [F], {"num_heads": 3}),
    "heads, bias": ("MultiHeadAttention", [*THREE, normal(72)], [F], {"num_heads": 3, "scale": 0.2}),
    "heads, padding": ("MultiHeadAttention", [*THREE, None, PADDING], [F], {"num_heads": 3}),
    "heads, lengths": ("MultiHeadAttention", [*THREE, None, LENGTHS], [F], {"num_heads": 3}),
    "heads, added": ("MultiHeadAttention", [*THREE, None, None, normal(2, 3, 5, 5)], [F], {"num_heads": 3}),
    "heads, causal": ("MultiHeadAttention", THREE, [F], {"num_heads": 3, "unidirectional": 1}),
    "heads, past": (
        "MultiHeadAttention",
        [*THREE, None, None, None, *PAST],
        [F, F, F],
        {"num_heads": 3, "unidirectional": 1},
    ),
    "heads, past and padding": (
        "MultiHeadAttention",
        [*THREE, None, np.array([[1] * 6 + [0] * 3, [1] * 9], np.int32), None, *PAST],
        [F, F, F],
        {"num_heads": 3},
    ),
    "heads of keys": (
        "MultiHeadAttention",
        [normal(2, 5, 24), normal(2, 3, 7, 8), normal(2, 3, 7, 8)],
        [F],
        {"num_heads": 3},
    ),
}


def grouped(past: int, tokens: int, lengths: list[int], *more: Any, **attributes: Any) -> Case:
    batch = len(lengths)
    inputs: Inputs = [normal(batch, tokens, 64), normal(batch, tokens, 32), normal(batch, tokens, 32)]
    caches = [normal(batch, 2, past, 16), normal(batch, 2, past, 16)]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, :, length - tokens :] = 0  # room for what is to come
    inputs += caches if past else [None, None]
    inputs += [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32), *more]
    return "GroupQueryAttention", inputs, [F, F, F], {"num_heads": 4, "kv_num_heads": 2, **attributes}


ATTENTION |= {
    "groups, prompt": grouped(0, 5, [5, 5]),
    "groups, next token": grouped(6, 1, [7, 7]),
    "groups, several tokens": grouped(6, 3, [9], scale=0.3),
    "groups, a long cache": grouped(12, 1, [5, 8]),
    "groups, turned": grouped(6, 1, [7, 7], normal(12, 8), normal(12, 8), do_rotary=1),
    "groups, turned in turn": grouped(0, 4, [4, 4], normal(12, 8), normal(12, 8), do_rotary=1, rotary_interleaved=1),
    "groups, window": grouped(6, 3, [9], local_window_size=4),
    "groups, softcap": grouped(6, 1, [7, 7], softcap=2.0),
    "groups, added": grouped(6, 1, [7, 7], None, None, None, normal(1, 4, 1, 7)),
}
SINKS = normal(4)
ATTENTION |= {
    "groups, smooth": grouped(6, 1, [7, 7], smooth_softmax=1),
    "groups, smooth prompt": grouped(0, 5, [5, 5], smooth_softmax=1, softcap=3.0),
    "groups, sinks": grouped(12, 1, [5, 8], None, None, None, None, SINKS),
    "groups, sinks and window": grouped(6, 3, [9], None, None, None, None, SINKS, local_window_size=4),
    "groups, sinks and added": grouped(6, 1, [7, 7], None, None, None, normal(1, 4, 1, 7), SINKS),
}
packed = grouped(6, 1, [7, 7])
ATTENTION["groups, packed"] = ("GroupQueryAttention", [normal(2, 1, 128), None, None, *packed[1][3:]], *packed[2:])

QUANTIZED_INPUT: Inputs = [u8(2, 5, 12), u8(12, 24), normal(24), f32(0.02), f32(0.01)]
BY_COLUMN: Inputs = [u8(2, 5, 12), i8(12, 24), normal(24), f32(0.02), RANDOM.uniform(0.01, 0.02, 24).astype(np.float32)]
ATTENTION |= {
    "quantized": ("QAttention", [*QUANTIZED_INPUT, None, zero(120), zero(130)], [F], {"num_heads": 2}),
    "quantized, causal": ("QAttention", QUANTIZED_INPUT, [F], {"num_heads": 2, "unidirectional": 1}),
    "quantized, padding": ("QAttention", [*QUANTIZED_INPUT, PADDING, zero(128), zero(128)], [F], {"num_heads": 2}),
    "quantized by column": ("QAttention", [*BY_COLUMN, LENGTHS, zero(128), i8(24)], [F], {"num_heads": 4}),
    "quantized, past": (
        "QAttention",
        [*QUANTIZED_INPUT, None, zero(128), zero(128), normal(2, 2, 2, 3, 4)],
        [F, F],
        {"num_heads": 2, "unidirectional": 1},
    ),
}


def decoded(past: int, *more: Any, room: int = 9, batch: int = 2, **attributes: Any) -> Case:
    """One token, with caches of `room` tokens of which `past` are there."""
    token: Inputs = [normal(batch, 1, 24), normal(batch, 1, 24), normal(batch, 1, 24)]
    mask, added, *rest = [*more, None, None][: max(2, len(more))]
    caches = [normal(batch, 3, room, 8), normal(batch, 3, room, 8)]
    inputs = [*token, mask, added, *caches, np.array([past], np.int32), *rest]
    return (
        "DecoderMaskedMultiHeadAttention",
        inputs,
        [F, F, F],
        {
            "num_heads": 3,
            "past_present_share_buffer": 1,
            **attributes,
        },
    )


BEAMS = np.array([[[0, 1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0, 0]]] * 2, np.int32)
ENCODED: Inputs = [normal(2, 1, 24), normal(2, 3, 7, 8), normal(2, 3, 7, 8)]
ATTENTION |= {
    "decoder": decoded(4),
    "decoder, first token": decoded(0, scale=0.2),
    "decoder, masks": decoded(
        4, np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], np.int32), normal(1, 3, 1, 5), mask_filter_value=-100.0
    ),
    "decoder, bias": decoded(5, None, None, None, None, normal(72)),
    "decoder, beams": decoded(4, None, None, np.array([2], np.int32), BEAMS, batch=4),
    "decoder of an encoder": ("DecoderMaskedMultiHeadAttention", ENCODED, [F], {"num_heads": 3}),
    "decoder of an encoder, padding": (
        "DecoderMaskedMultiHeadAttention",
        [*ENCODED, np.array([[1, 1, 1, 1, 1, 0, 0], [1] * 7], np.int32)],
        [F],
        {"num_heads": 3},
    ),
}
scores = decoded(4, output_qk=1)
ATTENTION["decoder, scores"] = (*scores[:2], [F] * 4, scores[3])
CASES = {name: case for table in (QUANTIZED, FLOAT, ATTENTION) for name, case in table.items()}


def built(case: Case, fixed: bool) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    op, inputs, types, attributes = case
    model, feed = one_node(op, inputs, types, MICROSOFT, 1)
    model.graph.node[0].attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    if fixed:
        for port in model.graph.input:
            for dim, size in zip(port.type.tensor_type.shape.dim, feed[port.name].shape, strict=True):
                dim.dim_value = size
    return model, feed


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(save: Save, name: str, fixed: bool) -> None:
    if not fixed and name == "ends and starts":
        pytest.skip("of which kind the mask is, its length tells")
    expectation = onnxruntime(*built(CASES[name], True))
    for actual, expected in zip(run(save, *built(CASES[name], fixed)), expectation, strict=True):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind in "iu":
            steps = np.abs(actual.astype(int) - expected.astype(int))
            assert steps.max(initial=0) <= 1  # onnxruntime's tables and fixed-point products round elsewhere
        else:
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("free", [True, False])
def test_dynamic_quantize_matmul(save: Save, free: bool) -> None:
    inputs: Inputs = [normal(3, 5, 7), i8(7, 4), f32(0.01, 0.02, 0.03, 0.02), np.zeros(4, np.int8), normal(4)]
    model, feed = built(("DynamicQuantizeMatMul", inputs, [F], {}), not free)
    np.testing.assert_allclose(run(save, model, feed)[0], onnxruntime(model, feed)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("by_column", [False, True])
def test_dynamic_quantize_lstm(save: Save, by_column: bool) -> None:
    """onnxruntime rounds activations to 8 bits at each step, which is seen in its result and not in ours."""
    directions, steps, batch, width, hidden = 2, 4, 3, 5, 8
    scales = (directions, 4 * hidden) if by_column else (directions,)

    def parameters() -> Inputs:
        return [RANDOM.uniform(0.002, 0.004, scales).astype(np.float32), np.zeros(scales, np.int8)]

    inputs: Inputs = [normal(steps, batch, width), i8(directions, width, 4 * hidden)]
    inputs += [i8(directions, hidden, 4 * hidden), normal(directions, 8 * hidden, scale=0.1), None]
    inputs += [normal(directions, batch, hidden), normal(directions, batch, hidden), None]
    inputs += [*parameters(), *parameters()]
    constants = (1, 2, 8, 9, 10, 11)
    model, feed = one_node(
        "DynamicQuantizeLSTM", inputs, [F, F, F], MICROSOFT, 1, constants, hidden_size=hidden, direction="bidirectional"
    )
    for actual, expected in zip(run(save, model, feed), onnxruntime(model, feed), strict=True):
        np.testing.assert_allclose(actual, expected, atol=0.02)


def test_simplified_layer_normalization(save: Save) -> None:
    """Written by onnxruntime as an operator of ONNX, which it is not."""
    model, feed = one_node("SimplifiedLayerNormalization", [normal(3, 8), normal(8)], [F], opset=20, axis=-1)
    np.testing.assert_allclose(run(save, model, feed)[0], onnxruntime(model, feed)[0], rtol=1e-4, atol=1e-5)


def test_sum_of_skip_layer_normalization(save: Save) -> None:
    values = [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)]
    model, feed = one_node("SkipLayerNormalization", values, [F], MICROSOFT, 1)
    model.graph.node[0].output.extend(["", "", "sum"])
    model.graph.output.append(helper.make_tensor_value_info("sum", F, None))
    for actual, expected in zip(run(save, model, feed), onnxruntime(model, feed), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
