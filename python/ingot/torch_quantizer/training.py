"""Quantization-aware training: prepare a model, train it as usual, convert it. By torchao's PT2E."""

from __future__ import annotations

import copy
import functools
import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from ingot.errors import InvalidInputError, InvalidModelError, UnsupportedError, first_line
from ingot.torch_quantizer.annotate import OPERATORS, ConfiguredQuantizer, aten, excluded_modules, pt2e, quiet
from ingot.torch_quantizer.batches import Arguments, CallForm
from ingot.torch_quantizer.config import QuantizationAwareTrainingConfig
from ingot.torch_quantizer.graphs import capture, check_model, with_linears
from ingot.torch_quantizer.model import QuantizedModel
from ingot.torch_quantizer.report import graph_report
from ingot.torch_quantizer.static import example_call

# Arguments by which operations differ between training and inference.
TRAINING_FLAGS = ("train", "training")
DROPOUT_RATE = "dropout_p"
FOLDED = tuple(target for name, targets in OPERATORS.items() if name.startswith("Conv") for target in targets)


class PreparedModel(nn.Module):  # type: ignore[misc]
    """A model whose forward simulates 8 bits. Trained like any other: train(), eval(), parameters(), state_dict().

    In training mode it observes the ranges of activations, in eval mode it uses them. The graph is that of the model in
    training mode: dropout and normalization follow train() and eval(), other code that asks for `self.training` not.
    """

    def __init__(
        self,
        graph: GraphModule,
        form: CallForm,
        example: dict[str, Any],
        original: nn.Module,
        config: QuantizationAwareTrainingConfig,
    ) -> None:
        super().__init__()
        self.module = graph
        self._form = form
        self._example = example
        self._original = [original]  # in a list: no submodule, its parameters are not trained
        self._config = config
        self._modes = _training_arguments(graph)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._form.arrange((args, kwargs))
        return self.module(*args, **kwargs)

    def train(self, mode: bool = True) -> PreparedModel:
        self.training = mode
        set_training(self.module, self._modes, mode)
        self.module.apply(pt2e.enable_observer if mode else pt2e.disable_observer)
        return self

    def converted(self) -> QuantizedModel:
        _check_trained(self.module)
        graph = converted_graph(copy.deepcopy(self.module))
        original = self._float_model()
        excluded = excluded_modules(original, self._config)
        report = graph_report(graph, self._config, excluded, "quantization-aware training", {})
        return QuantizedModel(graph, float_model=original, report=report, form=self._form, example=self._example)

    def _float_model(self) -> nn.Module:
        """The original with the weights as they are now."""
        model = copy.deepcopy(self._original[0])
        names = model.state_dict().keys()
        trained = {name: value for name, value in self.module.state_dict().items() if name in names}
        model.load_state_dict(trained, strict=False)
        return model.eval()


def prepare_qat(
    model: nn.Module, config: QuantizationAwareTrainingConfig | None = None, example_inputs: Any = None
) -> PreparedModel:
    """A copy of the model that trains with simulated quantization. The model itself is not changed.

    example_inputs is a tensor, a tuple of positional arguments or a dict of keywords. convert() makes the 8-bit model.
    """
    config = QuantizationAwareTrainingConfig() if config is None else config
    if not isinstance(config, QuantizationAwareTrainingConfig):
        raise InvalidInputError(f"config is {type(config).__name__}, not QuantizationAwareTrainingConfig")
    check_model(model)
    if example_inputs is None:
        raise InvalidInputError("example_inputs is missing", "a tensor, a tuple of arguments or a dict of keywords")
    original = with_linears(copy.deepcopy(model))
    work = copy.deepcopy(original).train()
    excluded = excluded_modules(work, config)
    form = CallForm(work)
    example = form.fix(example_call(form, example_inputs))
    with quiet():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        graph = _captured_in_training(work, form, example, config)
        norms = _normalizations(graph)
        try:
            prepared = prepare_qat_pt2e(graph, ConfiguredQuantizer(config, excluded, training=True))
        except Exception as error:
            raise InvalidModelError(f"{type(model).__name__} cannot be prepared: {first_line(error)}") from error
    # torchao gives a normalization that it folds into a convolution a momentum and an epsilon of its own.
    _set_normalizations(prepared, norms)
    if not any(hasattr(module, "calculate_qparams") for module in prepared.modules()):
        raise InvalidInputError("nothing would be quantized", "see op_types and exclude of the config")
    return PreparedModel(prepared, form, form.by_name(example), original, config).train()


def _captured_in_training(
    model: nn.Module, form: CallForm, example: Arguments, config: QuantizationAwareTrainingConfig
) -> GraphModule:
    """Code that decides by chance in training (wav2vec2 skips layers) is no graph: then only PyTorch's own modules
    (dropout, normalization) train, and code that asks for `self.training` runs as in evaluation."""
    try:
        return capture(model, form, example, config.dynamic_axes)
    except UnsupportedError as error:
        for module in model.modules():
            module.training = type(module).__module__.startswith("torch.nn.modules.")
        try:
            return capture(model, form, example, config.dynamic_axes)
        except UnsupportedError:
            raise error from None


def prepare_for_x86(model: nn.Module, example_inputs: Any) -> GraphModule:
    """What torchao's own recipe for training on x86 makes of a model."""
    form = CallForm(model)
    args, kwargs = form.fix(example_call(form, example_inputs))
    with quiet():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
        program = torch.export.export(copy.deepcopy(model).train(), args, kwargs)
        return prepare_qat_pt2e(program.module(), quantizer)


