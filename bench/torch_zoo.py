"""Runs every model of torch_models.py and torch_models_wide.py at two shapes through each form of the product, beside
PyTorch.

    python bench/torch_zoo.py [--models bert,resnet] [--forms torch.compile,wrapper,export] [--write]   (make torch-zoo)

Forms: `torch.compile(model, backend="ingot")` with its free dims marked, `ingot.torch.compile(model, dynamic=True)`,
and the translation of what torch.export captures, as exports to ONNX use it. A cell says how many artifacts were
compiled for the first shape and for the second, which should need none; then which share of the operators that PyTorch
calls in eager it no longer calls, unless that is all; the CPU seconds of the first call; and what was worth saying.
`--write` puts the rows into the table of docs/torch.md.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import logging
import os
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.profiler import profile
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError
from torch.utils import _pytree as pytree
from torch_models import MODELS as FIRST_MODELS
from torch_models import TorchModel
from torch_models_wide import MODELS as MORE_MODELS

import ingot.torch
from ingot.errors import first_line
from ingot.torch.recurrent import WholeRecurrences
from ingot.torch.report import Report, collect
from ingot.torch.translate import translate, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "torch.md"
WHOLE = re.compile(r"1 \+ 0(; [\d.]+ s)?")  # the cell of one artifact for both shapes, with nothing in eager
BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"
TOLERANCE = 1e-4  # relative to the largest value of a result
MODELS = FIRST_MODELS + MORE_MODELS
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler says when it starts and ends
# Operators that only make room for results or say how memory is to be seen.
NO_WORK = {
    *(
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "resize_",
        "set_",
        "view",
        "_unsafe_view",
        "reshape",
        "as_strided",
    ),
    *(
        "alias",
        "detach",
        "detach_",
        "lift_fresh",
        "expand",
        "expand_as",
        "permute",
        "transpose",
        "t",
        "slice",
        "select",
    ),
    *("squeeze", "unsqueeze", "flatten", "unflatten", "unbind", "split", "chunk", "narrow", "contiguous", "to", "item"),
    *(
        "_local_scalar_dense",
        "is_nonzero",
        "_conj",
        "numpy_T",
        "result_type",
        "swapaxes",
        "movedim",
        "size",
        "sym_size",
    ),
}


@dataclass
class Outcome:
    """A model in one form."""

    compiled: list[int] = field(default_factory=list)  # artifacts made for each shape
    nodes: int = 0  # operators that Ingot runs
    eager: Counter[str] = field(default_factory=Counter)  # what runs in eager, and why
    remarks: list[str] = field(default_factory=list)
    difference: float = 0.0
    seconds: float = 0.0  # CPU time of the first call
    share: float = 1.0  # of the operators that eager calls
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Equal to PyTorch, compiled as a whole, and once."""
        return self.right and self.compiled == [1, 0] and self.share == 1 and not self.eager and not self.remarks

    @property
    def right(self) -> bool:
        return not self.problem and len(self.compiled) == 2 and self.difference <= TOLERANCE

    def cell(self) -> str:
        if self.problem:
            return f"FAILED: {self.problem}"
        wrong = "" if self.right else f"DIFFERS by {self.difference:.0e}"
        eager = [f"eager: {n} x {what}" for what, n in self.eager.items()]
        counts = " + ".join(map(str, self.compiled))
        share = "" if self.share == 1 else f"{100 * self.share:.0f} % compiled"
        return "; ".join(filter(None, [counts, share, f"{self.seconds:.1f} s", wrong, *self.remarks, *eager]))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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


def add_report(outcome: Outcome, report: Report) -> None:
    outcome.nodes = sum(sum(g.operators.values()) for g in report.graphs)
    outcome.eager.update(f"{f.operator}: {f.reason}" for f in report.fallbacks)
    outcome.remarks += dict.fromkeys(report.problems)


