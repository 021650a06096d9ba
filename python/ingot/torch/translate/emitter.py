"""Writes nodes of ONNX's vocabulary into a GraphBuilder: what all the rules build on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ingot.torch.translate.values import (
    MAX_INT,
    Number,
    Scalar,
    Size,
    Tensor,
    Unsupported,
    axis_of,
    expression,
    is_integer,
    same_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# ONNX's numbers of the element types.
ONNX_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.uint32: 12,
    torch.uint64: 13,
    torch.bfloat16: 16,
}


class Builder(Protocol):
    """What of ingot's GraphBuilder is used here."""

    def constant(self, name: str, array: Any) -> None: ...
    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: dict[str, Any] = ...,
        domain: str = "",
        name: str = "",
    ) -> str: ...


class Emitter:
    """Operands are Tensors, Scalars or Python numbers; results are Tensors. One FX node is translated at a time:
    `node` is the one, and `out` what PyTorch says of its result (a FakeTensor, or a tuple of them). checks_indices:
    negative indices stop a run where they do in PyTorch."""

    def __init__(self, builder: Builder, checks_indices: bool = True) -> None:
        self.builder, self.checks_indices = builder, checks_indices
        self.node: Any = None
        self.out: Any = None
        self.known_sizes: dict[Any, Callable[[], Tensor]] = {}
        self._scalars: dict[tuple[torch.dtype, str], Tensor] = {}
        self._lists: dict[tuple[int, ...], Tensor] = {}
        self._pending: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self._count = 0

    # Nodes

    def _fresh(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def ops(
        self, op: str, inputs: Sequence[Tensor | None], dtypes: Sequence[torch.dtype | None], **attrs: Any
    ) -> list[Tensor]:
        """A node with a result for each of dtypes; None is a result that nobody wants."""
        names = ["" if dtype is None else self._fresh() for dtype in dtypes]
        self._pending.append((op, ["" if x is None else x.name for x in inputs], names, attrs))
        return [Tensor(name, dtype or torch.float32) for name, dtype in zip(names, dtypes, strict=True)]

    def op(
        self,
        op: str,
        *inputs: Tensor | None,
        dtype: torch.dtype | None = None,
        shape: Sequence[Size] | None = None,
        **attrs: Any,
    ) -> Tensor:
        """A node with one result, of the type of its first operand unless told otherwise."""
        if dtype is None:
            dtype = next(x.dtype for x in inputs if x is not None)
        name = self._fresh()
        self._pending.append((op, ["" if x is None else x.name for x in inputs], [name], attrs))
        return Tensor(name, dtype, None if shape is None else tuple(shape))

    def flush(self, name: str, wanted: dict[str, str]) -> None:
        """Hands the nodes since the last flush to the builder, as parts of `name`; results get their wanted names."""
        for op, inputs, outputs, attrs in self._pending:
            self.builder.node(
                op, [wanted.get(i, i) for i in inputs], [wanted.get(o, o) for o in outputs], attrs, "", name
            )
        self._pending.clear()

    def pending_results(self) -> set[str]:
        return {o for _, _, outputs, _ in self._pending for o in outputs}

    # Constants and numbers

    def constant(self, value: Any) -> Tensor:
        """A numpy array or torch tensor, used where it lies."""
        name = self._fresh()
        self.builder.constant(name, value)
        dtype = value.dtype if isinstance(value, torch.Tensor) else getattr(torch, str(value.dtype))
        return Tensor(name, dtype, tuple(value.shape))

    def number(self, value: Number, dtype: torch.dtype) -> Tensor:
        """A number as a tensor of rank 0."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = self.scalar_of(value)
        if isinstance(value, Scalar):
            x = value.tensor()
            if value.kind is int:
                x = self.op("Squeeze", x, shape=())
            return self.cast(x, dtype)
        key = (dtype, repr(value))
        if key not in self._scalars:
            self._scalars[key] = self.constant(_rank_0(value, dtype))
        return self._scalars[key]

    def tensor(self, x: Tensor | Number, dtype: torch.dtype) -> Tensor:
        """A tensor or number as a tensor of this type."""
        return self.cast(x, dtype) if isinstance(x, Tensor) else self.number(x, dtype)

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x.dtype == dtype:
            return x
        if dtype not in ONNX_TYPES:
            raise Unsupported(f"tensors of {dtype}")
        return self.op("Cast", x, dtype=dtype, shape=x.shape, to=ONNX_TYPES[dtype])

    # Sizes

    def ints(self, values: Sequence[Size]) -> Tensor:
        """Numbers and Scalars or SymInts as an int64 tensor of rank 1."""
        parts: list[Tensor | list[int]] = []
        for value in values:
            number = expression(value)
            if not isinstance(number, int):
                parts.append(self.size_tensor(value))
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(number)
            else:
                parts.append([number])
        tensors = [self._int_list(p) if isinstance(p, list) else p for p in parts]
        if not tensors:
            return self._int_list([])
        return tensors[0] if len(tensors) == 1 else self.op("Concat", *tensors, axis=0, shape=(len(values),))

    def _int_list(self, values: list[int]) -> Tensor:
        key = tuple(values)
        if key not in self._lists:
            self._lists[key] = self.constant(np.array(values, np.int64))
        return self._lists[key]

    def size_tensor(self, size: Size) -> Tensor:
        """A size as an int64 tensor of one element and rank 1."""
        if isinstance(size, Scalar):
            return size.tensor()
        number = expression(size)
        if isinstance(number, int):
            return self._int_list([number])
        return self.scalar_of(size).tensor()

    def scalar_of(self, value: Any) -> Scalar:
        """A SymInt (or other symbolic number) by its expression over sizes that are known."""
        from ingot.torch.translate.symbols import scalar_of

        return scalar_of(self, value)

    def size(self, x: Tensor, axis: int) -> Size:
        """The size of a dim: a number, or a Scalar that reads it off the tensor."""
        size = x.dims[axis]
        if isinstance(expression(size), int):
            return expression(size)
        known = self.known_sizes.get(expression(size))
        return Scalar(size, int, known or (lambda: self.shape_of(x, axis)))

    def shape_of(self, x: Tensor, axis: int) -> Tensor:
        return self.op("Shape", x, dtype=torch.int64, shape=(1,), start=axis, end=axis + 1)

    def product(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes."""
        fixed = math.prod(n for s in sizes if isinstance(n := expression(s), int))
        free = [s for s in sizes if not isinstance(expression(s), int)]
        if not free or fixed == 0:
            return fixed
        if len(free) == 1 and fixed == 1:
            return free[0]

        def make() -> Tensor:
            result = self.size_tensor(free[0])
            for s in [*free[1:], *([fixed] if fixed != 1 else [])]:
                result = self.op("Mul", result, self.size_tensor(s), shape=(1,))
            return result

        value = math.prod([s.value if isinstance(s, Scalar) else s for s in sizes])
        return Scalar(value, int, make)

    # Shapes

    def reshape(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """To a shape that is complete: no -1."""
        old, new = x.dims, tuple(shape)
        if len(old) == len(new) and all(map(same_size, old, new)):
            return x
        result = tuple(s.value if isinstance(s, Scalar) else s for s in new)
        numbers = [expression(s) for s in new]
        if 0 in numbers:
            return self.op("Reshape", x, self.ints(new), shape=result, allowzero=1)
        free = [i for i, n in enumerate(numbers) if not isinstance(n, int)]
        if all(i < len(old) and same_size(old[i], new[i]) for i in free):
            short = [0 if i in free else n for i, n in enumerate(numbers)]
        elif len(free) == 1:
            short = [-1 if i in free else n for i, n in enumerate(numbers)]
        else:
            # What stays where it is, is taken over: it need not be computed.
            taken = [i for i in free if i < len(old) and same_size(old[i], new[i])]
            return self.op("Reshape", x, self.ints([0 if i in taken else s for i, s in enumerate(new)]), shape=result)
        return self.op("Reshape", x, self.ints(short), shape=result)

    def expand(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """To a shape that is complete, of at least as many dims."""
        new = tuple(shape)
        lead = len(new) - x.rank
        same = [i >= lead and same_size(x.dims[i - lead], new[i]) for i in range(len(new))]
        if lead == 0 and all(same):
            return x
        target = [1 if same[i] else new[i] for i in range(len(new))]
        result = tuple(s.value if isinstance(s, Scalar) else s for s in new)
        if all(s == 1 for s in target):
            return self.reshape(x, new)
        return self.op("Expand", x, self.ints(target), shape=result)

    def unsqueeze(self, x: Tensor, *axes: int) -> Tensor:
        """axes count in the result."""
        if not axes:
            return x
        rank = x.rank + len(axes)
        where = sorted(axis_of(a, rank) for a in axes)
        rest = iter(x.dims)
        shape = [1 if i in where else next(rest) for i in range(rank)]
        return self.op("Unsqueeze", x, self.ints(where), shape=shape)

    def squeeze(self, x: Tensor, *axes: int) -> Tensor:
        if not axes:
            return x
        where = sorted(axis_of(a, x.rank) for a in axes)
        shape = [s for i, s in enumerate(x.dims) if i not in where]
        return self.op("Squeeze", x, self.ints(where), shape=shape)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        if list(perm) == list(range(len(perm))):
            return x
        return self.op("Transpose", x, shape=[x.dims[p] for p in perm], perm=list(perm))

    def slice(self, x: Tensor, axis: int, start: Size, end: Size, step: int = 1, size: Size = None) -> Tensor:
        """`size`: of the dim in the result, if it is to be known."""
        shape = None if size is None else [*x.dims[:axis], size, *x.dims[axis + 1 :]]
        parts = [self.ints([start]), self.ints([end]), self.ints([axis])]
        if step != 1:
            parts.append(self.ints([step]))
        return self.op("Slice", x, *parts, shape=shape)

    def concat(self, parts: Sequence[Tensor], axis: int, shape: Sequence[Size] | None = None) -> Tensor:
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis, shape=shape)

    def arange(self, size: Size) -> Tensor:
        """0, 1, ... as int64."""
        number = expression(size)
        if isinstance(number, int):
            return self.constant(np.arange(number, dtype=np.int64))
        value = size.value if isinstance(size, Scalar) else size
        zero, one = self.number(0, torch.int64), self.number(1, torch.int64)
        return self.op("Range", zero, self.number(size, torch.int64), one, shape=(value,))

    def fill(self, shape: Sequence[Size], value: Number, dtype: torch.dtype) -> Tensor:
        """A tensor of one value."""
        if not shape:
            return self.number(value, dtype)
        result = tuple(s.value if isinstance(s, Scalar) else s for s in shape)
        return self.op("Expand", self.number(value, dtype), self.ints(shape), shape=result)

    # Arithmetic, on operands of one type

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op("Add", x, y)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op("Sub", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op("Mul", x, y)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op("Div", x, y)

    def compare(self, op: str, x: Tensor, y: Tensor) -> Tensor:
        return self.op(op, x, y, dtype=torch.bool)

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.op("Where", condition, x, y, dtype=x.dtype)

    def trunc(self, x: Tensor) -> Tensor:
        """Toward zero."""
        if is_integer(x.dtype) or x.dtype is torch.bool:
            return x
        negative = self.compare("Less", x, self.number(0, x.dtype))
        return self.where(negative, self.op("Ceil", x), self.op("Floor", x))

    def reduce(self, op: str, x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
        """axes are complete and not negative."""
        shape: list[Size] | None = None
        if x.shape is not None:
            shape = [1 if i in axes else s for i, s in enumerate(x.shape) if keepdim or i not in axes]
        if not axes:  # of ONNX, no axes are all
            return x
        return self.op(op, x, self.ints(sorted(axes)), keepdims=int(keepdim), shape=shape)


def _rank_0(value: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.bfloat16:
        return torch.tensor(value, dtype=dtype)
    target = np.dtype(str(dtype).removeprefix("torch."))
    if is_integer(dtype):
        # As C++ does it: fractions are dropped, what does not fit wraps around.
        number = int(value) if not isinstance(value, float) or math.isfinite(value) else 0
        return np.array(number & (2 ** (8 * target.itemsize) - 1), f"u{target.itemsize}").view(target)
    with np.errstate(over="ignore"):
        return np.array(value).astype(target)


def clip_index(value: Size) -> Size:
    """Slice ends as ONNX reads them: PyTorch writes the largest int for the end of a dim."""
    return MAX_INT if isinstance(value, int) and value > MAX_INT else value
