"""Llama-like models with 4-bit weights: milliseconds a token while the past grows, and prompt tokens a second.

Random weights, exported once to build/models. Beside onnxruntime (MatMulNBits) and, where bench/requirements-llama.txt
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
from models import CACHE, RECIPE, quiet
from rich.console import Console
from rich.table import Table

import ingot

if TYPE_CHECKING:
    from collections.abc import Callable
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


def llama_path(name: str) -> Path:
    """One ONNX file and one of weights: ids and a past of any length in, logits of the last token and the past out."""
    folder: Path = CACHE / f"llama-{name}-{RECIPE}"
    path = folder / "model.onnx"
    if path.exists():
        return path
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    size = SIZES[name]
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=size.middle,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        attn_implementation="sdpa",
    )

    class NextToken(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.llama = LlamaForCausalLM(config)

        def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
            cache = DynamicCache()
            for layer in range(LAYERS):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.llama(input_ids=input_ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return out.logits, *(t for layer in out.past_key_values.layers for t in (layer.keys, layer.values))

    names = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
    past = tuple(torch.zeros(1, KEY_HEADS, 7, size.width // HEADS) for _ in names)
    folder.mkdir(parents=True, exist_ok=True)
    tokens, rows = torch.export.Dim("tokens", min=2, max=4096), torch.export.Dim("rows", min=2, max=65536)
    with quiet(), torch.no_grad():
        torch.onnx.export(
            NextToken().eval(),
            (torch.zeros((1, 5), dtype=torch.int64), *past),
            folder / "new.onnx",
            dynamo=True,
            opset_version=20,
            external_data=True,
            input_names=["input_ids", *(f"past_key_values.{n}" for n in names)],
            output_names=["logits", *(f"present.{n}" for n in names)],
            dynamic_shapes=({1: tokens}, tuple({2: rows} for _ in names)),
        )
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
    import onnx
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
