"""Which operations are quantized: torchao's X86InductorQuantizer, and what it leaves out.

That quantizer knows two-dimensional convolutions, products with weights and what passes 8 bits on (pools, Cat).
Convolutions of other kinds, batched products and embedding tables have the same form: 8-bit operands, an fp32 result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.fx import GraphModule, Node

from ingot.errors import InvalidInputError, UnsupportedError
from ingot.torch_quantizer.config import PostTrainingQuantConfig, _Config
from ingot.torch_quantizer.graphs import modules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """torchao warns of kernels for other devices, of its own deprecations, and of every operation it leaves alone."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


with quiet():
    try:
        from torchao.quantization import pt2e as pt2e
        from torchao.quantization.pt2e.quantizer import (
            QuantizationAnnotation,
            QuantizationConfig,
            QuantizationSpec,
            Quantizer,
        )
        from torchao.quantization.pt2e.quantizer.embedding_quantizer import get_embedding_operators_config
        from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer
    except ImportError:
        raise UnsupportedError("quantizing in PyTorch needs torchao", "pip install torchao") from None

aten = torch.ops.aten
ANNOTATION = "quantization_annotation"

# The kinds of operations by the names that configs use.
OPERATORS: dict[str, tuple[Any, ...]] = {
    "Linear": (aten.linear.default,),
    "Conv1d": (aten.conv1d.default, aten.conv1d.padding),
    "Conv2d": (aten.conv2d.default, aten.conv2d.padding),
    "Conv3d": (aten.conv3d.default, aten.conv3d.padding),
    "ConvTranspose1d": (aten.conv_transpose1d.default,),
    "ConvTranspose2d": (aten.conv_transpose2d.input,),
    "ConvTranspose3d": (aten.conv_transpose3d.input,),
    "MatMul": (aten.matmul.default, aten.bmm.default),
    "Mul": (aten.mul.Tensor, aten.mul_.Tensor),
    "Embedding": (aten.embedding.default,),
    "MaxPool2d": (aten.max_pool2d.default,),
    "AvgPool2d": (aten.avg_pool2d.default,),
    "AdaptiveAvgPool2d": (aten.adaptive_avg_pool2d.default,),
    "Cat": (aten.cat.default,),
    "Flatten": (aten.flatten.using_ints,),
}
TYPE_OF = {target: name for name, targets in OPERATORS.items() for target in targets}

# What torchao's quantizer takes, by the functions it knows them by.
X86_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Linear": F.linear,
    "Conv1d": F.conv1d,
    "Conv2d": F.conv2d,
    "MatMul": torch.matmul,
    "Mul": torch.mul,
    "MaxPool2d": F.max_pool2d,
    "AvgPool2d": F.avg_pool2d,
    "AdaptiveAvgPool2d": F.adaptive_avg_pool2d,
    "Cat": torch.cat,
    "Flatten": torch.flatten,
}
WEIGHTED = ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
X86_WEIGHTED = ("Linear", "Conv1d", "Conv2d")

TYPES = {"u8": (torch.uint8, 0, 255), "s8": (torch.int8, -128, 127)}
# The smallest scale, as in PyTorch's own configurations for x86.
EPSILON = 2**-12


def excluded_modules(model: nn.Module, config: _Config) -> dict[str, str]:
    """Names of modules to leave in fp32, and what in `exclude` names them."""
    found: dict[str, str] = {}
    modules = dict(model.named_modules())
    for item in config.exclude:
        if isinstance(item, type):
            hits = [name for name, module in modules.items() if isinstance(module, item)]
            label = item.__name__
        else:
            hits = [name for name in modules if name and fnmatch.fnmatchcase(name, item)]
            label = item
        if not hits:
            some = ", ".join(name for name in list(modules)[1:6])
            raise InvalidInputError(f"exclude: no module of the model matches '{label}'", f"modules: {some}, ...")
        for name in hits:
            found.setdefault(name, label)
    for pattern in config.float_patterns():
        hits = [name for name in modules if name and re.fullmatch(pattern, name)]
        if not hits:
            raise InvalidInputError(f"op_name_dict: no module of the model matches '{pattern}'")
        for name in hits:
            found.setdefault(name, pattern)
    if isinstance(config, PostTrainingQuantConfig):
        _exclude_ends(modules, config, found)
    return found


def _exclude_ends(modules: Mapping[str, nn.Module], config: PostTrainingQuantConfig, found: dict[str, str]) -> None:
    """The recipes that leave the first or last product in fp32, in the order in which the model holds its layers."""
    layers = [name for name, m in modules.items() if type(m).__name__ in WEIGHTED and name not in found]
    for which, name in zip(("first", "last"), (layers[0], layers[-1]) if layers else (), strict=False):
        recipe = f"{which}_conv_or_matmul_quantization"
        if not config.recipe(recipe):
            found.setdefault(name, f"{recipe}=False")


