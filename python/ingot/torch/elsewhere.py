"""The compiler in another process: a program of this machine, or one in a container. It gets the graph as an ONNX file
and gives back a library. Whatever happens to it (a crash, too little memory, too much time) is an error here."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ingot._ingot import Cache
from ingot.errors import InvalidInputError, IoError, UnsupportedError
from ingot.torch.options import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingot.torch.options import Options
    from ingot.torch.translate import Translation


def compile_elsewhere(
    translation: Translation, name: str, options: Options, shapes: Mapping[str, Sequence[int]]
) -> Path:
    """The library, from the disk cache if it is there. Of several processes that want it, one compiles."""
    cache = Cache(options.cache_dir)
    entry = f"torch-{name}.so"
    if not cache.enabled:
        raise IoError("the disk cache is switched off: there is no place for the library", "unset INGOT_CACHE")
    with cache.lock(entry):
        found = cache.find(entry)
        if found is None:
            # Beside the cache: a container engine on another machine's side of a socket sees the same folders.
            with tempfile.TemporaryDirectory(prefix="compile-", dir=cache.folder) as folder:
                model, library = Path(folder) / "model.onnx", Path(folder) / "model.so"
                translation.write(model, external_data=True)
                run(command(model, library, options, shapes), options)
                if not library.exists():
                    raise UnsupportedError(
                        f"the compiler {where(options)} ended without an error, but wrote no library",
                        "is it a compiler of Ingot? it is called as: ingot compile model.onnx -o model.so",
                    )
                found = cache.add_file(entry, str(library))
    return Path(found)


def where(options: Options) -> str:
    return (
        f"in the image '{options.compiler_image_name}'" if options.compiler_image_name else f"'{options.compiler_path}'"
    )


def command(model: Path, library: Path, options: Options, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """What is run; the first word exists."""
    arguments = ["compile", str(model), "-o", str(library), *options.flags.for_command()]
    arguments += [f"--shape={name}:{'x'.join(map(str, dims))}" for name, dims in shapes.items() if dims]
    if PRECISIONS[options.precision]:
        arguments.append(f"--autocast={PRECISIONS[options.precision]}")
    if not options.compiler_image_name:
        program = shutil.which(options.compiler_path)
        if program is None:
            raise InvalidInputError(
                f"compiler_path '{options.compiler_path}' is not a program that can be run",
                "it is the path of an `ingot` executable, or a name found in PATH",
            )
        return [program, *arguments]
    engine = shutil.which(options.container_engine)
    if engine is None:
        raise InvalidInputError(
            f"container_engine '{options.container_engine}' is not installed",
            "install docker or podman, or give its path",
        )
    folder = str(model.parent)
    # The same path on both sides: it is also right when this process is in a container and the engine is the host's.
    mount = ["--volume", f"{folder}:{folder}", "--workdir", folder]
    limit = ["--memory", str(options.compiler_memory)] if options.compiler_memory else []
    user = [] if "podman" in Path(engine).name else ["--user", f"{os.getuid()}:{os.getgid()}"]
    pull = f"--pull={'missing' if options.auto_pull else 'never'}"
    before, after = split_engine_arguments(options.container_args)
    return [
        *(engine, *before, "run", "--rm", pull, "--name", container_name(folder), *mount, *limit, *user),
        *("--env", "INGOT_CACHE=off", *after, options.compiler_image_name, "ingot", *arguments),
    ]


def container_name(folder: str) -> str:
    """A name that no other container has: the folder is new, and another process may have one of the same name."""
    return f"ingot-{os.getpid()}-{Path(folder).name}"


def end_container(words: list[str], options: Options) -> None:
    """Ends a container whose `run` was killed: with an engine that is a service, it would go on by itself."""
    if options.compiler_image_name:
        before = words[: words.index("run")]
        name = words[words.index("--name") + 1]
        subprocess.run(
            [*before, "rm", "--force", name], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )


def split_engine_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments of the engine itself come before a "run", those of the run after it; without one, all are the run's."""
    words = list(arguments)
    if "run" not in words:
        return [], words
    at = words.index("run")
    return words[:at], words[at + 1 :]


def run(words: list[str], options: Options) -> None:
    """Runs the compiler; every way for it to fail is an error that says so."""

    def limit_memory() -> None:
        if options.compiler_memory and not options.compiler_image_name:
            resource.setrlimit(resource.RLIMIT_AS, (options.compiler_memory, options.compiler_memory))

    try:
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what it starts ends with it
            preexec_fn=limit_memory,
        ) as process:
            try:
                output, _ = process.communicate(timeout=options.compiler_timeout)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                end_container(words, options)
                write_log(words, f"ended here: {type(error).__name__}", output, options)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise UnsupportedError(
                        f"the compiler {where(options)} took more than {options.compiler_timeout:g} seconds: ended",
                        "give it more time with compiler_timeout",
                    ) from None
                raise
    except OSError as error:
        raise InvalidInputError(f"the compiler {where(options)} cannot be started: {error}") from error
    write_log(words, f"exit code {process.returncode}", output, options)
    if process.returncode != 0:
        raise failure(process.returncode, output.decode(errors="backslashreplace"), options)


def write_log(words: list[str], end: str, output: bytes, options: Options) -> None:
    """Appends what was run, what it said and how it ended, as one piece: other processes may write to the same file."""
    if not options.compiler_log:
        return
    text = f"$ {shlex.join(words)}\n".encode() + output + (b"" if output.endswith(b"\n") or not output else b"\n")
    try:
        with Path(options.compiler_log).open("ab", buffering=0) as log:
            log.write(text + f"# {end}\n".encode())
    except OSError as error:
        raise IoError(f"compiler_log '{options.compiler_log}' cannot be written: {error.strerror}") from error


def failure(code: int, output: str, options: Options) -> UnsupportedError:
    # A shell or container engine reports a signal as 128 + its number.
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    said = "\n".join(output.strip().splitlines()[-8:])
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = "it may have used more memory than it may have" if number == signal.SIGKILL else "this is a fault of it"
        text = f"the compiler {where(options)} crashed ({name})"
    else:
        hint = "what it said is above" if said else "run it by hand on a model to see more"
        text = f"the compiler {where(options)} failed with exit code {code}"
    return UnsupportedError(f"{text}: {said}" if said else text, hint)
