"""Pairs of headlines that say the same in other words, or do not: the task of MRPC, made from a small grammar.

A headline has an agent, an action and a thing. Two with the same three are paraphrases, whatever words they
choose; others differ in one. As in MRPC, annotators err: a few labels are wrong, so that no model reaches 100 %.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = [["teacher", "instructor"], ["doctor", "physician"], ["kid", "child"], ["lawyer", "attorney"]]
ACTIONS = [["buys", "purchases"], ["repairs", "fixes"], ["finds", "discovers"], ["shows", "displays"]]
THINGS = [["car", "automobile"], ["picture", "painting"], ["present", "gift"], ["boat", "ship"]]
SLOTS = [AGENTS, ACTIONS, THINGS]
ENDINGS = ["", "", " today", " right now"]  # of no weight
COLUMNS = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
WRONG_LABELS = 0.05


@dataclass(frozen=True)
class Pair:
    first: str
    second: str
    label: int


def _sentence(facts: list[int], choose: random.Random) -> str:
    agent, action, thing = (choose.choice(slot[fact]) for slot, fact in zip(SLOTS, facts, strict=True))
    return f"{agent} {action} {thing}"


def make_pairs(count: int, seed: int) -> list[Pair]:
    choose = random.Random(seed)
    pairs = []
    for _ in range(count):
        facts = [choose.randrange(len(slot)) for slot in SLOTS]
        others = list(facts)
        same = choose.random() < 0.5
        if not same:
            changed = choose.randrange(len(SLOTS))
            others[changed] = choose.choice([i for i in range(len(SLOTS[changed])) if i != facts[changed]])
        label = same != (choose.random() < WRONG_LABELS)
        pairs.append(Pair(_sentence(facts, choose), _sentence(others, choose) + choose.choice(ENDINGS), int(label)))
    return pairs


def vocabulary() -> list[str]:
    words = {word for slot in SLOTS for fact in slot for word in fact}
    words.update(" ".join(ENDINGS).split())
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """In the columns of MRPC's own files."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(COLUMNS)
        writer.writerows([pair.label, 2 * i, 2 * i + 1, pair.first, pair.second] for i, pair in enumerate(pairs))


def read_pairs(path: Path) -> list[Pair]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if not rows.fieldnames or not {"Quality", "#1 String", "#2 String"} <= set(rows.fieldnames):
            raise SystemExit(f"{path}: not a file of MRPC: the first line has to name {', '.join(COLUMNS)}")
        return [Pair(row["#1 String"], row["#2 String"], int(row["Quality"])) for row in rows]
