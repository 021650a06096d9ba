"""The model as a graph of ATen operations: captured by torch.export, with free dims and without luck of names."""

from __future__ import annotations

import copy
import itertools
import operator
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from ingot.errors import InvalidInputError, UnsupportedError, first_line
from ingot.exporter.capture import call_of, checked_axes, dim_names, enlarged
from ingot.torch.recurrent import WholeRecurrences

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingot.torch_quantizer.batches import Arguments, CallForm
    from ingot.torch_quantizer.config import DynamicAxes

aten = torch.ops.aten

# torchao's quantizer finds its patterns by the module or function that a node came from.
SOURCES: dict[Any, Callable[..., Any]] = {
    aten.linear.default: nn.Linear,
    aten.conv1d.default: nn.Conv1d,
    aten.conv2d.default: nn.Conv2d,
    aten.batch_norm.default: nn.BatchNorm2d,
    aten.add.Tensor: operator.add,
    aten.add_.Tensor: operator.add,
    aten.relu.default: nn.ReLU,
    aten.relu_.default: nn.ReLU,
    aten.relu6.default: nn.ReLU6,
    aten.relu6_.default: nn.ReLU6,
    aten.hardtanh.default: nn.Hardtanh,
    aten.hardtanh_.default: nn.Hardtanh,
    aten.hardswish.default: nn.Hardswish,
    aten.hardswish_.default: nn.Hardswish,
    aten.silu.default: nn.SiLU,
    aten.silu_.default: nn.SiLU,
    aten.leaky_relu.default: nn.LeakyReLU,
    aten.leaky_relu_.default: nn.LeakyReLU,
    aten.tanh.default: nn.Tanh,
    aten.gelu.default: nn.GELU,
}


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"{type(model).__name__} is no torch.nn.Module")
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"'{name}' is on {tensor.device}", "model.cpu(): Ingot quantizes on the CPU")
        if tensor.is_quantized:
            raise InvalidInputError(
                f"'{name}' is quantized already", "export such a model: ingot.Model(model).export(...)"
            )
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise UnsupportedError(f"'{name}' is {str(tensor.dtype).removeprefix('torch.')}", "model.float()")
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.ao.nn.") or hasattr(module, "calculate_qparams"):
            raise InvalidInputError(
                f"'{name}' ({type(module).__name__}) is quantized or prepared already",
                "quantize() takes the float model",
            )


def shared_copy(model: nn.Module) -> nn.Module:
    """A copy to change that holds the same tensors, for inference."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return with_linears(copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})).eval()


def with_linears(model: nn.Module) -> nn.Module:
    """Transformers' Conv1D (GPT-2) is a Linear with its weight transposed, which quantizers do not know. In place."""
    for path, module in list(model.named_modules()):
        if type(module).__name__ != "Conv1D" or not type(module).__module__.startswith("transformers."):
            continue
        outputs, inputs = module.weight.shape[1], module.weight.shape[0]
        linear = nn.Linear(inputs, outputs, device="meta")
        linear.weight = nn.Parameter(module.weight.detach().t().contiguous())
        linear.bias = module.bias
        model.set_submodule(path, linear.train(module.training))
    return model


def capture(model: nn.Module, form: CallForm, example: Arguments, axes: DynamicAxes | None) -> GraphModule:
    """The model's graph for calls like the example, in the mode (train or eval) that the model is in."""
    program = _captured_freely(model, example) if axes is None else _captured(model, form, example, axes)
    graph = program.module()
    assert isinstance(graph, GraphModule)
    _name_sources(graph)
    return graph


def _captured(model: nn.Module, form: CallForm, example: Arguments, asked: DynamicAxes) -> ExportedProgram:
    """With the axes free that were asked for, or an error."""
    call = call_of(model, form.by_name(example), None)
    axes = checked_axes(call, asked, None)
    larger = {id(old): new for old, new in zip(call.tensors, enlarged(call, axes), strict=True)}
    shapes = ShapesCollection()
    for name, tensor in zip(call.names, call.tensors, strict=True):
        if name in axes:
            shapes[larger[id(tensor)]] = dict.fromkeys(axes[name], Dim.AUTO)
    arguments = pytree.tree_map(lambda leaf: larger.get(id(leaf), leaf), example)
    program = _exported(model, arguments, shapes)
    try:
        dim_names(program, call, axes)
    except InvalidInputError:
        # Recurrent layers, traced step by step, fix the number of steps; as a whole they stay fp32.
        with WholeRecurrences():
            program = _exported(model, arguments, shapes)
        dim_names(program, call, axes)
    return program


def _captured_freely(model: nn.Module, example: Arguments) -> ExportedProgram:
    """All dims free that the model leaves free; of a model that cannot be traced so, those of the example."""
    errors = []
    for call, free in ((_twice(example), True), (example, True), (example, False)):
        try:
            return _exported(model, call, _all_free(call) if free else None)
        except UnsupportedError as error:
            errors.append(error)
    raise errors[-1]


def _exported(model: nn.Module, call: Arguments, shapes: ShapesCollection | None) -> ExportedProgram:
    spec = shapes.dynamic_shapes(model, *call) if shapes is not None else None
    training = any(module.training for module in model.modules())
    try:
        with torch.set_grad_enabled(training), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(model, call[0], call[1], dynamic_shapes=spec, strict=False)
    except Exception as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be captured: {first_line(error)}",
            "torch.export must be able to run it; approach='dynamic' needs no capture",
        ) from error


def _tensors(call: Arguments) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(call) if isinstance(leaf, Tensor)]


def _all_free(call: Arguments) -> ShapesCollection:
    shapes = ShapesCollection()
    for tensor in _tensors(call):
        shapes[tensor] = dict.fromkeys(range(tensor.dim()), Dim.AUTO)
    return shapes


def _twice(call: Arguments) -> Arguments:
    """A tracer takes a dim of 1 for a constant: a batch of one is traced as a batch of two."""
    if any(tensor.dim() == 0 or tensor.shape[0] != 1 for tensor in _tensors(call)):
        return call
    doubled: Arguments = pytree.tree_map(lambda x: torch.cat([x, x]) if isinstance(x, Tensor) else x, call)
    return doubled


def _name_sources(graph: GraphModule) -> None:
    """Every operation becomes a source of its own, named after what it does: patterns are found by data flow alone."""
    for node in graph.graph.nodes:
        if node.op == "call_function":
            whole = all(isinstance(arg, Node) for arg in node.args[:2])
            source = SOURCES.get(node.target) if whole or SOURCES.get(node.target) is not operator.add else None
            node.meta["source_fn_stack"] = [(node.name, source or node.target)]


def path_of(node: Node) -> str:
    """The name of the module that an operation was called in."""
    return modules_of(node)[-1] if modules_of(node) else ""


def modules_of(node: Node) -> list[str]:
    """The names of all modules around an operation, outermost first."""
    return [name for name, _ in node.meta.get("nn_module_stack", {}).values() if name]
