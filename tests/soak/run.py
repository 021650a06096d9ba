"""A long life: `make soak`. Memory, mappings, descriptors and threads of one process that does everything all the time.

    python -m soak.run [--minutes M] [--write]

One process runs in turn: new shapes on a living graph, models loaded and dropped (ONNX, IR, model.so), kernels made for
models never seen before, threads that come, run and go, and forks whose children run too. Every round counts what the
process holds. After a third of the time it has all it will ever need: from there on nothing may grow, but for the noise
of an allocator (`ROOM`). Every result is compared.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from faults.operations import X, write_model
from figures import write_figures
from onnx import TensorProto, helper

import ingot

SHAPES = 10_000
THREADS = 8
ROOM = {"memory": 48 << 20, "mappings": 60, "descriptors": 2, "threads": 2}


def held() -> dict[str, int]:
    """What the process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


def write_activation(path: Path, alpha: float) -> None:
    """A model whose kernel nobody has made yet."""
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=alpha)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in "xy")
    graph = helper.make_graph([node], "activation", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


class Soak:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        write_model(folder / "model.onnx")
        self.graph = ingot.compile(folder / "model.onnx", threads=2)
        self.expected = self.graph.inference([X])["y"]
        self.graph.save(folder / "ir")
        self.graph.emit(folder / "model.so")
        self.rows = np.random.default_rng(2).standard_normal((SHAPES, 64)).astype(np.float32)
        self.first = self.graph.inference([self.rows[:1]])["y"][0]

    def same(self, found: Any, expected: Any, what: str) -> None:
        self.count["runs"] += 1
        if not np.allclose(found, expected, atol=1e-4):
            self.wrong.append(what)

    def shapes(self) -> None:
        """1 to 10,000 rows, in an order that jumps; the first row has to be the same in all."""
        for _ in range(20):
            n = self.count["shapes"] * 7919 % SHAPES + 1
            found = self.graph.inference([self.rows[:n]])["y"]
            self.same(found[0], self.first, f"{n} rows")
            self.count["shapes"] += 1

    def loads(self) -> None:
        for name in ("model.onnx", "ir", "model.so"):
            self.same(ingot.load(self.folder / name, threads=1).inference([X])["y"], self.expected, f"load {name}")
            self.count["loads"] += 1

    def kernels(self) -> None:
        path = self.folder / "activation.onnx"
        alpha = (self.count["kernels"] % 900 + 1) / 1000
        write_activation(path, alpha)
        found = ingot.compile(path, threads=1, wait=True).inference([X])["y"]
        self.same(found, np.where(X < 0, X * np.float32(alpha), X), "a new kernel")
        self.count["kernels"] += 1

    def threads(self) -> None:
        def work() -> None:
            self.same(self.graph.inference([X])["y"], self.expected, "a thread")

        started = [threading.Thread(target=work) for _ in range(THREADS)]
        for t in started:
            t.start()
        for t in started:
            t.join()
        self.count["threads"] += THREADS

    def forks(self) -> None:
        child = os.fork()
        if child == 0:
            good = False
            try:
                good = bool(np.allclose(self.graph.inference([X])["y"], self.expected, atol=1e-4))
            finally:
                os._exit(0 if good else 1)
        _, status = os.waitpid(child, 0)
        if status:
            self.wrong.append(f"a child ended with {status}")
        self.count["forks"] += 1

    def round(self) -> None:
        self.shapes()
        self.loads()
        self.threads()
        if self.count["rounds"] % 4 == 0:
            self.kernels()
            self.forks()
        self.count["rounds"] += 1


def grown(samples: list[dict[str, int]]) -> list[str]:
    """What is higher in the last third than it ever was in the middle one."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    result = []
    for what, room in ROOM.items():
        before, after = max(s[what] for s in middle), min(s[what] for s in last)
        if after > before + room:
            result.append(f"{what} grew from {before} to {after}")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    os.environ["INGOT_CACHE"] = "off"
    end = time.monotonic() + arguments.minutes * 60
    samples: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        while time.monotonic() < end or len(samples) < 6:
            soak.round()
            samples.append(held())
    problems = [*grown(samples), *soak.wrong[:20]]
    first, last = samples[len(samples) // 3], samples[-1]
    print(", ".join(f"{n} {what}" for what, n in soak.count.items()))
    print(", ".join(f"{what} {first[what]} -> {last[what]}" for what in ROOM))
    for problem in problems:
        print(problem)
    if arguments.write:
        counts = {name: soak.count[name] for name in ("shapes", "loads", "kernels", "threads", "forks")}
        flat = {what: f"{first[what]:,} -> {last[what]:,}" for what in ROOM}
        write_figures("soak", {"minutes": f"{arguments.minutes:g}", **counts, **flat, "findings": len(problems)})
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
