"""What an export did."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operation:
    name: str
    op: str
    form: str  # in the file: QDQ, an integer operator, weight-only, fp32
    reason: str = ""  # why not an integer operator, or why not quantized


@dataclass(frozen=True)
class Difference:
    """The largest difference of one output, in quantization steps and as it is."""

    output: str
    between: str
    steps: float
    absolute: float
    step: float
    share: float = 0.0  # of the values that are more than one step apart


@dataclass
class ExportReport:
    path: str
    dtype: str
    opset: int
    quant_format: str | None = None
    quantized: list[Operation] = field(default_factory=list)
    unquantized: list[Operation] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    bytes: int = 0

    @property
    def data(self) -> dict[str, Any]:
        return asdict(self)

    def json(self) -> str:
        return json.dumps(self.data, indent=2)

    def worst(self, between: str) -> float | None:
        """In steps, over all outputs."""
        found = [d.steps for d in self.differences if d.between == between]
        return max(found) if found else None

    def __str__(self) -> str:
        form = f", {self.quant_format}" if self.quant_format else ""
        lines = [f"{self.path}: {self.dtype}{form}, opset {self.opset}, {self.bytes / 1e6:.1f} MB"]
        if self.quantized:
            lines.append(f"quantized: {_summary([f'{o.op} as {o.form}' for o in self.quantized])}")
        if self.quant_format:
            lines.append(f"not quantized: {len(self.unquantized) or 'nothing'}")
            lines += [f"  {o.op} '{o.name}': {o.reason}" for o in self.unquantized]
        for d in self.differences:
            apart = f", {d.share:.1%} of the values by more than one step" if d.share else ""
            lines.append(f"'{d.output}', {d.between}: {d.steps:.2f} steps ({d.absolute:.3g}){apart}")
        lines += [f"note: {note}" for note in self.notes]
        lines.append("seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items()))
        return "\n".join(lines)


def _summary(words: list[str]) -> str:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items(), key=lambda item: -item[1]))
