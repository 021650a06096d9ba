"""The machine code of specialised kernels as text: what INGOT_DUMP kept of them."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

OBJDUMP = "/usr/lib/llvm-22/bin/llvm-objdump"


def assembly_of(kernel: Path) -> str:
    """Labels stand in lines of their own, as <L0>:."""
    options = ["-d", "--no-show-raw-insn", "--no-leading-addr", "--symbolize-operands"]
    return subprocess.run([OBJDUMP, *options, kernel], check=True, capture_output=True, text=True).stdout


def busiest_block(assembly: str, instruction: str) -> list[str]:
    """The lines between two labels that have the instruction most often."""
    blocks = (block.splitlines() for block in re.split(r"^<.*>:$", assembly, flags=re.M))
    return max(blocks, key=lambda lines: sum(instruction in line for line in lines))


def inner_loops(code: str, instruction: str) -> list[list[str]]:
    """Lines of the innermost loops around the instruction: from a label to a jump back to it."""
    lines = code.splitlines()
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"<L\d+>:", line)}
    loops: list[tuple[int, int]] = []
    for end, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(<L\d+>)", line)
        if jump and labels[jump[1]] < end and any(instruction in x for x in lines[labels[jump[1]] : end]):
            loops.append((labels[jump[1]], end))
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    return [lines[a:b] for a, b in inner]
