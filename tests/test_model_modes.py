"""Real models from their packages in every mode, against onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

sys.path.insert(0, str(Path(__file__).parent / "conformance"))
from modes import MODES
from test_models import assert_close, package_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    Inputs = dict[str, Any]

RANDOM = np.random.default_rng(0)


def noise(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def speech() -> Inputs:
    return {"input": 0.1 * noise(1, 576), "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}


def magika() -> Path:
    return next((package_folder("magika") / "models").glob("*/model.onnx"))


def ocr(name: str) -> Path:
    return package_folder("rapidocr_onnxruntime") / "models" / f"{name}.onnx"


MODELS: dict[str, tuple[Callable[[], Path], Callable[[], Inputs]]] = {
    "silero_vad": (lambda: package_folder("silero_vad") / "data/silero_vad.onnx", speech),
    "silero_vad_16k": (lambda: package_folder("silero_vad") / "data/silero_vad_16k_op15.onnx", speech),
    "nudenet": (lambda: package_folder("nudenet") / "320n.onnx", lambda: {"images": noise(1, 3, 320, 320)}),
    "magika": (magika, lambda: {"bytes": RANDOM.integers(0, 256, (1, 2048), dtype=np.int32)}),
    "ocr_classify": (lambda: ocr("ch_ppocr_mobile_v2.0_cls_infer"), lambda: {"x": noise(1, 3, 48, 192)}),
    "ocr_recognise": (lambda: ocr("ch_PP-OCRv4_rec_infer"), lambda: {"x": noise(1, 3, 48, 96)}),
    "ocr_detect": (lambda: ocr("ch_PP-OCRv4_det_infer"), lambda: {"x": noise(1, 3, 64, 96)}),
}


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "library", "ir"])
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, mode: str, tmp_path: Path) -> None:
    path, inputs = MODELS[name]
    model, feed = onnx.load(path()), inputs()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path()), options, providers=["CPUExecutionProvider"])
    feed = {i.name: feed[i.name] for i in session.get_inputs()}
    actual = MODES[mode](model, feed, tmp_path)
    for a, e in zip(actual, session.run(None, feed), strict=True):
        assert_close(a, e)
