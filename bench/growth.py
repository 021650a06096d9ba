"""How cost grows: writes the plots and figures of docs/performance.md.

    python bench/growth.py [--quick] [--parts length batch compile shapes load] [--write]

length, batch: latency of an encoder of MiniLM's sizes with free dims, beside onnxruntime.
compile:       seconds to the first result, nothing cached, of nets of up to 10,000 nodes.
shapes:        memory of a session after each of 200 distinct shapes.
load:          seconds to open models of 10 MB to 4 GB of weights: IR folder, model.so, and onnxruntime's session.

Without --write the pictures go to build/growth. Each point runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from growth_models import chain, encoder, wide
from machine import console, heading
from models import ROOT
from plots import curves, number

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- growth {}: begin -->", "<!-- growth {}: end -->"
ENGINES = ("Ingot", "onnxruntime")
Series = dict[str, list[tuple[float, float]]]


def rss_mb() -> float:
    found = re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def opened(engine: str, path: str) -> Callable[[dict[str, Any]], Any]:
    """A function of the inputs by name."""
    if engine == "onnxruntime":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run(None, feed)
    import ingot

    graph = ingot.compile(path, threads=1) if path.endswith(".onnx") else ingot.load(path, threads=1)
    return graph.inference


def child_latency(engine: str, path: str, shapes: list[list[int]], rounds: int) -> list[float]:
    """Least milliseconds of CPU time for each shape."""
    run = opened(engine, path)
    found = []
    for shape in shapes:
        feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        run(feed)
        times: list[float] = []
        end = time.perf_counter() + 20
        while len(times) < rounds and (not times or time.perf_counter() < end):
            start = time.process_time()
            run(feed)
            times.append(time.process_time() - start)
        found.append(min(times) * 1e3)
    return found


def child_first(engine: str, path: str, shape: list[int]) -> list[float]:
    """Seconds to open, and to the first result."""
    __import__("ingot._ingot" if engine == "Ingot" else "onnxruntime")
    feed = {"x": np.ones(shape, np.float32)}
    start = time.perf_counter()
    run = opened(engine, path)
    ready = time.perf_counter()
    run(feed)
    return [ready - start, time.perf_counter() - start]


def child_memory(engine: str, path: str, shapes: list[list[int]]) -> list[float]:
    """MB that the process has in memory after each shape; the largest comes first, so that only what is kept adds."""
    run = opened(engine, path)
    found = []
    for shape in shapes:
        run({"x": np.ones(shape, np.float32)})
        found.append(rss_mb())
    return found


def child_emit(path: str, target: str) -> list[float]:
    import ingot

    graph = ingot.compile(path)
    graph.save(target)
    graph.emit(target + ".so")
    return []


CHILDREN: dict[str, Callable[..., list[float]]] = {
    "latency": child_latency,
    "first": child_first,
    "memory": child_memory,
    "emit": child_emit,
}


def ask(part: str, **request: Any) -> list[float]:
    command = [sys.executable, __file__, "--child", part, json.dumps(request)]
    env = {**os.environ, "INGOT_CACHE": "off"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{part} {request}: {done.stderr.strip()[-300:]}")
    answer: list[float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def saved(model: Any, folder: Path) -> str:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return str(path)


def length(quick: bool, folder: Path) -> tuple[Series, str]:
    lengths = [16, 64, 128] if quick else [16, 32, 64, 128, 256, 512, 1024, 2048]
    path = saved(encoder(2 if quick else 6), folder)
    shapes = [[1, n, 384] for n in lengths]
    series = {}
    for engine in ENGINES:
        times = ask("latency", engine=engine, path=path, shapes=shapes, rounds=3 if quick else 20)
        series[engine] = list(zip(map(float, lengths), times, strict=True))
    title = "Latency of an encoder against its length (batch 1, 1 thread)"
    return series, curves(title, series, "tokens", "ms of CPU time")


def batch(quick: bool, folder: Path) -> tuple[Series, str]:
    sizes = [1, 2, 4] if quick else [1, 2, 4, 8, 16, 32, 64]
    path = saved(encoder(2 if quick else 6), folder)
    shapes = [[n, 64, 384] for n in sizes]
    series = {}
    for engine in ENGINES:
        times = ask("latency", engine=engine, path=path, shapes=shapes, rounds=3 if quick else 10)
        series[engine] = [(float(n), t / n) for n, t in zip(sizes, times, strict=True)]
    title = "Latency of an encoder for each of a batch (64 tokens, 1 thread)"
    return series, curves(title, series, "batch", "ms of CPU time for one", log_y=False)


def compile(quick: bool, folder: Path) -> tuple[Series, str]:
    counts = [10, 100, 300] if quick else [10, 30, 100, 300, 1000, 3000, 10000]
    series: Series = {engine: [] for engine in ENGINES}
    for count in counts:
        model = chain(count)
        path = saved(model, folder)
        for engine in ENGINES:
            seconds = ask("first", engine=engine, path=path, shape=[1, 64])[1]
            series[engine].append((float(len(model.graph.node)), seconds))
    title = "From a file to the first result against the number of nodes (nothing cached)"
    return series, curves(title, series, "nodes", "seconds")


def shapes(quick: bool, folder: Path) -> tuple[Series, str]:
    count = 20 if quick else 200
    path = saved(encoder(2), folder)
    # The largest first: what grows afterwards is what a session keeps for every shape it saw.
    lengths = [300, *[16 + i for i in range(count - 1)]]
    series = {}
    for engine in ENGINES:
        found = ask("memory", engine=engine, path=path, shapes=[[1, n, 384] for n in lengths])
        series[engine] = [(float(i + 1), mb) for i, mb in enumerate(found)]
    title = "Memory of a process against the number of distinct shapes it has run"
    return series, curves(title, series, "distinct shapes", "MB resident", log_x=False, log_y=False)


def load(quick: bool, folder: Path) -> tuple[Series, str]:
    sizes = [10, 40] if quick else [10, 40, 160, 640, 2048, 4096]
    series: Series = {name: [] for name in ("Ingot, IR folder", "Ingot, model.so", "onnxruntime")}
    for mb in sizes:
        path = wide(mb, folder)
        ir = str(folder / "ir")
        ask("emit", path=path, target=ir)
        files = {"Ingot, IR folder": ir, "Ingot, model.so": ir + ".so", "onnxruntime": path}
        for name, file in files.items():
            engine = "onnxruntime" if name == "onnxruntime" else "Ingot"
            tries = [ask("first", engine=engine, path=file, shape=[1, 1024])[0] for _ in range(1 if quick else 3)]
            series[name].append((float(mb), min(tries) * 1e3))
    title = "Time to open a model against the size of its weights"
    return series, curves(title, series, "MB of weights", "ms")


PARTS = {"length": length, "batch": batch, "compile": compile, "shapes": shapes, "load": load}


def figures(series: Series) -> str:
    """The points as a table: at most ten columns."""
    xs = [x for x, _ in next(iter(series.values()))]
    kept = sorted({round(i * (len(xs) - 1) / 9) for i in range(10)}) if len(xs) > 10 else range(len(xs))
    lines = ["| | " + " | ".join(number(xs[i]) for i in kept) + " |", "|---" * (len(kept) + 1) + "|"]
    for name, points in series.items():
        lines.append(f"| {name} | " + " | ".join(f"{points[i][1]:.3g}" for i in kept) + " |")
    return "\n".join(lines)


def write_document(part: str, series: Series) -> None:
    """Between the two marks of this part."""
    text = DOCUMENT.read_text()
    begin, end = BEGIN.format(part), END.format(part)
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    DOCUMENT.write_text(f"{before}{begin}\n\n![{part}](performance/{part}.svg)\n\n{figures(series)}\n\n{end}{after}")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print("\n" + json.dumps(CHILDREN[sys.argv[2]](**json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="few and small points: to see that it works")
    parser.add_argument("--write", action="store_true", help="into docs/: plots, and figures of docs/performance.md")
    arguments = parser.parse_args()
    target = DOCUMENT.with_suffix("") if arguments.write else ROOT / "build" / "growth"
    target.mkdir(parents=True, exist_ok=True)
    console.print(heading())
    for part in arguments.parts:
        with console.status(part), tempfile.TemporaryDirectory() as folder:
            series, picture = PARTS[part](arguments.quick, Path(folder))
        (target / f"{part}.svg").write_text(picture)
        console.print(f"{part}: {target / part}.svg\n{figures(series)}", markup=False)
        if arguments.write:
            write_document(part, series)


if __name__ == "__main__":
    main()
