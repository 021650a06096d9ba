"""`ingot export`: a .pt2 or TorchScript file as ONNX."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ingot.errors import Error, InvalidInputError, InvalidModelError, IoError, UnsupportedError
from ingot.exporter import Model, Torch2ONNXConfig

EXIT_CODES: list[tuple[type[Error], int]] = [
    (InvalidModelError, 3),
    (UnsupportedError, 4),
    (InvalidInputError, 5),
    (IoError, 6),
]
TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("ingot export", description="Write a PyTorch file as ONNX.")
    parser.add_argument("model", help="a .pt2 file (torch.export.save) or a TorchScript file (torch.jit.save)")
    parser.add_argument("-o", "--output", required=True, help="model.onnx")
    parser.add_argument("--dtype", default="fp32", help="fp32, bf16, fp16, or int8 for a quantized model")
    parser.add_argument("--quant-format", default="QDQ", help="QDQ or QLinear")
    parser.add_argument("--opset", type=int, default=Torch2ONNXConfig.opset_version)
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SPEC",
        help="an example input, in order: FILE.npy, or [NAME:]TYPE:1x3x224x224 for random numbers; "
        "a .pt2 file has its own",
    )
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="NAME:AXIS=DIM,...",
        help="free dims: x:0=batch,1=length; a .pt2 file has its own",
    )
    parser.add_argument("--output-names", default="", metavar="A,B", help="names of the outputs")
    parser.add_argument("--weight-type", help="s8 or u8")
    parser.add_argument("--recipe", default="int32_bias", help="int32_bias, fp32_bias or fp32_bias_qdq")
    parser.add_argument("--external-data", action="store_true", help="weights in a file beside the model")
    parser.add_argument("--no-verify", action="store_true", help="do not run the written model")
    parser.add_argument("--report", metavar="FILE.json", help="the report as data")
    return parser


def _example(spec: str) -> tuple[str | None, torch.Tensor]:
    if spec.endswith(".npy"):
        try:
            return None, torch.from_numpy(np.load(spec, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"--input {spec}: {error}") from None
    match = re.fullmatch(r"(?:([^:]+):)?([a-z0-9]+):(\d+(?:x\d+)*)", spec)
    if not match or match[2] not in TYPES:
        raise InvalidInputError(f"--input {spec}: neither FILE.npy nor [NAME:]TYPE:DIMS", f"types: {', '.join(TYPES)}")
    dims, dtype = [int(d) for d in match[3].split("x")], TYPES[match[2]]
    if dtype.is_floating_point:
        return match[1], torch.randn(dims).to(dtype)
    return match[1], torch.zeros(dims, dtype=dtype)


def _axes(specs: list[str]) -> dict[str, dict[int, str]] | None:
    axes: dict[str, dict[int, str]] = {}
    for spec in specs:
        match = re.fullmatch(r"([^:]+):(\d+=\w+(?:,\d+=\w+)*)", spec)
        if not match:
            raise InvalidInputError(f"--dynamic {spec}: NAME:AXIS=DIM,... is needed", "x:0=batch,1=length")
        for part in match[2].split(","):
            axis, _, name = part.partition("=")
            axes.setdefault(match[1], {})[int(axis)] = name
    return axes or None


def _run(options: argparse.Namespace) -> None:
    given = [_example(spec) for spec in options.input]
    named = [name for name, _ in given]
    fields: dict[str, Any] = {"example_inputs": tuple(tensor for _, tensor in given) or None}
    if given and all(named):
        fields["input_names"] = named
    if options.output_names:
        fields["output_names"] = options.output_names.split(",")
    config = Torch2ONNXConfig(
        dtype=options.dtype,
        opset_version=options.opset,
        quant_format=options.quant_format,
        dynamic_axes=_axes(options.dynamic),
        weight_type=options.weight_type,
        recipe=options.recipe,
        external_data=options.external_data,
        verify=not options.no_verify,
        **fields,
    )
    report = Model(options.model).export(options.output, config)
    if options.report:
        Path(options.report).write_text(report.json() + "\n", encoding="utf-8")
    print(report)


def main() -> int:
    options = _parser().parse_args()
    try:
        _run(options)
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        print(f"hint: {error.hint or 'ingot export --help lists the options'}", file=sys.stderr)
        return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
