"""ONNX's own backend cases: those listed as passing must pass. The list can only grow.

    INGOT_UPDATE=1 pytest tests/test_onnx_nodes.py     adds what passes now
    build/onnx_nodes.txt                               the outcome of every case, after each run
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from conftest import ROOT

LIST = Path(__file__).parent / "onnx_nodes_passing.txt"
REPORT = ROOT / "build" / "onnx_nodes.txt"


def run_all(names: list[str]) -> dict[str, str]:
    """The outcome of each case ([]: of all); a worker that dies is started again after the case it died in."""
    outcomes: dict[str, str] = {}
    todo = names
    while True:
        worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "node_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write("\n".join(todo))
        worker.stdin.close()
        started = ""
        for line in worker.stdout:
            said = json.loads(line)
            if "start" in said:
                started = said["start"]
            else:
                outcomes[said["name"]] = said["outcome"]
                started = ""
        code = worker.wait()
        if code == 0 and not started:
            return outcomes
        if not started:
            raise RuntimeError(f"the worker ended with {code} between cases")
        outcomes[started] = f"crashed with {code}"
        todo = sorted(set(names or all_names()) - set(outcomes))
        if not todo:
            return outcomes


def all_names() -> list[str]:
    import node_worker

    return sorted(node_worker.load_cases())


def test_listed_cases_pass() -> None:
    listed = set(LIST.read_text().split()) if LIST.exists() else set()
    start = time.monotonic()
    outcomes = run_all([])
    passing = {name for name, outcome in outcomes.items() if outcome == "pass"}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("".join(f"{name}\t{outcome}\n" for name, outcome in sorted(outcomes.items())))
    kinds = Counter(outcome.split(":")[0] for outcome in outcomes.values())
    print(f"{len(passing)} of {len(outcomes)} cases pass in {time.monotonic() - start:.0f} s: {dict(kinds)}")
    if os.environ.get("INGOT_UPDATE"):
        LIST.write_text("".join(f"{name}\n" for name in sorted(listed | passing)))
    broken = {name: outcomes.get(name, "gone") for name in sorted(listed - passing)}
    assert not broken, f"{len(broken)} cases no longer pass: {dict(list(broken.items())[:20])}"
