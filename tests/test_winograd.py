"""3x3 convolutions by Winograd's algorithm: where it is chosen, what it computes, how it is switched off."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from conftest import cli, make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[[onnx.ModelProto], Path]


def conv_net(channels: int, size: list[Any]) -> onnx.ModelProto:
    """Two 3x3 layers with pads that differ and a residual, and one of stride 2."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        f"w{i}": rng.standard_normal((channels, channels, 3, 3), dtype=np.float32) / np.float32(3 * channels**0.5)
        for i in range(3)
    }
    weights["b"] = rng.standard_normal(channels, dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["c0"], name="first", pads=[1, 0, 1, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="second", auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["c1", "x"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["y"], name="strided", strides=[2, 2]),
    ]
    return make_model(
        nodes,
        [("x", TensorProto.FLOAT, ["n", channels, *size])],
        [("y", TensorProto.FLOAT, ["n", channels, "oh", "ow"])],
        weights,
    )


def forms(path: Path, *options: str) -> list[int]:
    """The sides of the tiles of the convolutions that are transformed."""
    return [int(side) for side in re.findall(r"winograd: (\d+)", cli("inspect", path, "--yaml", *options).out)]


def check(model: onnx.ModelProto, path: Path, shape: tuple[int, ...], **options: Any) -> None:
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    found = ingot.compile(path, **options).inference([x])["y"]
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "size", "side"),
    [
        (32, [24, 21], 4),
        (40, [20, 37], 4),
        (33, [13, 10], 2),
        (200, [20, 12], 2),
        (32, ["h", "w"], 2),
        (20, [9, 40], 0),
        (16, [40, 40], 2),
        (4, [40, 40], 0),
    ],
)
def test_chosen_by_channels_and_size_and_right(save: Save, channels: int, size: list[Any], side: int) -> None:
    model = conv_net(channels, size)
    path = save(model)
    assert forms(path) == ([side, side] if side else [])
    known = [17 if isinstance(d, str) else d for d in size]
    for batch in (1, 2):
        check(model, path, (batch, channels, *known))


def test_free_sizes_down_to_one_pixel(save: Save) -> None:
    model = conv_net(32, ["h", "w"])
    path = save(model)
    graph = ingot.compile(path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for height, width in ((3, 3), (4, 7), (30, 5), (33, 34)):
        x = np.random.default_rng(2).standard_normal((1, 32, height, width), dtype=np.float32)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(graph.inference([x])["y"], expected, rtol=1e-4, atol=1e-4)


def test_switched_off(save: Save) -> None:
    model = conv_net(32, [24, 21])
    path = save(model)
    assert json.loads(cli("inspect", path, "--json").out)["fusions"]["winograd"] == 2
    assert forms(path, "--pattern", "winograd=off") == []
    check(model, path, (1, 32, 24, 21), patterns={"winograd": False})


def test_library_and_casts(save: Save, tmp_path: Path) -> None:
    """Filters packed ahead in a library, kept in 16 bits, or turned to integers."""
    model = conv_net(32, [24, 21])
    path = save(model)
    graph = ingot.compile(path)
    x = np.random.default_rng(3).standard_normal((1, 32, 24, 21), dtype=np.float32)
    expected = graph.inference([x])["y"]
    library = tmp_path / "net.so"
    assert cli("compile", path, "-o", library).code == 0
    np.testing.assert_array_equal(ingot.load(library).inference([x])["y"], expected)
    for name, most in (("bf16", 1e-2), ("int8", 5e-2)):
        found = graph.autocast(name).inference([x])["y"]
        assert np.linalg.norm(found - expected) <= most * np.linalg.norm(expected)


def test_every_build_computes_the_same(save: Save) -> None:
    model = conv_net(48, [24, 21])
    path = save(model)
    for march in ("x86-64-v2", "x86-64-v3"):
        check(model, path, (1, 48, 24, 21), march=march)


def test_wrong_attribute_is_refused(save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "ir"
    assert cli("compile", save(conv_net(32, [24, 21])), "-o", folder).code == 0
    changed = 0
    for file in folder.rglob("*.yaml"):
        text = file.read_text()
        changed += text.count("winograd: 4")
        file.write_text(text.replace("winograd: 4", "winograd: 3"))
    assert changed == 2
    done = cli("inspect", folder)
    assert done.code != 0
    assert "winograd is 3" in done.err
