"""Figures of the harnesses, in docs/guarantees.md.

Each harness has a row between the marks, which it rewrites; the rows of others stay.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write_figures(harness: str, figures: dict[str, int | str]) -> None:
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = [line for line in text[start:end].splitlines() if line.startswith("| `make")]
    said = ", ".join(
        f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}" for name, value in figures.items()
    )
    rows = [row for row in rows if not row.startswith(f"| `make {harness}`")] + [f"| `make {harness}` | {said} |"]
    table = ["", "| harness | its last run with --write |", "|---|---|", *sorted(rows), ""]
    PAGE.write_text(text[:start] + "\n".join(table) + text[end:])