def converted_graph(graph: GraphModule) -> GraphModule:
    """The quantized graph that one prepared for PT2E (for training or not) stands for. The given one is used up."""
    with quiet():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        set_training(graph, _training_arguments(graph), False)
        _drop_updates(graph)
        _fold_normalizations(graph)
        _keep_scales(graph)
        return convert_pt2e(graph)


def convert(prepared: PreparedModel) -> QuantizedModel:
    """The 8-bit model that a trained PreparedModel simulates. The prepared model can be trained on."""
    if not isinstance(prepared, PreparedModel):
        raise InvalidInputError(
            f"convert() takes what prepare_qat() gave, not {type(prepared).__name__}",
            "models prepared elsewhere are exported as they are: ingot.Model(model).export(...)",
        )
    return prepared.converted()


def _check_trained(graph: GraphModule) -> None:
    for name, module in graph.named_modules():
        low = getattr(getattr(module, "activation_post_process", None), "min_val", None)
        if isinstance(low, Tensor) and (low.numel() == 0 or bool(torch.isinf(low).any())):
            raise InvalidInputError(f"'{name}' has seen no data", "train the prepared model before it is converted")


def _training_arguments(graph: GraphModule) -> dict[str, tuple[int, Any]]:
    """Of each operation that acts differently in training: the argument that says so, and its value in training."""
    found: dict[str, tuple[int, Any]] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for index, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
            value = node.args[index]
            if (argument.name in TRAINING_FLAGS and value is True) or (argument.name == DROPOUT_RATE and value):
                found[node.name] = (index, value)
    return found


def set_training(graph: GraphModule, modes: dict[str, tuple[int, Any]], training: bool) -> None:
    for node in graph.graph.nodes:
        if node.name in modes:
            index, value = modes[node.name]
            node.update_arg(index, value if training else type(value)(0))
    graph.recompile()


def _keep_scales(graph: GraphModule) -> None:
    """Conversion would find scales anew, over 255 steps where training had 254 around zero."""
    for module in graph.modules():
        if isinstance(module, pt2e.FusedMovingAvgObsFakeQuantize):
            module.calculate_qparams = functools.partial(_trained_scale, module)


def _trained_scale(fake: nn.Module) -> tuple[Tensor, Tensor]:
    return fake.scale, fake.zero_point


def _normalizations(graph: GraphModule) -> dict[str, tuple[Any, Any]]:
    """Momentum and epsilon of each normalization, by the name of its variance."""
    nodes = graph.graph.find_nodes(op="call_function", target=aten.batch_norm.default)
    return {str(node.args[4].target): (node.args[6], node.args[7]) for node in nodes if isinstance(node.args[4], Node)}


def _set_normalizations(graph: GraphModule, norms: dict[str, tuple[Any, Any]]) -> None:
    for node in graph.graph.nodes:
        operand = node.args[4] if node.target is aten.batch_norm.default else node.args[0] if node.args else None
        if not isinstance(operand, Node) or operand.op != "get_attr" or str(operand.target) not in norms:
            continue
        momentum, epsilon = norms[str(operand.target)]
        if node.target is aten.batch_norm.default:
            node.update_arg(6, momentum)
            node.update_arg(7, epsilon)
        elif node.target is aten.add.Tensor and isinstance(node.args[1], float):
            node.update_arg(1, epsilon)
    graph.recompile()


def _fold_normalizations(graph: GraphModule) -> None:
    """conv(x, w * f) / f + b, normalized with f = gamma / sqrt(variance + epsilon) -> conv(x, w * f) + shift.

    So torchao trains a convolution with its normalization. It can fold them too, but only with an epsilon of 1e-5, and
    by tracing dozens of patterns.
    """
    for norm in graph.graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        source, bias = norm.args[0], None
        if source.target is aten.add.Tensor and _is_reshape(source.args[1]):
            source, bias = source.args[0], source.args[1].args[0]
        if source.target is not aten.div.Tensor or not _is_reshape(source.args[1]):
            continue
        convolution = source.args[0]
        held: list[Any] = [_tensor(graph, node) for node in (*norm.args[1:5], bias)]
        if convolution.target not in FOLDED or len(convolution.users) > 1 or any(t is None for t in held[:4]):
            continue
        gamma, beta, mean, variance, start = held
        factor = gamma / torch.sqrt(variance + norm.args[7])
        graph.register_buffer(f"{norm.name}_shift", beta + ((start if start is not None else 0.0) - mean) * factor)
        with graph.graph.inserting_before(convolution):
            shift = graph.graph.get_attr(f"{norm.name}_shift")
        convolution.args = (*convolution.args[:2], shift, *convolution.args[3:])
        norm.replace_all_uses_with(convolution)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _drop_updates(graph: GraphModule) -> None:
    """In training, normalizations count their batches, and spectral_norm improves its vectors (`out=`, in a graph
    without gradients of its own)."""
    for part in graph.modules():
        for node in list(part.graph.nodes) if isinstance(part, GraphModule) else ():
            held = node.kwargs.get("out")
            if node.target is aten.add_.Tensor and not node.users:
                if str(getattr(node.args[0], "target", "")).endswith("num_batches_tracked"):
                    part.graph.erase_node(node)
            elif isinstance(held, Node) and held.op in ("get_attr", "placeholder"):
                node.replace_all_uses_with(held)
                part.graph.erase_node(node)
                part.graph.eliminate_dead_code()
                part.recompile()


def _is_reshape(node: Any) -> bool:
    return isinstance(node, Node) and node.target is aten.reshape.default


def _tensor(graph: GraphModule, node: Any) -> Tensor | None:
    """The parameter or buffer that a node reads."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    value = operator.attrgetter(str(node.target))(graph)
    return value.detach() if isinstance(value, Tensor) else None
