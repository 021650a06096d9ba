"""Regular expressions: what RE2 (in onnxruntime) says, in linear time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx

    Save = Callable[..., Path]

TEXT, BOOL = TensorProto.STRING, TensorProto.BOOL
FIXED = [
    r"\x{1F600}+", r"(?i)aB[c-d]", r"[[:alpha:]]+\d{2,}", r"\Qa.b\E*", r"(?s).*", r"(?m)^a$\n^b$", r"a(?P<name>b|c)*",
    r"[^a]", r"\w\W", r"\b\w+\b \B\W*", r"(a|b)*?c{0,3}", r"[]a-]+", r"[\]\-a]", r"x{,3}", r"a{2",
    r"\A\s*\z", r"[[:^digit:]]", r"é|ü", r"(|a)+b", r"\t|\x41|\101", "",
]  # fmt: skip
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aBd",
    "abbcc",
    "a.bbb",
    "a\nb",
    "😀😀",
    "é",
    "A",
    "A0",
    "x{,3}",
    "a{2",
    "]-a",
    " ",
    "w !",
    "ABC123",
]


def matcher(pattern: str, count: int) -> onnx.ModelProto:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    return make_model([node], [("x", TEXT, [count])], [("y", BOOL, [count])])


def piece(r: random.Random, depth: int) -> str:
    kind = r.randrange(8)
    if kind < 4:
        return r.choice(["a", "b", "c", "é", ".", r"\d", r"\w", r"[^a]", "[ab]", r"\b", "^", "$"])
    if kind < 6 and depth < 3:
        return (
            "("
            + "|".join(sequence(r, depth + 1) for _ in range(r.choice([1, 2])))
            + ")"
            + r.choice(["", "*", "+", "?", "{2}"])
        )
    return r.choice("abc0 ") + r.choice(["*", "+", "?", "{1,3}", "*?", ""])


def sequence(r: random.Random, depth: int = 0) -> str:
    return "".join(piece(r, depth) for _ in range(r.randrange(4)))


def random_patterns() -> list[str]:
    r = random.Random(5)
    return [sequence(r) + "|" + sequence(r) for _ in range(60)]


def test_patterns_match_what_re2_matches(save: Save) -> None:
    r = random.Random(7)
    texts = TEXTS + ["".join(r.choice("abc0 é") for _ in range(r.randrange(9))) for _ in range(60)]
    x = np.array(texts, object)
    for pattern in FIXED + random_patterns():
        path = save(matcher(pattern, len(texts)))
        try:
            (expected,) = ort.InferenceSession(path).run(None, {"x": x})
        except Exception:
            with pytest.raises(ingot.Error):
                ingot.compile(path).inference([x])
            continue
        found = ingot.compile(path, opt_level=0).inference([x])["y"]
        wrong = [t for t, a, b in zip(texts, found, expected, strict=True) if a != b]
        assert not wrong, (pattern, wrong)


@pytest.mark.parametrize("pattern", [r"(\w+)*@x", r"(a|a)*b", r"((a*)*)*c", ".*.*.*.*z"])
def test_time_is_linear_and_the_stack_shallow(save: Save, pattern: str) -> None:
    graph = ingot.compile(save(matcher(pattern, 1)))
    assert not graph.inference([np.array(["a" * 100_000], object)])["y"][0]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "((((){1000}){1000}){1000}){1000}",
        "(" * 600 + ")" * 600,
        r"(a)\1",
        "(?=a)",
        "[b-a]",
        "a**",
        "(",
        ")",
        "[a",
        "\\",
    ],
)
def test_wrong_and_endless_patterns_are_refused(save: Save, pattern: str) -> None:
    with pytest.raises(ingot.InvalidModelError, match="regular expression"):
        ingot.compile(save(matcher(pattern, 1)))


def test_bytes_that_are_no_utf8_match_nothing(save: Save) -> None:
    graph = ingot.compile(save(matcher(".*", 2)))
    assert graph.inference([np.array([b"a\xff", "aé".encode()], object)])["y"].tolist() == [False, True]
