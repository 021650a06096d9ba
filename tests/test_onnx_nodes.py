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


def test_listed_cases_pass() -> None:
    listed = set(LIST.read_text().split()) if LIST.exists() else set()
    start = time.monotonic()
    worker = [sys.executable, str(Path(__file__).parent / "node_worker.py")]
    outcomes = json.loads(subprocess.run(worker, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    passing = {name for name, outcome in outcomes.items() if outcome == "pass"}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("".join(f"{name}\t{outcome}\n" for name, outcome in sorted(outcomes.items())))
    kinds = Counter(outcome.split(":")[0] for outcome in outcomes.values())
    print(f"{len(passing)} of {len(outcomes)} cases pass in {time.monotonic() - start:.0f} s: {dict(kinds)}")
    if os.environ.get("INGOT_UPDATE"):
        LIST.write_text("".join(f"{name}\n" for name in sorted(listed | passing)))
    broken = {name: outcomes.get(name, "gone") for name in sorted(listed - passing)}
    assert not broken, f"{len(broken)} cases no longer pass: {dict(list(broken.items())[:20])}"
