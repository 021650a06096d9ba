"""The wrapper: a module that runs compiled, without dynamo, and is otherwise the module it was made from."""

from __future__ import annotations

import collections
import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from ingot._ingot import WeightWatch
from ingot.errors import InvalidInputError
from ingot.torch.capture import AssignsAttributesError, Capture, TensorClassError
from ingot.torch.intercept import name_arguments, show
from ingot.torch.options import Options, read_options
from ingot.torch.parts import in_parts
from ingot.torch.reads import Reads
from ingot.torch.report import compiled_in_parts, whole_fallback
from ingot.torch.tree import Flattener, literal_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ingot._ingot import ObjectWatch

MAX_REMEMBERED_SHAPES = 4096
MAX_OPAQUE = 64


class Family:
    """Calls that differ only in sizes and numbers: what of these was seen to vary."""

    def __init__(self, leaves: list[torch.Tensor], literals: list[Any]) -> None:
        self.shapes = [tuple(leaf.shape) for leaf in leaves]
        self.literals = list(literals)
        self.dims: list[set[int]] = [set() for _ in leaves]
        self.numbers: set[int] = set()

    def observe(self, leaves: list[torch.Tensor], literals: list[Any], dynamic: bool | None) -> None:
        if dynamic is False:
            return
        for leaf, shape, free in zip(leaves, self.shapes, self.dims, strict=True):
            # 0 and 1 are sizes of their own kind: they broadcast, or hold nothing.
            free.update(d for d, n in enumerate(leaf.shape) if n > 1 and (dynamic or n != shape[d]))
        for i, (now, then) in enumerate(zip(literals, self.literals, strict=True)):
            if type(now) is int and type(then) is int and now > 1 and now != then:
                self.numbers.add(i)

    def dims_for(self, leaves: list[torch.Tensor], dynamic: bool | None) -> list[set[int]]:
        if dynamic is False:
            return [set() for _ in leaves]
        marked: list[set[int]] = [getattr(leaf, "_dynamo_dynamic_indices", set()) for leaf in leaves]
        return [
            {d for d in (free | set(more)) if leaf.shape[d] > 1}
            for leaf, free, more in zip(leaves, self.dims, marked, strict=True)
        ]


