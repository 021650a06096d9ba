"""A captured graph, compiled: what AOTAutograd calls in place of the graph.

Weights of an inference graph are constants of its sessions: packed once. Every call looks whether they are still the
same (`WeightWatch`); if not, the sessions that fit are looked up or made. A graph is thus right for any weights, also
those of another module of the same class, which dynamo gives to the same graph.
"""

from __future__ import annotations

import operator
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from ingot._ingot import WeightWatch
from ingot.torch.partition import NOTHING, Partition, is_size, partition, shared_results
from ingot.torch.report import Fallback, FallbackWarning, GraphReport, publish, whole_fallback
from ingot.torch.sessions import Session, User, move_to_disk, session_for, turns
from ingot.torch.translate import is_plain, unsupported
from ingot.torch.translate.bodies import write_out_bodies
from ingot.torch.verify import check_against_eager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ingot.torch.options import Options
    from ingot.torch.partition import Block

# Bindings made in a row, each replaced before it saved the time it took: then weights are inputs.
MAX_USELESS_BINDINGS = 3


BRANCHES = "its branches are graphs of their own"


class BlockModule(torch.nn.Module):  # type: ignore[misc]
    """A session as a module of the graph that calls it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


class Prepared(Exception):  # noqa: N818 - nothing went wrong
    """Ends a call that was to make sessions only."""


class Branch(torch.nn.Module):  # type: ignore[misc]
    """A compiled graph as a module of the graph that may call it."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__()
        self.compiled = compiled

    def forward(self, *args: Any) -> Any:
        return self.compiled(list(args))


class Binding(User):
    """The sessions of a graph for certain weights, and a function that runs it with them."""

    def __init__(
        self, watch: WeightWatch | None, shapes: list[tuple[int, ...]] | None, run: Callable[[list[Any]], Any]
    ):
        self.watch, self.shapes, self.run = watch, shapes, run
        self.sessions: dict[str, Session] = {}
        self.borrowed: list[Session] = []  # made of equal weights that lie elsewhere
        self.alive: list[torch.Tensor] = []  # the memory of watched weights must not be given to others

    def fits(self, args: list[Any]) -> bool:
        if self.watch is not None and not self.watch.same(args):
            return False
        if self.borrowed and not all(session.is_sound() for session in self.borrowed):
            return False
        return self.shapes is None or self.shapes == shapes_of(args)


class Siblings:
    """Graphs that dynamo made of one function, for arguments of different kinds. As many as cache_size says have
    sessions; one that needs them again after it had to give them up shows that more are in turn."""

    def __init__(self) -> None:
        self.graphs: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
        self.returned = 0

    def make_room(self, newest: CompiledGraph, size: int) -> None:
        others = [g for g in list(self.graphs) if g is not newest and g.last_use()]
        others.sort(key=CompiledGraph.last_use, reverse=True)
        for graph in others[max(size, 1) - 1 + self.returned :]:
            graph.give_up_sessions()


_siblings: weakref.WeakValueDictionary[tuple[Any, str], Siblings] = weakref.WeakValueDictionary()


def siblings_of(graph: CompiledGraph) -> Siblings:
    made_by = torch._guards.CompileContext.current_compile_id()
    frame = None if made_by is None or graph.kind == "branch" else made_by.frame_id
    found = Siblings() if frame is None else _siblings.setdefault((frame, graph.kind), Siblings())
    found.graphs.add(graph)
    return found


def shapes_of(args: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(a.shape) if isinstance(a, torch.Tensor) else () for a in args]


