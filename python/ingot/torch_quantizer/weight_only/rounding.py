"""Which layer is rounded how, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ingot.torch_quantizer.weight_only.grid import Form, Rounded, to_nearest
from ingot.torch_quantizer.weight_only.layers import matrix_of
from ingot.torch_quantizer.weight_only.scaling import error_of, factors
from ingot.torch_quantizer.weight_only.second_order import to_least_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingot.torch_quantizer.operations import WeightSettings
    from ingot.torch_quantizer.recipes import RoundingOptions
    from ingot.torch_quantizer.weight_only.inputs import Inputs


@dataclass
class Outcome:
    rounded: Rounded
    algorithm: str
    error: float  # of the weight, or of the layer's results on the data seen, as a share of their size
    bias: Tensor | None = None  # where it was corrected
    factor: Tensor | None = None  # of each input channel, where `rounded` has factors


@dataclass
class Rounder:
    """Rounds layers when it is called, and keeps what came out."""

    layers: Mapping[str, nn.Module]
    settings: Mapping[str, WeightSettings]
    options: RoundingOptions
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def without_data(self, name: str) -> None:
        weight = matrix_of(self.layers[name])
        rounded = self._corrected(weight, to_nearest(weight, self._form(name), search=self.options.search))
        off = (rounded.real() - weight).square().sum() / weight.square().sum().clamp_min(1e-30)
        self.outcomes[name] = Outcome(rounded, "rtn", float(off.sqrt()))

    def __call__(self, names: Sequence[str], inputs: Inputs) -> dict[str, Tensor]:
        """Layers that read one input; their weights from now on."""
        hessians = inputs.hessians()
        scaled = [n for n in names if self.settings[n].algorithm == "awq" and len(hessians) == 1]
        factor = self._factor(scaled, hessians[0]) if scaled and self.options.scale_channels else None
        return {n: self._round(n, hessians, inputs.mean(), factor if n in scaled else None) for n in names}

    def _form(self, name: str) -> Form:
        chosen = self.settings[name]
        return Form(chosen.bits, max(chosen.group_size, 0), chosen.symmetric)

    def _factor(self, names: Sequence[str], hessian: Tensor) -> Tensor:
        """One for all that read the input: it is multiplied, or folded, once."""
        places = _places(self.layers[names[0]])
        size = hessian.diagonal().unflatten(0, (-1, places)).mean(1).sqrt()
        form, importance = self._form(names[0]), hessian.diagonal()

        def rounding(weight: Tensor, columns: Tensor) -> Rounded:
            return to_nearest(weight, form, importance / columns.square(), search=False)

        return factors(size, places, [(matrix_of(self.layers[n]), hessian) for n in names], rounding)

    def _round(self, name: str, hessians: Tensor, mean: Tensor, factor: Tensor | None) -> Tensor:
        layer: Any = self.layers[name]
        weight = matrix_of(layer)
        parts = [
            self._part(name, part, hessian, factor)
            for part, hessian in zip(weight.chunk(len(hessians)), hessians, strict=True)
        ]
        q, scale, zero = (torch.cat([getattr(part, name) for part in parts]) for name in ("q", "scale", "zero"))
        rounded = Rounded(parts[0].form, q, scale, zero, parts[0].factor)
        rounded = self._corrected(weight, rounded)
        real = rounded.real()
        chunks = list(zip(weight.chunk(len(hessians)), real.chunk(len(hessians)), hessians, strict=True))
        off = sum(error_of(w, r, h) for w, r, h in chunks)
        whole = sum(error_of(w, torch.zeros_like(w), h) for w, _, h in chunks)
        outcome = Outcome(rounded, self.settings[name].algorithm, (off / whole) ** 0.5 if whole > 0 else 0.0)
        if factor is not None:
            outcome.factor = factor
        if self.options.correct_bias and layer.bias is not None:
            shift = [((w - r) * m).sum(1) for (w, r, _), m in zip(chunks, mean, strict=True)]
            outcome.bias = layer.bias.detach() + torch.cat(shift)
        self.outcomes[name] = outcome
        return real.reshape(layer.weight.shape)

    def _part(self, name: str, weight: Tensor, hessian: Tensor, factor: Tensor | None) -> Rounded:
        form, options = self._form(name), self.options
        if self.settings[name].algorithm == "gptq":
            return to_least_error(
                weight, hessian, form, damping=options.damping, by_size=options.by_size, search=options.search
            )
        importance = hessian.diagonal()
        if factor is None:
            return to_nearest(weight, form, importance, options.search)
        columns = factor.repeat_interleave(_places(self.layers[name]))
        found = to_nearest(weight * columns, form, importance / columns.square(), options.search)
        found.factor = columns
        return found

    def _corrected(self, weight: Tensor, rounded: Rounded) -> Rounded:
        """With rows that vary as much as they did."""
        if self.options.correct_weight:
            varied = weight.std(1) / rounded.real().std(1).clamp_min(1e-30)
            rounded.scale = rounded.scale * torch.where(varied.isfinite() & (varied > 0), varied, 1.0)[:, None]
        return rounded


def _places(layer: Any) -> int:
    """Columns for each channel of the input."""
    return int(layer.weight[0, 0].numel())
