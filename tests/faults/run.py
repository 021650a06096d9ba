"""Calls of the system fail, one after the other, and processes are killed: `make faults`.

    python -m faults.run [--most N] [--kills N] [--operations a,b] [--calls a,b] [--write]

For each operation (operations.py) and each kind of call (fail.c), the Nth of its calls fails, by itself and with all
after it, for every N (or for --most of them). Each time the operation has to succeed or to raise an ingot.Error that is
no InternalError; what it writes has to be whole, nothing may be left over, no descriptor lost, and the next try has to
succeed. A process that dies or hangs is a finding.

--kills: processes that do all of it are killed at random moments; what they wrote has to be whole.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS = ("malloc", "mmap", "open", "read", "write", "fsync", "rename", "pthread_create", "dlopen")
NAMES = ("compile", "run", "specialise", "save", "emit", "load IR", "load library", "quantize", "convert", "torch")
PATIENCE = 300  # seconds for one try


# --- inside a worker


def inject(name: str, call: str, at: int, always: bool, folder: Path) -> dict[str, Any]:
    """One try of an operation with one failing call, and one without."""
    from faults.operations import OPERATIONS, descriptors, listed, whole

    import ingot

    operation = OPERATIONS[name]
    library = ctypes.PyDLL(None)
    before, open_before = listed(folder), descriptors()
    outcome, result = "success", None
    library.faults_arm(call.encode(), ctypes.c_long(at), int(always), 0)
    try:
        result = operation.act(folder)
    except ingot.InternalError as error:
        outcome = f"InternalError: {error}"
    except (ingot.Error, MemoryError, OSError):
        outcome = "error"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    finally:
        count = library.faults_disarm()
    problems = []
    if outcome not in ("success", "error"):
        problems.append(outcome.splitlines()[0])
    if outcome == "success" and not operation.good(folder, result):
        problems.append("a wrong result")
    del result
    if not whole(operation, folder):
        problems.append(f"{operation.output} is not whole")
    if left := listed(folder) - before:
        problems.append(f"left over: {sorted(left)}")
    if at:
        if not operation.good(folder, operation.act(folder)):
            problems.append("the next try gives a wrong result")
        end = time.monotonic() + 10  # kernels may still be compiled in the background
        while descriptors() > open_before + 1 and time.monotonic() < end:
            time.sleep(0.05)
        if descriptors() > open_before + 1:
            problems.append(f"{descriptors() - open_before} descriptors lost")
    return {"count": count, "outcome": outcome, "problems": problems}


def work(name: str, calls: list[str], most: int, skip: int) -> None:
    """A worker: the operation with each of the calls failing, a line of JSON before and after each."""
    from faults.operations import prepare

    # The thread that makes kernels may still write into the cache when the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder_name:
        folder = Path(folder_name)
        os.environ["INGOT_CACHE_DIR"] = str(folder / "cache")
        prepare(folder)
        inject(name, calls[0], 0, False, folder)  # what is done once in a process
        tries = []
        for call in calls:
            numbers = list(range(1, inject(name, call, 0, False, folder)["count"] + 1))
            if len(numbers) > most:
                numbers = sorted(random.Random(f"{name} {call}").sample(numbers, most))
            tries += [(call, at, always) for always in (False, True) for at in numbers]
        for call, at, always in tries[skip:]:
            print(json.dumps({"call": call, "at": at, "always": always}), flush=True)
            print(json.dumps(inject(name, call, at, always, folder)), flush=True)


# --- outside


def preload() -> Path:
    """The library, compiled where it is not there or too old."""
    out = ROOT / "build" / "faults" / "fail.so"
    source = HERE / "fail.c"
    if not out.exists() or out.stat().st_mtime < source.stat().st_mtime:
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", out, source, "-ldl"], check=True)
    return out


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Until it ends; one that says nothing for long is stopped."""
    assert process.stdout
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(PATIENCE):
                process.kill()
            line = process.stdout.readline()
            if not line:
                return
            if line.startswith("{"):
                yield json.loads(line)


