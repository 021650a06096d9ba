"""Quantized weights, out of the many shapes PyTorch keeps them in.

PyTorch hides integers in packed objects (LinearPackedParams, Conv2dPackedParams, CellParams, ...), in quantized
tensors and in torchao's tensor subclasses. No tracer sees through these. `unpacked(model)` is the same model with each
of them replaced by a QuantizedWeight, whose integers and scales are ordinary buffers under an ordinary name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.ao.quantization.fx._decomposed  # defines torch.ops.quantized_decomposed
from torch import Tensor, nn

from ingot.errors import UnsupportedError

decomposed = torch.ops.quantized_decomposed

INTEGER_OF = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}


def bounds(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.iinfo(dtype)
    return info.min, info.max


@dataclass(frozen=True)
class ConvolutionShape:
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool


@dataclass(frozen=True)
class ActivationRule:
    """How the other operand is quantized at run time: per row (last dim) or whole, around zero or not, or fixed."""

    per_row: bool
    symmetric: bool
    scale: Tensor | None = None
    zero_point: Tensor | None = None
    pre_scale: Tensor | None = None


class QuantizedWeight(nn.Module):  # type: ignore[misc]
    """real = (values - zero_point) * scale + offset; scales lie along `axis`, in blocks of `block` along the last dim.

    Tensor-like enough for PyTorch's argument parser, so that F.linear(x, quantized_weight) reaches the reference mode.
    """

    values: Tensor
    scale: Tensor
    zero_point: Tensor
    offset: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        values: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        *,
        axis: int | None = None,
        block: int = 0,
        offset: Tensor | None = None,
        bias: Tensor | None = None,
        shape: ConvolutionShape | None = None,
        activation: ActivationRule | None = None,
    ) -> None:
        super().__init__()
        for name, tensor in {"values": values, "scale": scale, "zero_point": zero_point, "offset": offset}.items():
            self.register_buffer(name, tensor)
        self.register_buffer("bias", bias.detach() if bias is not None else None)
        self.axis = axis
        self.block = block
        self.convolution = shape
        self.activation = activation

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise UnsupportedError(f"{func} on a quantized weight outside of the exporter's tracing")

    def real(self) -> Tensor:
        least, most = bounds(self.values.dtype)
        kind = self.values.dtype
        if self.block:
            values = decomposed.dequantize_per_channel_group(
                self.values, self.scale, self.zero_point, least, most, kind, self.block, torch.float32
            )
        elif self.axis is None:
            values = decomposed.dequantize_per_tensor.tensor(
                self.values, self.scale, self.zero_point, least, most, kind
            )
        else:
            values = decomposed.dequantize_per_channel(
                self.values, self.scale, self.zero_point, self.axis, least, most, kind
            )
        return cast("Tensor", values if self.offset is None else values + self.offset)

    # What code around a weight asks for.
    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def device(self) -> torch.device:
        return self.values.device

    def dim(self) -> int:
        return int(self.values.dim())

    def size(self, dim: int | None = None) -> Any:
        return self.values.shape if dim is None else self.values.shape[dim]


class HalfWeight(nn.Module):  # type: ignore[misc]
    """A weight kept in 16 bits, used in 32."""

    values: Tensor
    bias: Tensor | None

    def __init__(self, values: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("values", values.to(torch.float16))
        self.register_buffer("bias", bias.detach() if bias is not None else None)

    def real(self) -> Tensor:
        return self.values.to(torch.float32)


Weight = QuantizedWeight | HalfWeight


class CellWeights(nn.Module):  # type: ignore[misc]
    """One layer and direction of a recurrent module."""

    def __init__(self, w_ih: Weight, w_hh: Weight, b_ih: Tensor | None, b_hh: Tensor | None) -> None:
        super().__init__()
        self.w_ih, self.w_hh = w_ih, w_hh
        self.register_buffer("b_ih", b_ih.detach() if b_ih is not None else None)
        self.register_buffer("b_hh", b_hh.detach() if b_hh is not None else None)

    def flat(self) -> list[Tensor]:
        biases = [b for b in (self.b_ih, self.b_hh) if b is not None]
        return [self.w_ih.real(), self.w_hh.real(), *biases]


def weight_of(tensor: Tensor, **more: Any) -> QuantizedWeight:
    """A quantized tensor (torch.qint8, ...) as a QuantizedWeight."""
    integer = INTEGER_OF.get(tensor.dtype)
    if tensor.dtype == torch.quint4x2:
        values = _nibbles(tensor)
    elif integer is None or integer == torch.int32:
        raise UnsupportedError(f"a weight of type {tensor.dtype}", "qint8, quint8 and quint4x2 are exported")
    else:
        values = tensor.int_repr().contiguous()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float32)
        return QuantizedWeight(values, scale, torch.tensor(tensor.q_zero_point(), dtype=torch.int64), **more)
    axis = tensor.q_per_channel_axis()
    scale = tensor.q_per_channel_scales().to(torch.float32)
    zero_point = tensor.q_per_channel_zero_points()
    if tensor.qscheme() == torch.per_channel_affine_float_qparams:
        # Zero points between integers: (v - z) * s = v * s - z * s.
        offset = -(zero_point.to(torch.float64) * scale.to(torch.float64)).to(torch.float32)
        along = [-1 if dim == axis else 1 for dim in range(tensor.dim())]
        more["offset"] = offset.reshape(along)
        zero_point = torch.zeros_like(zero_point)
    return QuantizedWeight(values, scale, zero_point.to(torch.int64), axis=axis, **more)


def _nibbles(tensor: Tensor) -> Tensor:
    """The integers of a quint4x2 tensor, one per byte; int_repr does not give them in the tensor's shape."""
    along = [-1 if dim == tensor.q_per_channel_axis() else 1 for dim in range(tensor.dim())]
    scale, zero_point = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    steps = tensor.dequantize() / scale.reshape(along) + zero_point.reshape(along)
    return torch.round(steps).clamp(0, 15).to(torch.uint8)