class State:
    """What the wrapper adds to the module."""

    def __init__(self, module: torch.nn.Module, forward: Callable[..., Any], options: Options, given: dict[str, Any]):
        self.module, self.original, self.options, self.given = module, forward, options, given
        self.lock = threading.RLock()
        self.families: dict[Hashable, Family] = {}
        self.remembered: dict[Hashable, Callable[..., Any]] = {}
        self.captures: OrderedDict[int, tuple[Hashable, Capture]] = OrderedDict()  # used last at the end
        self.reads: Reads | None = None
        self.watch: ObjectWatch | None = None
        self.arrays: WeightWatch | None = None
        self.opaque: list[Any] = []  # arguments that captures were made with and that are compared by identity
        self.parts = in_parts(forward, options)
        self.only_parts = False  # no arguments are captured as a whole
        self.partly: set[Hashable] = set()  # families that are not
        self.told: set[str] = set()  # why not
        self.set_up = False  # a call ran in eager because it assigned attributes
        self.override: Callable[..., Any] | None = None

        @functools.wraps(forward)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            return self._call(args, kwargs)

        self.compiled = compiled

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        if self.options.intercept:
            show(
                f"{type(self.module).__name__}.forward",
                name_arguments(self.original, args, kwargs),
                self.options.intercept,
            )
        if self.only_parts:
            return self.parts(*args, **kwargs)
        flat = Flattener()
        spec = flat.flatten((args, tuple(kwargs.items())))
        leaves, literals = flat.leaves, flat.literals
        if self.watch is None or not self.watch.same() or (self.arrays is not None and not self.arrays.same([])):
            self._forget()
        family = (spec, *map(leaf_key, leaves), aliases(leaves), self._mode())
        key = (family, *[leaf.shape for leaf in leaves], *map(literal_key, literals))
        run = self.remembered.get(key)
        if run is None:
            return self._find(family, key, spec, flat, args, kwargs)
        if id(run) in self.captures:
            self.captures.move_to_end(id(run))
        return run(flat, args, kwargs)

    def _find(self, family_key: Hashable, key: Hashable, spec: Any, flat: Flattener, args: Any, kwargs: Any) -> Any:
        leaves, literals = flat.leaves, flat.literals
        if family_key in self.partly:
            self._remember(key, self._in_parts)
            return self.parts(*args, **kwargs)
        with self.lock:
            self._look_at(flat.opaque)
            capture = next(
                (c for f, c in reversed(self.captures.values()) if f == family_key and c.accepts(leaves, literals)),
                None,
            )
            if capture is None:
                try:
                    capture = self._capture(family_key, spec, leaves, literals)
                except Exception as error:
                    result = self.original(*args, **kwargs)  # an error of the model itself is raised here
                    failure = self._after_setting_up(error, key, (family_key, spec, leaves, literals))
                    if failure is not None:
                        self._give_up(family_key, key, failure)
                    return result
            self.captures.move_to_end(id(capture))
            self._remember(key, capture)
        return capture(flat, args, kwargs)

    def _after_setting_up(self, error: Exception, key: Any, signature: tuple[Any, ...]) -> Exception | None:
        """A first call may assign what is there from then on; if so, later calls can be captured. Why not, if not."""
        if self.set_up or not isinstance(error, AssignsAttributesError):
            return error
        self.set_up = True
        self._forget()
        try:
            capture = self._capture(*signature)
        except Exception as failure:
            return failure
        capture.prepare(*signature[2:])  # this call ran in eager, but those that follow are to be fast
        self._remember(key, capture)
        return None

    def _give_up(self, family_key: Hashable, key: Hashable, failure: Exception) -> None:
        """Calls like this one cannot be captured as a whole."""
        what = f"{type(self.module).__name__}.forward"
        if isinstance(failure, TensorClassError):
            whole_fallback(what, failure, strict=self.options.strict)
            self._remember(key, self._eager)
            return
        if self.options.strict or str(failure) not in self.told:
            compiled_in_parts(what, failure, strict=self.options.strict)
        self.told.add(str(failure))
        self.only_parts = isinstance(failure, AssignsAttributesError)
        self.partly.add(family_key)

    def _look_at(self, opaque: list[Any]) -> None:
        """What the code reads of such arguments is watched, too."""
        new = [v for v in opaque if not any(v is known for known in self.opaque)]
        if not new:
            return
        if len(self.opaque) > MAX_OPAQUE:
            self.opaque = []
            self._forget()
        self.opaque += new
        self._look()

    def _look(self) -> None:
        self.reads = Reads(self.module, self.original, self.opaque)
        self.watch = self.reads.watch()
        self.arrays = WeightWatch([], [], self.reads.arrays, True) if self.reads.arrays else None

    def _capture(self, family_key: Hashable, spec: Any, leaves: list[torch.Tensor], literals: list[Any]) -> Capture:
        dynamic = self.options.dynamic
        family = self.families.setdefault(family_key, Family(leaves, literals))
        family.observe(leaves, literals, dynamic)
        numbers = sorted(i for i in family.numbers if type(literals[i]) is int and literals[i] > 1)
        grad = torch.is_grad_enabled()
        assert self.reads is not None
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            made = Capture(
                self.module,
                self.original,
                (spec, leaves, literals),
                family.dims_for(leaves, dynamic),
                numbers,
                self.options,
                self.reads,
            )
        self.captures[id(made)] = (family_key, made)
        while len(self.captures) > max(self.options.cache_size, 1):
            _, (_, gone) = self.captures.popitem(last=False)
            self.remembered = {k: run for k, run in self.remembered.items() if run is not gone}
        return made

    def _remember(self, key: Hashable, run: Callable[..., Any]) -> None:
        if len(self.remembered) >= MAX_REMEMBERED_SHAPES:
            self.remembered = {}
        self.remembered[key] = run

    def _eager(self, _: Flattener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.original(*args, **kwargs)

    def _in_parts(self, _: Flattener, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.parts(*args, **kwargs)

    def _mode(self) -> Hashable:
        """What else decides which graph it is."""
        grad = torch.is_grad_enabled()
        cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        return grad and tuple([p.requires_grad for p in self.module.parameters()]), cast

    def _forget(self) -> None:
        """The module was changed, or what else its forward reads."""
        with self.lock:
            self.captures.clear()
            self.remembered = {}
            self.families = {}
            self.partly = set()
            self._look()


def leaf_key(leaf: torch.Tensor) -> Hashable:
    if type(leaf) is not torch.Tensor and not isinstance(leaf, torch.nn.Parameter):
        return (type(leaf), leaf.dtype, leaf.device, leaf.requires_grad, leaf.dim())
    if leaf.layout is torch.strided and leaf.is_contiguous():
        return (leaf.dtype, leaf.device, leaf.requires_grad, leaf.dim())
    strides = leaf.stride() if leaf.layout is torch.strided else ()
    order = tuple(sorted(range(len(strides)), key=lambda d: strides[d]))
    return (leaf.dtype, leaf.device, leaf.requires_grad, leaf.dim(), leaf.layout, order)


def aliases(leaves: list[torch.Tensor]) -> Hashable:
    """Which leaves share a storage, and how they lie in it: graphs are captured with that in mind."""
    if len(leaves) < 2:
        return ()
    storages: dict[int, int] = {}
    shared = [storages.setdefault(storage_address(leaf) or -i - 1, i) for i, leaf in enumerate(leaves)]
    if len(storages) == len(shared):
        return ()
    alone = {s for s, n in collections.Counter(shared).items() if n == 1}
    return tuple(
        [
            None if s in alone else (s, t.storage_offset(), t.shape, t.stride())
            for s, t in zip(shared, leaves, strict=True)
        ]
    )


def storage_address(leaf: torch.Tensor) -> int:
    """0 if it has no address."""
    if leaf.layout is not torch.strided or not leaf.numel():
        return 0
    address: int = leaf.data_ptr() - leaf.storage_offset() * leaf.itemsize
    return address


class IngotModule(torch.nn.Module):  # type: ignore[misc]
    """`IngotModule(mod, **options)`: mod, compiled. The result is of a class derived from mod's and shares all its
    state with it: parameters, buffers, submodules, attributes, hooks, training or evaluation. Methods that call the
    module, such as generate(), run compiled."""

    __slots__ = ("_ingot",)

    def __new__(cls, module: torch.nn.Module, **options: Any) -> IngotModule:
        if not isinstance(module, torch.nn.Module):
            raise InvalidInputError(
                f"there is a {type(module).__name__} where a torch.nn.Module is wanted",
                'functions: torch.compile(function, backend="ingot")',
            )
        if isinstance(module, IngotModule):
            module = module._ingot.module
        chosen = read_options(options)
        kind: Any = type(module)
        made: IngotModule = torch.nn.Module.__new__(derived_class(kind))
        object.__setattr__(made, "__dict__", module.__dict__)
        forward = module.forward
        object.__setattr__(made, "_ingot", State(module, forward, chosen, options))
        return made

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        pass  # its state is the module's

    @property
    def forward(self) -> Callable[..., Any]:
        """The compiled forward, with the signature of the original."""
        state: State = self._ingot
        return state.override or state.compiled

    @forward.setter
    def forward(self, function: Callable[..., Any]) -> None:
        self._ingot.override = function

    @forward.deleter
    def forward(self) -> None:
        self._ingot.override = None

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return restore, (self._ingot.module, self._ingot.given)

    @property
    def ingot_original(self) -> torch.nn.Module:
        """The module this was made from, which runs in eager."""
        return self._ingot.module

    @property
    def ingot_captures(self) -> int:
        """How many captured graphs are kept."""
        return len(self._ingot.captures)


@functools.cache
def derived_class(cls: Any) -> type:
    return type(f"Ingot{cls.__name__}", (IngotModule, cls), {"__module__": __name__, "__slots__": ()})


def restore(module: torch.nn.Module, options: dict[str, Any]) -> IngotModule:
    return IngotModule(module, **options)


def compile(module: torch.nn.Module, **options: Any) -> Any:
    """The module, compiled when it is first called; the options are described in docs/torch.md."""
    return IngotModule(module, **options)
