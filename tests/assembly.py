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
