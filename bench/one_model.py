"""What bench_models.py does with one model, each part in a process of its own, so that a crash or a hang stays there.

    python bench/one_model.py start|steady|profile REQUEST

REQUEST is JSON; the last line on stdout is the answer, also JSON. Inputs come as an .npz file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from engines import ingot_engine, onnxruntime_engine, openvino_engine, starting_ingot_engine
from timing import interleave

if TYPE_CHECKING:
    from collections.abc import Callable

    from engines import Inputs, Run

ENGINES: dict[str, Callable[[Path, Inputs, int], Run]] = {
    # As the file comes: what is free in it stays free in every engine.
    "ingot": lambda path, inputs, threads: ingot_engine(path, inputs, threads, fixed=False),
    "onnxruntime": onnxruntime_engine,
    "openvino": lambda path, inputs, threads: openvino_engine(path, inputs, threads, fixed=False),
}
MODULES = {"ingot": "ingot._ingot", "onnxruntime": "onnxruntime", "openvino": "openvino"}
MOST_ROUNDS = 300


def read_inputs(path: str) -> dict[str, Any]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def peak_rss_mb() -> float:
    """Not ru_maxrss: that is inherited from the process that started this one."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def start(engine: str, path: str, inputs: str, threads: int, outputs: str) -> dict[str, Any]:
    """Seconds from a fresh process, with the engine's module loaded and the file in the page cache, to a result."""
    __import__(MODULES[engine])
    Path(path).read_bytes()
    arrays = read_inputs(inputs)
    before = peak_rss_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    run = (starting_ingot_engine if engine == "ingot" else ENGINES[engine])(Path(path), arrays, threads)
    opened = time.perf_counter()
    results = run()
    done, cpu = time.perf_counter(), time.process_time() - cpu
    figures = {
        "open_s": opened - wall,
        "first_result_s": done - wall,
        "cpu_s": cpu,
        "rss_mb": peak_rss_mb() - before,
    }
    np.savez(outputs, *[np.asarray(result) for result in results])
    return figures


def steady(contenders: list[list[str]], inputs: str, threads: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Each contender is [its name, engine, file]. rounds: the least; more are run while seconds last."""
    from ingot._ingot import byte_peak, fma_peak

    arrays = read_inputs(inputs)
    runs, errors, once = {}, {}, 0.0
    for name, engine, path in contenders:
        try:
            run = ENGINES[engine](Path(path), arrays, threads)
            run()
            before = time.perf_counter()
            run()
            once += 2 * (time.perf_counter() - before)
            runs[name] = run
        except Exception as error:
            errors[name] = str(error)
    pause = 0.03 if threads > 1 else 0.0  # engines spin for a while after a run
    count = int(seconds / max(once + pause * len(runs), 1e-6))
    peaks = [(fma_peak(0.2), byte_peak(0.2))]
    timings = interleave(runs, rounds=min(max(count, rounds), MOST_ROUNDS), pause=pause) if runs else {}
    peaks.append((fma_peak(0.2), byte_peak(0.2)))
    return {
        "engines": {
            name: {
                "cpu_min_ms": t.cpu_min * 1e3,
                "wall_min_ms": t.wall_min * 1e3,
                "wall_median_ms": t.wall_median * 1e3,
                "deciding_ms": (t.cpu_min if threads == 1 else t.wall_min) * 1e3,
            }
            for name, t in timings.items()
        },
        "errors": errors,
        "fma_peak_gmacs": max(p[0] for p in peaks) * threads,
        "byte_peak_gmacs": max(p[1] for p in peaks) * threads,
    }


def profile(path: str, inputs: str, runs: int) -> dict[str, Any]:
    """Where the time of Ingot's runs goes, by nodes and kernels; the first run is left out."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        os.environ["INGOT_PROFILE"] = str(trace)
        run = ENGINES["ingot"](Path(path), read_inputs(inputs), 1)
        run()
        begin = time.monotonic_ns() / 1e3  # the clock of the trace
        for _ in range(runs):
            run()
        del run  # the trace is written when the session ends
        events = [e for e in json.loads(trace.read_text()) if e["ts"] >= begin]
    spent: dict[str, float] = defaultdict(float)
    first: dict[str, Any] = {}
    for e in events:
        step = f"{e['name']} {e['args']['kernel']} {e['args']['output']}"
        spent[step] += e["dur"]
        first.setdefault(step, e)
    total = sum(spent.values())
    plain = sum(spent[s] for s, e in first.items() if not e["args"]["specialised"])
    worst = sorted(spent, key=lambda s: -spent[s])[:5]
    return {
        "steps": len(first),
        "steps_ms": total / runs / 1e3,
        "not_specialised_share": plain / total if total else 0.0,
        "worst": [
            {
                "op": first[s]["cat"],
                "node": (first[s]["args"]["onnx"] or [first[s]["name"]])[0],
                "kernel": first[s]["args"]["kernel"],
                "specialised": first[s]["args"]["specialised"],
                "output": first[s]["args"]["output"],
                "share": spent[s] / total,
            }
            for s in worst
        ],
    }


def main() -> None:
    parts: dict[str, Callable[..., dict[str, Any]]] = {"start": start, "steady": steady, "profile": profile}
    try:
        answer = parts[sys.argv[1]](**json.loads(sys.argv[2]))
    except Exception as error:
        hint = getattr(error, "hint", None)
        answer = {"error": f"{error}" + (f" (hint: {hint})" if hint and str(hint) not in str(error) else "")}
    print("\n" + json.dumps(answer), flush=True)
    sys.stdout.flush()
    os._exit(0)  # what an engine does when the process ends is not measured, and may not turn an answer into a crash


if __name__ == "__main__":
    main()
