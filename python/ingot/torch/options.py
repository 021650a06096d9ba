"""The options of both forms: `torch.compile(..., backend="ingot", options={...})`, `ingot.torch.compile(mod, ...)`."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ingot.errors import InvalidInputError

PRECISIONS = {"fp32": "", "bf16": "bf16", "int8-dynamic": "int8"}
ENGINES = ("docker", "podman")


@dataclass(frozen=True)
class CompileFlags:
    """`compile_options`, read: the flags of `ingot compile` that mean something here."""

    opt_level: int = 3
    march: str = "native"
    threads: int = 0
    patterns: Mapping[str, bool] = field(default_factory=dict)

    def for_command(self) -> list[str]:
        """The same as arguments of `ingot compile`, which does not run the model and so takes no threads."""
        switches = [f"--pattern={name}={'on' if on else 'off'}" for name, on in self.patterns.items()]
        return [f"-O{self.opt_level}", f"--march={self.march}", *switches]


@dataclass(frozen=True)
class Options:
    """Checked options; docs/torch.md describes each."""

    compile_options: str = ""
    compiler_path: str = ""
    compiler_image_name: str = ""
    container_engine: str = "docker"
    container_args: tuple[str, ...] = ()
    auto_pull: bool = True
    compiler_log: str = ""
    compiler_timeout: float = 600.0
    compiler_memory: int = 0
    cache_size: int = 3
    cache_dir: str = ""
    keep: str = ""
    weight_check: str = "contents"
    weights: str = "both"
    dynamic: bool | None = None
    precision: str = "fp32"
    strict: bool = False
    disabled_ops: tuple[str, ...] = ()
    min_block_size: int = 1
    intercept: bool | Callable[..., Any] = False
    verify: int = 0
    tag: str = ""
    dump_onnx: str = ""
    flags: CompileFlags = field(default_factory=CompileFlags, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", read_flags(self.compile_options))

    @property
    def elsewhere(self) -> bool:
        """True if another process compiles."""
        return bool(self.compiler_path or self.compiler_image_name)


def wrong(name: str, value: object, expected: str) -> InvalidInputError:
    return InvalidInputError(f"option '{name}' is {value!r}", f"it has to be {expected}")


def nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean '{close[0]}'? " if close else ""


def text(name: str, value: object) -> str:
    import os

    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, value, "True or False")
    return value


def count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong(name, value, "a number from 0 on")
    return value


def words(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if isinstance(value, Sequence) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise wrong(name, value, "a list of texts, or one text with spaces between")


def one_of(*choices: str) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        if value not in choices:
            raise wrong(name, value, "one of " + ", ".join(choices))
        return str(value)

    return read


def maybe_flag(name: str, value: object) -> bool | None:
    return None if value is None else flag(name, value)


def seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise wrong(name, value, "a number of seconds above 0")
    return float(value)


def flag_or_hook(name: str, value: object) -> bool | Callable[..., Any]:
    if isinstance(value, bool) or callable(value):
        return value
    raise wrong(name, value, "True, False or a function to call with the arguments")


def calls(name: str, value: object) -> int:
    """True: the first calls; or how many."""
    return 3 * value if isinstance(value, bool) else count(name, value)


def precision(name: str, value: object) -> str:
    return one_of(*PRECISIONS)(name, {"int8": "int8-dynamic"}.get(str(value), value))


READERS: dict[str, Callable[[str, Any], Any]] = {
    "compile_options": text,
    "compiler_path": text,
    "compiler_image_name": text,
    "container_engine": text,
    "container_args": words,
    "auto_pull": flag,
    "compiler_log": text,
    "compiler_timeout": seconds,
    "compiler_memory": count,
    "cache_size": count,
    "cache_dir": text,
    "keep": text,
    "weight_check": one_of("contents", "version"),
    "weights": one_of("both", "packed"),
    "dynamic": maybe_flag,
    "precision": precision,
    "strict": flag,
    "disabled_ops": words,
    "min_block_size": count,
    "intercept": flag_or_hook,
    "verify": calls,
    "tag": text,
    "dump_onnx": text,
}
assert set(READERS) == {f.name for f in fields(Options) if f.init}


def read_options(given: Mapping[str, Any] | None) -> Options:
    """Checks names and types. An unknown name is an error that says the nearest one."""
    if given is None:
        return Options()
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"options have to be a dict, not a {type(given).__name__}")
    for name in given:
        if name not in READERS:
            raise InvalidInputError(
                f"there is no option '{name}'",
                nearest(str(name), list(READERS)) + "the options are " + ", ".join(READERS),
            )
    options = Options(**{name: READERS[name](name, value) for name, value in given.items()})
    if options.compiler_path and options.compiler_image_name:
        raise InvalidInputError(
            "both compiler_path and compiler_image_name are given",
            "the compiler is either a program of this machine or the `ingot` of an image",
        )
    if not all(c.isalnum() or c in "._-" for c in options.tag):
        raise wrong("tag", options.tag, "letters, digits, dots, dashes and underscores: it is part of file names")
    return options


def read_flags(given: str) -> CompileFlags:
    """Reads `compile_options` as the command line would."""
    try:
        left = shlex.split(given)
    except ValueError as error:
        raise InvalidInputError(f"compile_options {given!r}: {error}") from None
    found: dict[str, Any] = {"patterns": {}}

    def number(name: str, value: str, most: int) -> int:
        if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) > most:
            raise InvalidInputError(f"compile_options: {name} is {value!r}", f"a number from 0 to {most}")
        return int(value)

    known = ("-O", "--threads", "--march", "--pattern")
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("-O"):
            name, value = "-O", word[2:].lstrip("=")
            equals = value
        if name not in known:
            raise InvalidInputError(
                f"compile_options: there is no flag '{name}'",
                nearest(name, known) + "the flags are " + ", ".join(known),
            )
        if not equals:
            if not left:
                raise InvalidInputError(f"compile_options: {name} has no value")
            value = left.pop(0)
        if name == "-O":
            found["opt_level"] = number("-O", value, 3)
        elif name == "--threads":
            found["threads"] = number("--threads", value, 4096)
        elif name == "--march":
            found["march"] = value
        else:
            pattern, _, state = value.partition("=")
            if state not in ("on", "off"):
                raise InvalidInputError(f"compile_options: --pattern {value}: neither on nor off")
            found["patterns"][pattern] = state == "on"
    return CompileFlags(**found)
