"""The example from end to end: train a classifier of sentence pairs, export it in three precisions, compile, compare.

python examples/mrpc/demo.py [--output_dir=build/mrpc] [--steps=1500]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from prepare_model import encode
from rich.console import Console
from rich.table import Table
from sentences import Pair, read_pairs
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import ingot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PRECISIONS = ("fp32", "int8", "bf16")


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


def compiled(model: Path, folder: Path, precision: str) -> tuple[Path, ingot.Graph]:
    """The ONNX file, and the graph from the IR that the command line made of it."""
    run(
        HERE / "prepare_model.sh",
        f"--input_model={model}",
        "--task_name=mrpc",
        f"--output_dir={folder}",
        f"--precision={precision}",
    )
    onnx, ir = folder / f"{precision}-model.onnx", folder / f"{precision}.ir"
    run(ROOT / "build" / "bin" / "ingot", "compile", onnx, "-o", ir)
    return onnx, ingot.load(ir)


def batches(tokenizer: Any, pairs: list[Pair], size: int = 50) -> list[dict[str, Any]]:
    return [encode(tokenizer, pairs[i : i + size]) for i in range(0, len(pairs), size)]


def by_ingot(graph: ingot.Graph, data: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    names = [port.name for port in graph.inputs]
    return np.concatenate(
        [graph.inference({name: batch[name].numpy() for name in names})["logits"] for batch in data]
    ).astype(np.float32)


def by_torch(model: Any, data: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    return np.concatenate([model(**batch).logits.detach().numpy() for batch in data])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=ROOT / "build" / "mrpc")
    parser.add_argument("--steps", type=int, default=1500, help="of training")
    options = parser.parse_args()
    folder: Path = options.output_dir
    model_folder = folder / "model"
    run(sys.executable, HERE / "train.py", f"--output_dir={model_folder}", f"--steps={options.steps}")
    pairs = read_pairs(model_folder / "dev.tsv")
    labels = np.array([pair.label for pair in pairs])
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForSequenceClassification.from_pretrained(model_folder).eval()
    data = batches(tokenizer, pairs)
    reference = by_torch(model, data)
    table = Table(title=f"{len(pairs)} sentence pairs", title_justify="left", box=None, pad_edge=False)
    for column in ("", "accuracy", "same answer as PyTorch", "largest difference", "file"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("PyTorch fp32", f"{(reference.argmax(-1) == labels).mean():.1%}", "", "", "")
    agreement = []
    for precision in PRECISIONS:
        onnx, graph = compiled(model_folder, folder, precision)
        logits = by_ingot(graph, data)
        agreement.append(float((logits.argmax(-1) == reference.argmax(-1)).mean()))
        table.add_row(
            f"Ingot {precision}",
            f"{(logits.argmax(-1) == labels).mean():.1%}",
            f"{agreement[-1]:.1%}",
            f"{np.abs(logits - reference).max():.1e}",
            f"{onnx.stat().st_size / 1e3:.0f} kB",
        )
    Console(highlight=False).print(table)
    if min(agreement) < 0.95:
        sys.exit("a precision answers otherwise than PyTorch too often: something is wrong")


if __name__ == "__main__":
    main()