def calls_of_torch(call: Callable[[], Any]) -> int:
    """How many operators PyTorch is asked for that are not part of another's work."""
    with profile() as record:
        call()
    events = [e for e in record.function_events if e.name.startswith("aten::")]
    return sum(
        event.name.removeprefix("aten::") not in NO_WORK
        and not (event.cpu_parent and event.cpu_parent.name.startswith("aten::"))
        for event in events
    )


def run_shapes(model: TorchModel, module: Any, compiled: Any, outcome: Outcome) -> None:
    """Both shapes, in turn; sessions made for each are counted. What runs in eager is counted once all is settled."""
    for k in (0, 1):
        before, start = ingot.torch.cache_info().misses, time.process_time()
        found = flat(model.call(compiled, model.inputs(k)))
        outcome.seconds = outcome.seconds or time.process_time() - start
        outcome.compiled.append(ingot.torch.cache_info().misses - before)
        outcome.difference = max(outcome.difference, difference(found, flat(model.call(module, model.inputs(k)))))
    model.call(compiled, model.inputs(1))
    inputs = model.inputs(1)
    left = calls_of_torch(lambda: model.call(compiled, inputs))
    total = calls_of_torch(lambda: model.call(module, inputs))
    outcome.share = 1 - min(left, total) / max(total, 1)


# torch.compile


def by_dynamo(model: TorchModel, module: Any) -> Outcome:
    try:
        return compiled_by_dynamo(model, module, marked=True)
    except (
        torch._dynamo.exc.UserError,
        ConstraintViolationError,
    ) as error:  # dynamo holds a dim for fixed that was marked as free
        outcome = compiled_by_dynamo(model, module, marked=False)
        outcome.remarks.insert(0, f"dynamo fixes a dim: {reason_of(error)}")
        return outcome


def compiled_by_dynamo(model: TorchModel, module: Any, marked: bool) -> Outcome:
    outcome, graphs = Outcome(), [0]

    def counting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs[0] += 1
        return ingot.torch.backend(graph, inputs)

    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    dynamic = None if marked and not model.generate else True
    fast: Any
    if model.generate:  # a method that calls the module, and its encoder: these are compiled in place
        fast = copy.deepcopy(module)
        for part in {fast, fast.get_encoder()} if fast.config.is_encoder_decoder else {fast}:
            part.compile(backend=counting, dynamic=dynamic)
    else:
        compiled = torch.compile(module, backend=counting, dynamic=dynamic)

        def fast(**inputs: torch.Tensor) -> Any:
            for name, dims in model.free.items() if marked else ():
                for dim in dims:
                    torch._dynamo.mark_dynamic(inputs[name], dim)
            return compiled(**inputs)

    with ingot.torch.whole_recurrent_layers(), collect() as report:
        run_shapes(model, module, fast, outcome)
    add_report(outcome, report)
    breaks = {short(reason) for kind in ("graph_break", "unimplemented") for reason in counters[kind]}
    outcome.remarks += [f"dynamo breaks the graph: {reason}" for reason in sorted(breaks)]
    return outcome


