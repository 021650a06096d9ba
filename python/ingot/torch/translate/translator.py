"""Walks an FX graph and calls the rule of each node."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ingot.torch.translate.decomposition import decomposition_of
from ingot.torch.translate.emitter import Emitter
from ingot.torch.translate.mutation import Aliases, functional_target, viewed, write_back
from ingot.torch.translate.registry import find_complex_rule, find_rule
from ingot.torch.translate.symbols import DimNames
from ingot.torch.translate.values import (
    Scalar,
    Tensor,
    Unsupported,
    check_dtype,
    dtype_name,
    expression,
    is_complex,
    parts_of,
    whole_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Node = Any  # torch.fx.Node

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Input:
    """A placeholder that the graph reads, in the order of the graph's inputs."""

    name: str
    position: int  # among the placeholders
    symbolic: bool  # a number: given to the graph as a tensor
    kind: str = "int"  # of a number: int64 of one element and rank 1, or "float", float64 of rank 0
    is_complex: bool = False  # given to the graph as its parts


@dataclass(frozen=True)
class Output:
    """One of the flattened results of the FX graph."""

    index: int | None  # among the graph's outputs; None: `value` itself
    value: Any = None
    symbolic: bool = False  # a number: the graph's output has one element
    is_complex: bool = False  # the graph's output holds its parts


@dataclass(frozen=True)
class Interface:
    """Names of a model for others than its maker; inputs have those of their placeholders. All inputs are declared,
    also those that nothing reads."""

    outputs: Sequence[str]  # of those that are tensors
    dims: Mapping[str, str] = field(default_factory=dict)  # by PyTorch's symbol


