"""Layers whose weight is kept in 4 or 8 bits. They compute in fp32 with the numbers that it stands for.

`weight` gives these numbers. Integers of 4 bits lie two to a byte, the first in the lower half; a row of them starts
with a byte of its own. `as_exported` is the layer as files have it: with DequantizeLinear of a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ingot.errors import InvalidInputError
from ingot.exporter.narrow_weights import dequantize_weight
from ingot.torch_quantizer.weight_only.grid import Form, Rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# By their class exactly: what is derived from it may do something else with its weight.
TYPE_OF = {
    nn.Linear: "Linear",
    nn.Conv1d: "Conv1d",
    nn.Conv2d: "Conv2d",
    nn.Conv3d: "Conv3d",
    nn.Embedding: "Embedding",
}


def matrix_of(layer: nn.Module) -> Tensor:
    """The weight as a matrix: a row for each output, or for each row of a table."""
    return cast("Tensor", layer.weight.detach().flatten(1))


def _pack(q: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return q.contiguous()
    halves = F.pad(q, (0, q.shape[1] % 2)).to(torch.uint8) & 15
    return halves[:, ::2] | (halves[:, 1::2] << 4)


def _unpack(packed: Tensor, form: Form, columns: int) -> Tensor:
    if form.bits == 8:
        return packed
    halves = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)[..., :columns]
    return (halves ^ 8).to(torch.int8) - 8 if form.symmetric else halves


class NarrowLayer(nn.Module):  # type: ignore[misc]
    """What the kinds below share."""

    packed: Tensor
    scale: Tensor
    zero_point: Tensor | None
    input_factor: Tensor | None  # what inputs are multiplied with, a number for each channel
    bias: Tensor | None

    def __init__(self, rounded: Rounded, shape: torch.Size, bias: Tensor | None) -> None:
        super().__init__()
        self.form, self.shape = rounded.form, tuple(shape)
        self.columns = rounded.q.shape[1]
        zero = None if rounded.form.symmetric else rounded.zero.to(torch.uint8)
        form = rounded.form
        self.register_buffer("layout", torch.tensor([form.bits, form.group, form.symmetric]))  # for the state alone
        self.register_buffer("packed", _pack(rounded.q, rounded.form.bits))
        self.register_buffer("scale", rounded.scale)
        self.register_buffer("zero_point", zero)
        self.register_buffer("input_factor", self._channels(rounded.factor))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def _channels(self, factor: Tensor | None) -> Tensor | None:
        """1 / factor, one for each channel of the input instead of each column."""
        if factor is None:
            return None
        places = self.columns // self.shape[1]
        return (1 / factor[::places]).reshape(-1, *[1] * (len(self.shape) - 2))

    def integers(self) -> Tensor:
        """[rows, columns], one to a byte."""
        return _unpack(self.packed, self.form, self.columns)

    def _real(self, q: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        return dequantize_weight(q, scale, zero, q.dim() - 1, self.form.width(self.columns), self.form.bits)

    @property
    def weight(self) -> Tensor:
        return self._real(self.integers(), self.scale, self.zero_point).reshape(self.shape)

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.input_factor is None else x * self.input_factor

    def extra_repr(self) -> str:
        group = f"groups of {self.form.group}" if self.form.group else "whole rows"
        return f"{' x '.join(map(str, self.shape))}, {self.form.name} in {group}"


class NarrowLinear(NarrowLayer):
    def __init__(self, rounded: Rounded, layer: nn.Linear) -> None:
        super().__init__(rounded, layer.weight.shape, layer.bias)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self._scaled(x), self.weight, self.bias)

    def as_exported(self) -> nn.Module:
        return _Linear(self)


class NarrowConv(NarrowLayer):
    """Of one to three dims."""

    def __init__(self, rounded: Rounded, layer: Any) -> None:
        super().__init__(rounded, layer.weight.shape, layer.bias)
        self.stride, self.dilation, self.groups = layer.stride, layer.dilation, layer.groups
        self.padding, self.padding_mode = layer.padding, layer.padding_mode
        self.padded = list(layer._reversed_padding_repeated_twice)
        self.kernel_size = layer.kernel_size
        self.in_channels, self.out_channels = layer.in_channels, layer.out_channels

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(self._scaled(x), self.weight, self.bias)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self.padded, self.padding_mode), 0
        conv: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        return conv(x, weight, bias, self.stride, padding, self.dilation, self.groups)

    def as_exported(self) -> nn.Module:
        return _Conv(self)


class NarrowEmbedding(NarrowLayer):
    def __init__(self, rounded: Rounded, layer: nn.Embedding) -> None:
        super().__init__(rounded, layer.weight.shape, None)
        self.num_embeddings, self.embedding_dim = layer.num_embeddings, layer.embedding_dim
        self.padding_idx = layer.padding_idx

    def forward(self, indices: Tensor) -> Tensor:
        q = _unpack(F.embedding(indices, self.packed), self.form, self.columns)
        zero = None if self.zero_point is None else F.embedding(indices, self.zero_point)
        return self._real(q, F.embedding(indices, self.scale), zero)

    def as_exported(self) -> nn.Module:
        return _Embedding(self)


def restore(model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """The float model with narrow layers where its state has such, in place; what they hold is loaded afterwards."""
    for key in [key for key in state if is_layout(key)]:
        name = key.rpartition(".")[0]
        try:
            layer: Any = model.get_submodule(name)
            rounded = _rounded_of(layer, {part: state.get(f"{name}.{part}".lstrip(".")) for part in PARTS})
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the state holds '{key}', which does not fit the float module", "the two do not belong together"
            ) from error
        new = narrow(rounded, layer)
        if name:
            model.set_submodule(name, new)
        else:
            model = new
    return model


PARTS = ("layout", "packed", "scale", "zero_point", "input_factor")


def is_layout(key: str) -> bool:
    return key.rpartition(".")[2] == "layout"


def _rounded_of(layer: nn.Module, parts: dict[str, Any]) -> Rounded:
    bits, group, symmetric = parts["layout"].tolist()
    form = Form(bits, group, bool(symmetric))
    columns = matrix_of(layer).shape[1]
    factor = None if parts["input_factor"] is None else torch.ones(columns)
    q = _unpack(parts["packed"], form, columns)
    zero = torch.zeros_like(parts["scale"]) if parts["zero_point"] is None else parts["zero_point"].float()
    return Rounded(form, q, parts["scale"], zero, factor)


def narrow(rounded: Rounded, layer: nn.Module) -> NarrowLayer:
    if isinstance(layer, nn.Embedding):
        return NarrowEmbedding(rounded, layer)
    return NarrowLinear(rounded, layer) if isinstance(layer, nn.Linear) else NarrowConv(rounded, layer)


class _Exported(nn.Module):  # type: ignore[misc]
    """The weight under the names and in the order that files have: of products [inputs, outputs]."""

    values: Tensor
    scale: Tensor
    zero_point: Tensor | None

    def __init__(self, layer: NarrowLayer, *, turned: bool) -> None:
        super().__init__()
        q, scale, zero = layer.integers(), layer.scale, layer.zero_point
        groups = 0 < layer.form.group <= layer.columns
        if q.dtype == torch.int8 and layer.form.bits == 8:
            # onnxruntime may change s8 to u8 itself, and forgets the scales' shape where there is no zero point.
            zero = torch.zeros_like(scale, dtype=torch.int8)
        self.group = layer.form.group if groups else 0
        along_columns = 0 if turned else 1
        self.axis = along_columns if groups else 1 - along_columns
        self.bits = layer.form.bits
        for name, part in {"scale": scale, "zero_point": zero}.items():
            kept = None if part is None else (part.t() if turned else part).contiguous()
            self.register_buffer(name, kept if kept is None or groups else kept.flatten())
        self.register_buffer("values", (q.t() if turned else q).contiguous())
        self.register_buffer("bias", layer.bias)
        self.register_buffer("input_factor", layer.input_factor)

    def real(self) -> Tensor:
        return dequantize_weight(self.values, self.scale, self.zero_point, self.axis, self.group, self.bits)

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.input_factor is None else x * self.input_factor


class _Linear(_Exported):
    def __init__(self, layer: NarrowLinear) -> None:
        super().__init__(layer, turned=True)
        self.in_features, self.out_features = layer.in_features, layer.out_features

    @property
    def weight(self) -> Tensor:
        return self.real().t()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(self._scaled(x), self.real())
        return y if self.bias is None else y + self.bias


class _Conv(_Exported):
    def __init__(self, layer: NarrowConv) -> None:
        super().__init__(layer, turned=False)
        self._of = [layer]  # for its strides; no child, as its weight is here

    @property
    def weight(self) -> Tensor:
        return self.real().reshape(self._of[0].shape)

    def forward(self, x: Tensor) -> Tensor:
        return self._of[0].convolve(self._scaled(x), self.weight, self.bias)


class _Embedding(_Exported):
    def __init__(self, layer: NarrowEmbedding) -> None:
        super().__init__(layer, turned=False)
        self.num_embeddings, self.embedding_dim = layer.num_embeddings, layer.embedding_dim
        self.padding_idx = layer.padding_idx

    @property
    def weight(self) -> Tensor:
        return self.real()

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.real())
