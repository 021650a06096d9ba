"""Weights in 4 or 8 bits, in groups, and nothing else: activations and arithmetic stay fp32.

`grid` (integers, scales and zero points of groups), then the ways to choose the integers: to nearest (`grid`), making
up for errors (`second_order`), with scaled channels (`scaling`, and `folding` for where the scales go); `inputs` and
`sequence` bring data to layers; `rounding` decides; `layers` are what takes the place of PyTorch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingot.errors import InvalidInputError, first_line
from ingot.torch_quantizer.annotate import excluded_modules
from ingot.torch_quantizer.batches import CallForm, first_and_all, size_of
from ingot.torch_quantizer.dynamic import reason_excluded
from ingot.torch_quantizer.graphs import capture, shared_copy
from ingot.torch_quantizer.static import call_of_batch, example_call, misfit
from ingot.torch_quantizer.weight_only.folding import Place, divide_parameters, has_parameters, place_of
from ingot.torch_quantizer.weight_only.grid import kept
from ingot.torch_quantizer.weight_only.layers import TYPE_OF, NarrowLayer, narrow
from ingot.torch_quantizer.weight_only.rounding import Outcome, Rounder
from ingot.torch_quantizer.weight_only.sequence import products_of, readers, round_at_once, round_in_sequence

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ingot.torch_quantizer.batches import Arguments
    from ingot.torch_quantizer.config import PostTrainingQuantConfig

__all__ = ["NarrowLayer", "Outcome", "quantize_weight_only"]


def quantize_weight_only(
    original: nn.Module, config: PostTrainingQuantConfig, calib: Any, example_inputs: Any
) -> tuple[nn.Module, dict[str, Outcome], dict[str, Any] | None, dict[str, Any]]:
    """The model with narrow layers, what became of each, an example call, and what was seen of the data."""
    model = shared_copy(original)
    layers = _chosen(model, config)
    settings = {
        name: config.weight_settings(name, TYPE_OF[type(layer)], calib is not None) for name, layer in layers.items()
    }
    rounder = Rounder(layers, settings, config.rounding_options())
    example: dict[str, Any] | None = None
    seen: dict[str, Any] = {}
    folds: dict[str, Place] = {}
    by_data = {name: layer for name, layer in layers.items() if settings[name].algorithm != "rtn"}
    if by_data and calib is None:
        name = next(iter(by_data))
        raise InvalidInputError(
            "calib is missing", f"algorithm '{settings[name].algorithm}' needs sample data; 'rtn' needs none"
        )
    form = CallForm(model)
    if example_inputs is not None:
        example = form.by_name(form.fix(example_call(form, example_inputs)))
    if calib is not None:
        calls = _calls(form, calib, example_inputs, config.calibration_samples)
        example = example or form.by_name(calls[0])
        seen = {"batches": len(calls), "samples": sum(map(size_of, calls))}
        if by_data:
            folds, note = _round(model, form, calls, by_data, rounder, config)
            seen |= {"note": note} if note else {}
    for name in layers:
        if name not in rounder.outcomes:  # by its settings, or because no data meet it
            rounder.without_data(name)
    _fold(model, folds, rounder)
    for name, outcome in rounder.outcomes.items():
        layer = narrow(outcome.rounded, layers[name])
        if outcome.bias is not None:
            layer.bias = outcome.bias
        if name:
            model.set_submodule(name, layer)
        else:
            model = layer
    return model.eval(), rounder.outcomes, example, seen


def _chosen(model: nn.Module, config: PostTrainingQuantConfig) -> dict[str, nn.Module]:
    excluded, kinds = excluded_modules(model, config), config.types()
    return {
        name: module
        for name, module in model.named_modules()
        if TYPE_OF.get(type(module)) in kinds and not reason_excluded(name, excluded)
    }


def _calls(form: CallForm, calib: Any, example_inputs: Any, limit: int | None) -> list[Arguments]:
    first, batches = first_and_all(calib)
    if example_inputs is None:
        form.fix(call_of_batch(form, first, 0))
    calls, samples = [], 0
    for i, batch in enumerate(batches):
        calls.append(call_of_batch(form, batch, i))
        samples += size_of(calls[-1])
        if limit is not None and samples >= limit:
            break
    return calls


def _round(
    model: nn.Module,
    form: CallForm,
    calls: list[Arguments],
    layers: dict[str, nn.Module],
    rounder: Rounder,
    config: PostTrainingQuantConfig,
) -> tuple[dict[str, Place], str]:
    """Rounds on data. Where factors can go, by layer, and a note where there is something to say."""
    try:
        graph = capture(model, form, calls[0], config.dynamic_axes)
        round_in_sequence(graph, calls, layers, rounder)
    except Exception as cause:  # no graph, or one that does not take all batches; or the model refuses a batch, too
        rounder.outcomes.clear()
        for index, call in enumerate(calls):
            try:
                round_at_once(model, [call], {}, rounder)
            except Exception as error:
                raise misfit(model, index, call, error) from error
        round_at_once(model, calls, layers, rounder)
        return {}, f"rounded on what the float model gives: {first_line(cause)}"
    products = products_of(graph, layers)
    found = {}
    for made, names in readers(products).items():
        nodes = [node for node in products if node.args[0] is made]
        axis = 1 if hasattr(layers[names[0]], "kernel_size") else -1
        place = place_of(made, nodes, axis)
        if place is not None and has_parameters(model, place):
            found.update(dict.fromkeys(names, place))
    return found, ""


def _fold(model: nn.Module, places: dict[str, Place], rounder: Rounder) -> None:
    """Factors of inputs, into what makes the inputs: all layers that read one have the same factor."""
    if not rounder.options.fold:
        return
    together: dict[Place, list[str]] = {}
    for name, place in places.items():
        together.setdefault(place, []).append(name)
    for place, names in together.items():
        outcomes = [rounder.outcomes[name] for name in names]
        factor = outcomes[0].factor
        if factor is None or any(o.factor is not factor for o in outcomes):
            continue
        if place.parameters:
            divide_parameters(model, place.parameters, factor)
        elif not _divide_rows(model, place.layer, rounder, factor):
            continue
        for outcome in outcomes:
            outcome.rounded.factor = None


def _divide_rows(model: nn.Module, name: str, rounder: Rounder, factor: Tensor) -> bool:
    """Of the layer that makes the input: its results are smaller by the factor."""
    layer: Any = model.get_submodule(name)
    if type(layer) not in TYPE_OF or layer.weight.shape[0] != len(factor):
        return False
    outcome = rounder.outcomes.get(name)
    bias = outcome.bias if outcome is not None and outcome.bias is not None else layer.bias
    if bias is not None:
        bias = bias.detach() / factor
    if outcome is not None:
        outcome.rounded.scale = kept(outcome.rounded.scale / factor[:, None])
        outcome.bias = bias
        return True
    divide_parameters(model, (f"{name}.weight",), factor.reshape(-1, *[1] * (layer.weight.dim() - 1)))
    if bias is not None:
        divide_parameters(model, (f"{name}.bias",), factor)
    return True
