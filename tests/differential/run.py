"""Random graphs, checked: `make differential`.

    python -m differential.run [--graphs N] [--seconds S] [--first SEED] [--jobs J] [--write]
    python -m differential.run --seed SEED      one graph, with its findings reduced and printed

Every graph is made from its seed alone. Workers are processes of their own: one that dies or hangs is a finding too.
Reduced findings are kept as DIR/seed-N/ (model.onnx, inputs.npz, finding.txt). --write puts the figures into
docs/guarantees.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from differential.builder import Case
from differential.check import Finding, check, tensors_of
from differential.generate import generate
from differential.reduce import reduce
from figures import write_figures

import ingot

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds for one graph
LIBRARY = 16  # every 16th graph is emitted as a library too


def one(seed: int, folder: Path) -> dict[str, Any]:
    case = generate(seed)
    result = check(case, folder, library=seed % LIBRARY == 0)
    return {
        "seed": seed,
        "nodes": len(case.model.graph.node),
        "outputs": result.outputs,
        "onnxruntime": result.onnxruntime,
        "reference": result.reference,
        "library": result.library,
        "refused": result.refused,
        "findings": [vars(f) for f in result.findings],
    }


def work(first: int, step: int) -> None:
    """A worker: says which seed it takes and what came of it, a line each, until nobody reads."""
    seed = first
    while True:
        print(json.dumps({"at": seed}), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = one(seed, Path(folder))
            except Exception as error:  # a fault of the harness or an exception that is no ingot.Error
                what = {"what": "exception", "detail": f"{type(error).__name__}: {error}", "output": ""}
                result = {"seed": seed, "findings": [what]}
            print(json.dumps(result), flush=True)
        seed += step


class Worker:
    def __init__(self, first: int, step: int) -> None:
        self.step, self.at, self.since = step, first, time.monotonic()
        command = [sys.executable, "-W", "ignore", "-m", "differential.run", "--work", str(first), str(step)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        self.lines = self.process.stdout

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def results(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of all workers, in the order in which they come."""
    end = time.monotonic() + arguments.seconds
    last = arguments.first + arguments.graphs
    with selectors.DefaultSelector() as selector:

        def start(first: int) -> None:
            if first < last:
                worker = Worker(first, arguments.jobs)
                selector.register(worker.lines, selectors.EVENT_READ, worker)

        def drop(worker: Worker) -> None:
            selector.unregister(worker.lines)
            worker.stop()

        for k in range(arguments.jobs):
            start(arguments.first + k)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(1):
                worker = key.data
                line = worker.lines.readline()
                if not line:
                    code = worker.process.wait()
                    drop(worker)
                    yield {
                        "seed": worker.at,
                        "findings": [{"what": "crash", "detail": f"exit code {code}", "output": ""}],
                    }
                    start(worker.at + worker.step)
                    continue
                message = json.loads(line)
                if "at" in message:
                    worker.at, worker.since = message["at"], time.monotonic()
                    if worker.at >= last:
                        drop(worker)
                else:
                    yield message
            for key in list(selector.get_map().values()):
                worker = key.data
                if time.monotonic() - worker.since > PATIENCE:
                    drop(worker)
                    yield {"seed": worker.at, "findings": [{"what": "hang", "detail": f"{PATIENCE} s", "output": ""}]}
                    start(worker.at + worker.step)
        for key in list(selector.get_map().values()):
            drop(key.data)


# --- reduction


def save_case(case: Case, folder: Path, finding: Finding) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **case.inputs)
    lines = [f"seed {case.seed}: {finding.what}: {finding.detail}", onnx.printer.to_text(case.model)]
    with np.printoptions(threshold=40):
        lines += [f"{name} = {array!r}" for name, array in case.inputs.items()]
    (folder / "finding.txt").write_text("\n".join(lines) + "\n")


