"""What a terminal shows while something takes long."""

from __future__ import annotations

import itertools
import sys


class Progress:
    """One line on a terminal that is written over, and nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._turn = itertools.cycle("|/-\\")

    def __enter__(self) -> Progress:
        return self

    def show(self, text: str) -> None:
        if self._shown:
            print(f"\r\x1b[K{next(self._turn)} {self._what}: {text}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
