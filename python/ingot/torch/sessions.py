"""Sessions: compiled blocks, ready to be called. Those used last are kept in memory under their complete key."""

from __future__ import annotations

import bisect
import itertools
import shutil
import sys
import tempfile
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ingot
from ingot._ingot import Cache, WeightWatch, move_weights_to_file
from ingot.errors import IoError
from ingot.torch.elsewhere import compile_elsewhere
from ingot.torch.keys import session_key
from ingot.torch.options import PRECISIONS
from ingot.torch.translate import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch

    from ingot.torch.options import Options
    from ingot.torch.translate import Input, Output

turns = itertools.count(1)  # numbers calls, so that it can be told what was used last


class User:
    """What calls sessions: knows when it last did."""

    used = 0  # the turn


@dataclass(eq=False)
class Session:
    """A compiled block."""

    key: str
    graph: ingot.Graph
    call: Callable[..., list[Any]]  # all placeholders of the block's graph in, its outputs out
    inputs: list[Input]
    outputs: list[Output]
    names: dict[str, str]  # of FX nodes -> of tensors of the graph
    library_bytes: int = 0  # of the constants that a library holds
    given: list[tuple[int, int]] = field(default_factory=list)  # where its weights begin and end in memory
    watch: WeightWatch | None = None  # of its weights, which kernels may read in place; a library has its own
    found: int = 0  # the turn in which it was last looked up
    users: weakref.WeakSet[User] = field(default_factory=weakref.WeakSet)

    def last_use(self) -> int:
        return max(self.found, *(user.used for user in list(self.users)), 0)

    def is_sound(self) -> bool:
        """False once somebody wrote to the weights it was made of."""
        return self.watch is None or self.watch.same([])

    def lies_in(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if its weights are these very tensors."""
        places = {t.data_ptr() for t in tensors}
        return self.watch is None or all(begin in places for begin, _ in self.given)

    def weight_memory(self) -> WeightMemory:
        """How the session keeps its weights. It is made now if it never ran."""
        return weight_memory([self])

    def constants(self) -> dict[int, tuple[int, bool]]:
        """Address of each constant that kernels read: its bytes, and whether it is a weight in place."""
        if self.graph.is_library:
            return {id(self): (self.library_bytes, False)}
        starts = sorted(self.given)
        found = {}
        for at, size in self.graph.constant_memory():
            i = bisect.bisect_right(starts, (at, sys.maxsize)) - 1
            found[at] = (size, size > 0 and i >= 0 and at < starts[i][1])
        return found


@dataclass
class WeightMemory:
    """Bytes of constants that kernels read."""

    in_place: int = 0  # in the memory of the module's own parameters and buffers
    packed: int = 0  # copies in the order of the kernels, and what was computed from weights
    shared: int = 0  # of the packed ones, what other sessions read, too


def weight_memory(sessions: Iterable[Session]) -> WeightMemory:
    """The constants of all these sessions, each counted once."""
    sessions = list({id(s): s for s in sessions}.values())
    readers: Counter[int] = Counter()
    for session in list(living):
        readers.update(session.constants().keys())
    found = {at: about for s in sessions for at, about in s.constants().items()}
    return WeightMemory(
        sum(size for size, here in found.values() if here),
        sum(size for size, here in found.values() if not here),
        sum(size for at, (size, here) in found.items() if not here and readers[at] > 1),
    )


living: weakref.WeakSet[Session] = weakref.WeakSet()


@dataclass
class CacheInfo:
    """What the memory cache did since the process began, and the weights of the sessions in it."""

    hits: int
    misses: int
    keys: list[str]  # used last first
    weights: WeightMemory = field(default_factory=WeightMemory)


class SessionCache:
    """The sessions used last, by calls too. One that falls out lives on in the functions that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self.hits = self.misses = 0

    def get(self, key: str) -> Session | None:
        with self._lock:
            found = self._sessions.get(key)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
                found.found = next(turns)
            return found

    def put(self, session: Session, size: int) -> None:
        session.found = next(turns)
        with self._lock:
            self._sessions[session.key] = session
            for gone in self._by_use()[size:]:
                del self._sessions[gone.key]

    def _by_use(self) -> list[Session]:
        """Used last first."""
        return sorted(self._sessions.values(), key=Session.last_use, reverse=True)

    def info(self) -> CacheInfo:
        with self._lock:
            sessions = self._by_use()
        info = CacheInfo(self.hits, self.misses, [session.key for session in sessions])
        info.weights = weight_memory(sessions)
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


def move_to_disk(tensors: list[torch.Tensor], options: Options) -> tuple[int, str]:
    """Has the memory of these tensors mapped from a file: read from there by whoever reads them. Returns the bytes that
    are on disk now, and why there are not more."""
    folder = Cache(options.cache_dir).folder or tempfile.gettempdir()
    moved, problem = move_weights_to_file(tensors, folder, options.weight_check == "contents")
    return moved, problem and f"{problem}; cache_dir names the folder"


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


def keep(made: ingot.Graph | Path, name: str, options: Options) -> None:
    """Puts the compiled library into the folder that is to keep it, as a whole: others may look there."""
    if not options.keep:
        return
    folder = Path(options.keep)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="keep-", dir=folder) as place:
            library = Path(place) / f"{name}.so"
            if isinstance(made, Path):
                shutil.copyfile(made, library)
            else:
                made.emit(library)
            library.replace(folder / library.name)
    except OSError as error:
        raise IoError(f"option 'keep': '{folder}' cannot be written: {error.strerror}") from error


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
        keep(library, name, options)
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
        keep(model, name, options)
        model.keep_only_session()
    given = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.is_contiguous()]
    session = Session(
        key,
        model,
        translation.bind(model),
        translation.inputs,
        translation.outputs,
        translation.names,
        translation.builder.constant_bytes,
        given,
        watch,
    )
    living.add(session)
    return session
