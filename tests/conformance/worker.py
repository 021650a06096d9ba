"""worker.py MODE [NAME...]: runs ONNX's backend cases in one mode and prints what became of each as JSON.

The cases run in forked children, as many at a time as there are cores; should one crash or hang, it costs that case and
the next child goes on after it. A child ends after CASES_OF_A_CHILD: libraries stay loaded, some 5 MB for each case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from cases import compare, data_sets, load_cases, model_of
from modes import MODES

CASE_SECONDS = 60
CASES_OF_A_CHILD = 100


def run(case: Any, mode: str, folder: Path) -> None:
    model = model_of(case)
    weights = {t.name for t in model.graph.initializer}
    names = [port.name for port in model.graph.input if port.name not in weights]
    for inputs, expected in data_sets(case, model):
        # Cases may leave trailing optional inputs out.
        actual = MODES[mode](model, dict(zip(names, inputs, strict=False)), folder)
        assert len(actual) == len(expected), f"{len(actual)} outputs, expected {len(expected)}"
        for a, e in zip(actual, expected, strict=True):
            compare(a, e, case.rtol, case.atol)


def run_until_crash(mode: str, names: list[str], pipe: IO[str]) -> None:
    """The child: a line before and a line after each case."""
    cases = load_cases()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(json.dumps([name, "crashed"]), file=pipe, flush=True)
            signal.alarm(CASE_SECONDS)
            try:
                run(cases[name], mode, Path(folder))
                outcome = "pass"
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            outcome = " ".join(outcome.replace(f"{folder}/", "").split())
            print(json.dumps([name, outcome[:300]]), file=pipe, flush=True)


def run_all(mode: str, names: list[str]) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    todo = [names[i :: os.cpu_count() or 1] for i in range(os.cpu_count() or 1)]
    while any(todo):
        children = []
        for part in todo:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                with os.fdopen(writer, "w") as pipe:
                    run_until_crash(mode, part[:CASES_OF_A_CHILD], pipe)
                os._exit(0)
            os.close(writer)
            children.append((child, reader))
        for child, reader in children:
            with os.fdopen(reader) as pipe:
                outcomes.update(json.loads(line) for line in pipe)
            os.waitpid(child, 0)
        todo = [[name for name in part if name not in outcomes] for part in todo]
    return outcomes


if __name__ == "__main__":
    selected = sys.argv[2:]
    load_cases()
    json.dump(run_all(sys.argv[1], selected or sorted(load_cases())), sys.stdout)