def reason_of(error: Exception) -> str:
    """The line of dynamo's error that says why."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.startswith("  -")]
    return short(lines[0] if lines else str(error))


def short(text: Any) -> str:
    return str(text).splitlines()[0][:160]


# The wrapper


def by_wrapper(model: TorchModel, module: Any) -> Outcome:
    outcome = Outcome()
    with collect() as report:
        run_shapes(model, module, ingot.torch.compile(module, dynamic=True), outcome)
    add_report(outcome, report)
    outcome.remarks += [f"in parts: {short(reason)}" for reason in dict.fromkeys(report.breaks)]
    return outcome


# torch.export


def constants_of(program: Any) -> dict[str, torch.Tensor]:
    """Parameters, buffers and constants of an exported program, by placeholder."""
    values = {**program.constants, **program.state_dict}
    kinds = {"PARAMETER", "BUFFER", "CONSTANT_TENSOR"}
    return {s.arg.name: values[s.target] for s in program.graph_signature.input_specs if s.kind.name in kinds}


def by_export(model: TorchModel, module: Any) -> Outcome:
    outcome = Outcome(compiled=[1, 0])
    with WholeRecurrences():
        program = torch.export.export(module, (), model.inputs(0), dynamic_shapes=model.dynamic_shapes(), strict=False)
    constants = constants_of(program)
    outcome.eager.update(unsupported(program.graph, constants).values())
    if outcome.eager:
        return outcome
    translation = translate(program.graph, constants, name=model.name)
    graph = translation.graph()
    outcome.nodes = len(graph.nodes)
    call = translation.bind(graph)
    for k in (0, 1):
        inputs = model.inputs(k)
        found = call(*[inputs.get(node.name) for node in program.graph.find_nodes(op="placeholder")])
        outcome.difference = max(outcome.difference, difference(found, flat(module(**inputs))))
    return outcome


FORMS: dict[str, Callable[[TorchModel, Any], Outcome]] = {
    "torch.compile": by_dynamo,
    "wrapper": by_wrapper,
    "export": by_export,
}


def run(model: TorchModel, form: str) -> Outcome:
    """Never raises: what goes wrong is the outcome's problem."""
    ingot.torch.clear_cache()
    try:
        with quiet(), torch.no_grad():
            return FORMS[form](model, model.module())
    except Exception as error:
        return Outcome(problem=f"{type(error).__name__}: {first_line(error)[:160]}")


# The table


def row(name: str, outcomes: list[Outcome]) -> str:
    worst = max(o.difference for o in outcomes)
    cells = [name, str(outcomes[0].nodes), f"{worst:.0e}", *(o.cell().replace("|", "/") for o in outcomes)]
    return f"| {' | '.join(cells)} |"


def header(forms: list[str]) -> list[str]:
    return [f"| model | nodes | difference | {' | '.join(forms)} |", "|---" * (3 + len(forms)) + "|"]


def summary(rows: list[str], forms: list[str]) -> str:
    cells = [line.strip("| ").split(" | ")[3:] for line in rows]
    wrong = sum("FAILED" in cell or "DIFFERS" in cell for line in cells for cell in line)
    whole = [f"{form}: {sum(bool(WHOLE.fullmatch(line[i])) for line in cells)}" for i, form in enumerate(forms)]
    runs = len(rows) * len(forms)
    return (
        f"{runs - wrong} of {runs} runs are equal to PyTorch within {TOLERANCE}. One artifact for both shapes and"
        f" nothing in eager, of {len(rows)} models: {', '.join(whole)}."
    )


def write(rows: dict[str, str], forms: list[str]) -> None:
    """Replaces the rows of these models in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    old = text[len(before) : text.index(END)].splitlines()
    known = {line.split(" | ")[0].strip("| "): line for line in old if line.startswith("| ")}
    lines = [rows.get(m.name, known.get(m.name, "")) for m in MODELS]
    lines = [line for line in lines if line]
    table = [*header(forms), *lines, "", summary(lines, forms)]
    DOCUMENT.write_text("\n".join([before, "", *table, "", after]), encoding="utf-8")


def chosen(names: str | None, known: list[str], parser: argparse.ArgumentParser) -> list[str]:
    wanted = names.split(",") if names else known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--models", help="names, with commas between them")
    parser.add_argument("--forms", help=f"of {', '.join(FORMS)}; the first two if not given")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {DOCUMENT.name}")
    options = parser.parse_args()
    models = {m.name: m for m in MODELS}
    forms = chosen(options.forms or "torch.compile,wrapper", list(FORMS), parser)
    if options.write and options.forms:
        parser.error("the table of the document has the forms that are run if none are given")
    rows, right = {}, True
    run(models["mlp"], forms[0])  # imports, and whatever else is done once
    print("\n".join(header(forms)), flush=True)
    for name in chosen(options.models, list(models), parser):
        outcomes = [run(models[name], form) for form in forms]
        right = right and all(o.right for o in outcomes)
        rows[name] = row(name, outcomes)
        print(rows[name], flush=True)
    print(f"\n{summary(list(rows.values()), forms)}")
    if options.write:
        write(rows, forms)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
