"""ONNX's own cases in all modes: what passes has to go on passing (tests/conformance/known_failures.txt)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parent / "conformance" / "run.py"
MODES = ("static", "dynamic", "constant", "library", "ir")


def test_every_case_that_is_not_listed_passes() -> None:
    done = subprocess.run([sys.executable, str(RUN), "--modes", *MODES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