class CompiledGraph:
    """Called with a list of all arguments, as AOTAutograd does."""

    _boxed_call = True

    def __init__(self, module: torch.fx.GraphModule, kind: str, weights: Sequence[int], options: Options) -> None:
        write_out_bodies(module)
        self.module, self.kind, self.options = module, kind, options
        self.placeholders = module.graph.find_nodes(op="placeholder")
        self.weights = list(weights)
        self.branching = self._compile_branches()
        self.dynamic = any(is_dynamic(p.meta.get("val")) for p in self.placeholders)
        self.partition = self._partition()
        self.report = self._report()
        publish(self.report, strict=options.strict)
        self._lock = threading.RLock()
        self._bindings: list[Binding] = []
        self._current: Binding | None = None
        self._useless = 0
        self._bound_at = self._bound_for = 0.0
        self._checks = options.verify
        self._told = False  # why weights stay in memory
        self._gave_up = False
        self._siblings = siblings_of(self)
        self.only_prepare = False  # a call makes its sessions and ends there, with Prepared

    def __call__(self, args: list[Any]) -> Any:
        binding = self._current
        if binding is None or not binding.fits(args):
            binding = self._bind(args)
        if self._checks > 0:
            self._checks -= 1
            check_against_eager(self, binding, args)
        binding.used = next(turns)
        return binding.run(args)

    def last_use(self) -> int:
        """0 if it has no sessions."""
        return max((binding.used for binding in list(self._bindings)), default=0)

    def give_up_sessions(self) -> None:
        """They are made again when they are needed. A call that runs keeps its own."""
        self._gave_up, self._bindings, self._current = True, [], None
        self.report.sessions = []

    # Branches

    def _compile_branches(self) -> set[torch.fx.Node]:
        """The nodes that choose between two graphs. These are compiled like any other; the choice is made in Python."""
        nodes = [n for n in self.module.graph.nodes if n.target is torch.ops.higher_order.cond]
        weights = {self.placeholders[i] for i in self.weights}
        found = set()
        for node in nodes:
            _, *branches, operands = node.args
            constant = [i for i, operand in enumerate(operands) if operand in weights]
            for branch in branches:
                graph = getattr(self.module, str(branch.target))
                if isinstance(graph, torch.fx.GraphModule):
                    compiled = CompiledGraph(graph, "branch", constant, self.options)
                    setattr(self.module, str(branch.target), Branch(compiled))
            found.add(node)
        return found

    # The cut

    def _partition(self) -> Partition:
        graph = self.module.graph
        reasons = dict(unsupported(graph))
        for node in graph.nodes:
            name = operator_name(node)
            if node.op == "call_function" and any(is_named(name, wanted) for wanted in self.options.disabled_ops):
                reasons[node] = "it is in disabled_ops"
        reasons = {n: BRANCHES if n in self.branching else r for n, r in reasons.items() if not is_size(n)}
        reasons.update((n, NOTHING) for n in shared_results(graph) if n not in reasons)
        weights = [self.placeholders[i] for i in self.weights]
        return partition(graph, reasons, self.options.min_block_size, weights)

    def _report(self) -> GraphReport:
        cut = self.partition
        report = GraphReport(self.kind, blocks=len(cut.blocks), dynamic=self.dynamic)
        for node in cut.compiled:
            if node.target is not operator.getitem:
                report.operators[operator_name(node)] += 1
        report.fallbacks = [
            Fallback(n.name, operator_name(n), reason)
            for n, reason in cut.eager.items()
            if n.target is not operator.getitem and reason not in (NOTHING, BRANCHES)
        ]
        return report

    # Sessions

    def _bind(self, args: list[Any]) -> Binding:
        with self._lock:
            bindings = self._bindings
            for i, known in enumerate(bindings):
                if known.fits(args):
                    bindings.insert(0, bindings.pop(i))
                    self._current = known
                    return known
            self._give_up_on_constants()
            start = time.perf_counter()
            made = self._make_binding(args)
            self._bound_at = time.perf_counter()
            self._bound_for = self._bound_at - start
            made.used = next(turns)
            self._bindings.insert(0, made)
            del self._bindings[max(self.options.cache_size, 1) :]
            self._current = made
            if self._gave_up:
                self._gave_up = False
                self._siblings.returned += 1
        self._siblings.make_room(self, self.options.cache_size)
        if self.only_prepare:
            raise Prepared
        return made

    def _give_up_on_constants(self) -> None:
        """Weights that change all the time are no constants."""
        if not self._bindings or not self.weights:
            return
        useless = time.perf_counter() - self._bound_at < self._bound_for
        self._useless = self._useless + 1 if useless else 0
        if self._useless >= MAX_USELESS_BINDINGS:
            self.weights = []
            self._bindings.clear()

    def _make_binding(self, args: list[Any]) -> Binding:
        contents = self.options.weight_check == "contents"
        self.weights = [i for i in self.weights if is_watchable(args[i], contents)]
        constant = set(self.weights)
        held = list({id(t): t for block in self.partition.blocks for t in block.attributes.values()}.values())
        watch = WeightWatch(args, self.weights, held, contents) if self.weights or held else None
        fixed = self.options.dynamic is False and self.dynamic
        blocks: dict[str, Session | Callable[..., Any]] = {}
        for block in self.partition.blocks:
            constants = {**block.attributes, **{n: args[i] for n, i in block.weights.items() if i in constant}}
            blocks[block.name] = self._session(block, constants, fixed_shapes(self, block, args) if fixed else None)
        binding = Binding(watch, shapes_of(args) if fixed else None, self._runner(blocks))
        binding.sessions = {name: s for name, s in blocks.items() if isinstance(s, Session)}
        for session in binding.sessions.values():
            session.users.add(binding)
        binding.alive = [args[i].detach() for i in self.weights]
        binding.borrowed = [s for s in binding.sessions.values() if not s.lies_in([*binding.alive, *held])]
        self._count_weights(binding)
        if self.options.weights == "packed":
            self._move_to_disk(args)
        return binding

    def _move_to_disk(self, args: list[Any]) -> None:
        """What only sessions read, and mostly in a packed copy, need not be in memory."""
        only_sessions = [
            args[i].detach()
            for i in self.weights
            if not any(user in self.partition.eager or user.op == "output" for user in self.placeholders[i].users)
        ]
        moved, problem = move_to_disk(only_sessions, self.options)
        self.report.disk_bytes, self.report.kept_in_memory = moved, problem
        if problem and not self._told:
            self._told = True
            warnings.warn(f"ingot: weights='packed': weights stay in memory: {problem}", FallbackWarning, stacklevel=2)

    def _session(
        self, block: Block, constants: Mapping[str, torch.Tensor], shapes: Mapping[str, Sequence[int]] | None
    ) -> Session | Callable[..., Any]:
        try:
            with torch._subclasses.fake_tensor.unset_fake_temporarily(), torch.no_grad():
                return session_for(block.graph, constants, self.options, shapes)
        except Exception as error:
            if self.options.elsewhere:
                raise
            whole_fallback(f"a block of {len(block.graph.nodes)} nodes", error, strict=self.options.strict)
            in_eager: Callable[..., Any] = torch.fx.GraphModule(self.module, block.graph)
            return in_eager

    def _count_weights(self, binding: Binding) -> None:
        self.report.sessions = list(binding.sessions.values())
        self.report.weights = len(binding.alive)
        self.report.weight_bytes = sum(w.nbytes for w in binding.alive)
        self.report.copied_bytes = sum(w.nbytes for w in binding.alive if not w.is_contiguous())

    def _runner(self, blocks: Mapping[str, Session | Callable[..., Any]]) -> Callable[[list[Any]], Any]:
        direct = self._direct_runner(blocks)
        if direct is not None:
            return direct
        calls = {n: BlockModule(b.call) if isinstance(b, Session) else b for n, b in blocks.items()}
        whole = self.partition.module(self.module, calls)
        forward = whole.forward
        return lambda args: forward(*args)

    def _direct_runner(self, blocks: Mapping[str, Session | Callable[..., Any]]) -> Callable[[list[Any]], Any] | None:
        """Without Python between: for a graph that is one block whose results are the graph's."""
        if len(blocks) != 1 or len(self.partition.blocks) != 1:
            return None
        block, (session,) = self.partition.blocks[0], blocks.values()
        (output,) = self.module.graph.find_nodes(op="output")
        if not isinstance(session, Session) or list(output.args[0]) != block.outputs:
            return None
        if block.orders or any(node.op != "placeholder" for node in block.inputs):
            return None
        if not (all(map(is_plain, session.inputs)) and all(map(is_plain, session.outputs))):
            return None
        if [o.index for o in session.outputs] != list(range(len(session.graph.outputs))):
            return None
        place = {node: i for i, node in enumerate(self.placeholders)}
        positions = [place[block.inputs[i.position]] for i in session.inputs]
        run, tensor = session.graph.run, torch.Tensor
        if len(positions) < 2:
            return lambda args: run([args[p] for p in positions], tensor)
        pick = operator.itemgetter(*positions)
        return lambda args: run(pick(args), tensor)


