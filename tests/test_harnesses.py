"""The quick parts of the harnesses: `make differential`, `make faults` and `make soak` do the same for longer."""

from __future__ import annotations

import os
import subprocess
import sys

from conftest import ROOT


def run(harness: str, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("INGOT_WAIT", "INGOT_CACHE_DIR")}
    environment["PYTHONPATH"] = f"{ROOT / 'tests'}:{ROOT / 'tests' / 'conformance'}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"{harness}.run", *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    return done.stdout


def test_random_graphs_give_one_answer() -> None:
    assert " 0 findings" in run("differential", "--graphs", "700")


def test_failing_calls_and_kills_are_survived() -> None:
    names = "compile,run,save,emit,load IR,load library,quantize,convert"
    assert " 0 findings" in run("faults", "--most", "4", "--kills", "10", "--operations", names)


def test_a_long_life_holds_no_more_than_a_short_one() -> None:
    run("soak", "--minutes", "0.2")
