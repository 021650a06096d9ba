"""seeds.py FOLDER: small valid models for the fuzzers to start from: ONNX's operator cases, their Engine IR (yaml, a
zero byte, weights; those that have weights once more), and the cases with two bytes in front that say how to convert
them."""

import sys
from pathlib import Path

from onnx.backend.test.loader import load_model_tests

import ingot

folder = Path(sys.argv[1])
for kind in ("onnx", "ir", "convert", "weights"):
    (folder / kind).mkdir(parents=True, exist_ok=True)
for number, case in enumerate(load_model_tests(kind="node")):
    model = Path(str(case.model_dir)) / "model.onnx" if case.model_dir else None
    data = model.read_bytes() if model else case.model.SerializeToString()
    if len(data) > 4096:
        continue
    (folder / "onnx" / case.name).write_bytes(data)
    (folder / "convert" / case.name).write_bytes(bytes([number * 37 % 256, number * 11 % 256]) + data)
    try:
        graph = ingot.compile(folder / "onnx" / case.name)
        graph.save(folder / "saved")
    except ingot.Error:
        continue
    weights = (folder / "saved" / "weights.bin").read_bytes()
    saved = (folder / "saved" / "graph.yaml").read_bytes() + b"\0" + weights
    (folder / "ir" / case.name).write_bytes(saved)
    if weights and len(saved) <= 8192:
        (folder / "weights" / case.name).write_bytes(saved)
