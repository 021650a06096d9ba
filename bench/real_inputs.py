"""Inputs of realistic sizes and values for models that nobody here wrote, from what their files say.

Every input has a shape and a kind of values. Both follow from its declared type, its rank and the words in its name;
what cannot be guessed comes from the table in real_models.py, as one line of text per input:

    "1x3x640x640"      the shape; values by the rules below
    "1x128 <30522"     integers from 0 up to but not with 30522
    "1 =16000"         this value everywhere; "3 =0,1,0" these along the last dim; "scalar" is the shape of none
    "1x16000 audio"    one of KINDS
"""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Values = NDArray[Any]

# Sizes of free dims, by words in their names; the first that fits.
NAMED_SIZES = (
    (r"batch|^n$|^b$|^bs$|num_images", 1),
    (r"height|^h$", 640),
    (r"width|^w$", 640),
    (r"samples|audio|wave", 16000),
    (r"past", 32),
    (r"seq|len|time|token|frames|^t$|^l$", 128),
)
AUDIO, LENGTH, IMAGE = 16000, 128, 224


@dataclass(frozen=True)
class Signature:
    """A graph input as the file declares it: names or None for dims that are free."""

    name: str
    dtype: Any
    dims: tuple[int | str | None, ...]


def signatures(model: Any) -> list[Signature]:
    """The inputs that a caller gives: without those that have an initializer."""
    known = {t.name for t in model.graph.initializer}
    return [signature(port) for port in model.graph.input if port.name not in known]


def signature(port: Any) -> Signature:
    kind = port.type.tensor_type
    dims: list[int | str | None] = []
    for dim in kind.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return Signature(port.name, helper.tensor_dtype_to_np_dtype(kind.elem_type), tuple(dims))


def guessed_shape(s: Signature) -> tuple[int, ...]:
    image = len(s.dims) == 4
    waves = len(s.dims) in (1, 2, 3) and re.search(r"audio|wav|speech|signal|sample", s.name, re.I)
    shape: list[int] = []
    for i, dim in enumerate(s.dims):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        named = next((size for pattern, size in NAMED_SIZES if dim and re.search(pattern, dim, re.I)), None)
        if i == 0 and (len(s.dims) > 1 or named == 1):
            shape.append(1)
        elif image and i == 1:
            shape.append(3)
        elif named is not None and not (image and named == LENGTH):
            shape.append(named)
        else:
            shape.append(IMAGE if image else AUDIO if waves else LENGTH)
    return tuple(shape)


def table_size(model: Any, name: str) -> int:
    """How many rows the table has that an input looks up by Gather, through nodes that pass indices on; 0: none."""
    rows = {t.name: t.dims[0] for t in model.graph.initializer if len(t.dims) > 1}
    passed, found = {name}, []
    for node in model.graph.node:
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in passed and node.input[0] in rows:
            found.append(rows[node.input[0]])
        elif node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze") and node.input[0] in passed:
            passed.update(node.output)
    return min(found, default=0)


def smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Neighbours that are alike, as in pictures, between 0 and 1."""
    values = rng.random(shape)
    for axis in (-1, -2) if len(shape) > 1 else (-1,):
        for _ in range(3):
            values = (values + np.roll(values, 1, axis) + np.roll(values, -1, axis)) / 3
    values -= values.min()
    return np.asarray(values / max(values.max(), 1e-9))


def audio(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """A voice-like sound at 16 kHz: harmonics that rise and fall, and some noise."""
    t = np.arange(shape[-1]) / 16000
    loud = 0.5 + 0.5 * np.sin(2 * math.pi * 3 * t)
    tone = sum(np.sin(2 * math.pi * 140 * k * t + k) / k for k in range(1, 12))
    return np.asarray(0.15 * loud * tone + 0.01 * rng.standard_normal(shape))


KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Values]] = {
    "image": smooth,
    "audio": audio,
    "pcm": lambda rng, shape: audio(rng, shape) * 32767,
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ones": lambda _, shape: np.ones(shape),
    "zeros": lambda _, shape: np.zeros(shape),
    "bytes": lambda rng, shape: rng.integers(0, 256, shape),
    "words": lambda rng, shape: np.array([f"word{i}" for i in rng.integers(0, 99, shape).ravel()]).reshape(shape),
}


def guessed_kind(model: Any, s: Signature, shape: tuple[int, ...]) -> str:
    words = s.name.lower()
    if s.dtype.kind == "O":
        return "words"
    if s.dtype.kind == "b":
        return "ones"
    if s.dtype.kind in "iu":
        if s.dtype == np.uint8:
            return "bytes"
        if words in ("sr", "sample_rate"):
            return "=16000"
        if "mask" in words:
            return "ones"
        if re.search(r"type|segment", words):
            return "zeros"
        if re.search(r"len", words):
            return f"={LENGTH}"
        rows = table_size(model, s.name)
        return f"<{rows}" if rows else "<2"
    if re.search(r"state|cache|hidden|^h0?$|^c0?$|context", words):
        return "zeros"
    if len(shape) == 4:
        return "image"
    if (shape and shape[-1] >= 4000) or re.search(r"audio|wav|speech|signal", words):
        return "audio"
    return "normal"


def make_inputs(path: Path, given: Mapping[str, str]) -> dict[str, Values]:
    """The same arrays every time: each is seeded by the name of its input."""
    model = onnx.load(path, load_external_data=False)
    arrays = {}
    for s in signatures(model):
        shape_text, _, kind = given.get(s.name, "").partition(" ")
        if shape_text == "scalar":
            shape: tuple[int, ...] = ()
        elif shape_text:
            shape = tuple(int(n) for n in shape_text.split("x"))
        else:
            shape = guessed_shape(s)
        kind = kind or guessed_kind(model, s, shape)
        rng = np.random.default_rng(zlib.crc32(s.name.encode()))
        if kind.startswith("<"):
            values = rng.integers(0, int(kind[1:]), shape)
        elif kind.startswith("="):
            values = np.broadcast_to([float(v) for v in kind[1:].split(",")], shape or (1,)).reshape(shape)
        else:
            values = KINDS[kind](rng, shape)
        arrays[s.name] = np.asarray(values) if kind == "words" else np.asarray(values).astype(s.dtype)
    return arrays


def fix_sizes(path: Path, inputs: Mapping[str, Values], target: Path) -> bool:
    """Writes the model with the shapes of these inputs in place of free dims; False if none was free."""
    model = onnx.load(path)
    free = False
    for port in model.graph.input:
        if port.name not in inputs:
            continue
        shape = inputs[port.name].shape
        free |= signature(port).dims != shape
        del port.type.tensor_type.shape.dim[:]
        for size in shape:
            port.type.tensor_type.shape.dim.add().dim_value = size
    if free:
        # What the file says of other tensors was written for free sizes.
        del model.graph.value_info[:]
        target.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, target)
    return free
