"""Captures a module for certain arguments without dynamo: AOTAutograd runs its forward on fake tensors."""

from __future__ import annotations

import contextlib
import copy
import enum
import os
import types
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ingot.errors import UnsupportedError
from ingot.torch.compiled import Prepared, is_dynamic
from ingot.torch.lowering import lower
from ingot.torch.reads import put_back
from ingot.torch.tree import Builder, Flattener, Spec, literal_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ingot.torch.options import Options
    from ingot.torch.reads import Reads


class FlatModule(torch.nn.Module):  # type: ignore[misc]
    """The module as a function of tensors. Numbers that may vary come as the sizes of empty tensors, so that they can
    be symbolic like any size."""

    def __init__(
        self,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        spec: Spec,
        literals: Sequence[Any],
        numbers: Sequence[int],
        reads: Reads,
    ) -> None:
        super().__init__()
        self.module, self.call = private_copy(module, forward, [*reads.tensors, *reads.shared])
        self.spec, self.literals, self.numbers = spec, list(literals), list(numbers)
        self.known = {id(v) for v in (*reads.given, *reads.shared)}
        self.result_spec: Spec = None
        self.result_literals: list[Any] = []
        self.changed: list[tuple[int, Spec]] = []  # containers of the caller that get other contents

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        literals = list(self.literals)
        count = len(tensors) - len(self.numbers)
        for place, carrier in zip(self.numbers, tensors[count:], strict=True):
            literals[place] = carrier.shape[0]
        builder = Builder(tensors[:count], literals)
        args, named = builder.build(self.spec)
        containers = builder.containers
        before = [contents_of(c, containers) for c in containers]
        attributes = attributes_of(self.module)
        with AtFirstOperator(lambda: check_attributes(self.module, attributes)):
            result = self.call(*args, **dict(named))
        check_attributes(self.module, attributes)
        out = Flattener(containers)
        self.result_spec = out.flatten(result)
        check_opaque(out.opaque, self.known)
        self.changed = []
        for i, container in enumerate(containers):
            if contents_of(container, containers) != before[i]:
                self.changed.append((i, out.contents(container)))
        self.result_literals = out.literals
        return tuple(out.leaves)


# What nn.RNNBase keeps of its parameters, and renews when they are others: while they are fake, too.
CACHES = {"_flat_weights", "_flat_weight_refs"}
# Results that hold nothing that could change.
CONSTANTS = (
    type,
    enum.Enum,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.EllipsisType,
    range,
)


class AtFirstOperator(TorchFunctionMode):  # type: ignore[misc]
    """Calls check before the first operator in here: what a forward sets up once, it mostly sets up at its beginning,
    and need not be captured to the end for nothing."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self.check: Callable[[], None] | None = check

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.check is not None:
            check, self.check = self.check, None
            check()
        return func(*args, **(kwargs or {}))


class AssignsAttributesError(UnsupportedError):
    """A forward that cannot be captured for any arguments."""


class TensorClassError(UnsupportedError):
    """Tensors of a class of the user's."""


@contextlib.contextmanager
def without_side_effects(reads: Reads) -> Iterator[None]:
    """What a forward writes to lists, dicts, globals and the like would be written only while it is captured, and would
    hold fake tensors."""
    watch, before = reads.watch(), reads.contents()
    try:
        yield
    finally:
        changed = not watch.same()
        if changed:
            put_back(before)
    if changed:
        raise AssignsAttributesError("forward changes a list, a dict, an object or a global that it reads")


def check_types(tensors: Sequence[torch.Tensor]) -> None:
    """Results of tensors of a class of the user's are of that class, which a graph cannot give."""
    for tensor in tensors:
        kind = type(tensor)
        if kind in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or is_traceable_wrapper_subclass(tensor):
            continue
        if kind.__torch_function__ is not torch._C._disabled_torch_function_impl:
            raise TensorClassError(f"a tensor is a {kind.__name__}, and so would be what is computed from it")


def private_copy(
    module: torch.nn.Module, forward: Callable[..., Any], shared_objects: Sequence[Any]
) -> tuple[torch.nn.Module, Callable[..., Any]]:
    """The module's parts with the same parameters, buffers and other objects: capturing puts fake tensors into the
    parts, which other threads that run the module must not see."""
    if "forward" in vars(module):  # a function of whoever put it there
        return module, forward
    shared = {id(t): t for t in (*module.parameters(), *module.buffers(), *shared_objects)}
    try:
        copied = copy.deepcopy(module, shared)
    except Exception:
        return module, forward
    return copied, copied.forward


def check_opaque(results: Sequence[Any], known: Collection[int]) -> None:
    """Objects that a forward makes anew may hold tensors where nobody sees them."""
    for value in results:
        if id(value) not in known and not isinstance(value, CONSTANTS):
            raise UnsupportedError(f"forward gives a {type(value).__name__}, which may hold tensors")


def attributes_of(module: torch.nn.Module) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every table of attributes and buffers of the module's parts, and what it holds."""
    return [
        (name, table, dict(table))
        for name, part in module.named_modules()
        for table in (vars(part), part._buffers, part._parameters)
    ]


