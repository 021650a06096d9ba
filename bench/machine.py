"""What benchmarks say about the machine they ran on, and where they say it."""

from __future__ import annotations

import platform
from pathlib import Path

from rich.console import Console

from ingot._ingot import byte_unit, cpu_target, fma_unit

console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=120)


def cpu_line(prefix: str) -> str:
    """The value of the first line of /proc/cpuinfo that begins so."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(prefix)), "")


def heading() -> str:
    name = cpu_line("model name") or platform.machine()
    return f"{name}, target {cpu_target()}: peaks of {fma_unit()} (fp32) and {byte_unit()} (int8)"
