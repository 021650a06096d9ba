"""Exports every source of tests/int8_sources.py in both forms and writes the table of docs/export.md.

.venv/bin/python scripts/export_matrix.py [--check]     (make export-matrix)
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import int8_sources  # noqa: E402

import ingot  # noqa: E402

DOCUMENT = ROOT / "docs" / "export.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COLUMNS = [
    *("source", "kind", "quantized", "left in fp32", "QDQ: Ingot / onnxruntime", "QLinear: Ingot / onnxruntime"),
    *("same bits", "PyTorch's kernels"),
]
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def forms(report: ingot.ExportReport) -> str:
    counts: dict[str, int] = {}
    for operation in report.quantized:
        counts[operation.form] = counts.get(operation.form, 0) + 1
    return ", ".join(f"{n} {form}" for form, n in sorted(counts.items(), key=lambda item: -item[1]))


def row(name: str, folder: Path) -> str:
    kind, _ = int8_sources.SOURCES[name]
    made = int8_sources.build(name)
    if made.state is not None:
        model = ingot.Model.from_state_dict(made.model, made.state)
    else:
        model = ingot.Model(made.model, float_model=made.float_model)
    reports, results = [], []
    for quant_format in ("QDQ", "QLinear"):
        path = folder / f"{quant_format}.onnx"
        reports.append(
            model.export(
                path,
                dtype="int8",
                quant_format=quant_format,
                opset_version=21,
                example_inputs=made.inputs,
                dynamic_axes=made.dynamic_axes,
            )
        )
        given = made.inputs if isinstance(made.inputs, tuple) else (made.inputs,)
        results.append(list(ingot.compile(path).inference([t.numpy() for t in given]).values()))
    same = all(np.array_equal(a, b) for a, b in zip(*results, strict=True))

    def steps(report: Any, between: str) -> str:
        return f"{report.worst(between):.2f}"

    cells = [
        f"{steps(r, 'Ingot and exact arithmetic')} / {steps(r, 'onnxruntime and exact arithmetic')}" for r in reports
    ]
    kernels = steps(reports[0], "Ingot and PyTorch's int8 kernels")
    left = str(len(reports[1].unquantized)) if reports[1].unquantized else ""
    row = [name, kind, forms(reports[1]), left, *cells, "yes" if same else "NO", kernels]
    return f"| {' | '.join(row)} |"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--only", default="", help="sources whose name contains this; the document is not written")
    only = options.parse_args().only
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows, failed = [], 0
    for name in int8_sources.SOURCES:
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(row(name, Path(folder)))
            except ingot.Error as error:
                rows.append(f"| {name} | FAILED: {error.message} |")
                failed += 1
        print(rows[-1], flush=True)
    if not only:
        text = DOCUMENT.read_text(encoding="utf-8")
        before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        DOCUMENT.write_text("\n".join([before, "", HEADER, *rows, "", after]), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
