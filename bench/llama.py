"""Llama-like models with 4-bit weights: milliseconds a token while the past grows, and prompt tokens a second.

Random weights, written once to build/models. Beside onnxruntime (MatMulNBits) and, where bench/requirements-llama.txt
is installed, llama.cpp (Q4_0). make bench-llama ARGS="--sizes small --threads 1"
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from models import CACHE, RECIPE, quiet
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    # Takes token ids, keeps the past, gives the logits of the last token; and starts anew.
    Step = Callable[[NDArray[Any]], Any]
    Reset = Callable[[], None]
    Engine = tuple[Step, Reset]

VOCABULARY, LAYERS, HEADS, KEY_HEADS = 32000, 16, 16, 8


@dataclass(frozen=True)
class Size:
    """A model of 16 layers and 16 heads, 8 of them for keys and values."""

    width: int
    middle: int


SIZES = {"small": Size(1024, 2816), "large": Size(2048, 5632)}  # 0.25 and 0.9 billion parameters


class LlamaGraph:
    """A Llama in the operators of ONNX: ids and a past of any length in, logits of the last token and the past out."""

    def __init__(self, size: Size) -> None:
        self.size, self.head = size, size.width // HEADS
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])]
        self.outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, VOCABULARY])]

    def add(self, op: str, *inputs: str, to: Sequence[str] = (), **attributes: Any) -> str:
        outputs = [*to] or [f"t{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self.random.standard_normal((rows, columns), dtype=np.float32)
        return self.add("MatMul", x, self.constant(weight / np.float32(np.sqrt(rows))))

    def norm(self, x: str) -> str:
        return self.add("RMSNormalization", x, self.constant(np.ones(self.size.width, np.float32)), epsilon=1e-6)

    def by_heads(self, x: str, heads: int) -> str:
        return self.add("Transpose", self.add("Reshape", x, self.constant([0, 0, heads, self.head])), perm=[0, 2, 1, 3])

    def positions(self) -> str:
        """Of the new tokens, behind the past."""
        past = self.add("Shape", "past_key_values.0.key", start=2, end=3)
        end = self.add("Add", past, self.add("Shape", "input_ids", start=1, end=2))
        none = self.constant(np.zeros(0, np.int64))
        first, last = (self.add("Reshape", t, none) for t in (past, end))
        return self.add("Unsqueeze", self.add("Range", first, last, self.constant(np.int64(1))), self.constant([0]))

    def attention(self, x: str, layer: int, turns: Sequence[str]) -> str:
        width, keys = self.size.width, KEY_HEADS * self.head
        q, k, v = (self.by_heads(self.linear(x, width, n), n // self.head) for n in (width, keys, keys))
        q, k = (self.add("RotaryEmbedding", t, *turns) for t in (q, k))
        past, present = ([f"{side}.{layer}.{t}" for t in ("key", "value")] for side in ("past_key_values", "present"))
        dims = [1, KEY_HEADS, "rows", self.head]
        self.inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in past]
        dims = [1, KEY_HEADS, "all", self.head]
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in present]
        y = self.add("Attention", q, k, v, "", *past, to=[f"attended{layer}", *present], is_causal=1)
        y = self.add("Reshape", self.add("Transpose", y, perm=[0, 2, 1, 3]), self.constant([0, 0, width]))
        return self.linear(y, width, width)

    def feed_forward(self, x: str) -> str:
        gate, up = (self.linear(x, self.size.width, self.size.middle) for _ in range(2))
        gate = self.add("Mul", gate, self.add("Sigmoid", gate))
        return self.linear(self.add("Mul", gate, up), self.size.middle, self.size.width)

    def model(self) -> Any:
        angles = np.outer(np.arange(4096), 10000 ** -(np.arange(self.head // 2) * 2 / self.head)).astype(np.float32)
        turns = (self.constant(np.cos(angles)), self.constant(np.sin(angles)), self.positions())
        table = self.random.standard_normal((VOCABULARY, self.size.width), dtype=np.float32)
        x = self.add("Gather", self.constant(table), "input_ids")
        for layer in range(LAYERS):
            x = self.add("Add", x, self.attention(self.norm(x), layer, turns))
            x = self.add("Add", x, self.feed_forward(self.norm(x)))
        last = self.add("Gather", self.norm(x), self.constant([-1]), axis=1)
        self.add("Identity", self.linear(last, self.size.width, VOCABULARY), to=["logits"])
        graph = helper.make_graph(self.nodes, "llama", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def llama_path(name: str) -> Path:
    """One ONNX file and one of weights."""
    folder: Path = CACHE / f"llama-{name}-{RECIPE}"
    path = folder / "model.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.bin").unlink(missing_ok=True)  # it would be added to
        model = LlamaGraph(SIZES[name]).model()
        onnx.save(model, folder / "new.onnx", save_as_external_data=True, location="weights.bin")
        (folder / "new.onnx").rename(path)
    return path


def empty_past(name: str) -> dict[str, NDArray[Any]]:
    shape = (1, KEY_HEADS, 0, SIZES[name].width // HEADS)
    return {
        f"past_key_values.{layer}.{kind}": np.zeros(shape, np.float32)
        for layer in range(LAYERS)
        for kind in ("key", "value")
    }


def ingot_state(name: str, threads: int) -> Engine:
    state = ingot.compile(llama_path(name), threads=threads).autocast("int4-weights").bind_state()
    return lambda ids: state.inference({"input_ids": ids})["logits"], state.reset


def passing_along(name: str, run: Callable[[dict[str, NDArray[Any]]], list[NDArray[Any]]]) -> Engine:
    """The past as inputs and outputs of every call."""
    past = empty_past(name)

    def step(ids: NDArray[Any]) -> NDArray[Any]:
        logits, *present = run({"input_ids": ids} | past)
        past.update(zip(past, present, strict=True))
        return logits

    return step, lambda: past.update(empty_past(name))


def ingot_plain(name: str, threads: int) -> Engine:
    graph = ingot.compile(llama_path(name), threads=threads).autocast("int4-weights")
    return passing_along(name, lambda feed: list(graph.inference(feed).values()))


def onnxruntime_int4(name: str, threads: int) -> Engine:
    import onnxruntime as ort
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    path = llama_path(name).parent / "int4.onnx"
    if not path.exists():
        with quiet():
            quantizer = MatMulNBitsQuantizer(onnx.load(llama_path(name)), block_size=32, is_symmetric=True)
            quantizer.process()
            quantizer.model.save_model_to_file(str(path), use_external_data_format=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return passing_along(name, lambda feed: list(session.run(None, feed)))


def llama_cpp(name: str, threads: int) -> Engine:
    from llama_cpp import Llama
    from llama_gguf import gguf_path

    size = SIZES[name]
    path = gguf_path(name, VOCABULARY, LAYERS, HEADS, KEY_HEADS, size.width, size.middle)
    model = Llama(str(path), n_ctx=2048, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    return lambda ids: model.eval(ids[0].tolist()), model.reset


ENGINES: dict[str, Callable[[str, int], Engine]] = {
    "ingot, bind_state": ingot_state,
    "ingot, past passed along": ingot_plain,
    "onnxruntime": onnxruntime_int4,
    "llama.cpp": llama_cpp,
}


def measure(engine: Engine, prompt: int, tokens: int, rounds: int) -> dict[str, float]:
    step, reset = engine
    random = np.random.default_rng(0)
    prompts, single = random.integers(3, VOCABULARY, (1, prompt)), random.integers(3, VOCABULARY, (1, 1))
    in_loop, in_prompt = [], []
    for _ in range(rounds):
        reset()
        start = time.perf_counter()
        step(prompts)
        in_prompt.append(time.perf_counter() - start)
        laps = []
        for _ in range(tokens):
            start = time.perf_counter()
            step(single)
            laps.append(time.perf_counter() - start)
        in_loop.append(statistics.fmean(laps))
    return {"ms_per_token": min(in_loop) * 1e3, "prompt_tokens_per_s": prompt / min(in_prompt)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64, help="written after the prompt, one by one")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    table = Table(title=f"{arguments.tokens} tokens after {arguments.prompt}, 4-bit weights", title_justify="left")
    for column in ("model", "threads", "engine"):
        table.add_column(column)
    for column in ("ms a token", "prompt tokens/s"):
        table.add_column(column, justify="right")
    for name in arguments.sizes:
        for threads in arguments.threads:
            for title in arguments.engines:
                with contextlib.suppress(ImportError):
                    engine = ENGINES[title](name, threads)
                    measure(engine, 16, 4, 1)  # kernels are compiled
                    found = measure(engine, arguments.prompt, arguments.tokens, arguments.rounds)
                    row = (f"{found['ms_per_token']:.2f}", f"{found['prompt_tokens_per_s']:.0f}")
                    table.add_row(name, str(threads), title, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
