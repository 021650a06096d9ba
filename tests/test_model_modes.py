"""Real models from their packages in every mode, against onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

sys.path.insert(0, str(Path(__file__).parent / "conformance"))
from modes import MODES
from test_models import assert_close
from wheel_models import MODELS

NAMES = [name for name in MODELS if name not in ("silero_vad_ifless", "smart_turn", "minilm")]


@pytest.mark.parametrize("mode", ["static", "dynamic", "constant", "library", "ir"])
@pytest.mark.parametrize("name", NAMES)
def test_model(name: str, mode: str, tmp_path: Path) -> None:
    path, inputs = MODELS[name]
    model, feed = onnx.load(path()), inputs(np.random.default_rng(0))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path()), options, providers=["CPUExecutionProvider"])
    feed = {i.name: feed[i.name] for i in session.get_inputs()}
    actual = MODES[mode](model, feed, tmp_path)
    for a, e in zip(actual, session.run(None, feed), strict=True):
        assert_close(a, e)
