"""The mode, and the registry of what each operator means. See the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from ingot.exporter.weights import INTEGER_OF, CellWeights, HalfWeight, QuantizedWeight, bounds, decomposed

Number = Any  # float, or a tensor of one element
Integer = Any


@dataclass(frozen=True)
class Grid:
    """What a quantized tensor can hold: (integer - zero_point) * scale. Numbers, or tensors of one element."""

    scale: Number
    zero_point: Integer
    dtype: torch.dtype  # torch.uint8 or torch.int8

    @property
    def bounds(self) -> tuple[int, int]:
        return bounds(self.dtype)


Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers handler(mode, *args, **kwargs) for functions: 'quantized::linear', or the name of a function."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def name_of(func: Any) -> str:
    if isinstance(func, torch._ops.OpOverload):
        return str(func.name().split(".")[0])
    if isinstance(func, torch._ops.OpOverloadPacket):
        return str(func._qualified_op_name)
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") == "__get__" and owner is not None:
        return f"{owner.__name__}.get"
    return str(getattr(func, "__name__", func))


class ReferenceMode(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, keep_reduce_range: bool = False) -> None:
        super().__init__()
        self.keep_reduce_range = keep_reduce_range
        self._grids: Any = WeakIdKeyDictionary()
        self.measured: Any = WeakIdKeyDictionary()  # scale -> (tensor, its integers); see dynamic.py

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        handler = HANDLERS.get(name) or HANDLERS.get(name.removeprefix("aten::"))
        if handler is not None:
            result = handler(self, *args, **kwargs)
            if result is not NotImplemented:
                return result
        return self.on_floats(func, args, kwargs)

    def grid(self, value: Any) -> Grid | None:
        return self._grids.get(value) if isinstance(value, Tensor) else None

    def quantized(self, x: Tensor, grid: Grid) -> Tensor:
        """x, rounded to the grid."""
        least, most = grid.bounds
        quantize, dequantize = decomposed.quantize_per_tensor, decomposed.dequantize_per_tensor
        if isinstance(grid.scale, Tensor) or isinstance(grid.zero_point, Tensor):
            # A model in 64 bits would be traced with scales of 64 bits; ONNX has none such.
            scale = torch.as_tensor(grid.scale, dtype=torch.float32)
            zero_point = torch.as_tensor(grid.zero_point, dtype=torch.int64)
            q = quantize.tensor(x, scale, zero_point, least, most, grid.dtype)
            y = dequantize.tensor(q, scale, zero_point, least, most, grid.dtype)
        else:
            q = quantize.default(x, float(grid.scale), int(grid.zero_point), least, most, grid.dtype)
            y = dequantize.default(q, float(grid.scale), int(grid.zero_point), least, most, grid.dtype)
        self._grids[y] = grid
        return y

    def on_floats(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator without a rule of its own: PyTorch's kernels for quantized tensors keep the grid of the first
        operand; weights are read as what they stand for."""
        grid = next((g for g in map(self.grid, tree_leaves((args, kwargs))) if g is not None), None)
        args, kwargs = tree_map(real, (args, kwargs), is_leaf=_is_weight)
        result = func(*args, **kwargs)
        if grid is None:
            return result
        operands = {id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}

        def keep(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            if id(value) in operands:  # in place, or nothing to do
                self._grids[value] = grid
                return value
            return self.quantized(value, grid)

        return tree_map(keep, result)


def _is_weight(value: Any) -> bool:
    return isinstance(value, QuantizedWeight | HalfWeight | CellWeights)


def real(value: Any) -> Any:
    return value.real() if isinstance(value, QuantizedWeight | HalfWeight) else value


def grid_of(scale: Number, zero_point: Integer, dtype: torch.dtype) -> Grid:
    return Grid(_number(scale), _number(zero_point), INTEGER_OF.get(dtype, dtype))


def _number(value: Any) -> Any:
    """Tensors that hold a value are numbers; those of a tracer are not."""
    if isinstance(value, Tensor) and type(value) is Tensor and value.numel() == 1 and value.device.type != "meta":
        return value.item()
    return value