def in_a_process(case: Case, library: bool) -> list[Finding]:
    """check in a process that may die."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "case.pickle"
        path.write_bytes(
            pickle.dumps((case.model.SerializeToString(), case.inputs, case.kinds, case.seed, case.more_inputs))
        )
        command = [sys.executable, "-W", "ignore", "-m", "differential.run", "--check", str(path), str(int(library))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return [Finding("hang", f"{PATIENCE} s")]
        if done.returncode:
            return [Finding("crash", f"exit code {done.returncode}")]
        return [Finding(**f) for f in json.loads(done.stdout)]


def check_pickled(path: Path, library: bool) -> None:
    model, *rest = pickle.loads(path.read_bytes())
    found = check(Case(onnx.ModelProto.FromString(model), *rest), path.parent, library).findings
    print(json.dumps([vars(f) for f in found]))


def reduced(seed: int, what: str) -> tuple[Case, Finding]:
    """The smallest graph of this seed that shows this kind of finding."""
    deadly = what in ("crash", "hang", "specialised", "IR", "2 threads")  # or hidden by kernels that are there already
    library = what in ("model.so", "forms", "crash", "hang")

    def findings(case: Case) -> list[Finding]:
        if deadly:
            return in_a_process(case, library)
        with tempfile.TemporaryDirectory() as folder:
            try:
                return check(case, Path(folder), library).findings
            except Exception as error:
                return [Finding("exception", f"{type(error).__name__}: {error}")]

    def same(case: Case) -> Finding | None:
        return next((f for f in findings(case) if f.what == what), None)

    def tensors(case: Case, names: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(case.model.SerializeToString())
            try:
                return tensors_of(ingot.compile(path, opt_level=0), names, case.inputs)
            except ingot.Error:
                return {}

    case = generate(seed)
    first = same(case)
    if first is None:
        return case, Finding(what, "seen once, not again")
    case = reduce(case, first.output, lambda c: same(c) is not None, tensors)
    return case, same(case) or first


def report(seed: int, what: str, out: Path) -> None:
    case, finding = reduced(seed, what)
    folder = out / f"seed-{seed}"
    save_case(case, folder, finding)
    print((folder / "finding.txt").read_text(), flush=True)


# --- the command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=24 * 3600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "differential")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ |= {"INGOT_CACHE": "off", "INGOT_WAIT": "0"}  # native kernels first, then specialised ones
    if arguments.seed is not None:
        with tempfile.TemporaryDirectory() as folder:
            found = {f["what"] for f in one(arguments.seed, Path(folder))["findings"]}
        for what in sorted(found):
            report(arguments.seed, what, arguments.out)
        return int(bool(found))

    count: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    start = time.monotonic()
    for result in results(arguments):
        count["graphs"] += 1
        for key in ("nodes", "outputs", "onnxruntime", "reference", "library", "refused"):
            count[key] += result.get(key, 0)
        for what in sorted({f["what"] for f in result["findings"]}):
            count["findings"] += 1
            wrong.append((result["seed"], what))
            detail = next(f["detail"] for f in result["findings"] if f["what"] == what)
            print(f"seed {result['seed']}: {what}: {detail[:300]}", flush=True)
    took = time.monotonic() - start
    print(f"{count['graphs']} graphs of {count['nodes']} nodes in {took:.0f} s: {count['findings']} findings")
    print(", ".join(f"{n} {key}" for key, n in count.items()))
    kinds: Counter[str] = Counter()
    for seed, what in wrong:  # two of each kind
        kinds[what] += 1
        if kinds[what] <= 2:
            report(seed, what, arguments.out)
    if arguments.write:
        write_figures(
            "differential",
            {
                "graphs": count["graphs"],
                "nodes": count["nodes"],
                "outputs compared": count["outputs"],
                "graphs beside onnxruntime": count["onnxruntime"],
                "graphs beside the ONNX reference": count["reference"],
                "graphs as `model.so`": count["library"],
                "findings": count["findings"],
            },
        )
    return int(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["--check"]:
        check_pickled(Path(sys.argv[2]), bool(int(sys.argv[3])))
    else:
        sys.exit(main())
