"""Real models from PyPI wheels in Ingot, onnxruntime and OpenVINO: their results and their speed; `make bench-models`.

Every model runs as its file comes ("free") and, if dims are free in it, with the sizes of the inputs written into the
file ("fixed"). Measured are the steady state (engines take turns; CPU minima with one thread, wall minima with more)
and the time from a fresh process to the first result: cold, and for Ingot warm, from its cache. Less than 5 % is a tie.

Each part of a model runs in a process of its own with a time limit. What was measured is kept line by line in
build/bench-models/results.jsonl: a run that was interrupted goes on where it stopped, unless the build of Ingot or the
settings changed (--fresh begins anew). The page is build/bench-models/index.html.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import console, cpu_line
from models import ROOT
from models_page import write_page
from models_summary import PEERS, against, show, summarise
from real_inputs import fix_sizes, make_inputs
from real_models import REAL_MODELS, RealModel, fetch, model_file

import ingot._ingot
from ingot._ingot import cpu_target, fma_unit

ENGINES = ("ingot", "onnxruntime", "openvino")
FOLDER = ROOT / "build" / "bench-models"
# Largest difference from onnxruntime, relative to the largest value of an output, that counts as equal. Dozens of
# dynamic quantizations in a row magnify roundings. With all float weights larger by one unit in the last place,
# onnxruntime's own results change by 0.15 ("hifigan int8") and 0.08 ("hibari tts"); Ingot's differ by 0.08 to 0.11.
TOLERANCE, ROUGH_TOLERANCE = 1e-3, 0.15
# Outputs that are all but zero are taken as of this size: a Sigmoid far below zero is mostly rounding.
SMALLEST_SCALE = 1e-3


@dataclass(frozen=True)
class Settings:
    threads: tuple[int, ...]
    seconds: float  # to spend on the steady state of a model, for each number of threads
    rounds: int  # at least
    starts: int  # fresh processes, of which the fastest counts
    limit: float  # seconds that a part may take
    check: bool = False  # only compare results, of files as they come


def part(name: str, limit: float, cache: Path | None = None, **request: Any) -> dict[str, Any]:
    """The answer of one_model.py, or {"error": what happened}."""
    command = [sys.executable, str(Path(__file__).with_name("one_model.py")), name, json.dumps(request)]
    env = {**os.environ, "INGOT_CACHE_DIR": str(cache)} if cache else {**os.environ, "INGOT_CACHE": "off"}
    child = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"error": f"no result within {limit:.0f} s"}
    if child.returncode < 0:
        return {"error": f"died of {signal.Signals(-child.returncode).name}: {err.strip()[-200:]}".rstrip(": ")}
    try:
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"ended with {child.returncode} and no answer: {err.strip()[-200:]}"}
    return answer


def difference(got: Path, wanted: Path) -> float | str:
    """The largest difference of all outputs, each relative to its largest value; or in words what is different."""
    largest = 0.0
    with np.load(got) as a, np.load(wanted) as b:
        for name in b.files:
            x, y = a[name], b[name]
            if x.shape != y.shape:
                return f"output {name[4:]} has shape {list(x.shape)} instead of {list(y.shape)}"
            if y.dtype.kind not in "fiub":
                if (x != y).any():
                    return f"output {name[4:]} has other values"
                continue
            x, y = x.astype(np.float64), y.astype(np.float64)
            finite = np.isfinite(y)
            if (np.isfinite(x) != finite).any() or (x[~finite] != y[~finite])[~np.isnan(y[~finite])].any():
                return f"output {name[4:]} has other infinities or NaNs"
            if finite.any():
                scale = max(float(np.abs(y[finite]).max()), SMALLEST_SCALE)
                largest = max(largest, float(np.abs(x[finite] - y[finite]).max()) / scale)
    return largest


def fastest(starts: list[dict[str, Any]]) -> dict[str, Any]:
    good = [s for s in starts if "error" not in s]
    return min(good, key=lambda s: s["first_result_s"]) if good else starts[0]


def multiply_adds(path: Path, inputs: Path, limit: float) -> dict[str, Any]:
    """What a run asks for, as the command line counts it: {} if it cannot."""
    command = [str(ROOT / "build" / "bin" / "ingot"), "bench", str(path), "--input", str(inputs), "--peak", "--json"]
    command += ["--warmup", "1", "--repeat", "1", "--threads", "1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        found = json.loads(done.stdout)
        return {"gmac": found["gmac"], "type": found["peak"]["type"]}
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return {}


def measure(model: RealModel, settings: Settings, folder: Path) -> dict[str, Any]:
    """Everything about one model; folder is its own, for a while."""
    path = model_file(model)
    inputs = make_inputs(path, model.inputs)
    data = folder / "inputs.npz"
    arrays: dict[str, Any] = dict(inputs)
    np.savez(data, **arrays)
    files = {"free": path}
    if not settings.check and fix_sizes(path, inputs, folder / "fixed.onnx"):
        files["fixed"] = folder / "fixed.onnx"
    result: dict[str, Any] = {
        "model": model.name,
        "package": model.package,
        "path": model.path,
        "inputs": {name: f"{array.dtype} {list(array.shape)}" for name, array in inputs.items()},
        "bytes": path.stat().st_size,
        "forms": list(files),
        "errors": {},
    }
    contenders = []
    cold: dict[str, Any] = {}
    for form, file in files.items():
        for engine in ENGINES:
            who = f"{engine} {form}"
            request: dict[str, Any] = {"engine": engine, "path": str(file), "inputs": str(data), "threads": 1}
            outputs = folder / f"{who}.npz"
            starts = []
            # Only these are compared; the others show that they run.
            compared = form == "free" and engine in ("ingot", "onnxruntime")
            for _ in range(settings.starts if compared else 1):
                starts.append(part("start", settings.limit, **request, outputs=str(outputs)))
                if "error" in starts[-1]:
                    break
            cold[who] = fastest(starts)
            if "error" in cold[who]:
                result["errors"][who] = cold[who]["error"]
            else:
                contenders.append([who, engine, str(file)])
    result["cold"] = cold
    reference = folder / "onnxruntime free.npz"
    result["difference"] = {
        who: difference(folder / f"{who}.npz", reference)
        for who, _, _ in contenders
        if reference.exists() and who != "onnxruntime free"
    }
    result["tolerance"] = ROUGH_TOLERANCE if model.rough else TOLERANCE
    result["steady"] = {}
    if not settings.check:
        measure_speed(result, settings, folder, files, contenders)
    return result


def measure_speed(
    result: dict[str, Any], settings: Settings, folder: Path, files: dict[str, Path], contenders: list[list[str]]
) -> None:
    """Steady state, warm start, profile and work, for those that gave a result before."""
    data, cache = folder / "inputs.npz", folder / "cache"
    for threads in settings.threads:
        request = {"contenders": contenders, "inputs": str(data), "threads": threads}
        request |= {"seconds": settings.seconds, "rounds": settings.rounds}
        found = part("steady", settings.limit + 4 * settings.seconds, cache, **request)
        if "error" in found:  # OpenVINO crashes in some models, and only in their second run
            result["errors"][f"openvino, {threads} threads"] = found["error"]
            request["contenders"] = [c for c in contenders if c[1] != "openvino"]
            found = part("steady", settings.limit + 4 * settings.seconds, cache, **request)
        result["steady"][str(threads)] = found
        if "error" in found:
            result["errors"][f"steady, {threads} threads"] = found["error"]
    # Warm after the steady state: by then the cache holds all that there is to compile.
    result["warm"] = {
        who: fastest(
            [
                part("start", settings.limit, cache, engine=engine, path=file, inputs=str(data), threads=1,
                     outputs=str(folder / "warm.npz"))
                for _ in range(settings.starts)
            ]
        )
        for who, engine, file in contenders
        if who == "ingot free"
    }  # fmt: skip
    if any(engine == "ingot" for _, engine, _ in contenders):
        result["profile"] = part("profile", settings.limit, cache, path=str(files["free"]), inputs=str(data), runs=5)
        result["work"] = multiply_adds(files.get("fixed", files["free"]), data, settings.limit)


def outcome(result: dict[str, Any], threads: int) -> str:
    """A model in one line."""
    if "ingot free" in result["errors"]:
        return f"{result['model']}: {result['errors']['ingot free'][:150]}"
    ratio, found = against(result, threads, "free", PEERS), result["difference"].get("ingot free", "not compared")
    shown = f"differs by {found:.1e}" if isinstance(found, float) else found
    return f"{result['model']}: {shown}" + (f", {ratio:.2f}x the best peer" if ratio else "")


def header(settings: Settings) -> dict[str, Any]:
    """What results must have in common to stand in one table."""
    library = Path(ingot._ingot.__file__)
    import onnxruntime
    import openvino

    return {
        "ingot": hashlib.sha256(library.read_bytes()).hexdigest()[:16],
        "onnxruntime": onnxruntime.__version__,
        "openvino": openvino.__version__,
        "cpu": cpu_line("model name"),
        "target": cpu_target(),
        "fma_unit": fma_unit(),
        "settings": json.loads(json.dumps(asdict(settings))),
    }


def read_results(path: Path, head: dict[str, Any], fresh: bool) -> dict[str, dict[str, Any]]:
    """What an earlier run with the same header left; otherwise the file is begun anew."""
    if path.exists() and not fresh:
        lines = []
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break  # the line at which that run was interrupted
        if lines and lines[0] == head:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return {line["model"]: line for line in lines[1:]}
        if lines:
            console.print(f"{path} is of another build or other settings: beginning anew")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head) + "\n")
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="WORD", help="only models whose name contains one of these")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="few rounds, one start: to see that everything works")
    parser.add_argument("--check", action="store_true", help="only compare results, measure nothing")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--json", type=Path, default=FOLDER / "results.jsonl", help="the file of results")
    parser.add_argument("--page", type=Path, help="the page (default: index.html beside the results)")
    parser.add_argument("--list", action="store_true", help="only list the models")
    arguments = parser.parse_args()
    words = [word.lower() for word in arguments.models or [""]]
    models = [m for m in REAL_MODELS if any(word in m.name.lower() for word in words)]
    if not models:
        parser.error(f"no model is called {' or '.join(words)}; --list shows the names")
    if arguments.list:
        for model in models:
            print(f"{model.name}\t{model.package}\t{model.path}")
        return

    fetch(models)
    threads = tuple(arguments.threads)
    settings = Settings(threads, seconds=1.5, rounds=5, starts=2, limit=120)  # some 40 minutes for all models
    if arguments.quick or arguments.check:
        settings = Settings(threads, seconds=0.4, rounds=3, starts=1, limit=120, check=arguments.check)
    head = header(settings)
    results = read_results(arguments.json, head, arguments.fresh)
    for i, model in enumerate(models):
        if model.name in results:
            continue
        with console.status(f"{i + 1} of {len(models)}: {model.name}"):
            folder = Path(tempfile.mkdtemp(prefix="ingot-bench-"))
            try:
                results[model.name] = measure(model, settings, folder)
            finally:
                shutil.rmtree(folder)
        with arguments.json.open("a") as file:
            file.write(json.dumps(results[model.name]) + "\n")
        console.print(f"{i + 1} of {len(models)}: {outcome(results[model.name], threads[0])}", markup=False)
    summary = summarise([results[m.name] for m in models], list(threads))
    show(summary, console)
    page = arguments.page or arguments.json.with_name("index.html")
    write_page(page, head, summary, [results[m.name] for m in models])
    console.print(f"written: {arguments.json}, {page}")


if __name__ == "__main__":
    main()
