"""Real models against outside oracles: ONNX's own expected outputs, onnxruntime, and a known answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from wheel_models import package_folder

import ingot

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIGHT = {case.model_name: case for case in load_model_tests(kind="real")}


def reference(path: Path, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """onnxruntime without its graph optimisations: the plainest reading of the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    outputs: list[NDArray[Any]] = ort.InferenceSession(str(path), options).run(None, inputs)
    return outputs


def assert_close(actual: NDArray[Any], expected: NDArray[Any], tolerance: float = 1e-4) -> None:
    """Largest difference relative to the largest value: what a network's noise is measured by."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.size:
        scale = max(float(np.abs(expected).max()), 1e-6)
        # onnxruntime's sigmoid is exact to about 1e-7 absolutely, not relatively: probabilities near 0 differ.
        assert float(np.abs(actual - expected).max()) <= tolerance * scale + 1e-6


@pytest.mark.parametrize("name", sorted(LIGHT))
def test_light_network(name: str) -> None:
    case = LIGHT[name]
    path = Path(onnx.__file__).parent.parent / str(case.url)
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    inputs = {
        i.name: Runner.generate_dummy_data(i, seed=0, name=name, random=False)
        for i in model.graph.input
        if i.name not in weights
    }
    expected = onnx.numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    graph = ingot.compile(path)
    (actual,) = graph.inference(inputs).values()
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.atol)


def test_magika_names_file_types() -> None:
    """The classifier gives onnxruntime's scores, and the right answer for a Python source."""
    import json

    folder = next((package_folder("magika") / "models").glob("*/model.onnx")).parent
    graph = ingot.compile(folder / "model.onnx")
    config = json.loads((folder / "config.min.json").read_text())
    text = Path(__file__).read_bytes().strip()
    half = config["beg_size"]
    features = np.full((1, half + config["end_size"]), config["padding_token"], np.int32)
    features[0, : min(half, len(text))] = np.frombuffer(text[:half], np.uint8)
    tail = np.frombuffer(text[-config["end_size"] :], np.uint8)
    features[0, features.shape[1] - len(tail) :] = tail
    (scores,) = graph.inference([features]).values()
    assert config["target_labels_space"][int(scores[0].argmax())] == "python"
    random = np.random.default_rng(0)
    for batch in (1, 3):
        x = random.integers(0, 257, (batch, features.shape[1]), dtype=np.int32)
        (actual,) = graph.inference([x]).values()
        assert_close(actual, reference(folder / "model.onnx", {"bytes": x})[0])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("ch_ppocr_mobile_v2.0_cls_infer", [(1, 3, 48, 192), (4, 3, 48, 192), (1, 3, 48, 100)]),
        ("ch_PP-OCRv4_rec_infer", [(1, 3, 48, 320), (2, 3, 48, 131), (1, 3, 48, 64)]),
        ("ch_PP-OCRv4_det_infer", [(1, 3, 96, 160), (2, 3, 64, 64), (1, 3, 160, 224)]),
    ],
)
def test_ocr_models_at_many_shapes(name: str, shapes: list[tuple[int, ...]]) -> None:
    """One compiled model serves every shape, in any order."""
    path = package_folder("rapidocr_onnxruntime") / "models" / f"{name}.onnx"
    graph = ingot.compile(path)
    random = np.random.default_rng(0)
    for shape in [*shapes, shapes[0]]:
        x = random.standard_normal(shape, dtype=np.float32)
        (actual,) = graph.inference([x]).values()
        assert_close(actual, reference(path, {"x": x})[0])


def test_fixed_shapes_give_the_same_results() -> None:
    path = package_folder("rapidocr_onnxruntime") / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    x = np.random.default_rng(0).standard_normal((1, 3, 48, 192), dtype=np.float32)
    (actual,) = ingot.compile(path, shapes={"x": x.shape}).inference([x]).values()
    assert_close(actual, reference(path, {"x": x})[0])


def test_sentence_encoder_means_what_it_says() -> None:
    """The real MiniLM, exported from PyTorch: similar sentences are near, others are not, and torch agrees."""
    import torch
    from models import minilm_folder, minilm_module, minilm_path
    from transformers import AutoTokenizer

    sentences = ["A cat sleeps on the sofa.", "A kitten is napping.", "Interest rates went up."]
    tokens = AutoTokenizer.from_pretrained(minilm_folder())(sentences, padding=True, return_tensors="np")
    inputs = {name: np.ascontiguousarray(tokens[name], np.int64) for name in ("input_ids", "attention_mask")}
    graph = ingot.compile(minilm_path())
    embeddings = graph.inference(inputs)["sentence_embedding"]
    similar = embeddings @ embeddings.T
    assert similar[0, 1] > 0.5 > 0.2 > similar[0, 2]
    with torch.inference_mode():
        expected = minilm_module()(*(torch.from_numpy(a) for a in inputs.values())).numpy()
    assert_close(embeddings, expected)
