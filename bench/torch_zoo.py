"""Captures every model of torch_models.py once, with its free dims, and runs the result at two shapes beside PyTorch.

    python bench/torch_zoo.py [--models bert,resnet] [--markdown] [--form captured|functional|core]

One row for each: nodes of Ingot's graph, seconds to capture, translate and compile, the largest difference relative to
the largest value, and what has no translation.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch_models import MODELS, TorchModel

from ingot.torch.translate import translate, unsupported

TOLERANCE = 1e-4  # relative to the largest value of a result


@dataclass
class Row:
    name: str
    nodes: int = 0
    capture: float = 0.0
    translate: float = 0.0
    compile: float = 0.0
    difference: float = float("nan")
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and self.difference <= TOLERANCE

    def cells(self) -> list[str]:
        seconds = [f"{s:.2f}" for s in (self.capture, self.translate, self.compile)]
        return [self.name, str(self.nodes), *seconds, f"{self.difference:.1e}", self.problem or "-"]


HEADER = ["model", "nodes", "capture s", "translate s", "compile s", "difference", "falls back"]


@contextlib.contextmanager
def quiet() -> Any:
    """Exporters and configs say much that nobody asked for."""
    logging.disable(logging.WARNING)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def constants_of(program: Any) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants of an exported program, by placeholder."""
    values = {**program.constants, **program.state_dict}
    kinds = {"PARAMETER", "BUFFER", "CONSTANT_TENSOR"}
    return {s.arg.name: values[s.target] for s in program.graph_signature.input_specs if s.kind.name in kinds}


FORMS = (
    "captured",
    "functional",
    "core",
)  # as captured; without writes, as AOTAutograd has it; PyTorch's core operators


def capture(model: TorchModel, module: Any, form: str = "captured") -> Any:
    with torch.no_grad():
        program = torch.export.export(module, (), model.inputs(0), dynamic_shapes=model.dynamic_shapes(), strict=False)
        return program if form == "captured" else program.run_decompositions({} if form == "functional" else None)


def flat(result: Any) -> list[Any]:
    """The tensors of a result; of a model's output class too."""
    return list(pytree.tree_leaves(result))


def difference(found: list[Any], wanted: list[Any]) -> float:
    """The largest, relative to the largest value of the same result."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(b, torch.Tensor):
            continue
        assert a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if b.numel():
            scale = b.double().abs().max().clamp_min(1e-30)
            worst = max(worst, float((a.double() - b.double()).abs().max() / scale))
    return worst


def run(model: TorchModel, form: str = "captured") -> Row:
    row = Row(model.name)
    try:
        with quiet():
            module = model.module()
            start = time.perf_counter()
            program = capture(model, module, form)
            row.capture = time.perf_counter() - start
            measure(model, module, program, row)
    except Exception as error:
        row.problem = row.problem or f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return row


def measure(model: TorchModel, module: Any, program: Any, row: Row) -> None:
    constants = constants_of(program)
    start = time.perf_counter()
    missing = unsupported(program.graph, constants)
    if missing:
        row.problem = ", ".join(f"{n} x {what}" for what, n in Counter(missing.values()).items())
        return
    translation = translate(program.graph, constants, name=model.name)
    row.translate = time.perf_counter() - start
    start = time.perf_counter()
    graph = translation.graph()
    call = translation.bind(graph)
    row.difference = 0.0
    for k in (0, 1):
        inputs = model.inputs(k)
        found = call(*arguments(program, inputs))
        if k == 0:
            row.compile = time.perf_counter() - start
        with torch.no_grad():
            wanted = flat(module(**inputs))
        row.difference = max(row.difference, difference(found, wanted))
    row.nodes = len(graph.nodes)


def arguments(program: Any, inputs: dict[str, torch.Tensor]) -> list[Any]:
    """Values for all placeholders; of those that are part of the model, none."""
    return [inputs.get(node.name) for node in program.graph.find_nodes(op="placeholder")]


def print_table(rows: list[Row], markdown: bool) -> None:
    table = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADER))]
    for i, line in enumerate(table):
        text = [cell.ljust(w) for cell, w in zip(line, widths, strict=True)]
        print(("| " + " | ".join(text) + " |") if markdown else "  ".join(text).rstrip(), flush=True)
        if markdown and i == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", help="names, with commas between them")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    parser.add_argument("--form", choices=FORMS, default="captured", help="of the captured program")
    options = parser.parse_args()
    chosen = set(options.models.split(",")) if options.models else None
    known = {m.name for m in MODELS}
    if chosen is not None and not chosen <= known:
        parser.error(f"there is no model {', '.join(sorted(chosen - known))}")
    rows = []
    for model in MODELS:
        if chosen is None or model.name in chosen:
            rows.append(run(model, options.form))
            if not options.markdown:
                print("  ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    print_table(rows, options.markdown)
    failed = [row.name for row in rows if not row.passed]
    print(f"{len(rows) - len(failed)} of {len(rows)} equal to PyTorch within {TOLERANCE}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
