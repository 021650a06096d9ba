"""docs/operators.md: for every operator the cases name, its versions, element types, and what passes in which mode."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import onnx
from cases import load_cases, model_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
MODES = ("static", "dynamic", "constant", "library", "ir", "onnxruntime")

HEAD = """# Operators

Written by `make conformance` with `--update`: ONNX's own backend cases, by the operators their models contain. A case
counts for every operator in it. Versions are the opsets in which an operator's definition changed.

| operator | versions | element types in the cases | cases | {modes} |
|---|---|---|---|{rules}|
"""


def nodes_of(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    out = []
    for node in graph.node:
        out.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                out += nodes_of(attribute.g)
    return out


def versions() -> dict[tuple[str, str], list[int]]:
    out: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        out[(schema.domain, schema.name)].append(schema.since_version)
    return out


def element_types(model: onnx.ModelProto) -> set[str]:
    numbers = {p.type.tensor_type.elem_type for p in (*model.graph.input, *model.graph.output)}
    return {onnx.TensorProto.DataType.Name(n).lower() for n in numbers if n}


def write_operators(outcomes: dict[str, dict[str, str]]) -> None:
    modes = [mode for mode in MODES if mode in outcomes]
    cases: dict[tuple[str, str], set[str]] = defaultdict(set)
    types: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, case in load_cases().items():
        model = model_of(case)
        for node in nodes_of(model.graph):
            key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
            cases[key].add(name)
            types[key] |= element_types(model)
    known = versions()
    rows = []
    for key in sorted(cases):
        domain, op = key
        passed = [sum(outcomes[mode].get(name) == "pass" for name in cases[key]) for mode in modes]
        since = ", ".join(map(str, sorted(known.get(key, []))))
        label = f"{domain}.{op}" if domain else op
        cells = [label, since, " ".join(sorted(types[key])), str(len(cases[key])), *map(str, passed)]
        rows.append("| " + " | ".join(cells) + " |\n")
    head = HEAD.format(modes=" | ".join(modes), rules="|".join("---" for _ in modes))
    PAGE.write_text(head + "".join(rows))
