"""What was quantized, with which scales, and what was not and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from ingot.exporter.weights import CellWeights, QuantizedWeight, unpack_value
from ingot.onnx_quantizer import QuantizationReport
from ingot.torch_quantizer.annotate import OPERATORS, TYPE_OF, WEIGHTED, is_float
from ingot.torch_quantizer.dynamic import TYPE_OF_CLASS, reason_excluded
from ingot.torch_quantizer.graphs import modules_of, path_of
from ingot.torch_quantizer.weight_only.layers import TYPE_OF as WEIGHT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ingot.torch_quantizer.config import PostTrainingQuantConfig, _Config
    from ingot.torch_quantizer.weight_only import Outcome

Row = dict[str, Any]

SHORT = {torch.uint8: "u8", torch.int8: "s8"}
# Operations that move values and compute none, beside views.
MOVES = {
    "_assert_tensor_metadata", "arange", "clone", "constant_pad_nd", "contiguous", "copy_", "detach",
    "detach_", "dropout", "dropout_", "expand", "flatten", "full", "full_like", "gather", "index",
    "lift_fresh_copy", "new_ones", "new_zeros", "ones", "ones_like", "pad", "permute", "repeat", "reshape",
    "scalar_tensor", "to", "unbind", "zeros", "zeros_like",
}  # fmt: skip
IN_BF16 = "computes in bf16"
PASSED_ON = ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Cat", "Flatten")


def graph_report(
    graph: GraphModule, config: _Config, excluded: dict[str, str], title: str, facts: dict[str, Any]
) -> QuantizationReport:
    quantized: list[Row] = []
    unquantized: list[Row] = []
    for node in graph.graph.nodes:
        if node.op != "call_function" or not _computes(node):
            continue
        row = {"name": path_of(node) or node.name, "type": TYPE_OF.get(node.target, node.target._opname)}
        operands = list(_operands(graph, node))
        # What stays in fp32 may read the result of something in 8 bits.
        if operands and (row["type"] not in WEIGHTED or any(o["operand"] == "weight" for o in operands)):
            quantized.append({**row, "operands": operands})
        else:
            unquantized.append(_left(row, _reason(node, config, excluded)))
    return _report(title, quantized, unquantized, facts)


def module_report(
    model: nn.Module, original: nn.Module, config: PostTrainingQuantConfig, excluded: dict[str, str]
) -> QuantizationReport:
    quantized: list[Row] = []
    unquantized: list[Row] = []
    now = dict(model.named_modules())
    for name, before in original.named_modules():
        if next(before.parameters(recurse=False), None) is None:
            continue
        kind = TYPE_OF_CLASS.get(type(before), type(before).__name__)
        row = {"name": name or type(before).__name__, "type": kind}
        if type(now[name]) is not type(before):
            quantized.append({**row, "operands": list(_module_weights(now[name]))})
        else:
            unquantized.append(_left(row, _module_reason(name, before, config, excluded)))
    return _report("dynamic quantization", quantized, unquantized, {})


def weight_report(
    original: nn.Module,
    outcomes: Mapping[str, Outcome],
    config: PostTrainingQuantConfig,
    excluded: dict[str, str],
    facts: dict[str, Any],
) -> QuantizationReport:
    quantized: list[Row] = []
    unquantized: list[Row] = []
    for name, module in original.named_modules():
        if next(module.parameters(recurse=False), None) is None:
            continue
        kind = WEIGHT_TYPES.get(type(module), type(module).__name__)
        row = {"name": name or type(module).__name__, "type": kind}
        if name in outcomes:
            quantized.append({**row, "operands": [_rounded_weight(outcomes[name])]})
            continue
        reason = reason_excluded(name, excluded)
        if _is_bf16(module):
            reason = IN_BF16
        elif reason is not None:
            reason = f"excluded by '{reason}'"
        elif kind in WEIGHT_TYPES.values():
            reason = f"{kind} is not among the op_types asked for"
        unquantized.append(_left(row, reason or "has no form with a narrow weight"))
    return _report("weight_only quantization", quantized, unquantized, facts)


def _left(row: Row, reason: str) -> Row:
    """Layers in bf16 are inside one of ours."""
    name = row["name"].removesuffix(".inner") if reason == IN_BF16 else row["name"]
    return {**row, "name": name, "reason": reason}


def _rounded_weight(outcome: Outcome) -> Row:
    rounded = outcome.rounded
    return {
        "operand": "weight",
        "dtype": rounded.form.name,
        "group_size": rounded.form.group or -1,
        "scale": [float(rounded.scale.min()), float(rounded.scale.max())],
        "algorithm": outcome.algorithm,
        "error": outcome.error,
        "inputs_scaled": rounded.factor is not None,
    }


def _computes(node: Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target.is_view:
        return False
    value = node.meta.get("val")
    floats = is_float(node) or (isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value))
    # A flatten or an embedding moves values, but can do so in 8 bits.
    return floats and (target in TYPE_OF or target._opname not in MOVES) and bool(node.all_input_nodes)


def _operands(graph: GraphModule, node: Node) -> Iterator[Row]:
    names = [argument.name for argument in node.target._schema.arguments]
    for index, argument in enumerate(node.args):
        for operand in argument if isinstance(argument, tuple | list) else [argument]:
            if isinstance(operand, Node) and "dequantize" in str(operand.target):
                name = names[index] if index < len(names) else str(index)
                yield {"operand": "input" if name in ("self", "tensors") else name, **_scale_of(graph, operand)}


def _scale_of(graph: GraphModule, pair: Node) -> Row:
    _, scale, zero_point, *rest = (_value(graph, arg) for arg in pair.args)
    if "per_channel" in str(pair.target):
        return _channels(rest[3], scale)
    return {"dtype": SHORT.get(rest[2], str(rest[2])), "scale": float(scale), "zero_point": int(zero_point)}


def _channels(dtype: torch.dtype, scales: Tensor) -> Row:
    return {
        "dtype": SHORT.get(dtype, str(dtype)),
        "channels": scales.numel(),
        "scale": [float(scales.min()), float(scales.max())],
    }


def _value(graph: GraphModule, argument: Any) -> Any:
    if isinstance(argument, Node) and argument.op == "get_attr":
        value: Any = graph
        for part in str(argument.target).split("."):
            value = getattr(value, part)
        return value
    return argument


def _reason(node: Node, config: _Config, excluded: dict[str, str]) -> str:
    if getattr(node.meta.get("val"), "dtype", None) == torch.bfloat16:
        return IN_BF16
    around = next((excluded[name] for name in ["", *modules_of(node)] if name in excluded), None)
    if around is not None:
        return f"excluded by '{around}'"
    kind = TYPE_OF.get(node.target)
    if kind is None:
        return "has no 8-bit form in PyTorch's quantizer"
    if kind not in config.types():
        return f"{kind} is not among the op_types asked for"
    if kind in PASSED_ON:
        return "its input is not the result of a quantized operation"
    if kind == "Mul":
        return "its operands are not two tensors of one shape"
    return "its operands are no floats, or its weight is computed from the inputs"


def _module_reason(name: str, module: nn.Module, config: PostTrainingQuantConfig, excluded: dict[str, str]) -> str:
    if _is_bf16(module):
        return IN_BF16
    around = reason_excluded(name, excluded)
    if around is not None:
        return f"excluded by '{around}'"
    kind = TYPE_OF_CLASS.get(type(module))
    if kind is not None and kind not in config.types():
        return f"{kind} is not among the op_types asked for"
    if kind is None and any(isinstance(module, cls) for cls in TYPE_OF_CLASS):
        return "a class of its own, whose weight PyTorch does not replace"
    return "has no dynamic 8-bit form in PyTorch"


def _is_bf16(module: nn.Module) -> bool:
    return any(p.dtype == torch.bfloat16 for p in module.parameters(recurse=False))


def _module_weights(module: nn.Module) -> Iterator[Row]:
    for part in module.modules():
        for value in [*vars(part).values(), *part._buffers.values()]:
            held = unpack_value(value)
            weights = [held.w_ih, held.w_hh] if isinstance(held, CellWeights) else [held]
            for weight in weights:
                if isinstance(weight, QuantizedWeight):
                    yield {"operand": "weight", **_weight_scale(weight)}


def _weight_scale(weight: QuantizedWeight) -> Row:
    if weight.axis is not None:
        return _channels(weight.values.dtype, weight.scale)
    kind = SHORT.get(weight.values.dtype, str(weight.values.dtype))
    return {"dtype": kind, "scale": float(weight.scale), "zero_point": int(weight.zero_point)}


def _report(title: str, quantized: list[Row], unquantized: list[Row], facts: dict[str, Any]) -> QuantizationReport:
    data = {"approach": title.split()[0], "quantized": quantized, "unquantized": unquantized, **facts}
    counts = Counter(row["type"] for row in quantized)
    lines = [f"{title}: {', '.join(f'{count} {kind}' for kind, count in counts.most_common()) or 'nothing quantized'}"]
    if "samples" in facts:
        lines[0] += f"; calibrated on {facts['samples']} samples in {facts['batches']} batches"
    if "note" in facts:
        lines.append(f"note: {facts['note']}")
    width = max((len(row["name"]) for row in quantized), default=0)
    for row in quantized:
        operands = ", ".join(_operand_text(operand) for operand in row["operands"])
        lines.append(f"  {row['name']:{width}}  {row['type']:8}  {operands}")
    lines.extend(_unquantized_lines(unquantized))
    return QuantizationReport("\n".join(lines), data)


def _operand_text(operand: Row) -> str:
    what = f"{operand['operand']} {operand['dtype']}"
    if "group_size" in operand:
        group = f"groups of {operand['group_size']}" if operand["group_size"] > 0 else "whole rows"
        scaled = ", inputs scaled" if operand["inputs_scaled"] else ""
        return f"{what} in {group}, {operand['algorithm']}, {operand['error']:.2%} off{scaled}"
    if "channels" in operand:
        least, most = operand["scale"]
        return f"{what} in {operand['channels']} channels of scale {least:.3g} to {most:.3g}"
    zero = f" zero {operand['zero_point']}" if operand["zero_point"] else ""
    return f"{what} scale {operand['scale']:.3g}{zero}"


def _unquantized_lines(rows: list[Row]) -> Iterator[str]:
    """Those that might have been quantized one by one, the others by their number."""
    if rows:
        yield "in fp32 or bf16:" if any(row["reason"] == IN_BF16 for row in rows) else "in fp32:"
    kinds = {*OPERATORS, *TYPE_OF_CLASS.values()}
    others: dict[str, Counter[str]] = {}
    for row in rows:
        if row["type"] in kinds:
            yield f"  {row['name']} ({row['type']}): {row['reason']}"
        else:
            others.setdefault(row["reason"], Counter())[row["type"]] += 1
    for reason, counts in others.items():
        yield f"  {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}: {reason}"
