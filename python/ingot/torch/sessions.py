"""Sessions: compiled blocks, ready to be called. Those used last are kept in memory under their complete key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ingot
from ingot._ingot import WeightWatch
from ingot.torch.elsewhere import compile_elsewhere
from ingot.torch.keys import session_key
from ingot.torch.options import PRECISIONS
from ingot.torch.translate import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from ingot.torch.options import Options
    from ingot.torch.translate import Translation


@dataclass
class Session:
    """A compiled block."""

    key: str
    graph: ingot.Graph
    call: Callable[..., list[Any]]  # all placeholders of the block's graph in, its outputs out
    translation: Translation
    given: list[tuple[int, int]] = field(default_factory=list)  # where its weights begin and end in memory
    watch: WeightWatch | None = None  # of its weights, which kernels may read in place; a library has its own

    def is_sound(self) -> bool:
        """False once somebody wrote to the weights it was made of."""
        return self.watch is None or self.watch.same([])

    def lies_in(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if its weights are these very tensors."""
        places = {t.data_ptr() for t in tensors}
        return self.watch is None or all(begin in places for begin, _ in self.given)

    def weight_memory(self) -> WeightMemory:
        """How the session keeps its weights. It is made now if it never ran."""
        if self.graph.is_library:
            return WeightMemory(0, self.translation.builder.constant_bytes)
        memory = self.graph.constant_memory()
        here = sum(n for at, n in memory if n and any(begin <= at < end for begin, end in self.given))
        return WeightMemory(here, sum(n for _, n in memory) - here)


@dataclass
class WeightMemory:
    """Bytes of constants that kernels read."""

    in_place: int = 0  # in the memory of the module's own parameters and buffers
    packed: int = 0  # copies in the order of the kernels, and what was computed from weights

    def __add__(self, other: WeightMemory) -> WeightMemory:
        return WeightMemory(self.in_place + other.in_place, self.packed + other.packed)


@dataclass
class CacheInfo:
    """What the memory cache did since the process began, and the weights of the sessions in it."""

    hits: int
    misses: int
    keys: list[str]  # used last first
    weights: WeightMemory = field(default_factory=WeightMemory)


class SessionCache:
    """The sessions used last. One that falls out lives on in the functions that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key: str) -> Session | None:
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
                self._sessions.move_to_end(key)
            return found

    def put(self, session: Session, size: int) -> None:
        with self._lock:
            self._sessions[session.key] = session
            self._sessions.move_to_end(session.key)
            while len(self._sessions) > size:
                self._sessions.popitem(last=False)

    def info(self) -> CacheInfo:
        with self._lock:
            info = CacheInfo(self.hits, self.misses, list(reversed(self._sessions)))
            sessions = list(self._sessions.values())
        info.weights = sum((s.weight_memory() for s in sessions), WeightMemory())
        return info

    def clear(self) -> None:
        with self._lock:
            self._sessions.clear()


memory = SessionCache()


def cache_info() -> CacheInfo:
    """Hits, misses and keys of the sessions kept in memory, and how much of their weights had to be packed."""
    return memory.info()


def clear_cache() -> None:
    """Forgets the sessions kept in memory; those in use stay alive. The disk cache is `ingot cache`'s."""
    memory.clear()


def session_for(
    graph: torch.fx.Graph,
    constants: Mapping[str, torch.Tensor],
    options: Options,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Session:
    """A session of the graph with these constants: from memory, or made. shapes fixes sizes that are symbolic."""
    key = session_key(graph, constants, options, extra=repr(sorted((shapes or {}).items())))
    found = memory.get(key)
    if found is None or not found.is_sound():
        found = make_session(key, graph, constants, options, shapes or {})
        memory.put(found, options.cache_size)
    return found


def make_session(
    key: str,
    graph: torch.fx.Graph,
    constants: Mapping[str, torch.Tensor],
    options: Options,
    shapes: Mapping[str, Sequence[int]],
) -> Session:
    name = "-".join(filter(None, (options.tag, key)))
    tensors, contents = list(constants.values()), options.weight_check == "contents"
    # Before anybody reads them.
    watch = None if options.elsewhere else WeightWatch([], [], tensors, contents)
    translation = translate(graph, constants, name=name)
    if options.dump_onnx:
        folder = Path(options.dump_onnx)
        folder.mkdir(parents=True, exist_ok=True)
        translation.write(folder / f"{name}.onnx")
    flags = options.flags
    if options.elsewhere:
        library = compile_elsewhere(translation, name, options, shapes)
        model = ingot.load(library, threads=flags.threads)
    else:
        model = translation.graph(
            patterns=dict(flags.patterns),
            opt_level=flags.opt_level,
            march=flags.march,
            threads=flags.threads,
            shapes={name: list(dims) for name, dims in shapes.items()},
            wait=True,  # whoever calls torch.compile expects the first call to compile, and the others to be fast
        )
        if PRECISIONS[options.precision]:
            model = model.autocast(PRECISIONS[options.precision])
        if options.cache_dir:
            model.use_cache(options.cache_dir)
    given = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.is_contiguous()]
    return Session(key, model, translation.bind(model), translation, given, watch)
