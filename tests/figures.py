"""Figures of the harnesses: docs/harness_results.json has those of each one's last run with --write, and the table in
docs/guarantees.md is made of it.

    python tests/figures.py                            writes the table
    python tests/figures.py --check                    fails where the table is not that of the file (part of lint)
    python tests/figures.py --add HARNESS NAME=N ...   new figures of a harness, and the table
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "harness_results.json"
PAGE = DOCS / "guarantees.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def page() -> str:
    """docs/guarantees.md as it has to be."""
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = []
    for harness, figures in sorted(json.loads(RESULTS.read_text()).items()):
        said = ", ".join(
            f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}" for name, value in figures.items()
        )
        rows.append(f"| `make {harness}` | {said} |")
    table = ["", "| harness | its last run with --write |", "|---|---|", *rows, ""]
    return text[:start] + "\n".join(table) + text[end:]


def write_figures(harness: str, figures: dict[str, int | str]) -> None:
    results = json.loads(RESULTS.read_text())
    results[harness] = figures
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n")
    PAGE.write_text(page())


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--check"]:
        if page() == PAGE.read_text():
            return 0
        print("docs/guarantees.md does not have the table of docs/harness_results.json: run python tests/figures.py")
        return 1
    if arguments[:1] == ["--add"]:
        named = (figure.split("=", 1) for figure in arguments[2:])
        write_figures(arguments[1], {name: int(value) if value.isdecimal() else value for name, value in named})
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
