"""Exports the small models of `make torch-zoo`, as they are and quantized in every way, in both forms. A table of the
steps between Ingot, running the file, and the model's exact arithmetic; of float files the largest difference beside
the largest value.

.venv/bin/python scripts/export_zoo.py [--only NAME] [--ways fp32,static,...]     (make export-zoo)
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from torch_zoo import MODELS  # noqa: E402

import ingot  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_models import TorchModel

EXACT = "Ingot and exact arithmetic"
FORMATS = ("QDQ", "QLinear")
DATA = 2  # examples to calibrate with, or to train on


def trained(model: TorchModel, module: torch.nn.Module) -> ingot.QuantizedModel:
    prepared = ingot.prepare_qat(module, example_inputs=model.inputs(0))
    for k in range(DATA):
        prepared(**model.inputs(k))
    return ingot.convert(prepared)


def quantized(**fields: Any) -> Callable[[TorchModel, torch.nn.Module], ingot.QuantizedModel]:
    def make(model: TorchModel, module: torch.nn.Module) -> ingot.QuantizedModel:
        config = ingot.PostTrainingQuantConfig(**fields)
        return ingot.quantize(module, config, calib=[model.inputs(k) for k in range(DATA)])

    return make


WAYS: dict[str, tuple[tuple[str, ...], Callable[[TorchModel, torch.nn.Module], Any]]] = {
    "fp32": (("",), lambda model, module: ingot.Model(module)),
    "static": (FORMATS, quantized(approach="static")),
    "dynamic": (FORMATS, quantized(approach="dynamic")),
    "QAT": (FORMATS, trained),
    "weights": (("QDQ",), quantized(approach="weight_only")),
}


def cell(model: TorchModel, way: str, folder: Path) -> tuple[str, str]:
    """What the table says, and what failed."""
    formats, make = WAYS[way]
    try:
        made = make(model, model.module())
        found = []
        for quant_format in formats:
            fields = {"dtype": "int8", "quant_format": quant_format} if quant_format else {"dtype": "fp32"}
            report = made.export(folder / "model.onnx", opset_version=21, example_inputs=model.inputs(0), **fields)
            if quant_format:
                found.append(f"{report.worst(EXACT):.2f}")
            else:
                found.append(f"{max(d.absolute / max(255 * d.step, 1e-9) for d in report.differences):.1e}")
        return " / ".join(found), ""
    except ingot.UnsupportedError as error:
        return "-", error.message.splitlines()[0]
    except Exception as error:
        return "FAILED", str(error).splitlines()[0]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--only", default="", help="models whose name is one of these, with commas between")
    options.add_argument("--ways", default=",".join(WAYS), help="some of " + ", ".join(WAYS))
    given = options.parse_args()
    ways, names = given.ways.split(","), set(filter(None, given.only.split(",")))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"| model | {' | '.join(ways)} |\n|---{'|---' * len(ways)}|", flush=True)
    failed = 0
    for model in MODELS:
        if (names and model.name not in names) or model.generate:
            continue
        cells, reasons = [], []
        for way in ways:
            with tempfile.TemporaryDirectory() as folder:
                text, reason = cell(model, way, Path(folder))
            failed += text == "FAILED"
            cells.append(text)
            if reason:
                reasons.append(f"{model.name}, {way}: {reason}")
        print(f"| {model.name} | {' | '.join(cells)} |", flush=True)
        for reason in reasons:
            print(reason, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
