"""What is no product, on quantized tensors: arithmetic, activations, normalizations, concatenation, pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ingot.errors import InvalidModelError
from ingot.exporter.reference.mode import Grid, ReferenceMode, grid_of, handles, real

if TYPE_CHECKING:
    from collections.abc import Callable


def _grid(mode: ReferenceMode, x: Tensor) -> Grid:
    grid = mode.grid(x)
    if grid is None:
        raise InvalidModelError("a quantized operator reads a tensor that is not quantized", "a QuantStub is missing")
    return grid


def _with_grid(mode: ReferenceMode, y: Tensor, like: Tensor, scale: Any, zero_point: Any) -> Tensor:
    return mode.quantized(y, grid_of(scale, zero_point, _grid(mode, like).dtype))


def _shifted(x: Tensor, grid: Grid, by: float) -> tuple[Tensor, Grid]:
    """x + by, by rounded to whole steps. The integers stay and the zero point moves, unless it leaves its type."""
    least, most = grid.bounds
    scale, zero = float(grid.scale), int(grid.zero_point)
    steps = round(by / scale)
    moved = zero - steps
    if moved < least:
        new = Grid((most - moved) / (most - least) * scale, least, grid.dtype)
    elif moved > most:
        new = Grid((moved - least) / (most - least) * scale, most, grid.dtype)
    else:
        new = Grid(scale, moved, grid.dtype)
    return x + steps * scale, new


def _scaled(x: Tensor, grid: Grid, by: float) -> tuple[Tensor, Grid]:
    least, most = grid.bounds
    if by == 0:
        return x * 0.0, Grid(1.0, 0, grid.dtype)
    zero = grid.zero_point if by > 0 else least + most - grid.zero_point
    return x * by, Grid(grid.scale * abs(by), zero, grid.dtype)


def _register_arithmetic(
    op: str, call: Callable[[Any, Any], Tensor], scalar: Callable[..., tuple[Tensor, Grid]]
) -> None:
    def with_scalar(mode: ReferenceMode, x: Tensor, by: Any, act: Callable[[Tensor], Tensor]) -> Tensor:
        y, grid = scalar(x, _grid(mode, x), float(by))
        return mode.quantized(act(y), grid)

    for suffix, act in {"": lambda y: y, "_relu": torch.relu}.items():

        @handles(f"quantized::{op}{suffix}", f"quantized::{op}_scalar{suffix}")
        def handler(
            mode: ReferenceMode,
            a: Any,
            b: Any,
            scale: Any = None,
            zero_point: Any = None,
            act: Callable[[Tensor], Tensor] = act,
        ) -> Tensor:
            if not isinstance(a, Tensor):
                a, b = b, a
            if scale is None:
                return with_scalar(mode, a, b, act)
            return _with_grid(mode, act(call(a, b)), a, scale, zero_point)


_register_arithmetic("add", torch.add, _shifted)
_register_arithmetic("mul", torch.mul, _scaled)


@handles("quantized::cat")
def cat(mode: ReferenceMode, xs: list[Tensor], dim: int, scale: Any = None, zero_point: Any = None) -> Tensor:
    y = torch.cat(xs, dim)
    return mode.quantized(y, _grid(mode, xs[0])) if scale is None else _with_grid(mode, y, xs[0], scale, zero_point)


@handles("quantized::cat_relu")
def cat_relu(mode: ReferenceMode, xs: list[Tensor], dim: int, scale: Any = None, zero_point: Any = None) -> Tensor:
    return cat(mode, [torch.relu(x) for x in xs], dim, scale, zero_point)


# f(x, *args, output_scale, output_zero_point): the operators that name the grid of their result last.
ON_GIVEN_GRID: dict[str, Callable[..., Tensor]] = {
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x, dim: torch.softmax(x, dim),
    "prelu": F.prelu,
    "leaky_relu": lambda x, negative_slope, inplace=False: F.leaky_relu(x, negative_slope),
    "layer_norm": F.layer_norm,
    "group_norm": F.group_norm,
    "instance_norm": lambda x, weight, bias, eps: F.instance_norm(x, None, None, weight, bias, True, 0.0, eps),
}


def _batch_norm(x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


for _rank in ("", "1d", "2d", "3d"):
    ON_GIVEN_GRID[f"batch_norm{_rank}"] = _batch_norm
    ON_GIVEN_GRID[f"batch_norm{_rank}_relu"] = lambda *args: torch.relu(_batch_norm(*args))


def _register_given(name: str, call: Callable[..., Tensor]) -> None:
    @handles(f"quantized::{name}")
    def handler(mode: ReferenceMode, x: Tensor, *args: Any, **named: Any) -> Tensor:
        scale = named.pop("output_scale", None)
        zero_point = named.pop("output_zero_point", None)
        if scale is None:
            *args, scale, zero_point = args  # type: ignore[assignment]
        return _with_grid(mode, call(x, *map(real, args), **named), x, scale, zero_point)


for _name, _call in ON_GIVEN_GRID.items():
    _register_given(_name, _call)


# f(x, output_scale, output_zero_point, *args)
@handles("quantized::elu")
def elu(
    mode: ReferenceMode,
    x: Tensor,
    output_scale: Any,
    output_zero_point: Any,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Tensor:
    y = torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))
    return _with_grid(mode, y, x, output_scale, output_zero_point)


@handles("quantized::celu")
def celu(mode: ReferenceMode, x: Tensor, output_scale: Any, output_zero_point: Any, alpha: float = 1.0) -> Tensor:
    return _with_grid(mode, F.celu(x, alpha), x, output_scale, output_zero_point)


@handles("quantized::dropout")
def dropout(mode: ReferenceMode, x: Tensor, output_scale: Any, output_zero_point: Any, *_: Any, **__: Any) -> Tensor:
    return _with_grid(mode, x, x, output_scale, output_zero_point)


@handles("quantized::clamp")
def clamp(mode: ReferenceMode, x: Tensor, *bounds: Any, **named: Any) -> Tensor:
    return mode.quantized(torch.clamp(x, *bounds, **named), _grid(mode, x))


@handles("quantized::relu6")
def relu6(mode: ReferenceMode, x: Tensor, inplace: bool = False) -> Tensor:
    return mode.quantized(F.relu6(x), _grid(mode, x))


@handles("quantized::threshold")
def threshold(mode: ReferenceMode, x: Tensor, threshold: float, value: float) -> Tensor:
    return mode.quantized(F.threshold(x, threshold, value), _grid(mode, x))


@handles("quantized::max_pool1d", "quantized::max_pool2d")
def max_pool(mode: ReferenceMode, x: Tensor, *args: Any) -> Tensor:
    pool = F.max_pool1d if len(args[0]) == 1 else F.max_pool2d
    return mode.quantized(pool(x, *args), _grid(mode, x))


# Functions whose result PyTorch puts on a grid of its own: the range of the function over all 256 integers.
def _register_bounded(name: str, low: float, width: float) -> None:
    @handles(name, f"{name}_")
    def handler(mode: ReferenceMode, x: Any, *args: Any, **named: Any) -> Any:
        grid = mode.grid(x)
        if grid is None:
            return NotImplemented
        least, most = grid.bounds
        step = width / (most - least + 1)
        zero = least + round(-low / step)
        return mode.quantized(getattr(F, name)(x), Grid(step, zero, grid.dtype))


_register_bounded("sigmoid", 0.0, 1.0)
_register_bounded("hardsigmoid", 0.0, 1.0)
_register_bounded("tanh", -1.0, 2.0)