def check_attributes(module: torch.nn.Module, before: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    """What a forward assigns would be assigned only while it is captured."""
    for name, table, old in before:
        for key in table.keys() | old.keys():
            if table.get(key) is not old.get(key) and key not in CACHES:
                raise AssignsAttributesError(f"forward assigns the attribute '{'.'.join(filter(None, (name, key)))}'")


def contents_of(container: Any, containers: list[Any]) -> Any:
    """What tells whether a container was changed: its spec, and which leaves it holds."""
    flat = Flattener(containers)
    spec = flat.contents(container)
    return spec, [id(leaf) for leaf in flat.leaves], [repr(x) for x in flat.literals]


class Capture:
    """A module captured for one signature, and what else it can be called with."""

    def __init__(
        self,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        flat: tuple[Spec, list[torch.Tensor], list[Any]],
        dynamic_dims: Sequence[set[int]],
        dynamic_numbers: Sequence[int],
        options: Options,
        reads: Reads,
    ) -> None:
        spec, leaves, literals = flat
        check_types([*leaves, *module.parameters(), *module.buffers(), *reads.tensors])
        self.numbers = list(dynamic_numbers)
        self.dims = [set(d) for d in dynamic_dims]
        self.shapes = [tuple(leaf.shape) for leaf in leaves]
        self.literals = list(literals)
        self.flat = FlatModule(module, forward, spec, literals, self.numbers, reads)
        inputs = [*leaves, *self.carriers(literals)]
        dims = [*self.dims, *({0} for _ in self.numbers)]
        environment = ShapeEnv(duck_shape=False)
        mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
        fakes = [fake(mode, t, d, i) for i, (t, d) in enumerate(zip(inputs, dims, strict=True))]
        own = sum(1 for _ in self.flat.named_parameters(remove_duplicate=False)) + sum(
            1 for _ in self.flat.named_buffers(remove_duplicate=False)
        )
        with without_side_effects(reads), tracing(TracingContext(mode)), as_if_compiling(), numbers_as_they_are():
            run, graphs = lower(self.flat, fakes, options, first_weights=own)
            self.run, self.graphs = run, graphs
            self._guards = environment.produce_guards_expression(fakes)
        self._environment = environment
        # What was to be free and turned out not to be is no part of the guards.
        self.dims = [{d for d in free if is_dynamic(f.shape[d])} for free, f in zip(self.dims, fakes, strict=False)]
        carriers = fakes[len(leaves) :]
        self.free_numbers = {i for i, f in zip(self.numbers, carriers, strict=True) if is_dynamic(f.shape[0])}

    def carriers(self, literals: Sequence[Any]) -> list[torch.Tensor]:
        return [torch.empty(literals[i], 0) for i in self.numbers]

    def accepts(self, leaves: Sequence[torch.Tensor], literals: Sequence[Any]) -> bool:
        """True if what was captured also holds for these."""
        for i, (now, then) in enumerate(zip(literals, self.literals, strict=True)):
            if i in self.free_numbers:
                if type(now) is not int or now < 0:
                    return False
            elif literal_key(now) != literal_key(then):
                return False
        for leaf, shape, free in zip(leaves, self.shapes, self.dims, strict=True):
            if any(size != shape[d] and d not in free for d, size in enumerate(leaf.shape)):
                return False
        if not self._guards:
            return True
        return bool(self._environment.evaluate_guards_expression(self._guards, [*leaves, *self.carriers(literals)]))

    def prepare(self, leaves: Sequence[torch.Tensor], literals: Sequence[Any]) -> None:
        """Makes the sessions that a call with these needs, and does not run them. Nobody else may call meanwhile."""
        graph = self.graphs[0]
        graph.only_prepare = True
        try:
            self.run(*leaves, *self.carriers(literals))
        except Prepared:
            pass
        finally:
            graph.only_prepare = False

    def __call__(self, call: Flattener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = self.run(*call.leaves, *self.carriers(call.literals)) if self.numbers else self.run(*call.leaves)
        builder = Builder(results, self.flat.result_literals, call.containers)
        result = builder.build(self.flat.result_spec)
        for place, spec in self.flat.changed:
            builder.refill(call.containers[place], spec)
        return result


def fake(mode: FakeTensorMode, tensor: torch.Tensor, free: set[int], index: int) -> torch.Tensor:
    from torch._dynamo.source import ConstantSource

    sizes = [DimDynamic.DYNAMIC if d in free else DimDynamic.STATIC for d in range(tensor.dim())]
    context = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(tensor, symbolic_context=context, source=ConstantSource(f"t{index}"))


@contextlib.contextmanager
def as_if_compiling() -> Iterator[None]:
    """Models ask torch.compiler.is_compiling() whether they may look at values."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextlib.contextmanager
def numbers_as_they_are() -> Iterator[None]:
    """AOTAutograd makes tensors of floats that sizes decide, and counts on dynamo to have listed these sizes. It keeps
    the answer whether to do so, which must be neither an older one nor kept for others."""
    name, answer = "TENSORIFY_PYTHON_SCALARS", torch._dynamo.utils._is_tensorify_enabled
    before = os.environ.get(name)
    os.environ[name] = "0"
    answer.cache_clear()
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
        answer.cache_clear()
