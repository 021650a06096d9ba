"""What the arguments of an operator are during translation: tensors of the graph, and numbers known when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A size: a number, or a torch.SymInt.
Size = Any
# What an operator takes where PyTorch takes a Python number.
Number = Any

MAX_INT = 2**63 - 1


class Unsupported(Exception):  # noqa: N818 - says what is, not that something broke
    """An operator, or a way to call it, that has no translation; the text says why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph being written. The shape holds numbers, SymInts, and None for a size that only data tell;
    it is None where nobody needs it."""

    name: str
    dtype: torch.dtype
    shape: tuple[Size, ...] | None = None

    @property
    def dims(self) -> tuple[Size, ...]:
        if self.shape is None:
            raise Unsupported(f"the shape of '{self.name}' is not known")
        return self.shape

    @property
    def rank(self) -> int:
        return len(self.dims)


class Scalar:
    """A number that is known only when the graph runs: a SymInt, SymFloat or SymBool of the captured program.

    Written into the graph when it is first used: an int as an int64 tensor of one element, a float as float64 and a
    bool as bool of rank 0.
    """

    __slots__ = ("_make", "_tensor", "kind", "value")

    def __init__(self, value: Any, kind: type, make: Callable[[], Tensor]) -> None:
        self.value = value
        self.kind = kind
        self._make = make
        self._tensor: Tensor | None = None

    def tensor(self) -> Tensor:
        if self._tensor is None:
            self._tensor = self._make()
        return self._tensor


def expression(size: Size) -> Any:
    """What tells two sizes apart: a number, or the sympy expression of a SymInt."""
    if isinstance(size, Scalar):
        size = size.value
    if isinstance(size, torch.SymInt):
        expr = size.node.expr
        return int(expr) if expr.is_number else expr
    return size


def same_size(a: Size, b: Size) -> bool:
    """Provably equal."""
    return bool(expression(a) == expression(b))


def is_static(shape: Sequence[Size]) -> bool:
    return all(isinstance(expression(s), int) for s in shape)


def static(size: Size, what: str) -> int:
    """The number that a size is; Unsupported when it is known only at run time."""
    number = expression(size)
    if isinstance(number, int):
        return number
    raise Unsupported(f"{what} is not known before the graph runs")


def axis_of(dim: int, rank: int) -> int:
    """A dim as PyTorch counts it, also from the back; rank 0 counts as 1."""
    return dim + max(rank, 1) if dim < 0 else dim


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
_SUPPORTED = (torch.bool, *_INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_integer(dtype: torch.dtype) -> bool:
    """An integer type; bool is none."""
    return dtype in _INTEGERS


# Of complex types, the type of real and imaginary parts.
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_WHOLES = {part: whole for whole, part in PARTS.items()}


def is_complex(dtype: torch.dtype) -> bool:
    return dtype in PARTS


def parts_of(x: Tensor) -> Tensor:
    """What a complex tensor [...] is in the graph: its parts [..., 2]."""
    return Tensor(x.name, PARTS[x.dtype], None if x.shape is None else (*x.shape, 2))


def whole_of(x: Tensor) -> Tensor:
    """The complex tensor of these parts."""
    return Tensor(x.name, _WHOLES[x.dtype], None if x.shape is None else x.shape[:-1])


def check_dtype(dtype: torch.dtype) -> None:
    if dtype not in _SUPPORTED and dtype not in PARTS:
        raise Unsupported(f"tensors of {dtype_name(dtype)}")


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else 1 if is_integer(dtype) else 2


def _number_dtype(number: Number) -> torch.dtype:
    kind = number.kind if isinstance(number, Scalar) else type(number)
    if kind is bool or isinstance(number, torch.SymBool):
        return torch.bool
    if kind is int or isinstance(number, torch.SymInt):
        return torch.int64
    if kind is float or isinstance(number, torch.SymFloat):
        return torch.get_default_dtype()
    raise Unsupported(f"a number of type {kind.__name__}")


def result_type(*operands: Tensor | Number) -> torch.dtype:
    """PyTorch's type promotion: tensors before tensors of rank 0 before numbers, unless of a higher category."""
    groups: list[torch.dtype | None] = [None, None, None]
    for x in operands:
        place = 2 if not isinstance(x, Tensor) else 1 if x.rank == 0 else 0
        dtype = x.dtype if isinstance(x, Tensor) else _number_dtype(x)
        before = groups[place]
        groups[place] = dtype if before is None else torch.promote_types(before, dtype)
    result: torch.dtype | None = None
    for dtype in groups:
        if dtype is not None and (result is None or _category(dtype) > _category(result)):
            result = dtype
    assert result is not None
    return result
