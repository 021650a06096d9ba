"""The example of sentence pairs from end to end: trained, exported, compiled and run in three precisions."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "mrpc"


def test_three_precisions_answer_alike(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "demo.py"), f"--output_dir={tmp_path}", "--steps=800"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracy = {
        name: float(value) for name, value in re.findall(r"^(?:Ingot|PyTorch) (\w+) +([\d.]+)%", done.stdout, re.M)
    }
    assert set(accuracy) == {"fp32", "int8", "bf16"}
    assert all(65 < value < 100 for value in accuracy.values())
    for precision in accuracy:
        assert (tmp_path / f"{precision}-model.onnx").is_file()
    assert (tmp_path / "int8-model.onnx").stat().st_size < 0.6 * (tmp_path / "fp32-model.onnx").stat().st_size


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    for arguments, message in (
        (["--precision=int4"], "--precision"),
        (["--precision=fp32"], "holds no config.json"),
    ):
        folders = [f"--input_model={tmp_path}", f"--output_dir={tmp_path}"]
        command = [str(EXAMPLE / "prepare_model.sh"), *folders, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr
        assert not list(tmp_path.iterdir())
