"""GPT-2 writing one token after 128: what it costs to stream the weights, by the bits they are stored in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import yaml  # type: ignore[import-untyped]
from engines import onnxruntime_engine
from models import gpt2_inputs, gpt2_path
from timing import interleave

import ingot
from ingot._ingot import read_bandwidth

if TYPE_CHECKING:
    from engines import Run

PRECISIONS = ("fp32", "bf16", "int8-weights", "int4-weights", "int8")


def streamed_bytes(graph: ingot.Graph) -> int:
    """Weights that every token reads: all constants but those a Gather picks rows from. Scales of blocks, which
    autocast rounds to halves, are packed as such."""
    text = yaml.safe_load(graph.yaml)
    nodes = text["operator"].values()
    tables = {node["input"][0] for node in nodes if node["type"] == "Gather"}
    used = {name for node in nodes for name in node["input"] if node["type"] != "Gather"}
    halves = {node["input"][2] for node in nodes if node.get("attr", {}).get("b_block")}
    read = {name: t["location"][1] for name, t in text["tensors"].items() if "location" in t}
    return sum(
        size // (2 if name in halves else 1) for name, size in read.items() if name in used or name not in tables
    )


def decode(threads: int, rounds: int) -> dict[str, Any]:
    inputs = gpt2_inputs()
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    wide = ingot.compile(gpt2_path(), threads=threads, shapes=shapes)
    arrays = [inputs[port.name] for port in wide.inputs]
    runs: dict[str, Run] = {}
    megabytes: dict[str, float] = {}
    for precision in PRECISIONS:
        graph = wide if precision == "fp32" else wide.autocast(precision)
        megabytes[precision] = streamed_bytes(graph) * 1e-6

        def run(graph: ingot.Graph = graph) -> list[Any]:
            return list(graph.inference(arrays).values())

        runs[precision] = run
    # Keys and values of the past come in and go out with one row more; the rest is small.
    past = (sum(array.nbytes for array in arrays) + sum(array.nbytes for array in runs["fp32"]())) * 1e-6
    runs["onnxruntime fp32"] = onnxruntime_engine(gpt2_path(), inputs, threads)
    megabytes["onnxruntime fp32"] = megabytes["fp32"]
    bandwidth = read_bandwidth(0.5)
    timings = interleave(runs, rounds=rounds, pause=0.03 if threads > 1 else 0)
    bandwidth = max(bandwidth, read_bandwidth(0.5))
    exact = runs["fp32"]()[0]
    rows = {}
    for name, call in runs.items():
        seconds = timings[name].wall_min
        gigabytes = (megabytes[name] + past) * 1e-3
        rows[name] = {
            "ms_per_token": seconds * 1e3,
            "weights_mb": megabytes[name],
            "past_mb": past,
            "gb_per_s": gigabytes / seconds,
            "share_of_bandwidth": gigabytes / seconds / bandwidth,
            "faster_than_fp32": timings["fp32"].wall_min / seconds,
            "error": float(np.abs(call()[0] - exact).max() / np.abs(exact).max()),
        }
    return {"threads": threads, "read_gb_per_s": bandwidth, "precisions": rows}
