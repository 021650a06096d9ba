"""Ingot beside onnxruntime and OpenVINO, in one process, taking turns; `make bench`.

One thread: minima of process CPU time, and of wall time. More threads: minima of wall time. On a shared machine only
ratios within one run count, and less than 5 % is a tie. Shares are of the peak of the CPU's widest unit, measured in
the same run: of its FMA for fp32, of its products of bytes for int8.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from decode import decode
from engines import (
    ONEDNN_ISA,
    exact_onnxruntime_engine,
    ingot_engine,
    onnxruntime_engine,
    openvino_engine,
    openvino_survives,
)
from machine import console, cpu_line, heading
from models import BENCH_MODELS, CACHE, QUANTIZED_MODELS, BenchModel
from rich.table import Table
from startup import call_overhead, startup
from timing import Timing, interleave

import ingot
from ingot._ingot import byte_peak, byte_unit, cpu_target, fma_peak, fma_unit

if TYPE_CHECKING:
    from engines import Run

ENGINES = {"ingot": ingot_engine, "onnxruntime": onnxruntime_engine, "openvino": openvino_engine}
# Of quantized models also: onnxruntime without saturation, and Ingot on other forms of the model.
OTHERS = sorted({name for model in QUANTIZED_MODELS.values() for name in model.others})
QUANTIZED_ENGINES = {
    **ENGINES,
    "onnxruntime exact": exact_onnxruntime_engine,
    **dict.fromkeys(OTHERS, ingot_engine),
}


def measure(model: BenchModel, engines: list[str], threads: int, rounds: int) -> dict[str, Any]:
    inputs = model.inputs()
    path = model.path()
    runs: dict[str, Run] = {}
    errors: dict[str, str] = {}
    for name in engines:
        if name in OTHERS and name not in model.others:
            continue
        try:
            file = model.others[name]() if name in OTHERS else path
            runs[name] = QUANTIZED_ENGINES[name](file, inputs, threads)
            runs[name]()
        except Exception as error:
            # One engine that cannot run a model must not hide the figures of the others.
            errors[name] = str(error).splitlines()[0][:40]
            runs.pop(name, None)
    best = byte_peak if model.name in QUANTIZED_MODELS else fma_peak
    peak = best(0.3)
    # Engines spin for a while after a run: with more than one thread the next one waits until they sleep.
    timings = interleave(runs, rounds=rounds, pause=0.03 if threads > 1 else 0) if runs else {}
    peak = max(peak, best(0.3)) * threads
    difference = 0.0
    if "ingot" in runs and "onnxruntime" in runs:
        pairs = zip(runs["ingot"](), runs["onnxruntime"](), strict=True)
        difference = max(float(np.abs(a - b).max()) for a, b in pairs)
    figures = {name: figure(t, model.gmac, peak, threads) for name, t in timings.items()}
    return {
        "model": model.name,
        "threads": threads,
        "peak_gmacs": peak,
        "max_difference_from_onnxruntime": difference,
        "engines": figures,
        "errors": errors,
    }


def figure(timing: Timing, gmac: float, peak: float, threads: int) -> dict[str, float]:
    """deciding_ms is what ratios are made of: CPU time for one thread, wall time for more."""
    deciding = timing.cpu_min if threads == 1 else timing.wall_min
    return {
        "wall_min_ms": timing.wall_min * 1e3,
        "wall_median_ms": timing.wall_median * 1e3,
        "cpu_min_ms": timing.cpu_min * 1e3,
        "deciding_ms": deciding * 1e3,
        "share_of_peak": gmac / deciding / peak if peak else 0.0,
    }


def keep_openvino_alive(models: list[str]) -> None:
    """OpenVINO dies of an illegal instruction in int8 models on some CPUs with AMX: there it runs without."""
    if not models or "amx_int8" not in cpu_line("flags").split() or ONEDNN_ISA in os.environ:
        return
    with console.status("whether OpenVINO survives AMX"):
        survives = openvino_survives(models[0])
    if not survives:
        os.environ[ONEDNN_ISA] = "AVX512_CORE_BF16"
        console.print(f"OpenVINO dies on {models[0]} with AMX: it runs with {ONEDNN_ISA}={os.environ[ONEDNN_ISA]}")


def show(results: list[dict[str, Any]], title: str) -> None:
    table = Table(title=f"{title}: latency in ms (minima; 1 thread: CPU time decides)", title_justify="left")
    for column in ("model", "threads", "engine"):
        table.add_column(column)
    for column in ("cpu min", "wall min", "wall median", f"% of {title} peak", "ingot is faster by"):
        table.add_column(column, justify="right")
    for result in results:
        figures = result["engines"]
        peers = [f["deciding_ms"] for name, f in figures.items() if not name.startswith("ingot")]
        for i, (name, f) in enumerate(figures.items()):
            ratio = f"{min(peers) / f['deciding_ms']:.2f}x" if name == "ingot" and peers else ""
            if name in OTHERS and "ingot" in figures:
                ratio = f"{f['deciding_ms'] / figures['ingot']['deciding_ms']:.2f}x"
            cells = [f"{f[key]:.2f}" for key in ("cpu_min_ms", "wall_min_ms", "wall_median_ms")]
            first = [result["model"], str(result["threads"])] if i == 0 else ["", ""]
            table.add_row(*first, name, *cells, f"{100 * f['share_of_peak']:.0f}", ratio)
        for name, error in result["errors"].items():
            table.add_row("", "", name, f"[red]{error}[/]")
        table.add_section()
    console.print(table)
    unit = byte_unit() if title == "int8" else fma_unit()
    for result in results:
        console.print(
            f"[dim]{result['model']} {result['threads']}T: peak {result['peak_gmacs']:.1f} GMAC/s ({unit}), "
            f"largest difference from onnxruntime {result['max_difference_from_onnxruntime']:.1e}[/]"
        )


def show_startup(result: dict[str, Any], overhead: dict[str, float]) -> None:
    table = Table(title="DistilBERT, from a fresh process to the first result", title_justify="left")
    for column in ("", "open s", "first result s", "peak RSS MB", "file"):
        table.add_column(column, justify="right" if column else "left")
    for name in ("cold", "cached", "library"):
        r = result[name]
        size = f"{r['size_mb']:.1f} MB: weights + {r['over_weights_mb']:.2f} MB" if "size_mb" in r else ""
        table.add_row(name, f"{r['open_s']:.3f}", f"{r['first_result_s']:.3f}", f"{r['peak_rss_mb']:.0f}", size)
    console.print(table)
    console.print(
        f"A call of a one-node model from Python: {overhead['inference_us']:.2f} µs "
        f"(numpy's add of the same arrays: {overhead['numpy_add_us']:.2f} µs)"
    )


def show_decode(results: list[dict[str, Any]]) -> None:
    table = Table(title="GPT-2 124M, one token after 128 (minima of wall time)", title_justify="left")
    for column in ("threads", "weights as"):
        table.add_column(column)
    for column in (
        "ms per token",
        "MB of weights",
        "and of the past",
        "GB/s",
        "% of one core's reads",
        "faster than fp32",
        "error",
    ):
        table.add_column(column, justify="right")
    for result in results:
        for i, (name, r) in enumerate(result["precisions"].items()):
            table.add_row(
                str(result["threads"]) if i == 0 else "",
                name,
                f"{r['ms_per_token']:.2f}",
                f"{r['weights_mb']:.0f}",
                f"{r['past_mb']:.0f}",
                f"{r['gb_per_s']:.1f}",
                f"{100 * r['share_of_bandwidth']:.0f}",
                f"{r['faster_than_fp32']:.2f}x",
                f"{r['error']:.1e}",
            )
        table.add_section()
    console.print(table)
    for result in results:
        console.print(f"[dim]{result['threads']}T: one core reads {result['read_gb_per_s']:.1f} GB/s[/]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = {**BENCH_MODELS, **QUANTIZED_MODELS}
    parser.add_argument("--models", nargs="*", choices=every, default=list(every))
    parser.add_argument("--engines", nargs="+", choices=QUANTIZED_ENGINES, default=list(QUANTIZED_ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--no-decode", action="store_true", help="skip GPT-2 with weights in fewer bits")
    parser.add_argument("--no-startup", action="store_true", help="skip compile times, library and call overhead")
    parser.add_argument("--no-torch", action="store_true", help="skip torch.compile beside eager and inductor")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()

    console.print(heading())
    outside = dict(os.environ)
    if "openvino" in arguments.engines:
        keep_openvino_alive([name for name in arguments.models if name in QUANTIZED_MODELS])
    results = []
    for title, models, engines in (
        ("fp32", BENCH_MODELS, ENGINES),
        ("int8", QUANTIZED_MODELS, QUANTIZED_ENGINES),
    ):
        measured = []
        for name in arguments.models:
            for threads in arguments.threads if name in models else []:
                with console.status(f"{name}, {threads} thread(s)"):
                    wanted = [e for e in engines if e in arguments.engines]
                    measured.append(measure(models[name], wanted, threads, arguments.rounds))
        if measured:
            show(measured, title)
        results += measured
    everything: dict[str, Any] = {
        "ingot": ingot.__version__,
        "machine": platform.machine(),
        "cpu": cpu_line("model name"),
        "target": cpu_target(),
        "units": {"fp32": fma_unit(), "int8": byte_unit()},
        "openvino_isa": os.environ.get(ONEDNN_ISA),
        "latency": results,
    }
    if not arguments.no_decode:
        with console.status("GPT-2"):
            everything["decode"] = [decode(threads, arguments.rounds) for threads in arguments.threads]
        show_decode(everything["decode"])
    if not arguments.no_startup:
        model = BENCH_MODELS["distilbert"]
        with console.status("compile times and call overhead"):
            everything["startup"] = startup(model.path(), model.inputs())
            everything["overhead"] = call_overhead()
        show_startup(everything["startup"], everything["overhead"])
    if not arguments.no_torch:
        # In a process of its own: torch's threads and inductor's settings are not for the others. What OpenVINO needs
        # is not for torch, which has oneDNN too.
        figures = CACHE / "torch_figures.json"
        figures.unlink(missing_ok=True)
        script = Path(__file__).with_name("torch_compile.py")
        threads = [str(n) for n in arguments.threads]
        subprocess.run([sys.executable, script, "--threads", *threads, "--json", figures], check=True, env=outside)
        everything["torch"] = json.loads(figures.read_text())
    if arguments.json:
        arguments.json.write_text(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
