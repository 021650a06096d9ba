"""quantize(), and the quantized model it gives."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx import GraphModule

from ingot.errors import InvalidInputError, InvalidModelError, IoError, UnsupportedError, first_line
from ingot.torch_quantizer.annotate import excluded_modules
from ingot.torch_quantizer.batches import CallForm, batches_of
from ingot.torch_quantizer.config import PostTrainingQuantConfig
from ingot.torch_quantizer.dynamic import quantize_dynamic
from ingot.torch_quantizer.graphs import check_model, shared_copy
from ingot.torch_quantizer.half import with_bf16
from ingot.torch_quantizer.report import graph_report, module_report, weight_report
from ingot.torch_quantizer.static import example_call, quantize_static
from ingot.torch_quantizer.tuning import AccuracyCriterion, Tuner, TuningCriterion
from ingot.torch_quantizer.weight_only import NarrowLayer, quantize_weight_only

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ingot.exporter import ExportReport, Torch2ONNXConfig
    from ingot.onnx_quantizer import QuantizationReport


class GraphCall(nn.Module):  # type: ignore[misc]
    """A graph that is called in every way the model it came from could be called."""

    def __init__(self, graph: GraphModule, form: CallForm) -> None:
        super().__init__()
        self.graph_module = graph
        self.input_names = list(form.parameters)
        self._form = form

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._form.arrange((args, kwargs))
        return self.graph_module(*args, **kwargs)

    def train(self, mode: bool = True) -> GraphCall:
        self.training = mode  # graphs refuse to be switched; this one is for inference
        return self


class QuantizedModel:
    """A quantized model in PyTorch: call it like the model it was made from, read its report, export it.

    model is PyTorch's own int8 model, or one with narrow layers (weight_only); float_model what it was made from.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        float_model: nn.Module,
        report: QuantizationReport,
        form: CallForm | None = None,
        example: dict[str, Any] | None = None,
    ) -> None:
        if not report.data["quantized"]:
            raise UnsupportedError(f"nothing was quantized\n{report.text}", "see op_types and exclude of the config")
        self.model = model
        self.float_model = float_model
        self.report = report
        self._example = example
        self.callable = model if form is None or not isinstance(model, GraphModule) else GraphCall(model, form)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.callable(*args, **kwargs)

    def eval(self) -> QuantizedModel:
        """It is for inference always; there for code that asks for it."""
        return self

    def state_dict(self) -> dict[str, Any]:
        return dict(self.model.state_dict())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole model into a file, as torch.save does."""
        from ingot._ingot import VERSION

        model = _without_guards(self.model) if isinstance(self.model, GraphModule) else self.model
        torch.save({"ingot": VERSION, "model": model, "rest": self._rest()}, path)

    def _rest(self) -> dict[str, Any]:
        form = self.callable._form if isinstance(self.callable, GraphCall) else None
        return {"float_model": self.float_model, "report": self.report, "form": form, "example": self._example}

    @staticmethod
    def load(path: str | os.PathLike[str]) -> QuantizedModel:
        """What save() wrote. Such a file holds code: load only those you trust."""
        try:
            held = torch.load(path, weights_only=False)
        except OSError as error:
            raise IoError(f"{path}: {error.strerror or error}") from None
        except Exception as error:
            raise InvalidModelError(f"{path}: {first_line(error)}") from error
        if not isinstance(held, dict) or not {"ingot", "model", "rest"} <= held.keys():
            raise InvalidModelError(f"{path}: not a file of QuantizedModel.save")
        return QuantizedModel(held["model"], **held["rest"])

    def __repr__(self) -> str:
        return f"QuantizedModel({type(self.float_model).__name__}; {self.report.text.splitlines()[0]})"

    def export(
        self, path: str | os.PathLike[str], config: Torch2ONNXConfig | None = None, **fields: Any
    ) -> ExportReport:
        """Writes an ONNX file: ingot.Model(...).export, with the comparison to the float model in its report.

        By default it is int8, traced with the inputs that the model was quantized with. In other types it is the float
        model that is written.
        """
        from ingot.exporter import Model, Torch2ONNXConfig
        from ingot.exporter.model import OPSET_OF_GROUPS

        if config is None:
            groups = any(isinstance(module, NarrowLayer) for module in self.model.modules())
            usual = {"dtype": "int8", **({"opset_version": OPSET_OF_GROUPS} if groups else {})}
            config = Torch2ONNXConfig(**{**usual, **fields})
        elif fields:
            raise InvalidInputError("export: either a config or its fields")
        if config.example_inputs is None:
            config = dataclasses.replace(config, example_inputs=self._example)
        if config.dtype != "int8":
            return Model(self.float_model).export(path, config)
        return Model(self.callable, float_model=self.float_model).export(path, config)


def _without_guards(graph: GraphModule) -> GraphModule:
    """A copy without the module that checks shapes, which cannot be pickled."""
    graph = copy.deepcopy(graph)
    for node in graph.graph.find_nodes(op="call_module", target="_guards_fn"):
        graph.graph.erase_node(node)
    graph._modules.pop("_guards_fn", None)
    graph.graph._tracer_cls = graph._tracer_cls = None  # by which it is traced again when it is loaded
    graph.recompile()
    return graph


def quantize(
    model: nn.Module,
    config: PostTrainingQuantConfig | None = None,
    calib: Any = None,
    example_inputs: Any = None,
    *,
    calib_dataloader: Any = None,
    calib_func: Callable[[Any], Any] | None = None,
    eval_func: Callable[[Any], Any] | None = None,
    accuracy_criterion: AccuracyCriterion | None = None,
    tuning: TuningCriterion | None = None,
) -> QuantizedModel:
    """Quantizes a trained model after training. The model itself is not changed.

    calib (or calib_dataloader), for static quantization and to round weights by: a DataLoader or any iterable of
    batches, or one batch (a tensor, a dict, a tuple of positional arguments). Batches are tensors, tuples, dicts, or
    these with labels, which are dropped (see ingot.torch_quantizer.batches). calib_func(model) is an alternative: it
    runs the model, and the arguments of these calls are the data. example_inputs, a tensor, tuple or dict, says which
    arguments the model is to have where the batches do not; by default those of the first batch.

    eval_func(model) gives a score. With it, layers go back to fp32, the most sensitive first, until the quantized model
    is as good as accuracy_criterion asks, or tuning says to give up; the report has the trials.
    """
    config = PostTrainingQuantConfig() if config is None else config
    if not isinstance(config, PostTrainingQuantConfig):
        raise InvalidInputError(f"config is {type(config).__name__}, not PostTrainingQuantConfig")
    check_model(model)
    original = shared_copy(model)
    calib = _calibration_data(original, calib, calib_dataloader, calib_func)
    if eval_func is None:
        if accuracy_criterion is not None or tuning is not None:
            raise InvalidInputError("eval_func is missing", "accuracy_criterion and tuning are about what it gives")
        return _quantize(original, config, calib, example_inputs)
    batches = list(batches_of(calib)) if calib is not None else []

    def quantized(in_float: Sequence[str]) -> QuantizedModel:
        chosen = dataclasses.replace(config, exclude=[*config.exclude, *in_float])
        return _quantize(original, chosen, batches or None, example_inputs)

    form = CallForm(original)
    if example_inputs is not None:
        form.fix(example_call(form, example_inputs))
    calls = [form.of_batch(batch) for batch in batches[:MEASURED_BATCHES]]
    if not calls and example_inputs is not None:
        calls = [example_call(form, example_inputs)]
    tuner = Tuner(quantized, eval_func, accuracy_criterion or AccuracyCriterion(), tuning or TuningCriterion())
    return tuner.run(original, calls)


MEASURED_BATCHES = 4  # enough to see how sensitive layers are


def _calibration_data(model: nn.Module, calib: Any, dataloader: Any, function: Callable[[Any], Any] | None) -> Any:
    given = [value for value in (calib, dataloader, function) if value is not None]
    if len(given) > 1:
        raise InvalidInputError("calib, calib_dataloader and calib_func are one thing: give one of them")
    if function is None:
        return given[0] if given else None
    calls: list[Any] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(CallForm(model).by_name((args, kwargs)))

    handle = model.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with torch.no_grad():
            function(model)
    finally:
        handle.remove()
    if not calls:
        raise InvalidInputError("calib_func did not call the model")
    return calls


def _quantize(original: nn.Module, config: PostTrainingQuantConfig, calib: Any, example_inputs: Any) -> QuantizedModel:
    if config.approach == "auto":
        if calib is not None:
            try:
                return _quantize(original, dataclasses.replace(config, approach="static"), calib, example_inputs)
            except UnsupportedError:
                pass
        return _quantize(original, dataclasses.replace(config, approach="dynamic"), calib, example_inputs)
    source = with_bf16(original, config)
    excluded = excluded_modules(source, config)
    if config.approach == "dynamic":
        quantized = quantize_dynamic(shared_copy(source), config)
        report = module_report(quantized, source, config, excluded)
        return QuantizedModel(quantized, float_model=original, report=report)
    if config.approach == "weight_only":
        narrow, outcomes, example, seen = quantize_weight_only(source, config, calib, example_inputs)
        report = weight_report(source, outcomes, config, excluded, seen)
        return QuantizedModel(narrow, float_model=original, report=report, example=example)
    if calib is None:
        raise InvalidInputError(
            "calib is missing", "static quantization needs sample data: calib=loader; approach='dynamic' needs none"
        )
    graph, form, example, seen = quantize_static(source, config, calib, example_inputs)
    report = graph_report(graph, config, excluded, "static quantization", seen)
    return QuantizedModel(graph, float_model=original, report=report, form=form, example=example)
