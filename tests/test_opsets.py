"""Models written in the opset that is asked for: valid there by ONNX's own schemas, and the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from conftest import cli, make_model, mlp
from conftest import run_onnxruntime as run
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Save = Callable[..., Path]

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

# Operators that came late, or changed: each with the oldest opset in which this case can be said.
CASES = {
    11: """
        attention_4d attention_4d_causal attention_3d_with_past_and_present attention_4d_fp16 castlike_FLOAT_to_DOUBLE
        celu clip dequantizelinear_axis dequantizelinear_blocked dynamicquantizelinear
        einsum_batch_matmul gelu_default_1 gelu_tanh_1 greater_equal group_normalization_example hannwindow hardswish
        gru_batchwise layer_normalization_2d_axis1 layer_normalization_default_axis less_equal lstm_batchwise
        mish mod_mixed_sign_float64 qlinearconv qlinearmatmul_2D_int8_float16 quantizelinear_axis
        reduce_sum_empty_axes_input_noop
        resize_upsample_scales_linear rms_normalization_2d_axis1 rotary_embedding
        rotary_embedding_with_interleaved_rotary_dim shape_start_1_end_2 softmax_axis_1 split_equal_parts_1d_opset18
        swish tril_pos triu_neg
    """,
    13: "if_seq loop13_seq split_variable_parts_1d_opset18 unsqueeze_two_axes",
    14: "identity_sequence",
    16: "gridsample_bilinear scatter_elements_with_duplicate_indices",
    17: "stft sequence_map_identity_1_sequence",
    18: "bitwise_and_i32_2d col2im reduce_max_bool_inputs reduce_mean_default_axes_keepdims_example",
    19: "averagepool_2d_dilations equal_string",
    21: "dequantizelinear_int4",
}
OLDEST = [(name, opset) for opset, names in CASES.items() for name in names.split()]


def check_schemas(model: onnx.ModelProto) -> None:
    """Every node is one of the opset: operator, attributes, and how many operands and results."""
    onnx.checker.check_model(model, full_check=True)
    versions = {o.domain: o.version for o in model.opset_import}

    def check(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
            assert not schema.deprecated
            assert {a.name for a in node.attribute} <= set(schema.attributes), node.op_type
            assert schema.min_input <= len(node.input) <= schema.max_input, node.op_type
            assert len(node.output) <= schema.max_output, node.op_type
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    check(attribute.g)

    check(model.graph)


def same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray) and a.dtype.kind in "fiub":
        tolerance = 1e-2 if a.dtype == np.float16 else 1e-4
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=tolerance, atol=tolerance)
    else:
        assert np.array_equal(a, b)


def opset_of(model: onnx.ModelProto) -> int:
    return int(next(o.version for o in model.opset_import if o.domain == ""))


@pytest.mark.parametrize(("name", "oldest"), OLDEST)
def test_onnx_cases(node_cases: dict[str, Any], save: Save, tmp_path: Path, name: str, oldest: int) -> None:
    case, out = node_cases[f"test_{name}"], tmp_path / "older.onnx"
    path = save(case.model)
    newest = opset_of(case.model)
    inputs, expected = case.data_sets[0]
    given = {v.name: x for v, x in zip(case.model.graph.input, inputs, strict=False) if x is not None}
    for opset in sorted({oldest, max(oldest, min(17, newest)), max(oldest, min(20, newest))}):
        ingot.convert(path, out, opset=opset)
        model = onnx.load(out)
        assert opset_of(model) == opset
        check_schemas(model)
        if all(isinstance(x, (np.ndarray, list)) for x in [*inputs, *expected]):
            same(list(expected), list(ingot.compile(out).inference(given).values()))
            if opset == oldest:  # onnxruntime does not have all of what is newer
                same(list(expected), run(model, given))
    if oldest > 11:
        with pytest.raises(ingot.UnsupportedError, match=rf"opset {oldest} is the oldest"):
            ingot.convert(path, out, opset=oldest - 1)


# --- whole models


def exported(model: Any, inputs: tuple[Any, ...], path: Path, opset: int) -> dict[str, Any]:
    import torch

    with torch.no_grad():
        torch.onnx.export(model.eval(), inputs, path, opset_version=opset, dynamo=True, verbose=False)
    names = [i.name for i in onnx.load(path).graph.input]
    return {name: x.numpy() for name, x in zip(names, inputs, strict=True)}


def bert() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    return BertForSequenceClassification(config), (torch.arange(12).reshape(2, 6), torch.ones(2, 6, dtype=torch.int64))


def gpt2() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=32, use_cache=False)
    return GPT2LMHeadModel(config), (torch.arange(12).reshape(2, 6),)


def vit() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    return ViTForImageClassification(config), (torch.rand(2, 3, 32, 32),)


def resnet() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
    return ResNetForImageClassification(config), (torch.rand(2, 3, 32, 32),)


@pytest.mark.parametrize(("make", "source"), [(bert, 20), (gpt2, 23), (vit, 23), (resnet, 20)])
def test_exported_models(tmp_path: Path, make: Callable[[], Any], source: int) -> None:
    model, inputs = make()
    path, out = tmp_path / "model.onnx", tmp_path / "older.onnx"
    given = exported(model, inputs, path, source)
    expected = run(onnx.load(path), given)
    for opset in (13, 14, 17, 20):
        ingot.convert(path, out, opset=opset)
        again = onnx.load(out)
        check_schemas(again)
        assert opset_of(again) == opset
        same(expected, run(again, given))


# --- the interface


def test_command_line(save: Save, tmp_path: Path) -> None:
    nodes = [helper.make_node("Gelu", ["x"], ["y"], name="act")]
    path, out = save(make_model(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])])), tmp_path / "o.onnx"
    done = cli("convert", path, "-o", out, "--opset", "14")
    assert done.code == 0 and "opset 14" in done.err
    model = onnx.load(out)
    assert opset_of(model) == 14 and model.ir_version == 7
    assert "Erf" in [n.op_type for n in model.graph.node]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    for opset in ("10", "99"):
        done = cli("convert", path, "-o", tmp_path / "no.onnx", "--opset", opset)
        assert done.code == 5 and "11 to 28" in done.err
    assert not (tmp_path / "no.onnx").exists()
    assert cli("convert", path, "-o", out).code == 5


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
@pytest.mark.parametrize("opset", [11, 13, 19, 23])
def test_quantized(save: Save, tmp_path: Path, form: Any, opset: int) -> None:
    x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    path, out = save(mlp()), tmp_path / "int8.onnx"
    ingot.quantize_onnx(path, tmp_path / "newest.onnx", calib=[{"x": x}], quant_format=form, reduce_range=True)
    ingot.quantize_onnx(path, out, calib=[{"x": x}], quant_format=form, reduce_range=True, opset=opset)
    model = onnx.load(out)
    assert opset_of(model) == opset
    check_schemas(model)
    same(run(onnx.load(tmp_path / "newest.onnx"), {"x": x}), run(model, {"x": x}))


def test_bodies_of_control_flow(save: Save, tmp_path: Path) -> None:
    """What is inside a branch goes the same way, with what it reads from outside."""
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [value(name, FLOAT, ["n", 4])])
        for name, nodes in (
            ("then", [helper.make_node("Gelu", ["x"], ["then"], name="g")]),
            (
                "else",
                [helper.make_node("ReduceMax", ["x", "axes"], ["m"]), helper.make_node("Add", ["x", "m"], ["else"])],
            ),
        )
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", **branches),
    ]
    weights = {"zero": np.array(0, np.float32), "axes": np.array([1])}
    model = make_model(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])], weights)
    out = tmp_path / "o.onnx"
    ingot.convert(save(model), out, opset=12)
    again = onnx.load(out)
    check_schemas(again)
    for sign in (1, -1):
        x = np.full((2, 4), sign, np.float32)
        same(run(model, {"x": x}), run(again, {"x": x}))


def test_what_cannot_be_said_is_named(save: Save, tmp_path: Path) -> None:
    nodes = [helper.make_node("BitwiseNot", ["x"], ["y"], name="flip")]
    path = save(make_model(nodes, [("x", INT64, [4])], [("y", INT64, [4])]))
    with pytest.raises(ingot.UnsupportedError, match=r"BitwiseNot 'flip'.*opset 13") as error:
        ingot.convert(path, tmp_path / "o.onnx", opset=13)
    assert "opset 18" in str(error.value)
    assert list(tmp_path.glob("o.onnx*")) == []
