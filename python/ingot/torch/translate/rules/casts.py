"""Changes of the element type, and copies that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ingot.torch.translate.emitter import ONNX_TYPES
from ingot.torch.translate.registry import rule
from ingot.torch.translate.values import Tensor, Unsupported

if TYPE_CHECKING:
    from ingot.torch.translate.emitter import Emitter

aten = torch.ops.aten


@rule(
    aten._to_copy.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to.other,
    aten.to.prim_Device,
    aten.to.prim_dtype,
    aten.type_as.default,
    torch.ops.prims.convert_element_type.default,
    aten._cast_Float.default,
)
def _to(e: Emitter, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return e.cast(x, e.out.dtype)


@rule(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    torch.ops.prims.clone.default,
    torch.ops.prims.view_of.default,
)
def _same(e: Emitter, x: Tensor, **_: Any) -> Tensor:
    return x


@rule(aten.copy.default)
def _copy(e: Emitter, x: Tensor, source: Tensor, *_: Any, **__: Any) -> Tensor:
    return e.expand(e.cast(source, x.dtype), [e.size(x, i) for i in range(x.rank)])


@rule(aten.view.dtype)
def _view_dtype(e: Emitter, x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.itemsize != x.dtype.itemsize or torch.bool in (dtype, x.dtype):
        raise Unsupported(f"{x.dtype} read as {dtype}")
    return x if dtype == x.dtype else e.op("BitCast", x, dtype=dtype, to=ONNX_TYPES[dtype])
