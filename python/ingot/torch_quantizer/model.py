"""quantize(), and the quantized model it gives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx import GraphModule

from ingot.errors import InvalidInputError, UnsupportedError
from ingot.torch_quantizer.annotate import excluded_modules
from ingot.torch_quantizer.config import PostTrainingQuantConfig
from ingot.torch_quantizer.dynamic import quantize_dynamic
from ingot.torch_quantizer.graphs import check_model, shared_copy
from ingot.torch_quantizer.report import graph_report, module_report
from ingot.torch_quantizer.static import quantize_static

if TYPE_CHECKING:
    import os

    from ingot.exporter import ExportReport, Torch2ONNXConfig
    from ingot.onnx_quantizer import QuantizationReport
    from ingot.torch_quantizer.batches import CallForm


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
    """An 8-bit model in PyTorch: call it like the model it was made from, read its report, export it.

    model is PyTorch's own int8 model, float_model what it was made from.
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

        if config is None:
            config = Torch2ONNXConfig(**{"dtype": "int8", **fields})
        elif fields:
            raise InvalidInputError("export: either a config or its fields")
        if config.example_inputs is None:
            config = dataclasses.replace(config, example_inputs=self._example)
        if config.dtype != "int8":
            return Model(self.float_model).export(path, config)
        return Model(self.callable, float_model=self.float_model).export(path, config)


def quantize(
    model: nn.Module,
    config: PostTrainingQuantConfig | None = None,
    calib: Any = None,
    example_inputs: Any = None,
) -> QuantizedModel:
    """Quantizes a trained model after training. The model itself is not changed.

    calib, for static quantization: a DataLoader or any iterable of batches, or one batch (a tensor, a dict, a tuple of
    positional arguments). Batches are tensors, tuples, dicts, or these with labels, which are dropped (see
    ingot.torch_quantizer.batches). example_inputs, a tensor, tuple or dict, says which arguments the model is to have
    where the batches do not; by default those of the first batch.
    """
    config = PostTrainingQuantConfig() if config is None else config
    if not isinstance(config, PostTrainingQuantConfig):
        raise InvalidInputError(f"config is {type(config).__name__}, not PostTrainingQuantConfig")
    check_model(model)
    original = shared_copy(model)
    if config.approach == "dynamic":
        quantized = quantize_dynamic(shared_copy(model), config)
        report = module_report(quantized, original, config, excluded_modules(original, config))
        return QuantizedModel(quantized, float_model=original, report=report)
    if calib is None:
        raise InvalidInputError(
            "calib is missing", "static quantization needs sample data: calib=loader; approach='dynamic' needs none"
        )
    graph, form, example, seen = quantize_static(original, config, calib, example_inputs)
    report = graph_report(graph, config, excluded_modules(original, config), "static quantization", seen)
    return QuantizedModel(graph, float_model=original, report=report, form=form, example=example)
