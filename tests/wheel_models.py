"""Trained models from installed packages: where each one lies, and an input for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Inputs = dict[str, NDArray[Any]]
    Model = tuple[Callable[[], Path], Callable[[np.random.Generator], Inputs]]


def package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)  # not imported: some need libraries of a desktop
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def noise(random: np.random.Generator, *shape: int) -> NDArray[Any]:
    return random.standard_normal(shape, dtype=np.float32)


def speech(random: np.random.Generator) -> Inputs:
    state = np.zeros((2, 1, 128), np.float32)
    return {"input": 0.1 * noise(random, 1, 576), "state": state, "sr": np.array(16000)}


def speech_in_parts(random: np.random.Generator) -> Inputs:
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": 0.1 * noise(random, 3, 576), "h": state, "c": state}


def silero(name: str) -> Model:
    return lambda: package_folder("silero_vad") / "data" / f"{name}.onnx", speech


def ocr(name: str, *shape: int) -> Model:
    path = f"models/{name}_infer.onnx"
    return lambda: package_folder("rapidocr_onnxruntime") / path, lambda random: {"x": noise(random, *shape)}


def magika() -> Path:
    return next((package_folder("magika") / "models").glob("*/model.onnx"))


def minilm() -> Path:
    from models import minilm_path

    return minilm_path()


def tokens(random: np.random.Generator) -> Inputs:
    ids = random.integers(1000, 30522, (2, 24), dtype=np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


MODELS: dict[str, Model] = {
    "silero_vad": silero("silero_vad"),
    "silero_vad_16k": silero("silero_vad_16k_op15"),
    "silero_vad_ifless": silero("silero_vad_op18_ifless"),
    "silero_vad_openvino": silero("silero_vad_openvino_16k"),
    "silero_vad_sequence": (silero("silero_vad_16k_sequence")[0], speech_in_parts),
    "nudenet": (
        lambda: package_folder("nudenet") / "320n.onnx",
        lambda random: {"images": noise(random, 1, 3, 320, 320)},
    ),
    "magika": (magika, lambda random: {"bytes": random.integers(0, 256, (1, 2048), dtype=np.int32)}),
    "ocr_classify": ocr("ch_ppocr_mobile_v2.0_cls", 1, 3, 48, 192),
    "ocr_recognise": ocr("ch_PP-OCRv4_rec", 1, 3, 48, 96),
    "ocr_detect": ocr("ch_PP-OCRv4_det", 1, 3, 64, 96),
    "smart_turn": (
        lambda: package_folder("pipecat") / "audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        lambda random: {"input_features": noise(random, 1, 80, 800)},
    ),
    "minilm": (minilm, tokens),
}
