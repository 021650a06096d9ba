"""What became of a model: which nodes Ingot runs, which stay in eager and why. Nothing falls back silently."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingot.errors import UnsupportedError, first_line
from ingot.torch.sessions import weight_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingot.torch.sessions import Session, WeightMemory


class FallbackWarning(UserWarning):
    """Something that was to be compiled runs in eager, or is compiled in parts."""


@dataclass
class Fallback:
    """A node that runs in eager."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): {self.reason}"


@dataclass
class GraphReport:
    """One captured graph."""

    kind: str  # inference, forward or backward; or branch, of one of these
    operators: Counter[str] = field(default_factory=Counter)  # run by Ingot
    fallbacks: list[Fallback] = field(default_factory=list)
    blocks: int = 0
    dynamic: bool = False
    weights: int = 0  # tensors that are constants of the sessions
    weight_bytes: int = 0
    copied_bytes: int = 0  # of these, what had to be copied before it could be used
    disk_bytes: int = 0  # of these, what lives in a file instead of in memory (weights="packed")
    kept_in_memory: str = ""  # why not more does
    sessions: list[Session] = field(default_factory=list, repr=False, compare=False)  # those used last

    @property
    def weight_memory(self) -> WeightMemory:
        """What of the weights is used in place, and what was packed."""
        return weight_memory(self.sessions)

    def __str__(self) -> str:
        compiled, eager = sum(self.operators.values()), len(self.fallbacks)
        shapes = "dynamic" if self.dynamic else "fixed"
        lines = [f"{self.kind}: {compiled} nodes in {self.blocks} blocks, {eager} in eager, {shapes} shapes"]
        if self.weights:
            memory = self.weight_memory
            sizes = (
                self.weight_bytes,
                self.disk_bytes,
                memory.in_place,
                self.copied_bytes,
                memory.packed,
                memory.shared,
            )
            total, on_disk, in_place, copied, packed, shared = (f"{n / 1e6:.3g} MB" for n in sizes)
            originals = f"{self.weights} weights, {total}, of which {on_disk} on disk"
            lines.append(f"  {originals}: {in_place} used in place, {copied} copied")
            lines.append(f"  packed   {packed}, of which {shared} shared with other sessions")
            if self.kept_in_memory:
                lines.append(f"  weights stay in memory: {self.kept_in_memory}")
        lines += [f"  eager    {f}" for f in self.fallbacks]
        lines += [f"  ingot    {operator} x{n}" for operator, n in self.operators.most_common()]
        return "\n".join(lines)


@dataclass
class Report:
    """What `explain` gives."""

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)  # reasons of graph breaks
    problems: list[str] = field(default_factory=list)  # what runs in eager as a whole, and why

    @property
    def fallbacks(self) -> list[Fallback]:
        return [f for g in self.graphs for f in g.fallbacks]

    def __str__(self) -> str:
        head = f"{len(self.graphs)} graphs, {len(self.breaks)} graph breaks, {len(self.fallbacks)} nodes in eager"
        lines = [head, *(f"break: {b}" for b in self.breaks), *(f"eager: {p}" for p in self.problems)]
        return "\n".join([*lines, *map(str, self.graphs)])


_collecting = threading.local()


@contextmanager
def collect() -> Iterator[Report]:
    """Graphs compiled by this thread in here are put into a report instead of being warned about."""
    report, before = Report(), getattr(_collecting, "report", None)
    _collecting.report = report
    try:
        yield report
    finally:
        _collecting.report = before


def publish(graph: GraphReport, *, strict: bool) -> None:
    """A compiled graph: an error if strict and something stays in eager, else at most one warning."""
    report = getattr(_collecting, "report", None)
    if report is not None:
        report.graphs.append(graph)
    elif graph.fallbacks and not strict:
        warnings.warn(summary(graph), FallbackWarning, stacklevel=3)
    if graph.fallbacks and strict:
        first = graph.fallbacks[0]
        raise UnsupportedError(
            f"{len(graph.fallbacks)} nodes cannot be compiled; the first is {first}",
            "without strict=True such nodes run in eager; ingot.torch.explain lists them",
        )


def summary(graph: GraphReport) -> str:
    grouped: dict[str, list[Fallback]] = {}
    for f in graph.fallbacks:
        grouped.setdefault(f"{f.operator}: {f.reason}", []).append(f)
    parts = [f"{what} (x{len(nodes)})" for what, nodes in grouped.items()]
    more = f"; and {len(parts) - 5} more" if len(parts) > 5 else ""
    total = len(graph.fallbacks) + sum(graph.operators.values())
    return f"ingot: {len(graph.fallbacks)} of {total} nodes run in eager: " + "; ".join(parts[:5]) + more


def whole_fallback(what: str, error: Exception, *, strict: bool) -> None:
    """Something runs in eager as a whole."""
    report = getattr(_collecting, "report", None)
    _give_up(what, "runs in eager", error, None if report is None else report.problems, strict=strict)


def compiled_in_parts(what: str, error: Exception, *, strict: bool) -> None:
    """Something cannot be captured as a whole; code between its parts runs in Python."""
    report = getattr(_collecting, "report", None)
    _give_up(what, "is compiled in parts", error, None if report is None else report.breaks, strict=strict)


def _give_up(what: str, then: str, error: Exception, reported: list[str] | None, *, strict: bool) -> None:
    if strict:
        raise UnsupportedError(f"{what}: {error}", f"without strict=True it {then}") from error
    text = f"{what}: {type(error).__name__}: {first_line(error)}"
    if reported is not None:
        reported.append(text)
    else:
        warnings.warn(f"ingot: {then}: {text}", FallbackWarning, stacklevel=4)
