"""What 8 bits, or weights of 4 bits, cost a real sentence encoder: cosine of MiniLM's embeddings to those of fp32,
`make accuracy`.

200 sentences (the first ones of docstrings in Python's standard library), 64 others to calibrate with. Each quantized
model is run by the engine that quantized it, and Ingot's files by onnxruntime too.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from engines import exact_onnxruntime_engine, ingot_engine, onnxruntime_engine
from models import CACHE, minilm_folder, minilm_module, minilm_path, quantized_by_onnxruntime, quiet
from rich.console import Console
from rich.table import Table

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engines import Run
    from numpy.typing import NDArray

    Tokens = dict[str, NDArray[np.int64]]

CALIBRATION, MEASURED = 64, 200


def docstrings() -> Iterator[str]:
    """Of all functions and classes of the pure modules of the standard library that can be imported quietly."""
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in (
            "antigravity",
            "this",
            "idlelib",
            "test",
            "tkinter",
            "turtle",
            "turtledemo",
        ):
            continue
        try:
            with warnings.catch_warnings(), quiet():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
        except Exception:  # modules of other systems
            continue
        for _, member in sorted(inspect.getmembers(module), key=lambda m: m[0]):
            if (inspect.isfunction(member) or inspect.isclass(member)) and member.__module__ == name:
                yield inspect.getdoc(member) or ""


def sentences(count: int) -> list[str]:
    found: dict[str, None] = {}
    for text in docstrings():
        first = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
        words = first.split()
        if 6 <= len(words) <= 40 and sum(word.isalpha() for word in words) >= 0.8 * len(words):
            found[first + "."] = None
    every = list(found)
    if len(every) < count:
        raise SystemExit(f"found {len(every)} sentences, {count} are needed")
    step = len(every) / count  # spread over the library
    return [every[int(i * step)] for i in range(count)]


def tokenize(texts: list[str]) -> list[Tokens]:
    from transformers import AutoTokenizer

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    encoded = [tokenizer([text], return_tensors="np") for text in texts]
    return [{name: e[name].astype(np.int64) for name in ("input_ids", "attention_mask")} for e in encoded]


def embeddings(engine: Callable[..., Run], path: Path, samples: list[Tokens]) -> NDArray[Any]:
    """The engines take their arrays once: these are filled anew for every sentence, padded to one length."""
    length = max(s["input_ids"].shape[1] for s in samples)
    inputs = {name: np.zeros((1, length), np.int64) for name in ("input_ids", "attention_mask")}
    run = engine(path, inputs, 2)
    out = []
    for sample in samples:
        for name, array in inputs.items():
            array[:] = 0
            array[:, : sample[name].shape[1]] = sample[name]
        out.append(run()[0][0].copy())
    return np.stack(out)


def narrow_by_ingot(calibration: list[Tokens] | None, **fields: Any) -> Path:
    """4-bit weights in groups of 32, made in PyTorch; tables in 8 bits."""
    import torch

    batches = [{name: torch.from_numpy(array) for name, array in s.items()} for s in calibration or []]
    path = CACHE / f"minilm-ingot-w4-{'-'.join(map(str, fields.values())) or 'usual'}-{len(batches)}.onnx"
    example = {name: torch.ones(2, 16, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
    config = ingot.PostTrainingQuantConfig(approach="weight_only", **fields)
    made = ingot.quantize(minilm_module(), config, calib=batches or None, example_inputs=example)
    made.export(path, dynamic_axes={name: {0: "batch", 1: "sequence"} for name in example}, verify=False)
    return path


def narrow_by_onnxruntime() -> Path:
    """To nearest, in groups of 32 without zero points: the usual arguments. Tables stay fp32."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    path = CACHE / "minilm-onnxruntime-w4.onnx"
    with quiet():
        quantizer = MatMulNBitsQuantizer(onnx.load(minilm_path()), block_size=32)
        quantizer.process()
    quantizer.model.save_model_to_file(str(path), False)
    return path


def main() -> None:
    texts = sentences(CALIBRATION + MEASURED)
    samples = tokenize(texts)
    calibration = samples[:: (CALIBRATION + MEASURED) // CALIBRATION][:CALIBRATION]
    chosen = {id(s) for s in calibration}
    measured = [s for s in samples if id(s) not in chosen][:MEASURED]

    static, dynamic = CACHE / "minilm-ingot-static.onnx", CACHE / "minilm-ingot-dynamic.onnx"
    ingot.quantize_onnx(minilm_path(), static, calib=calibration)
    ingot.quantize_onnx(minilm_path(), dynamic, mode="dynamic")

    def peer(form: str) -> Path:
        return quantized_by_onnxruntime(
            f"minilm-{form}", minilm_path, calibration.__getitem__, form, False, CALIBRATION
        )

    rows: list[tuple[str, str, Callable[..., Run], Path]] = [
        ("static", "ingot, by ingot", ingot_engine, static),
        ("static", "ingot, by onnxruntime", onnxruntime_engine, static),
        ("static", "ingot, by onnxruntime exact", exact_onnxruntime_engine, static),
        ("static", "onnxruntime, by onnxruntime", onnxruntime_engine, peer("qdq")),
        ("static", "onnxruntime, by ingot", ingot_engine, peer("qdq")),
        ("dynamic", "ingot, by ingot", ingot_engine, dynamic),
        ("dynamic", "ingot, by onnxruntime", onnxruntime_engine, dynamic),
        ("dynamic", "onnxruntime, by onnxruntime", onnxruntime_engine, peer("dynamic")),
        ("dynamic", "onnxruntime, by ingot", ingot_engine, peer("dynamic")),
    ]
    nearest, by_data = narrow_by_ingot(None), narrow_by_ingot(calibration)
    onnx_nearest = CACHE / "minilm-ingot-w4-onnx.onnx"
    ingot.quantize_onnx(minilm_path(), onnx_nearest, mode="weight_only", weight="s4", block=32)
    symmetric, scaled = narrow_by_ingot(None, symmetric=True), narrow_by_ingot(calibration, algorithm="awq")
    theirs = narrow_by_onnxruntime()
    rows += [
        ("4-bit weights", "ingot, to nearest, by ingot", ingot_engine, nearest),
        ("4-bit weights", "ingot, to nearest, symmetric, by ingot", ingot_engine, symmetric),
        ("4-bit weights", "ingot, gptq, by ingot", ingot_engine, by_data),
        ("4-bit weights", "ingot, gptq, by onnxruntime", onnxruntime_engine, by_data),
        ("4-bit weights", "ingot, awq, by ingot", ingot_engine, scaled),
        ("4-bit weights", "ingot of ONNX, by ingot", ingot_engine, onnx_nearest),
        ("4-bit weights", "onnxruntime, by onnxruntime", onnxruntime_engine, theirs),
        ("4-bit weights", "onnxruntime, by ingot", ingot_engine, theirs),
    ]
    wanted = embeddings(ingot_engine, minilm_path(), measured)
    table = Table(title=f"MiniLM, {len(measured)} sentences: cosine to fp32", title_justify="left")
    for column in ("model", "quantized, and run"):
        table.add_column(column)
    for column in ("mean", "worst"):
        table.add_column(column, justify="right")
    for kind, who, engine, path in rows:
        try:
            cosine = (embeddings(engine, path, measured) * wanted).sum(1)
            table.add_row(kind, who, f"{cosine.mean():.4f}", f"{cosine.min():.4f}")
        except Exception as error:
            table.add_row(kind, who, f"[red]{str(error).splitlines()[0][:60]}[/]")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