def _specification(config: _Config, training: bool) -> QuantizationConfig:
    extra: dict[str, Any] = {"eps": EPSILON}
    if training:
        fake = pt2e.FusedMovingAvgObsFakeQuantize
        channels = (
            pt2e.MovingAveragePerChannelMinMaxObserver if config.per_channel else pt2e.MovingAverageMinMaxObserver
        )
        activation_observer: Any = fake.with_args(**extra)
        weight_observer: Any = fake.with_args(**extra, observer=channels)
    else:
        assert isinstance(config, PostTrainingQuantConfig)
        activation_observer = OBSERVERS[config.calibration].with_args(**extra)
        weight_observer = (pt2e.PerChannelMinMaxObserver if config.per_channel else pt2e.MinMaxObserver).with_args(
            **extra
        )
    dtype, least, most = TYPES[config.activation]
    if config.reduce_range:
        least, most = least // 2, most // 2
    activation = QuantizationSpec(
        dtype=dtype,
        quant_min=least,
        quant_max=most,
        qscheme=torch.per_tensor_symmetric if config.symmetric else torch.per_tensor_affine,
        observer_or_fake_quant_ctr=activation_observer,
    )
    dtype, least, most = TYPES[config.weight]
    weight = QuantizationSpec(
        dtype=dtype,
        quant_min=least,
        quant_max=most,
        qscheme=torch.per_channel_symmetric if config.per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if config.per_channel else None,
        observer_or_fake_quant_ctr=weight_observer,
    )
    return QuantizationConfig(activation, activation, weight, None, training)


OBSERVERS = {
    "histogram": pt2e.HistogramObserver,
    "minmax": pt2e.MinMaxObserver,
    "moving_average": pt2e.MovingAverageMinMaxObserver,
}


class ConfiguredQuantizer(Quantizer):  # type: ignore[misc]
    """Annotates a graph as a config asks."""

    def __init__(self, config: _Config, excluded: dict[str, str], *, training: bool) -> None:
        super().__init__()
        self._types = config.types()
        self._excluded = excluded
        self._config = _specification(config, training)
        self._per_channel = config.per_channel
        self._x86 = self._torchao_quantizer()

    def _torchao_quantizer(self) -> X86InductorQuantizer:
        quantizer = X86InductorQuantizer()
        for name in self._excluded:
            if name:
                quantizer.set_module_name_qconfig(name, None)
        for name, function in X86_FUNCTIONS.items():
            if name not in self._types:
                quantizer.set_function_type_qconfig(function, None)
        if "MatMul" in self._types:
            quantizer.set_function_type_qconfig(torch.matmul, self._config)
        return quantizer.set_global(self._config)

    def annotate(self, model: GraphModule) -> GraphModule:
        if "" not in self._excluded:
            self._x86.annotate(model)
            for node in model.graph.nodes:
                self._annotate_rest(node)
        for node in model.graph.nodes:
            _drop_what_cannot_be(node)
        return model

    def validate(self, model: GraphModule) -> None:
        pass

    def _annotate_rest(self, node: Node) -> None:
        kind = TYPE_OF.get(node.target)
        excluded = any(name in self._excluded for name in modules_of(node))
        if kind not in self._types or excluded or ANNOTATION in node.meta:
            return
        if kind in WEIGHTED:
            weight = self._config.weight
            if self._per_channel and kind.startswith("ConvTranspose"):
                weight = dataclasses.replace(weight, ch_axis=1)
            specs = {node.args[0]: self._config.input_activation, node.args[1]: weight}
        elif kind == "MatMul":
            specs = dict.fromkeys(node.args, self._config.input_activation)
        elif kind == "Embedding":
            specs = {node.args[0]: get_embedding_operators_config().config.weight}
        else:
            return
        node.meta[ANNOTATION] = QuantizationAnnotation(input_qspec_map=specs, _annotated=True)


def is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _drop_what_cannot_be(node: Node) -> None:
    """Products of integers have no scale; a weight that is computed from the inputs is no weight."""
    annotation = node.meta.get(ANNOTATION)
    if annotation is None or not annotation.input_qspec_map:
        return
    computed = TYPE_OF.get(node.target) in WEIGHTED and _depends_on_inputs(node.args[1])
    if computed or not all(is_float(operand) for operand in annotation.input_qspec_map if operand.op != "get_attr"):
        annotation.input_qspec_map = {}
        annotation.output_qspec = None


def _depends_on_inputs(node: Any) -> bool:
    seen: set[Node] = set()
    pending = [node]
    while pending:
        found = pending.pop()
        if isinstance(found, Node) and found not in seen:
            if found.op == "placeholder":
                return True
            seen.add(found)
            pending.extend(found.all_input_nodes)
    return False
