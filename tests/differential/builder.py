"""Random typed graphs, node by node: what is known of each tensor, and how it may be compared.

A Builder has a pool of values. Families (the other files here) take operands from it and add nodes. No oracle is asked:
shapes and types are computed here, by the operators' definitions.

Every value says how far two correct programs may differ in it:

    exact   not at all: integers, moved elements, floats whose every sum and product has room in the type. A float of
            the grid has a bound b and a grain g: it is a multiple of 2^-g and at most b in size, so it is exact while
            b * 2^g fits into the mantissa, whatever the order of operations.
    close   by rounding; `check.py` measures how much that is
    step    by 1: an integer that was rounded from floats
    wild    by anything: a comparison, a rounding or an index of something close. Only the bits of one and the same
            program are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOATS = (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16)
SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64)
UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
PLAIN = (*NUMBERS, T.BOOL)
MANTISSA = {T.FLOAT: 24, T.DOUBLE: 53, T.FLOAT16: 11, T.BFLOAT16: 8}
MOST = {T.FLOAT: 1e6, T.DOUBLE: 1e6, T.FLOAT16: 1e3, T.BFLOAT16: 1e4}  # larger values are not made
WORDS = ["", "a", "Bc", "the cat", "x-1", "ünï", "0", "12", "-7", "3.5", "tree", " b  c ", "@x"]
KINDS = ("exact", "step", "close", "wild")


@dataclass(frozen=True)
class Value:
    name: str
    dtype: int
    shape: tuple[int, ...]
    bound: float = 0
    grain: int | None = None  # None: not on a grid
    kind: str = "exact"
    constant: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass
class Case:
    """A model, what goes in, and how far each of its tensors may differ between two correct programs."""

    model: onnx.ModelProto
    inputs: dict[str, Any]
    kinds: dict[str, str]
    seed: int
    more_inputs: dict[str, Any] = field(default_factory=dict)  # of other sizes, which may not fit


Family = Callable[["Builder"], None]
Attrs = dict[str, Any]


class NothingFitsError(Exception):
    """There is nothing in the pool that this family could take."""


def numpy_type(dtype: int) -> np.dtype[Any]:
    return np.dtype(object) if dtype == T.STRING else helper.tensor_dtype_to_np_dtype(dtype)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*shapes))


class Builder:
    def __init__(self, seed: int, parent: Builder | None = None) -> None:
        self.parent = parent
        self.root: Builder = parent.root if parent else self
        self.random: random.Random = parent.random if parent else random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.pool: list[Value] = list(parent.pool) if parent else []
        self.depth: int = parent.depth + 1 if parent else 0
        self.numbers: np.random.Generator = parent.numbers if parent else np.random.default_rng(seed)
        self.opset: int = parent.opset if parent else self.random.choice((18, 19, 20, 21, 22, 23))
        self.large: bool = parent.large if parent else self.random.random() < 0.06
        if parent:
            return
        self.names = 0
        self.inputs: dict[str, Any] = {}
        self.ports: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.kinds: dict[str, str] = {}
        self.symbols = {n: f"d{n}" for n in range(1, 1000) if self.random.random() < 0.6}
        self.domains: set[str] = set()

    # --- random choices

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def choice(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def dim(self) -> int:
        if self.large:
            return int(self.choice((1, 2, 3, 7, 16, 33, 64, 100)))
        return int(self.choice((1, 1, 2, 2, 3, 4, 5, 7, 8)))

    def dims(self, rank: int) -> tuple[int, ...]:
        """At most a few thousand elements in all."""
        while True:
            shape = tuple(self.dim() for _ in range(rank))
            if np.prod(shape, dtype=np.int64) <= (60000 if self.large else 600):
                return shape

    # --- names, sources

    def name(self, prefix: str = "t") -> str:
        self.root.names += 1
        return f"{prefix}{self.root.names}"

    def numbers_of(self, dtype: int, shape: tuple[int, ...], grid: bool) -> tuple[Any, float, int | None]:
        """Random elements, their bound and grain."""
        if dtype == T.STRING:
            flat = [self.choice(WORDS) for _ in range(int(np.prod(shape, dtype=np.int64)))]
            return np.array(flat, object).reshape(shape), 0, None
        if dtype == T.BOOL:
            return self.numbers.random(shape) < 0.5, 1, None
        if dtype in INTEGERS:
            most = self.choice((3, 10, 100))
            low = 0 if dtype in UNSIGNED else -most
            return self.numbers.integers(low, most + 1, shape).astype(numpy_type(dtype)), most, None
        if not grid:
            return np.clip(self.numbers.standard_normal(shape), -4, 4).astype(numpy_type(dtype)), 4, None
        grain, bound = self.choice((0, 1, 2)), self.choice((1, 2))
        k = bound << grain
        values = self.numbers.integers(-k, k + 1, shape).astype(np.float64) / (1 << grain)
        return values.astype(numpy_type(dtype)), bound, grain

    def source(
        self,
        dtype: int,
        shape: tuple[int, ...],
        constant: bool | None = None,
        array: Any = None,
        bound: float | None = None,
        grain: int | None = None,
        prefix: str = "t",
    ) -> Value:
        """A new input or constant."""
        constant = self.chance(0.45) if constant is None else constant
        if array is None:
            array, bound, grain = self.numbers_of(dtype, shape, self.chance(0.7))
        value = Value(self.name(prefix), dtype, tuple(array.shape), bound or 0, grain, "exact", constant)
        if constant:
            self.root.constants.append(tensor_of(array, dtype, value.name))
        else:
            self.root.inputs[value.name] = array
            port_shape = [self.root.symbols.get(n, n) for n in value.shape]
            self.root.ports.append(helper.make_tensor_value_info(value.name, dtype, port_shape))
        self.root.kinds[value.name] = value.kind
        if self.parent is None:
            self.pool.append(value)
        return value

    def constant(self, array: Any, dtype: int = T.INT64) -> str:
        """A parameter, which no other node takes: axes, shapes, scales. Noise (check.py) knows it by its name."""
        array = np.asarray(array, numpy_type(dtype))
        constant = not self.chance(0.04)  # now and then known only in the run
        name = self.name("p")
        if constant:
            self.root.constants.append(tensor_of(array, dtype, name))
        else:
            self.root.inputs[name] = array
            self.root.ports.append(helper.make_tensor_value_info(name, dtype, array.shape))
        self.root.kinds[name] = "exact"
        return name

    def take(
        self,
        dtypes: Sequence[int],
        rank: Callable[[int], bool] | int | None = None,
        where: Callable[[Value], bool] = lambda _: True,
        fresh: tuple[int, ...] | None = None,
    ) -> Value:
        """An operand out of the pool (late ones rather than early ones), or a new source."""
        fits = rank if callable(rank) else (lambda r: rank is None or r == rank)
        found = [v for v in self.pool if v.dtype in dtypes and v.kind != "step" and fits(v.rank) and where(v)]
        if found and not self.chance(0.12):
            return found[min(int(self.random.expovariate(0.6)), len(found) - 1) * -1 - 1]
        ranks = [r for r in range(5) if fits(r)]
        if not ranks and fresh is None:
            raise NothingFitsError
        weights = [T.FLOAT] * 3 + [T.FLOAT16, T.INT64]
        dtype = self.choice([d for d in weights if d in dtypes] or dtypes)
        for _ in range(20):
            made = fresh if fresh is not None else self.dims(self.choice(ranks))
            probe = Value("", dtype, made, 2, 2)
            if where(probe):
                return self.source(dtype, made)
        raise NothingFitsError

    # --- nodes

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attrs: Any) -> list[str]:
        names = [self.name() for _ in range(outputs)]
        if domain:
            self.root.domains.add(domain)
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attrs))
        return names

    def result(
        self, name: str, dtype: int, shape: tuple[int, ...], kind: str, bound: float = 0, grain: int | None = None
    ) -> Value:
        if dtype in FLOATS and not bound <= MOST[dtype]:  # a NaN too
            kind = "wild"
            bound = MOST[dtype]
        if dtype in INTEGERS:  # they wrap
            bound = min(bound, float(np.iinfo(numpy_type(dtype)).max))
        value = Value(name, dtype, tuple(int(n) for n in shape), bound, grain if kind == "exact" else None, kind)
        self.root.kinds[name] = kind
        if value.size <= 200000:
            self.pool.append(value)
        return value

    def add(
        self,
        op: str,
        operands: Sequence[Value | str],
        dtype: int,
        shape: tuple[int, ...],
        kind: str,
        bound: float = 0,
        grain: int | None = None,
        domain: str = "",
        **attrs: Any,
    ) -> Value:
        """A node of one result."""
        names = [v.name if isinstance(v, Value) else v for v in operands]
        (name,) = self.node(op, names, domain=domain, **attrs)
        return self.result(name, dtype, shape, kind, bound, grain)

    def moved(self, op: str, v: Value, shape: tuple[int, ...], more: Sequence[str] = (), **attrs: Any) -> Value:
        """A node that only moves elements of v."""
        return self.add(op, [v, *more], v.dtype, shape, v.kind, v.bound, v.grain, **attrs)

    # --- kinds

    @staticmethod
    def worst(*values: Value) -> str:
        return max((v.kind for v in values), key=KINDS.index, default="exact")

    @classmethod
    def rounded(cls, *values: Value) -> str:
        """Of something that is rounded after a smooth function of floats."""
        return "wild" if cls.worst(*values) in ("wild", "step") else "close"

    @classmethod
    def decided(cls, *values: Value) -> str:
        """Of something that jumps."""
        return "exact" if cls.worst(*values) == "exact" else "wild"

    @classmethod
    def arithmetic(cls, dtype: int, bound: float, grain: int | None, *values: Value) -> str:
        """Of sums and products of values on a grid."""
        if dtype not in FLOATS:
            return cls.decided(*values)
        on_grid = grain is not None and all(v.kind == "exact" and v.grain is not None for v in values)
        if on_grid and grain is not None and grain < 64 and bound * 2.0**grain <= 2.0 ** MANTISSA[dtype]:
            return "exact"
        return cls.rounded(*values)

    # --- the finished model

    def case(self, seed: int) -> Case:
        used = {name for node in self.nodes for name in all_inputs(node)}
        made = [v for v in self.pool if v.name not in self.root.inputs and not v.constant]
        leaves = [v for v in made if v.name not in used]
        extra = [v for v in made if v.name in used and self.chance(0.15)]
        outputs = [*leaves, *extra]
        ports = [port for port in self.ports if port.name in used]
        graph = helper.make_graph(
            self.nodes,
            "random",
            ports,
            [helper.make_tensor_value_info(v.name, v.dtype, [None] * v.rank) for v in outputs],
            [t for t in self.constants if t.name in used],
        )
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, 4) for d in sorted(self.domains))]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inputs = {port.name: self.inputs[port.name] for port in ports}
        return Case(model, inputs, dict(self.kinds), seed, self.other_sizes(ports))

    def other_sizes(self, ports: list[onnx.ValueInfoProto]) -> dict[str, Any]:
        """Inputs with every free dim of another size, elements repeated or left out."""
        sizes: dict[str, int] = {}
        result = {}
        for port in ports:
            array = self.inputs[port.name]
            for axis, dim in enumerate(port.type.tensor_type.shape.dim):
                if dim.dim_param:
                    n = sizes.setdefault(dim.dim_param, self.choice((1, 2, 3, 5, 9)))
                    array = np.take(array, np.arange(n) % array.shape[axis], axis)
            result[port.name] = array
        return result if sizes else {}


def all_inputs(node: onnx.NodeProto) -> set[str]:
    """Of a node and of its bodies."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names |= {o.name for o in attribute.g.output}
            for inner in attribute.g.node:
                names |= all_inputs(inner)
    return names


def tensor_of(array: Any, dtype: int, name: str) -> onnx.TensorProto:
    if dtype == T.STRING:
        return helper.make_tensor(name, dtype, array.shape, [s.encode() for s in array.ravel()])
    array = np.asarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return helper.make_tensor(name, dtype, array.shape, array.tobytes(), raw=True)
    return numpy_helper.from_array(array, name)
