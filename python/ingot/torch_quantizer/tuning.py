"""Quantization that keeps an accuracy: layers go back to fp32, the most sensitive first, until it holds.

How sensitive a layer is, is measured in one run of the float model: how far its result moves when its input and weight
are rounded to 8 bits. The fewest layers that suffice are found by doubling and bisection, so that a model of 100 layers
takes about ten trials.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ingot.errors import InvalidInputError, UnsupportedError
from ingot.onnx_quantizer import QuantizationReport
from ingot.progress import Progress
from ingot.torch_quantizer.batches import watch
from ingot.torch_quantizer.checks import check_choice, check_flag, checked_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ingot.torch_quantizer.batches import Arguments
    from ingot.torch_quantizer.model import QuantizedModel

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@checked_names
@dataclass(frozen=True, kw_only=True)
class AccuracyCriterion:
    """What may be lost of what eval_func gives: a share of the float model's score ("relative"), or so much
    ("absolute")."""

    criterion: str = "relative"
    tolerable_loss: float = 0.01
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        check_choice("criterion", self.criterion, ("relative", "absolute"))
        check_flag("higher_is_better", self.higher_is_better)
        if isinstance(self.tolerable_loss, bool) or not isinstance(self.tolerable_loss, int | float):
            raise InvalidInputError(f"tolerable_loss is {self.tolerable_loss!r}, not a number")

    def holds(self, baseline: float, score: float) -> bool:
        loss = baseline - score if self.higher_is_better else score - baseline
        return loss <= self.tolerable_loss * (abs(baseline) if self.criterion == "relative" else 1)


@checked_names
@dataclass(frozen=True, kw_only=True)
class TuningCriterion:
    """When to give up: after so many trials, or, unless it is 0, so many seconds."""

    max_trials: int = 100
    timeout: float = 0

    def __post_init__(self) -> None:
        for name in ("max_trials", "timeout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise InvalidInputError(f"{name} is {value!r}, not a number from 0 on")


@dataclass(frozen=True)
class Trial:
    """So many of the most sensitive layers in fp32, and what eval_func said."""

    in_float: int
    score: float


class Tuner:
    """Tries quantized models until one is accurate enough."""

    def __init__(
        self,
        quantized: Callable[[Sequence[str]], QuantizedModel],
        eval_func: Callable[[Any], Any],
        criterion: AccuracyCriterion,
        limits: TuningCriterion,
    ) -> None:
        self._quantized, self._eval, self._criterion, self._limits = quantized, eval_func, criterion, limits
        self._found: dict[int, QuantizedModel] = {}
        self._started = time.monotonic()
        self.trials: list[Trial] = []
        self.baseline = math.nan

    def run(self, model: nn.Module, calls: Iterable[Arguments]) -> QuantizedModel:
        with Progress("tuning") as self._progress:
            self.baseline = self._score(model)
            if self._holds([], 0):
                return self._with_report(0, [])
            order = [name for name in ranking(model, calls) if name in self._names(0)]
            self._search(order)
        accurate = [k for k in self._found if self._accurate(k)]
        if not accurate:
            raise UnsupportedError(
                f"no 8-bit model fulfils the criterion\n{self.text()}", "a larger tolerable_loss, or other op_types"
            )
        return self._with_report(min(accurate), order)

    def _search(self, order: Sequence[str]) -> None:
        """The fewest layers in fp32 that suffice; one has to stay quantized."""
        failed, count, most = 0, 1, len(order) - 1
        while count <= most and not self._holds(order, count):
            failed, count = count, min(2 * count, most) if count < most else most + 1
        while count - failed > 1 and self._in_time():
            middle = (failed + count) // 2
            failed, count = (failed, middle) if self._holds(order, middle) else (middle, count)

    def _in_time(self) -> bool:
        limit = self._limits.timeout
        return len(self.trials) < self._limits.max_trials and (not limit or time.monotonic() - self._started < limit)

    def _score(self, model: Any) -> float:
        with torch.no_grad():
            score = self._eval(model)
        try:
            return float(score)
        except (TypeError, ValueError):
            raise InvalidInputError(f"eval_func gave {score!r}, not a number") from None

    def _holds(self, order: Sequence[str], count: int) -> bool:
        if not self._in_time():
            return False
        self._found[count] = self._quantized(order[:count])
        score = self._score(self._found[count])
        self.trials.append(Trial(count, score))
        self._progress.show(f"trial {len(self.trials)}: {score:.6g} of {self.baseline:.6g}, {count} layers in fp32")
        return self._accurate(count)

    def _accurate(self, count: int) -> bool:
        score = next(t.score for t in self.trials if t.in_float == count)
        return self._criterion.holds(self.baseline, score)

    def _names(self, count: int) -> set[str]:
        return {row["name"] for row in self._found[count].report.data["quantized"]}

    def text(self) -> str:
        lines = [f"tuned: the float model has {self.baseline:.6g}"]
        return "\n".join([*lines, *(f"  {t.score:.6g} with {t.in_float} layers in fp32" for t in self.trials)])

    def _with_report(self, count: int, order: Sequence[str]) -> QuantizedModel:
        made = self._found[count]
        told = {
            "baseline": self.baseline,
            "trials": [{"in_float": t.in_float, "score": t.score} for t in self.trials],
            "in_float": list(order[:count]),
        }
        made.report = QuantizationReport(f"{made.report.text}\n{self.text()}", {**made.report.data, "tuning": told})
        return made


def ranking(model: nn.Module, calls: Iterable[Arguments]) -> list[str]:
    """Names of layers, the most sensitive first."""
    moved: dict[str, list[float]] = {}
    inside = False

    def measure(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            nonlocal inside
            if inside or not args or not isinstance(result, Tensor):
                return
            inside = True
            try:
                rounded = torch.func.functional_call(
                    module, {"weight": rounded_weight(module)}, (rounded_activation(args[0]), *args[1:])
                )
            finally:
                inside = False
            moved.setdefault(name, []).append(_distance(rounded, result))

        return hook

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, WEIGHTED)]
    watch(model, calls, [layer.register_forward_hook(measure(name)) for name, layer in layers])
    if not moved:  # without data, weights alone can tell
        moved = {name: [_distance(rounded_weight(layer), layer.weight.detach())] for name, layer in layers}
    return sorted(moved, key=lambda name: -sum(moved[name]) / len(moved[name]))


def _distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).square().mean() / wanted.square().mean().clamp_min(1e-30))


def rounded_weight(module: nn.Module) -> Tensor:
    """In 8 bits, with a scale for each channel of the result."""
    weight = module.weight.detach()
    axis = 1 if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) else 0
    others = [d for d in range(weight.dim()) if d != axis]
    scale = weight.abs().amax(others, keepdim=True).clamp_min(1e-12) / 127
    return (weight / scale).round().clamp(-128, 127) * scale


def rounded_activation(x: Tensor) -> Tensor:
    """In 8 bits, over the range that it has."""
    low, high = x.min().clamp_max(0), x.max().clamp_min(0)
    scale = ((high - low) / 255).clamp_min(1e-12)
    return ((x - low) / scale).round() * scale + low
