"""A Hugging Face sequence classifier as an ONNX file in fp32, int8 or bf16. Called by prepare_model.sh."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentences import Pair, read_pairs
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import ingot

if TYPE_CHECKING:
    import torch

TASKS = ("mrpc",)
BATCH = 16


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="prepare_model.sh", description=__doc__)
    parser.add_argument("--input_model", type=Path, required=True, help="folder of save_pretrained")
    parser.add_argument("--task_name", choices=TASKS, default="mrpc")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--precision", choices=("fp32", "int8", "bf16"), required=True)
    parser.add_argument("--data_dir", type=Path, help="folder of train.tsv, for int8; default: that of the model")
    parser.add_argument("--samples", type=int, default=256, help="to calibrate on, for int8")
    options = parser.parse_args()
    if not (options.input_model / "config.json").is_file():
        parser.error(f"--input_model: {options.input_model} holds no config.json")
    options.data_dir = options.data_dir or options.input_model
    if options.precision == "int8" and not (options.data_dir / "train.tsv").is_file():
        parser.error(f"--data_dir: {options.data_dir} holds no train.tsv to calibrate on")
    return options


def encode(tokenizer: Any, pairs: list[Pair]) -> dict[str, torch.Tensor]:
    texts = [pair.first for pair in pairs], [pair.second for pair in pairs]
    return dict(tokenizer(*texts, padding=True, truncation=True, max_length=128, return_tensors="pt"))


def calibration(tokenizer: Any, folder: Path, samples: int) -> list[dict[str, torch.Tensor]]:
    pairs = read_pairs(folder / "train.tsv")[:samples]
    return [encode(tokenizer, pairs[i : i + BATCH]) for i in range(0, len(pairs), BATCH)]


def prepare(options: argparse.Namespace) -> ingot.ExportReport:
    tokenizer = AutoTokenizer.from_pretrained(options.input_model)
    model = AutoModelForSequenceClassification.from_pretrained(options.input_model).float().eval()
    example = encode(tokenizer, [Pair("the first sentence", "the second", 0)] * 2)
    config = ingot.Torch2ONNXConfig(
        dtype=options.precision,
        example_inputs=example,
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in example},
    )
    options.output_dir.mkdir(parents=True, exist_ok=True)
    path = options.output_dir / f"{options.precision}-model.onnx"
    if options.precision != "int8":
        return ingot.Model(model).export(path, config)
    batches = calibration(tokenizer, options.data_dir, options.samples)
    quantized = ingot.quantize(model, ingot.PostTrainingQuantConfig(approach="static"), calib=batches)
    print(quantized.report.text.splitlines()[0], file=sys.stderr)
    return quantized.export(path, config)


if __name__ == "__main__":
    try:
        print(prepare(arguments()), file=sys.stderr)
    except ingot.Error as error:
        sys.exit(f"prepare_model.sh: {error}")
