"""Static quantization: capture, observe sample data, convert. All by torch.export and torchao's PT2E."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ingot.errors import InvalidInputError, first_line
from ingot.progress import Progress
from ingot.torch_quantizer.annotate import ConfiguredQuantizer, excluded_modules, quiet
from ingot.torch_quantizer.batches import Arguments, CallForm, first_and_all, size_of
from ingot.torch_quantizer.corrections import Watch, correct
from ingot.torch_quantizer.graphs import capture
from ingot.torch_quantizer.recipes import CORRECTIONS
from ingot.torch_quantizer.smoothing import smooth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule

    from ingot.torch_quantizer.config import PostTrainingQuantConfig


def quantize_static(
    model: nn.Module, config: PostTrainingQuantConfig, calib: Any, example_inputs: Any
) -> tuple[GraphModule, CallForm, dict[str, Any], dict[str, Any]]:
    """The quantized graph, how it is called, an example of that, and what was seen of the data."""
    excluded = excluded_modules(model, config)
    form = CallForm(model)
    first, batches = first_and_all(calib)
    if example_inputs is not None:
        example = form.fix(example_call(form, example_inputs))
    else:
        example = form.fix(call_of_batch(form, first, 0))
    with quiet():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        graph = capture(model, form, example, config.dynamic_axes)
        if config.smooth_alpha is not None:
            kept = list(batches)
            batches = iter(kept)
            smooth(graph, [call_of_batch(form, batch, i) for i, batch in enumerate(kept)], config.smooth_alpha)
        prepared = prepare_pt2e(graph, ConfiguredQuantizer(config, excluded, training=False))
        corrections = [name for name in CORRECTIONS if config.recipe(name)]
        watch = Watch(prepared) if corrections else None
        seen = _calibrate(model, prepared, watch, form, batches, config.calibration_samples)
        converted = convert_pt2e(prepared)
        if watch is not None:
            correct(converted, watch.seen, corrections)
        return converted, form, form.by_name(example), seen


def example_call(form: CallForm, example_inputs: Any) -> Arguments:
    """A tensor, a tuple or list of positional arguments, or a mapping of keywords."""
    try:
        if hasattr(example_inputs, "keys"):
            return form.arrange(((), dict(example_inputs.items())))
        if isinstance(example_inputs, tuple | list):
            return form.arrange((tuple(example_inputs), {}))
        return form.arrange(((example_inputs,), {}))
    except InvalidInputError as error:
        raise InvalidInputError(f"example_inputs: {error.message}", error.hint) from None


def call_of_batch(form: CallForm, batch: Any, index: int) -> Arguments:
    try:
        return form.of_batch(batch)
    except InvalidInputError as error:
        raise InvalidInputError(f"calib: batch {index} does not fit forward: {error.message}", error.hint) from None


def _calibrate(
    model: nn.Module,
    prepared: GraphModule,
    watch: Watch | None,
    form: CallForm,
    batches: Iterator[Any],
    limit: int | None,
) -> dict[str, Any]:
    count = samples = 0
    with torch.no_grad(), Progress("calibrating") as progress:
        for batch in batches:
            args, kwargs = call_of_batch(form, batch, count)
            try:
                if watch is None:
                    prepared(*args, **kwargs)
                else:
                    watch.run(*pytree.tree_leaves((args, kwargs)), enable_io_processing=False)
            except Exception as error:
                raise misfit(model, count, (args, kwargs), error) from error
            count, samples = count + 1, samples + size_of((args, kwargs))
            progress.show(f"{count} batches, {samples} samples")
            if limit is not None and samples >= limit:
                break
    return {"batches": count, "samples": samples}


def misfit(model: nn.Module, index: int, call: Arguments, error: Exception) -> InvalidInputError:
    """Why the graph refused a batch: the model refuses it too, or it has another shape than the graph was made for."""
    try:
        model(*call[0], **call[1])
    except Exception as cause:
        return InvalidInputError(f"calib: batch {index} does not fit the model: {first_line(cause)}")
    shapes = ", ".join(str(list(t.shape)) for t in pytree.tree_leaves(call) if isinstance(t, torch.Tensor))
    return InvalidInputError(
        f"calib: batch {index} of shape {shapes} does not fit the shapes of the captured model: {first_line(error)}",
        "dims that vary are free unless the model's code fixes them; give batches of one shape, or name dynamic_axes",
    )