class Translator:
    """Translates node by node; `failed` gets the nodes that cannot be, if given, else the first of them is raised."""

    def __init__(
        self,
        builder: Any,
        graph: torch.fx.Graph,
        constants: Mapping[str, torch.Tensor],
        failed: dict[Node, str] | None = None,
        interface: Interface | None = None,
    ) -> None:
        self.interface = interface
        self.builder = builder
        self.emitter = Emitter(builder, checks_indices=interface is None)
        self.graph = graph
        self.constants = constants
        self.failed = failed
        self.environment: dict[Node, Any] = {}
        self.aliases = Aliases(graph)
        self.dim_names = DimNames(interface.dims if interface else {})
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.names: dict[str, str] = {}

    def run(self) -> None:
        self._placeholders()
        live = self.aliases.live()
        for node in self.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                if node in live:
                    self._translate(node)
            elif node.op == "output":
                self._outputs(node)
            elif node.op != "placeholder":
                self._fail(node, f"a node of kind {node.op}")

    # Inputs

    def _placeholders(self) -> None:
        symbols: list[tuple[int, Node, Any]] = []
        for position, node in enumerate(self.graph.find_nodes(op="placeholder")):
            value = node.meta.get("val")
            if node.name in self.constants:
                self._constant(node, self.constants[node.name])
            elif isinstance(value, torch.Tensor):
                if node.users or self.failed is None:
                    self._tensor_input(node, position, value)
            elif isinstance(value, torch.SymInt):
                symbols.append((position, node, value))
            elif isinstance(value, (int, float, bool, type(None))):
                self.environment[node] = value
            elif isinstance(value, torch.SymFloat):
                self.environment[node] = self._float_input(node, position, value)
            else:
                self.environment[node] = Unsupported(f"an input of type {type(value).__name__}")
        # A symbol that is the size of a tensor is read there.
        for position, node, value in symbols:
            self.environment[node] = self._symbol(position, node, value)

    def _tensor_input(self, node: Node, position: int, value: torch.Tensor) -> None:
        try:
            self._check_tensor(value)
        except Unsupported as reason:
            self.environment[node] = reason
            return
        if not node.users and self.interface is None:
            return
        if value.is_complex() and self.interface is not None:
            raise Unsupported(f"the input '{node.name}' is complex, which ONNX's operators do not take")
        tensor = Tensor(node.name, value.dtype, tuple(value.shape))
        held = parts_of(tensor) if value.is_complex() else tensor
        self.builder.input(node.name, dtype_name(held.dtype), self.dim_names.dims(held.dims))
        self.inputs.append(Input(node.name, position, False, is_complex=value.is_complex()))
        self.environment[node] = tensor
        self.names[node.name] = node.name
        self._note_sizes(tensor)

    def _note_sizes(self, tensor: Tensor) -> None:
        """Sizes that are first seen here can be read off this tensor: those of inputs, and those that data decide."""
        for axis, size in enumerate(tensor.shape or ()):
            expr = expression(size)
            if not isinstance(expr, int) and expr not in self.emitter.known_sizes:
                self.emitter.known_sizes[expr] = Scalar(size, int, self._size_reader(tensor, axis)).tensor

    def _size_reader(self, tensor: Tensor, axis: int) -> Callable[[], Tensor]:
        return lambda: self.emitter.shape_of(tensor, axis)

    def _float_input(self, node: Node, position: int, value: torch.SymFloat) -> Scalar:
        def declare() -> Tensor:
            self.builder.input(node.name, "float64", [])
            self.inputs.append(Input(node.name, position, True, "float"))
            return Tensor(node.name, torch.float64, ())

        return Scalar(value, float, declare)

    def _symbol(self, position: int, node: Node, value: torch.SymInt) -> Scalar | int:
        expr = expression(value)
        if isinstance(expr, int):
            return expr
        if expr not in self.emitter.known_sizes:

            def declare() -> Tensor:
                self.builder.input(node.name, "int64", [1])
                self.inputs.append(Input(node.name, position, True))
                return Tensor(node.name, torch.int64, (1,))

            self.emitter.known_sizes[expr] = Scalar(value, int, declare).tensor
        return Scalar(value, int, self.emitter.known_sizes[expr])

    def _constant(self, node: Node, tensor: torch.Tensor) -> None:
        if not node.users:
            return
        try:
            self._check_tensor(tensor)
        except Unsupported as reason:
            self.environment[node] = reason
            return
        # Another tensor of the same storage: the parameter may be given new data later.
        value: Any = as_held(tensor.detach())
        if node.users and all(_reads_4_bits(user, node) for user in node.users):
            value = _as_4_bits(value)
        self.builder.constant(node.name, value)
        self.environment[node] = Tensor(node.name, tensor.dtype, tuple(tensor.shape))
        self.names[node.name] = node.name

    def _check_tensor(self, value: torch.Tensor) -> None:
        check_dtype(value.dtype)
        if value.layout is not torch.strided:
            raise Unsupported(f"tensors of layout {value.layout}")
        if value.device.type != "cpu":
            raise Unsupported(f"tensors on the device {value.device}")

    # Nodes

    def _translate(self, node: Node) -> None:
        try:
            if node.op == "get_attr":
                self.environment[node] = self._attribute(node)
                return
            self.environment[node] = self._call(node, self._arguments(node))
            self._finish(node)
            if self.aliases.is_mutation(node):
                self._write(node)
        except Unsupported as reason:
            self._fail(node, str(reason))

    def _attribute(self, node: Node, *, inlined: bool = False) -> Any:
        value: Any = node.graph.owning_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value  # the body of a higher-order operator, which says so itself
        self._check_tensor(value)
        if inlined:  # its name is not the whole graph's
            held = self.emitter.constant(as_held(value.detach()))
            return whole_of(held) if value.is_complex() else held
        self.builder.constant(node.name, as_held(value.detach()))
        self.names[node.name] = node.name
        return Tensor(node.name, value.dtype, tuple(value.shape))

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The node's arguments, with what their nodes became in place of these."""

        def value_of(arg: Node) -> Any:
            value = self.environment.get(arg)
            if isinstance(value, Unsupported):
                raise value
            return value

        return torch.fx.map_arg(node.args, value_of), torch.fx.map_arg(node.kwargs, value_of)

    def _call(self, node: Node, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        args, kwargs = arguments
        if node.target is operator.getitem:
            if not isinstance(args[0], (list, tuple)):
                raise Unsupported("an item of what is not a list of tensors")
            item = args[0][args[1]]
            if isinstance(item, Unsupported):
                raise item
            return item
        if isinstance(node.target, type) and issubclass(node.target, tuple):
            return list(args)  # several results under names, as some operators of PyTorch give them
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._call_body(node, args)
        self._check_results(node)
        writes = self.aliases.is_mutation(node)
        target = functional_target(node) if writes else node.target
        is_complex_call = _has_complex(args, kwargs, node.meta.get("val"))
        rule = find_complex_rule(target) if is_complex_call else find_rule(target)
        self.emitter.node, self.emitter.out = node, node.meta.get("val")
        reason = None
        if rule is not None:
            try:
                return _typed(rule(self.emitter, *args, **kwargs), node.meta.get("val"))
            except Unsupported as failure:
                reason = failure
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as failure:
                # A way to call the operator that its rule does not foresee: it still can run elsewhere.
                reason = Unsupported(f"its rule fails: {type(failure).__name__}: {failure}")
        try:
            steps = None if writes else decomposition_of(node)
            if steps is not None:
                return _typed(self._inline_decomposition(steps, args, kwargs), node.meta.get("val"))
        except Unsupported as failure:
            reason = reason or failure
        of = " of complex tensors" if is_complex_call else ""
        raise reason or Unsupported(f"no translation of {_target_name(node)}{of}")

    def _write(self, node: Node) -> None:
        """After a node that writes into its argument: what shares memory with that has new values too."""
        view, value = node.args[0], self.environment[node]
        base = self.aliases.base(view)
        if base.op != "call_function":
            raise Unsupported(f"it writes into '{base.name}', which is not a result of this graph")
        seen = self.aliases.others(node)
        self.environment[view] = value
        if not seen:
            return
        chain = [view]
        while (source := viewed(chain[-1])) is not None:
            arguments = self._arguments(chain[-1])[0]
            new = write_back(self.emitter, chain[-1], arguments[0], self.environment[chain[-1]], arguments)
            self.environment[source] = new
            chain.append(source)
        for other in seen:
            if other not in chain:
                self.environment[other] = self._call(other, self._arguments(other))
        self.emitter.flush(node.name, {})

    def _check_results(self, node: Node) -> None:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                self._check_tensor(value)

    def _call_body(self, node: Node, args: tuple[Any, ...]) -> Any:
        """A part of the program that ran in a mode which does not matter here."""
        name = node.target.name()
        if name == "wrap_with_set_grad_enabled" or (name == "wrap_with_autocast" and not args[2]):
            first = next(i for i, arg in enumerate(args) if isinstance(arg, torch.fx.GraphModule))
            return self._inline(args[first].graph, args[first + 1 :])
        raise Unsupported(f"the operator {name}")

    def _inline_decomposition(self, steps: torch.fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = pytree.tree_leaves((args, kwargs), is_leaf=_is_leaf)
        return self._inline(steps, [x for x in given if isinstance(x, (Tensor, Scalar))])

    def _inline(self, steps: torch.fx.Graph, given: Sequence[Any]) -> Any:
        """The nodes of another graph, in place of one node."""
        inner = Translator.__new__(Translator)
        inner.__dict__.update(self.__dict__)
        inner.graph, inner.failed, inner.environment, inner.aliases = steps, None, {}, Aliases(steps)
        tensors = iter(given)
        result: Any = None
        for step in steps.nodes:
            if step.op == "placeholder":
                inner.environment[step] = next(tensors)
            elif step.op == "output":
                result = torch.fx.map_arg(step.args[0], lambda n: inner.environment[n])
            elif step.op == "get_attr":
                inner.environment[step] = inner._attribute(step, inlined=True)
            else:
                inner.environment[step] = inner._call(step, inner._arguments(step))
                if inner.aliases.is_mutation(step):
                    inner._write(step)
        return result

    def _finish(self, node: Node) -> None:
        """Gives the results the names of the FX graph."""
        result = self.environment[node]
        pending = self.emitter.pending_results()
        wanted: dict[str, str] = {}

        def named(part: Any, name: str) -> Any:
            if not isinstance(part, Tensor):
                return part
            if part.name in pending:
                wanted.setdefault(part.name, name)
            self.names[name] = wanted.get(part.name, part.name)
            return Tensor(self.names[name], part.dtype, part.shape)

        if isinstance(result, (list, tuple)):
            self.environment[node] = [named(part, f"{node.name}.{i}") for i, part in enumerate(result)]
        else:
            self.environment[node] = named(result, node.name)
        self.emitter.flush(node.name, wanted)
        for part in pytree.tree_leaves(self.environment[node], is_leaf=lambda x: isinstance(x, Tensor)):
            if isinstance(part, Tensor):
                self._note_sizes(part)

    def _fail(self, node: Node, reason: str) -> None:
        if self.failed is None:
            raise Unsupported(f"{node.name} ({_target_name(node)}): {reason}")
        self.failed[node] = reason
        self.emitter.flush(node.name, {})
        self.environment[node] = self._stand_in(node)

    def _stand_in(self, node: Node) -> Any:
        """What a node that runs elsewhere gives to those that follow."""

        def part(i: int, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                try:
                    self._check_tensor(value)
                except Unsupported as reason:
                    return reason
                return Tensor(f"{node.name}.{i}", value.dtype, tuple(value.shape))
            if isinstance(value, _SYMBOLIC):
                kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
                return Scalar(value, kind, lambda: Tensor(f"{node.name}.{i}", torch.int64, (1,)))
            return value

        value = node.meta.get("val")
        if isinstance(value, (list, tuple)):
            return [part(i, v) for i, v in enumerate(value)]
        return part(0, value)

    # Outputs

    def _outputs(self, node: Node) -> None:
        taken: set[str] = {i.name for i in self.inputs}
        for leaf in pytree.tree_leaves(node.args[0]):
            value = self.environment.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf
            if isinstance(value, Unsupported):
                if self.failed is None:
                    raise value
                value = None
            self.outputs.append(self._output(leaf, value, taken))

    def _output(self, leaf: Any, value: Any, taken: set[str]) -> Output:
        symbolic = isinstance(value, Scalar)
        if isinstance(value, Scalar):
            if isinstance(expression(value), int):
                return Output(None, expression(value))
            value = value.tensor()
            self.emitter.flush("output", {})
        if not isinstance(value, Tensor):
            return Output(None, value)
        if is_complex(value.dtype) and self.interface:
            raise Unsupported(f"the result '{value.name}' is complex, which ONNX's operators do not give")
        index = sum(o.index is not None for o in self.outputs)
        name = value.name
        wish = self.interface.outputs[index] if self.interface else f"output.{index}"
        if name in taken or name in self.constants or symbolic or (self.interface and name != wish):
            # A tensor that is an input, a constant or an output already is copied: results are never shared.
            copy = self.emitter.op("Identity", value)
            self.emitter.flush("output", {copy.name: wish})
            name = wish
        taken.add(name)
        self.builder.output(name)
        return Output(index, None, symbolic, is_complex(value.dtype))


def as_held(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as the graph holds it: a complex one by its parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (Tensor, Scalar))


def _has_complex(args: Any, kwargs: Any, result: Any) -> bool:
    """True if complex numbers are read or made; a size of a complex tensor is a size like any other."""
    if isinstance(result, (int, torch.SymInt)):
        return False
    return any(
        is_complex(value.dtype) if isinstance(value, (Tensor, torch.Tensor)) else isinstance(value, complex)
        for value in pytree.tree_leaves((args, kwargs, result), is_leaf=_is_leaf)
    )


def _reads_4_bits(node: Node, operand: Node) -> bool:
    """Is operand an integer part of a weight that PyTorch has one to a byte? See exporter/narrow_weights.py."""
    if str(node.target) != "ingot.dequantize_weight.default" or node.args[5] != 4:
        return False
    return operand in (node.args[0], node.args[2])


def _as_4_bits(value: torch.Tensor) -> Any:
    """An array that is packed when it becomes a constant."""
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported("weights of 4 bits without the package ml_dtypes") from None
    return value.numpy().astype(ml_dtypes.int4 if value.dtype == torch.int8 else ml_dtypes.uint4)


def _target_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target)) if callable(node.target) else str(node.target)


def _typed(result: Any, value: Any) -> Any:
    """Results with the shapes that PyTorch knows."""
    if isinstance(result, Tensor) and isinstance(value, torch.Tensor):
        if result.dtype != value.dtype:
            raise Unsupported(f"translated to {dtype_name(result.dtype)}, PyTorch has {dtype_name(value.dtype)}")
        return Tensor(result.name, result.dtype, tuple(value.shape))
    if isinstance(result, (list, tuple)) and isinstance(value, (list, tuple)):
        return [_typed(part, fake) for part, fake in zip(result, value, strict=False)]
    return result
