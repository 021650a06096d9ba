"""Time and memory of exporting BERT-base: fp32, and int8 from a dynamically quantized model.

    make bench-export

Each export runs in its own process. Memory is what the process needs at its peak beyond what it had when the model was
built, plus the model: (peak - before + weights) / weights.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

CASES = {
    "fp32": {"dtype": "fp32"},
    "int8 QDQ": {"dtype": "int8"},
    "int8 QLinear": {"dtype": "int8", "quant_format": "QLinear"},
}


def resident() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(case: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    from transformers import BertConfig, BertModel

    import ingot
    import ingot.exporter

    torch.manual_seed(0)
    model: Any = BertModel(BertConfig()).eval()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    if case != "fp32":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, inplace=True)
    ids = torch.randint(0, 30000, (1, 128))
    before = resident()
    with tempfile.TemporaryDirectory() as folder:
        report = ingot.export(
            model,
            Path(folder) / "m.onnx",
            example_inputs={"input_ids": ids, "attention_mask": torch.ones_like(ids)},
            dynamic_axes={name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")},
            verify=False,
            **CASES[case],  # type: ignore[arg-type]
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                **report.seconds,
                "memory": (peak - before + weights) / weights,
                "peak MB": peak / 1e6,
                "file MB": report.bytes / 1e6,
            }
        )
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--case", choices=CASES)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    if given.case:
        child(given.case)
        return
    print(
        "| BERT-base | trace s | translate s | finish s | memory / weights | peak MB | file MB |\n"
        "|---|---|---|---|---|---|---|"
    )
    for case in CASES:
        runs = []
        for _ in range(given.rounds):
            done = subprocess.run(
                [sys.executable, __file__, "--case", case], capture_output=True, text=True, check=True
            )
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        best = {key: min(run[key] for run in runs) for key in runs[0]}
        cells = [f"{best[key]:.2f}" for key in ("trace", "translate", "finish", "memory")]
        print(f"| {case} | {' | '.join(cells)} | {best['peak MB']:.0f} | {best['file MB']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
