"""Smaller models that still show a finding."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from differential.builder import Case, all_inputs
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Callable

    Keeps = Callable[[Case], bool]


def pruned(case: Case, outputs: list[str]) -> Case:
    """The part of the model that computes these outputs."""
    model = copy.deepcopy(case.model)
    graph = model.graph
    wanted, nodes = set(outputs), []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= all_inputs(node)
            nodes.append(node)
    keep(graph.node, nodes[::-1])
    keep(graph.output, [port for port in graph.output if port.name in outputs])
    keep(graph.initializer, [t for t in graph.initializer if t.name in wanted])
    keep(graph.input, [port for port in graph.input if port.name in wanted])
    names = {port.name for port in graph.input}
    return replace(
        case,
        model=model,
        inputs={k: a for k, a in case.inputs.items() if k in names},
        more_inputs={k: a for k, a in case.more_inputs.items() if k in names},
    )


def keep(field: Any, items: list[Any]) -> None:
    items = [copy.deepcopy(item) for item in items]
    del field[:]
    field.extend(items)


def with_input(case: Case, tensor: str, value: Any) -> Case:
    """The model with one of its tensors given instead of computed."""
    model = copy.deepcopy(case.model)
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            if name == tensor:
                node.output[i] = f"{name}/unused"
    kind = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else 8
    model.graph.input.append(helper.make_tensor_value_info(tensor, kind, value.shape))
    outputs = [port.name for port in model.graph.output if port.name != tensor]
    if not outputs:
        return case
    more = {**case.more_inputs, tensor: value} if case.more_inputs else {}
    return pruned(replace(case, model=model, inputs={**case.inputs, tensor: value}, more_inputs=more), outputs)


def fixed_sizes(case: Case) -> Case:
    model = copy.deepcopy(case.model)
    for port in model.graph.input:
        for n, dim in zip(case.inputs[port.name].shape, port.type.tensor_type.shape.dim, strict=True):
            dim.dim_value = n
    return replace(case, model=model, more_inputs={})


def reduce(case: Case, output: str, keeps: Keeps, tensors: Callable[[Case, list[str]], dict[str, Any]]) -> Case:
    """The smallest model found for which keeps(model) is still true; tensors gives values of what is inside a case."""

    def attempt(smaller: Case) -> bool:
        nonlocal case
        if smaller is not case and keeps(smaller):
            case = smaller
            return True
        return False

    names = [port.name for port in case.model.graph.output]
    if output in names:
        attempt(pruned(case, [output]))
    for name in list(names):
        left = [port.name for port in case.model.graph.output if port.name != name]
        if left and len(left) < len(case.model.graph.output):
            attempt(pruned(case, left))
    done: set[str] = set()
    while True:
        made = [name for node in case.model.graph.node for name in node.output if name]
        outputs = {port.name for port in case.model.graph.output}
        todo = [name for name in made if name not in done and name not in outputs]
        if not todo:
            break
        values = tensors(case, todo)
        for name in reversed(todo):
            done.add(name)
            value = values.get(name)
            if isinstance(value, np.ndarray) and attempt(with_input(case, name, value)):
                break
    attempt(fixed_sizes(case))
    return case