def try_all(name: str, calls: str, most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each failing call and what came of it; workers that die are started again behind where they died."""
    environment = {**os.environ, "LD_PRELOAD": str(preload())}
    skip = 0
    while True:
        command = [sys.executable, "-W", "ignore", "-m", "faults.run", "--work", name, calls, str(most), str(skip)]
        at = ""
        with tempfile.TemporaryFile("w+") as said:  # a pipe that nobody reads would stop the worker
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
            for line in lines_of(process):
                if "at" in line:
                    at = f"{line['call']} {line['at']} {'and all after it fail' if line['always'] else 'fails'}"
                else:
                    skip += 1
                    yield at, line
                    at = ""
            code = process.wait()
            said.seek(0)
            error = said.read()
        if code == 0:
            return
        if not at:
            raise RuntimeError(f"{name}: the worker ended with {code}: {error[-2000:]}")
        skip += 1
        yield at, {"outcome": "died", "problems": [f"exit code {code}: {error.strip()[-300:]}"]}


def kill_at_random(count: int, seed: int) -> tuple[int, list[str]]:
    """Writers killed at random moments; returns how many and what was wrong after it."""
    from faults.operations import OPERATIONS, prepare, whole

    chance = random.Random(seed)
    problems = []
    writers = [name for name, operation in OPERATIONS.items() if operation.output]
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        os.environ["INGOT_CACHE_DIR"] = str(folder / "cache")
        prepare(folder)
        done = 0
        while done < count:
            command = [sys.executable, "-W", "ignore", "-m", "faults.run", "--write-forever", str(folder)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert process.stdout
            process.stdout.readline()  # it has begun
            time.sleep(chance.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            done += 1
            for name in writers:
                try:
                    if not whole(OPERATIONS[name], folder):
                        problems.append(f"kill {done}: the output of {name} is wrong")
                except Exception as error:
                    problems.append(f"kill {done}: {name}: {error}")
    return done, problems


def write_forever(folder: Path) -> None:
    from faults import operations
    from faults.operations import OPERATIONS

    import ingot

    os.environ["INGOT_CACHE_DIR"] = str(folder / "cache")
    operations.EXPECTED["graph"] = ingot.compile(folder / "model.onnx", threads=2)
    print("begins", flush=True)
    writers = [operation for operation in OPERATIONS.values() if operation.output]
    while True:
        for operation in random.sample(writers, len(writers)):
            operation.act(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="of the calls of one kind in one operation")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--operations", default=",".join(NAMES))
    parser.add_argument("--calls", default=",".join(CALLS))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    count: Counter[str] = Counter()
    start = time.monotonic()
    for name in arguments.operations.split(","):
        for at, result in try_all(name, arguments.calls, arguments.most):
            count["injected"] += 1
            count[result["outcome"]] += 1
            for problem in result["problems"]:
                count["findings"] += 1
                print(f"{name}: {at}: {problem}", flush=True)
        print(f"{name}: {count['injected']} injected so far, {time.monotonic() - start:.0f} s", flush=True)
    if arguments.kills:
        kills, problems = kill_at_random(arguments.kills, 0)
        count["kills"] = kills
        count["findings"] += len(problems)
        print("\n".join(problems))
    outcomes = f"{count['success']} successes, {count['error']} errors"
    print(f"{count['injected']} calls failed: {outcomes}; {count['kills']} kills; {count['findings']} findings")
    if arguments.write:
        from figures import write_figures

        write_figures(
            "faults",
            {
                "calls made to fail": count["injected"],
                "clean errors": count["error"],
                "successes all the same": count["success"],
                "kills": count["kills"],
                "findings": count["findings"],
            },
        )
    return int(count["findings"] > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3].split(","), int(sys.argv[4]), int(sys.argv[5]))
    elif sys.argv[1:2] == ["--write-forever"]:
        write_forever(Path(sys.argv[2]))
    else:
        sys.exit(main())