def fixed_shapes(compiled: CompiledGraph, block: Block, args: Sequence[Any]) -> dict[str, list[int]]:
    """The shapes of a block's inputs that are arguments of the whole graph."""
    place = {node: i for i, node in enumerate(compiled.placeholders)}
    out = {}
    for placeholder, source in zip(block.graph.find_nodes(op="placeholder"), block.inputs, strict=True):
        if source in place and isinstance(args[place[source]], torch.Tensor) and placeholder.name not in block.weights:
            out[placeholder.name] = list(args[place[source]].shape)
    return out


def is_watchable(value: Any, contents: bool) -> bool:
    """Tensors made under inference_mode do not count writes: they are inputs unless contents are looked at. So are
    complex ones, which no kernel packs."""
    if not isinstance(value, torch.Tensor) or value.is_complex():
        return False
    return value.device.type == "cpu" and (contents or not value.is_inference())


def is_dynamic(value: Any) -> bool:
    if isinstance(value, torch.SymInt):
        return not value.node.expr.is_number
    return isinstance(value, torch.Tensor) and any(map(is_dynamic, value.shape))


def operator_name(node: torch.fx.Node) -> str:
    return (
        str(node.target)
        if isinstance(node.target, torch._ops.OpOverload)
        else getattr(node.target, "__name__", str(node.target))
    )


def is_named(operator: str, wanted: str) -> bool:
    """ "aten.gelu" and "gelu" name all overloads, "aten.gelu.default" one."""
    parts = operator.split(".")
    return wanted in (operator, ".".join(parts[:2]), parts[1] if len(parts) > 1 else operator)
