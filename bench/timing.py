"""Timing that holds on a shared machine: contenders take turns, and only minima and medians of one session compare."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass
class Timing:
    """Seconds per run: wall clock, and CPU time of the whole process (the figure that matters for one thread)."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def wall_min(self) -> float:
        return min(self.wall)

    @property
    def wall_median(self) -> float:
        return statistics.median(self.wall)

    @property
    def cpu_min(self) -> float:
        return min(self.cpu)


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int = 2,
    pause: float = 0.0,
) -> dict[str, Timing]:
    """Round-robin runs, each contender starting every other round, so that none always follows the same one.

    pause lets the spinning threads of one engine go to sleep before the next engine is timed.
    """
    timings = {name: Timing() for name in contenders}
    for run in contenders.values():
        for _ in range(warmup):
            run()
    order = list(contenders)
    for i in range(rounds):
        for name in order[i % len(order) :] + order[: i % len(order)]:
            run = contenders[name]
            if pause:
                time.sleep(pause)
            run()  # its own weights back into the caches
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            timings[name].wall.append(time.perf_counter() - wall)
            timings[name].cpu.append(time.process_time() - cpu)
    return timings