def _unpack_linear(packed: Any) -> Weight:
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    if not weight.is_quantized:
        return HalfWeight(weight, bias)
    return weight_of(weight, bias=bias)


def _unpack_convolution(packed: Any) -> QuantizedWeight:
    weight, bias = packed.unpack()
    rank = weight.dim() - 2
    # One-dimensional convolutions are kept as two-dimensional ones of height 1; their module reshapes.
    shape = ConvolutionShape(
        tuple(packed.stride())[-rank:],
        tuple(packed.padding())[-rank:],
        tuple(packed.output_padding())[-rank:],
        tuple(packed.dilation())[-rank:],
        packed.groups(),
        bool(packed.transpose()),
    )
    return weight_of(weight, bias=bias, shape=shape)


def _unpack_cell(packed: Any) -> CellWeights:
    state = packed.__getstate__()[0]
    kind, tensors, weights = state[0], state[1], state[4]
    if kind == "quantized":
        raise UnsupportedError("a recurrent module of the oldest quantized form", "quantize it anew with PyTorch 1.6+")
    if len(tensors) == 2:
        b_ih, b_hh = tensors
        return CellWeights(_unpack_linear(weights[0]), _unpack_linear(weights[1]), b_ih, b_hh)
    w_ih, w_hh = (_unpack_linear(w) for w in weights)
    return CellWeights(w_ih, w_hh, w_ih.bias, w_hh.bias)


UNPACK = {
    "LinearPackedParamsBase": _unpack_linear,
    "Conv2dPackedParamsBase": _unpack_convolution,
    "Conv3dPackedParamsBase": _unpack_convolution,
    "EmbeddingPackedParamsBase": lambda p: weight_of(torch.ops.quantized.embedding_bag_unpack(p)),
    "CellParamsBase": _unpack_cell,
}


def unpack_object(packed: torch.ScriptObject) -> nn.Module:
    name = packed._type().qualified_name().rsplit(".", 1)[-1]
    if name not in UNPACK:
        raise UnsupportedError(f"packed parameters of type {name}")
    return cast("nn.Module", UNPACK[name](packed))


def unpack_value(value: Any) -> nn.Module | None:
    """The weight in something a module holds; None when it holds no weight that needs unpacking."""
    if isinstance(value, torch.ScriptObject):
        return unpack_object(value)
    if isinstance(value, Tensor):
        if value.is_quantized:
            return weight_of(value)
        if type(value).__module__.startswith("torchao."):
            from ingot.exporter.torchao_weights import unpack_torchao

            return unpack_torchao(value)
    return None


def _scale_buffers(module: nn.Module) -> list[str]:
    """Buffers that are nothing but a scale or a zero point: arguments of quantizing functions, and of nothing else."""
    if isinstance(module, torch.ao.nn.quantized.Quantize):
        return ["scale", "zero_point"]
    if not isinstance(module, torch.fx.GraphModule):
        return []

    def quantizes(node: torch.fx.Node) -> bool:
        target = node.target
        return target is torch.quantize_per_tensor or str(getattr(target, "__module__", "")).endswith("ops.quantized")

    reads = [node for node in module.graph.nodes if node.op == "get_attr" and node.target in module._buffers]
    return [str(node.target) for node in reads if node.users and all(map(quantizes, node.users))]


def unpacked(model: nn.Module) -> nn.Module:
    """The model with quantized weights replaced and scales as numbers.

    Modules are copied, for inference, and tensors shared: the model itself is untouched.
    """
    copies: dict[int, nn.Module] = {}
    weights: dict[int, nn.Module] = {}

    def replacement(value: Any) -> nn.Module | None:
        if id(value) not in weights:
            weight = unpack_value(value)
            if weight is None:
                return None
            weights[id(value)] = weight
        return weights[id(value)]

    def copy(module: nn.Module) -> nn.Module:
        if id(module) in copies:
            return copies[id(module)]
        if hasattr(module, "as_exported"):  # ingot.torch_quantizer.weight_only
            copies[id(module)] = module.as_exported().eval()
            return copies[id(module)]
        new = object.__new__(type(module))
        new.__dict__.update(module.__dict__)
        copies[id(module)] = new
        new._parameters, new._buffers, new._modules = dict(module._parameters), dict(module._buffers), {}
        new.training = False
        found: dict[str, nn.Module] = {}
        for holder in (new._parameters, new._buffers, new.__dict__):
            for name, value in list(cast("dict[str, Any]", holder).items()):
                weight = replacement(value)
                if weight is not None:
                    del holder[name]
                    found[name] = weight
        for name in _scale_buffers(module):
            buffer = new._buffers.get(name)
            if buffer is not None and buffer.numel() == 1:
                del new._buffers[name]
                new.__dict__[name] = buffer.item()
        for name, child in module._modules.items():
            new._modules[name] = copy(child) if child is not None else None
        new._modules.update(found)
        return new

    with torch.no_grad():
        return copy(model)
