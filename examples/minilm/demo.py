"""A real sentence encoder, end to end: PyTorch -> ONNX -> Engine IR and model.so; run from Python and from C."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import ingot

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from engines import ingot_engine, library_engine, onnxruntime_engine, torch_engine  # noqa: E402
from models import minilm_folder, minilm_module, minilm_path, quiet  # noqa: E402
from timing import interleave  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT = ROOT / "build" / "demo"
SENTENCES = [
    "A cat sleeps on the warm windowsill.",
    "The kitten is napping in the sun.",
    "The central bank raised interest rates again.",
    "Borrowing money has become more expensive.",
]
console = Console(highlight=False)


def step(what: str, start: float) -> None:
    console.print(f"  [green]✓[/] {what} [dim]{time.perf_counter() - start:.2f} s[/]")


def tokens(sentences: list[str]) -> dict[str, NDArray[np.int64]]:
    from transformers import AutoTokenizer

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    encoded = tokenizer(sentences, padding=True, return_tensors="np")
    return {name: np.ascontiguousarray(encoded[name], np.int64) for name in ("input_ids", "attention_mask")}


def compile_everything() -> tuple[ingot.Graph, Path]:
    OUT.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    onnx = minilm_path()
    step(f"PyTorch → {onnx.relative_to(ROOT)}", start)
    start = time.perf_counter()
    graph = ingot.compile(onnx)
    fused = sum(1 for entry in graph.report if entry.outcome == "matched")
    step(f"ONNX → graph of {len(graph.nodes)} nodes, {fused} fusions", start)
    start = time.perf_counter()
    graph.save(OUT / "minilm.ir")
    step("graph → Engine IR, build/demo/minilm.ir", start)
    start = time.perf_counter()
    library = OUT / "minilm.so"
    graph.emit(library)
    step(f"graph → build/demo/minilm.so, {library.stat().st_size / 1e6:.1f} MB", start)
    return ingot.load(OUT / "minilm.ir"), library


def embed_from_c(library: Path, inputs: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
    """Builds examples/c/embed.c with any C compiler and gives it the token ids on stdin."""
    program = OUT / "embed"
    source = ROOT / "examples" / "c" / "embed.c"
    subprocess.run(["cc", "-O1", "-I", ROOT / "include", source, "-o", program, "-ldl"], check=True)
    batch, length = inputs["input_ids"].shape
    numbers = [batch, length, *inputs["input_ids"].ravel(), *inputs["attention_mask"].ravel()]
    done = subprocess.run(
        [program, library], input=" ".join(map(str, numbers)), capture_output=True, text=True, check=True
    )
    return np.array([row.split() for row in done.stdout.splitlines()], dtype=np.float32)


def show_similarity(embeddings: NDArray[np.float32]) -> None:
    table = Table(title="Cosine similarity", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for i in range(len(SENTENCES)):
        table.add_column(str(i + 1), justify="right")
    for i, row in enumerate(embeddings @ embeddings.T):
        cells = [f"[bold]{v:.2f}[/]" if v > 0.4 and i != j else f"[dim]{v:.2f}[/]" for j, v in enumerate(row)]
        table.add_row(f"{i + 1} {SENTENCES[i]}", *cells)
    console.print(table)


def show_agreement(results: dict[str, NDArray[Any]], reference: str) -> None:
    table = Table(title=f"Largest difference from {reference}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in results.items():
        if name != reference:
            table.add_row(name, f"{np.abs(value - results[reference]).max():.1e}")
    console.print(table)


def show_latency(module: Any, library: Path, inputs: dict[str, NDArray[np.int64]]) -> None:
    batch, length = inputs["input_ids"].shape
    table = Table(
        title=f"Milliseconds for {batch} sentences of {length} tokens, taking turns",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("")
    for threads in (1, 2):
        table.add_column(f"{threads}T min", justify="right")
        table.add_column("median", justify="right", style="dim")
    rows: dict[str, list[str]] = {}
    for threads in (1, 2):
        engines = {
            "ingot": ingot_engine(minilm_path(), inputs, threads, fixed=False),
            "ingot model.so": library_engine(library, inputs, threads),
            "onnxruntime": onnxruntime_engine(minilm_path(), inputs, threads),
            "torch": torch_engine(module, inputs, threads),
        }
        # A pause after each turn: spinning threads of one engine would slow the next.
        for name, timing in interleave(engines, rounds=15, pause=0.02 if threads > 1 else 0).items():
            cells = [f"{timing.wall_min * 1e3:.2f}", f"{timing.wall_median * 1e3:.2f}"]
            rows.setdefault(name, []).extend(cells)
    best = [min(float(row[i]) for row in rows.values()) for i in (0, 2)]
    for name, row in rows.items():
        bold = [f"[bold green]{v}[/]" if i % 2 == 0 and float(v) == best[i // 2] else v for i, v in enumerate(row)]
        table.add_row(name, *bold)
    console.print(table)


def main() -> None:
    console.print(f"[bold]Ingot {ingot.__version__}[/]: all-MiniLM-L6-v2, compiled for this CPU\n")
    graph, library = compile_everything()
    inputs = tokens(SENTENCES)
    module = minilm_module()
    start = time.perf_counter()
    results = {
        "ingot, Python": graph.inference(inputs)["sentence_embedding"],
        "ingot, model.so from Python": ingot.load(library).inference(inputs)["sentence_embedding"],
        "ingot, model.so from C": embed_from_c(library, inputs),
        "onnxruntime": onnxruntime_engine(minilm_path(), inputs, 1)()[0],
        "torch": torch_engine(module, inputs, 1)()[0],
    }
    step("embeddings from Python, C, onnxruntime and torch", start)
    console.print()
    show_similarity(results["ingot, model.so from C"])
    console.print()
    show_agreement(results, "torch")
    console.print()
    show_latency(module, library, inputs)
    worst = max(float(np.abs(value - results["torch"]).max()) for value in results.values())
    if worst > 1e-4:
        console.print(f"[red]the results differ by {worst:.1e}: something is wrong[/]")
        sys.exit(1)


if __name__ == "__main__":
    main()
