"""ONNX's backend cases in every mode, beside onnxruntime: `make conformance`.

run.py                        all modes; prints a table by kind, then what failed unexpectedly, then the totals
run.py --modes static ir      some modes
run.py --targets              on every target that this CPU runs (docs/targets.md); --targets x86-64-v3 on some
run.py --update               rewrites known_failures.txt and docs/operators.md from this run

known_failures.txt lists what does not pass, with a reason each. A case that fails without being listed is an error, and
so is a listed one that passes: the list can only shrink.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from cases import KINDS, kind_of, load_cases
from operators import write_operators

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "known_failures.txt"
OURS = ("static", "dynamic", "constant", "library", "ir")
Outcomes = dict[str, dict[str, str]]  # mode, or mode@target -> case -> "pass" or what went wrong


def run_mode(mode: str, target: str | None) -> dict[str, str]:
    worker = [sys.executable, str(HERE / "worker.py"), mode]
    environment = {**os.environ, "INGOT_ISA": target} if target else None
    done = subprocess.run(worker, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=True)
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def mode_of(run: str) -> str:
    return run.split("@")[0]


def targets_here() -> list[str]:
    from ingot import _ingot

    return [name for name, runs in _ingot.targets().items() if runs]


def read_known() -> dict[str, str]:
    """Case, or "mode:case" where only one mode fails -> reason."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def expected_to_fail(known: dict[str, str], mode: str, case: str) -> bool:
    return case in known or f"{mode}:{case}" in known


def surprises(outcomes: Outcomes, known: dict[str, str]) -> list[str]:
    out = []
    ours = {run: results for run, results in outcomes.items() if mode_of(run) in OURS}
    for run, results in ours.items():
        mode = mode_of(run)
        for case, outcome in sorted(results.items()):
            listed = expected_to_fail(known, mode, case)
            if outcome != "pass" and not listed:
                out.append(f"{run}: {case}: {outcome}")
            if outcome == "pass" and f"{mode}:{case}" in known:
                out.append(f"{run}: {case} passes now: take it off known_failures.txt")
    all_modes = {mode_of(run) for run in ours} == set(OURS)
    for case in known:
        if ":" not in case and all_modes and all(r.get(case) == "pass" for r in ours.values()):
            out.append(f"{case} passes now in all modes: take it off known_failures.txt")
    return out


def update_known(outcomes: Outcomes) -> None:
    """Keeps the reasons that are written down; a new failure gets its message as the reason."""
    known, lines = read_known(), []
    modes = [mode for mode in outcomes if mode in OURS]
    for case in sorted(load_cases()):
        failed = {mode: outcomes[mode][case] for mode in modes if outcomes[mode].get(case) != "pass"}
        if len(failed) == len(modes):
            lines.append(f"{case}\t{known.get(case, next(iter(failed.values())))}")
        else:
            lines += [f"{m}:{case}\t{known.get(f'{m}:{case}', why)}" for m, why in sorted(failed.items())]
    KNOWN.write_text("# Cases that do not pass, or mode:case; then the reason.\n" + "".join(f"{x}\n" for x in lines))


def show(outcomes: Outcomes) -> None:
    cases = load_cases()
    totals = Counter(kind_of(c) for c in cases.values())
    widths = [max(13, len(run) + 2) for run in outcomes]
    print(f"{'kind':<20}{'cases':>7}" + "".join(f"{run:>{w}}" for run, w in zip(outcomes, widths, strict=True)))
    for kind in KINDS:
        passed = [sum(o == "pass" and kind_of(cases[n]) == kind for n, o in r.items()) for r in outcomes.values()]
        print(f"{kind:<20}{totals[kind]:>7}" + "".join(f"{n:>{w}}" for n, w in zip(passed, widths, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=[*OURS, "onnxruntime"])
    parser.add_argument("--targets", nargs="*", metavar="TARGET")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    if arguments.update and arguments.targets is not None:
        parser.error("--update is for the target of this CPU: leave --targets out")
    targets = [None] if arguments.targets is None else arguments.targets or targets_here()
    modes = arguments.modes or [*OURS, *(["onnxruntime"] if arguments.targets is None else [])]
    outcomes: Outcomes = {}
    for target in targets:
        for mode in modes:
            run = f"{mode}@{target}" if target else mode
            start = time.monotonic()
            outcomes[run] = run_mode(mode, target)
            print(f"{run}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    if arguments.update:
        update_known(outcomes)
        write_operators(outcomes)
    show(outcomes)
    wrong = surprises(outcomes, read_known())
    for line in wrong:
        print(line)
    ours = [o for run, r in outcomes.items() if mode_of(run) in OURS for o in r.values()]
    print(f"{sum(o == 'pass' for o in ours)} passed, {sum(o != 'pass' for o in ours)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
