"""PyTorch in place: torch.compile with Ingot and with inductor, the wrapper, and eager; part of `make bench`.

Starting: fresh processes that take turns, from the capture to the first result; inductor with freezing and without its
caches. Steady state: one process, contenders interleaved, minima. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models import minilm_module, quiet
from rich.console import Console
from rich.table import Table
from timing import interleave

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=120)

STARTING = ("bert", "resnet50")


def tokens(batch: int, length: int) -> Any:
    import torch

    return torch.randint(0, 1000, (batch, length))


def bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).eval(), (tokens(1, 128),)


def distilbert(batch: int, length: int) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import DistilBertConfig, DistilBertModel

        return DistilBertModel(DistilBertConfig()).eval(), (tokens(batch, length),)

    return make


def minilm() -> Any:
    import torch

    return minilm_module(), (tokens(1, 128), torch.ones(1, 128, dtype=torch.int64))


def resnet50() -> Any:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval(), (torch.randn(1, 3, 224, 224),)


def vit() -> Any:
    import torch
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()).eval(), (torch.randn(1, 3, 224, 224),)


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)).eval(), (tokens(1, 64),)


MODELS: dict[str, Callable[[], Any]] = {
    "distilbert": distilbert(1, 128),
    "distilbert-b8": distilbert(8, 128),
    "distilbert-s32": distilbert(1, 32),
    "bert": bert,
    "minilm": minilm,
    "resnet50": resnet50,
    "vit": vit,
    "gpt2": gpt2,
}


def make_form(form: str, model: Any, threads: int = 0) -> Any:
    """The model, ready to be called, in one of the ways that are compared."""
    import torch

    import ingot.torch

    flags = f"--threads {threads}" if threads else ""
    if form == "eager":
        return model
    if form == "wrapper":
        return ingot.torch.compile(model, compile_options=flags)
    if form == "ingot":
        return torch.compile(model, backend="ingot", options={"compile_options": flags})
    if form == "capture":  # what every backend of torch.compile pays
        return torch.compile(model, backend="aot_eager")
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return torch.compile(model)


# Starting


def start_once(name: str, form: str) -> dict[str, float]:
    """In this process: from before the capture to the first result, without the imports."""
    import torch

    import ingot.torch  # noqa: F401

    with quiet():
        model, inputs = MODELS[name]()
    with torch.no_grad():
        model(*inputs)
        wall, cpu = time.perf_counter(), cpu_seconds()
        make_form(form, model)(*inputs)
        return {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """Of this process and of the compilers it ran."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def fresh(name: str, form: str, folder: Path) -> dict[str, float]:
    env = {
        **os.environ,
        "INGOT_CACHE_DIR": str(folder / "ingot"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--start", name, form], env=env, capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def starting(models: list[str], rounds: int) -> dict[str, Any]:
    out: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in models}
    for _ in range(rounds):
        for name in models:
            for form in ("capture", "ingot", "wrapper", "inductor"):
                with tempfile.TemporaryDirectory() as folder:
                    found = out[name].setdefault(form, [])
                    found.append(fresh(name, form, Path(folder)))
                    if form in ("ingot", "wrapper"):
                        out[name].setdefault(f"{form}, from disk", []).append(fresh(name, form, Path(folder)))
    return {
        name: {form: {k: min(t[k] for t in times) for k in ("wall", "cpu")} for form, times in forms.items()}
        for name, forms in out.items()
    }


def show_starting(results: dict[str, Any]) -> None:
    table = Table(title="PyTorch: from the capture to the first result (fresh processes, minima)", title_justify="left")
    for column in ("model", "form", "s", "CPU s", "of inductor", "of its CPU", "on top of the capture"):
        table.add_column(column, justify="left" if column in ("model", "form") else "right")
    for name, forms in results.items():
        for i, (form, t) in enumerate(forms.items()):
            top = f"{t['wall'] - forms['capture']['wall']:.2f} s" if form.startswith("ingot") else ""
            shares = [f"{100 * t[k] / forms['inductor'][k]:.0f} %" for k in ("wall", "cpu")]
            table.add_row(name if i == 0 else "", form, f"{t['wall']:.2f}", f"{t['cpu']:.2f}", *shares, top)
        table.add_section()
    console.print(table)


# Steady state


def steady(name: str, forms: list[str], threads: int, rounds: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    torch._dynamo.reset()
    with quiet():
        model, inputs = MODELS[name]()
    runs: dict[str, Callable[[], object]] = {}
    with torch.no_grad():
        for form in forms:
            fast = make_form(form, model, threads)
            runs[form] = functools.partial(fast, *inputs)
            runs[form]()
        timings = interleave(runs, rounds=rounds, pause=0.03 if threads > 1 else 0)
    figures = {
        form: {
            "min_ms": 1e3 * (t.cpu_min if threads == 1 else t.wall_min),
            "wall_min_ms": 1e3 * t.wall_min,
            "wall_median_ms": 1e3 * t.wall_median,
        }
        for form, t in timings.items()
    }
    return {"model": name, "threads": threads, "forms": figures}


def show_steady(results: list[dict[str, Any]]) -> None:
    table = Table(title="PyTorch: ms per call (1 thread: CPU time; more: wall time; minima)", title_justify="left")
    for column in ("model", "threads", "form"):
        table.add_column(column)
    for column in ("min", "wall median", "faster than eager"):
        table.add_column(column, justify="right")
    for result in results:
        forms = result["forms"]
        for i, (form, f) in enumerate(forms.items()):
            first = [result["model"], str(result["threads"])] if i == 0 else ["", ""]
            ratio = f"{forms['eager']['min_ms'] / f['min_ms']:.2f}x" if "eager" in forms else ""
            table.add_row(*first, form, f"{f['min_ms']:.2f}", f"{f['wall_median_ms']:.2f}", ratio)
        table.add_section()
    console.print(table)


def overhead() -> dict[str, float]:
    """Microseconds per call of a model so small that all of it is overhead."""
    import timeit

    import torch

    import ingot.torch
    from ingot.torch.sessions import memory

    model, x = torch.nn.Linear(8, 8).eval(), torch.randn(1, 8)

    def best(call: Callable[[], object]) -> float:
        return min(timeit.repeat(call, number=2000, repeat=15)) / 2000 * 1e6

    with torch.no_grad():
        ingot.torch.clear_cache()
        wrapper = ingot.torch.compile(model, compile_options="--threads 1")
        wrapper(x)
        (session,) = memory._sessions.values()
        out = {"Graph.inference": best(lambda: session.graph.inference([x])), "wrapper": best(lambda: wrapper(x))}
        result = model(x)
        alone = torch.compile(model, backend=lambda *_: lambda *_: (result,))
        for name, fast in (("torch.compile, ingot", make_form("ingot", model, 1)), ("torch.compile alone", alone)):
            torch._dynamo.reset()
            fast(x)
            out[name] = best(functools.partial(fast, x))
        out["eager"] = best(lambda: model(x))
    return out


def torch_figures(models: list[str], threads: list[int], rounds: int, start_rounds: int) -> dict[str, Any]:
    """Everything, shown as it comes."""
    out: dict[str, Any] = {"overhead_us": overhead()}
    console.print("Per call of a tiny model, µs: " + ", ".join(f"{k} {v:.1f}" for k, v in out["overhead_us"].items()))
    out["steady"] = []
    for name in models:
        for count in threads:
            with console.status(f"{name}, {count} thread(s)"):
                out["steady"].append(steady(name, ["eager", "inductor", "ingot", "wrapper"], count, rounds))
    show_steady(out["steady"])
    if start_rounds:
        with console.status("starting"):
            out["starting"] = starting([m for m in STARTING if m in models], start_rounds)
        show_starting(out["starting"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--start-rounds", type=int, default=2, help="0: skip the starting times")
    parser.add_argument("--start", nargs=2, metavar=("MODEL", "FORM"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    if arguments.start:
        print(json.dumps(start_once(*arguments.start)))
        return
    figures = torch_figures(arguments.models, arguments.threads, arguments.rounds, arguments.start_rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
