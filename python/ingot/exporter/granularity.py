"""Weights with a scale for each channel, or with one for all: config.per_channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ingot.exporter.weights import decomposed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.export import ExportedProgram


def with_granularity(program: ExportedProgram, constants: Mapping[str, Tensor], per_channel: bool) -> dict[str, Tensor]:
    """Changes the pairs on constants in the program's graph; gives the constants that go with it."""
    result = dict(constants)
    for node in list(program.graph.nodes):
        if node.op != "call_function" or not node.args or getattr(node.args[0], "name", None) not in constants:
            continue
        name = getattr(node.target, "_opname", "")
        if name == "dequantize_per_channel" and not per_channel:
            _to_tensor(node, result)
        elif name == "dequantize_per_tensor" and per_channel:
            _to_channels(node, result)
    program.graph.lint()
    return result


def _value(arg: Any, constants: Mapping[str, Tensor]) -> Tensor:
    return constants[arg.name] if isinstance(arg, torch.fx.Node) else torch.tensor(arg)


def _to_tensor(node: torch.fx.Node, constants: dict[str, Tensor]) -> None:
    values, scales, zeros, axis, least, most, dtype = node.args[:7]
    real = decomposed.dequantize_per_channel(
        constants[values.name], _value(scales, constants), _value(zeros, constants), axis, least, most, dtype
    )
    scale = float(real.abs().max()) / (127 if dtype == torch.int8 else 255) or 1.0
    zero = 0
    if dtype == torch.uint8:
        low, high = min(float(real.min()), 0.0), max(float(real.max()), 0.0)
        scale = (high - low) / 255 or 1.0
        zero = round(-low / scale)
    constants[values.name] = decomposed.quantize_per_tensor(real, scale, zero, least, most, dtype)
    node.target = decomposed.dequantize_per_tensor.default
    node.args = (values, scale, zero, least, most, dtype)


def _to_channels(node: torch.fx.Node, constants: dict[str, Tensor]) -> None:
    values, scale, zero, least, most, dtype = node.args[:6]
    count = constants[values.name].shape[0] if constants[values.name].dim() else 0
    if constants[values.name].dim() < 2:
        return
    graph = node.graph
    with graph.inserting_before(node):
        scales = graph.call_function(torch.ops.aten.full.default, ([count], float(_value(scale, constants))))
        zeros = graph.call_function(
            torch.ops.aten.full.default, ([count], int(_value(zero, constants))), {"dtype": torch.int64}
        )
    scales.meta["val"] = torch.full((count,), float(_value(scale, constants)))
    zeros.meta["val"] = torch.full((count,), int(_value(zero, constants)))
    node.target = decomposed.dequantize_per_channel.default
    node.args = (values, scales, zeros, 0, least, most, dtype)
