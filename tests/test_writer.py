"""ONNX files that Ingot writes: valid, run by onnxruntime, and the same function as what was read."""

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

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
# A spread over ONNX's own cases: control flow, sequences, strings, attributes of every kind, old opsets.
CASES = """
    add averagepool_2d_pads batchnorm_example clip concat_2d_axis_0 constant constantofshape_int_zeros
    conv_with_strides_padding convtranspose dequantizelinear_axis dequantizelinear_blocked dynamicquantizelinear
    einsum_batch_matmul equal_string gather_0 gelu_tanh_1 gru_defaults identity_sequence if if_seq
    layer_normalization_2d_axis1 loop11 loop13_seq lstm_with_peepholes maxpool_2d_default onehot_with_axis
    optional_has_element_tensor_input pow qlinearconv qlinearmatmul_2D_uint8_float32 quantizelinear
    reduce_sum_default_axes_keepdims_example reshape_allowzero_reordered resize_downsample_sizes_cubic scan9_sum
    scatter_elements_with_axis sequence_insert_at_back slice softmax_axis_1 split_variable_parts_1d_opset18
    strnormalizer_export_monday_casesensintive_lower top_k tile transpose_all_permutations_0 unsqueeze_axis_1
    upsample_nearest where_example xor2d
"""


def written(path: Path, tmp_path: Path) -> onnx.ModelProto:
    out = tmp_path / "written.onnx"
    done = cli("compile", path, "-o", out)
    assert done.code == 0, done.err
    onnx.checker.check_model(onnx.load(out))
    return onnx.load(out)


def same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray) and a.dtype.kind in "fiub":
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=1e-4, atol=1e-5)
    else:
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", CASES.split())
def test_onnx_cases(node_cases: dict[str, Any], save: Save, tmp_path: Path, name: str) -> None:
    case = node_cases[f"test_{name}"]
    model = written(save(case.model), tmp_path)
    inputs, expected = case.data_sets[0]
    given = {v.name: x for v, x in zip(case.model.graph.input, inputs, strict=False) if x is not None}
    try:
        reference = run(case.model, given)
    except Exception:  # onnxruntime does not know this version: compare with what ONNX expects, by Ingot
        path = tmp_path / "written.onnx"
        same(list(expected), list(ingot.compile(path).inference(given).values()))
        return
    same(reference, run(model, given))


def nested() -> onnx.ModelProto:
    """A loop in a branch of an If: each reads values and weights from around it; the branch returns one of them."""
    node, value = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("MatMul", ["state", "w"], ["product"], name="product"),
            node("Add", ["product", "x"], ["next"], name="add"),
            node("Identity", ["go"], ["go_on"], name="on"),
        ],
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("state", FLOAT, ["n", 4])],
        [value("go_on", BOOL, []), value("next", FLOAT, ["n", 4])],
    )
    then = helper.make_graph(
        [node("Loop", ["trips", "", "x"], ["looped"], name="loop", body=body)],
        "then",
        [],
        [value("looped", FLOAT, ["n", 4])],
        [helper.make_tensor("trips", INT64, [], [3])],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["unchanged"], name="same")], "other", [], [value("unchanged", FLOAT, ["n", 4])]
    )
    nodes = [
        node("ReduceSum", ["x"], ["s"], name="sum", keepdims=0),
        node("Greater", ["s", "zero"], ["c"], name="greater"),
        node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    weights = {"w": np.eye(4, dtype=np.float32) * 2, "zero": np.array(0, np.float32)}
    return make_model(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])], weights)


def test_control_flow(save: Save, tmp_path: Path) -> None:
    model = nested()
    again = written(save(model), tmp_path)
    for sign in (1, -1):
        x = np.full((2, 4), sign, np.float32)
        same(run(model, {"x": x}), run(again, {"x": x}))


def test_what_branches_share_is_stored_once(save: Save, tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x", "w"], [name], name=name)],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name, op in (("then", "Add"), ("else", "Sub"))
    }
    weights = {"w": np.arange(4096, dtype=np.float32), "zero": np.array(0, np.float32)}
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", **branches),
    ]
    model = make_model(nodes, [("x", FLOAT, [4096])], [("y", FLOAT, [4096])], weights)
    again = written(save(model), tmp_path)
    assert (tmp_path / "written.onnx").stat().st_size < 20_000
    for sign in (1, -1):
        x = np.full(4096, sign, np.float32)
        same(run(model, {"x": x}), run(again, {"x": x}))


def test_symbolic_dims_and_metadata_stay(save: Save, tmp_path: Path) -> None:
    model = mlp()
    helper.set_model_props(model, {"author": "someone"})
    again = written(save(model), tmp_path)
    dims = again.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "batch" and dims[1].dim_value == 4
    assert {p.key: p.value for p in again.metadata_props} == {"author": "someone"}
    assert [n.name for n in again.graph.node] == ["first", "bias", "relu", "second"]


def test_fixed_shapes(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "fixed.onnx"
    assert cli("compile", save(mlp()), "-o", out, "--shape", "x:7x4").code == 0
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 7


def test_simpler_and_the_same(save: Save, tmp_path: Path) -> None:
    """A weight computed from constants, a normalization behind a convolution, an addition of zero: all gone."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((3, 3, 2, 4), dtype=np.float32),
        "one": np.ones(4, np.float32),
        "half": np.full(4, 0.5, np.float32),
        "none": np.zeros(1, np.float32),
    }
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[3, 2, 0, 1]),
        helper.make_node("Conv", ["x", "t"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "one", "half", "half", "one"], ["n"]),
        helper.make_node("Add", ["n", "none"], ["y"]),
    ]
    model = make_model(nodes, [("x", FLOAT, [1, 2, 8, 8])], [("y", FLOAT, [1, 4, 6, 6])], weights)
    again = written(save(model), tmp_path)
    assert [n.op_type for n in again.graph.node] == ["Conv"]
    x = random.standard_normal((1, 2, 8, 8), dtype=np.float32)
    same(run(model, {"x": x}), run(again, {"x": x}))


def test_operators_of_other_domains_keep_their_version(save: Save, tmp_path: Path) -> None:
    node = helper.make_node("FusedThing", ["x"], ["y"], domain="com.example")
    model = make_model([node], [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    model.opset_import.append(helper.make_opsetid("com.example", 3))
    done = cli("compile", save(model), "-o", tmp_path / "o.onnx")
    assert done.code == 4 and "FusedThing" in done.err  # its types cannot be inferred
    assert not (tmp_path / "o.onnx").exists()
