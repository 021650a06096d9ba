"""TorchScript, run operator by operator in Python.

A scripted module executes in C++, where no tracer and no mode sees its operators. Interpreted calls each of them from
Python instead. Branches and loops are followed as the example inputs and constants decide.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ingot.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

# TorchScript's numbers of types.
_DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    12: torch.qint8,
    13: torch.quint8,
    14: torch.qint32,
    15: torch.bfloat16,
    16: torch.quint4x2,
}

# On numbers TorchScript's operators are Python's; sizes of free dims are numbers too (torch.SymInt).
SCALAR: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "Int": int,
    "Float": float,
    "Bool": bool,
    "item": lambda x: x,
    "ScalarImplicit": lambda x: x,
    "IntImplicit": int,
    "FloatImplicit": float,
}
BINARY = {"add", "sub", "mul", "div", "floordiv", "remainder", "eq", "ne", "lt", "le", "gt", "ge"}
PYTHON: dict[str, Callable[..., Any]] = {
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__not__": operator.not_,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__getitem__": operator.getitem,
    "aten::__contains__": operator.contains,
    "aten::len": len,
    "aten::size": lambda x, dim=None: list(x.shape) if dim is None else x.shape[dim],
    "aten::dim": lambda x: x.dim(),
    "aten::append": lambda items, item: items.append(item) or items,
    # Its scale may be a tensor or a number.
    "aten::quantize_per_tensor": lambda x, scale, zero, dtype: torch.quantize_per_tensor(
        x, scale, zero, _DTYPES[dtype]
    ),
    "aten::format": lambda text, *values: text.format(*values),
    "prim::NumToTensor": lambda x: x,
    "prim::ImplicitTensorToNum": lambda x: x,
    "prim::min": min,
    "prim::max": max,
    "prim::dtype": lambda x: x.dtype,
    "prim::device": lambda x: x.device,
    "prim::unchecked_cast": lambda x: x,
    "prim::unchecked_unwrap_optional": lambda x: x,
    "aten::_unwrap_optional": lambda x: x,
    "prim::data": lambda x: x.detach(),
    "prim::requires_grad": lambda x: False,
    "prim::is_quantized": lambda x: x.is_quantized,
    "prim::Uninitialized": lambda: None,
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: tuple(items),
    "prim::Print": lambda *items: None,
}
# Readers of a value that make a number of it, or take a number in its place.
NUMBER_READERS = {"item", "Int", "Float", "IntImplicit", "FloatImplicit", "ScalarImplicit", "quantize_per_tensor"}
UNPACKING = {"prim::TupleUnpack", "prim::ListUnpack"}
DTYPE_ARGUMENTS = {"dtype", "output_dtype"}


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


class Interpreted(nn.Module):  # type: ignore[misc]
    """Behaves as the script module; parameters, buffers and packed weights keep their names."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        super().__init__()
        self._graph = script.inlined_graph
        self._held: dict[str, str] = {}  # path in the script module -> attribute here
        self._find_attributes(script, self._graph, {next(iter(self._graph.inputs())).debugName(): ""})

    def _find_attributes(self, script: Any, block: Any, owners: dict[str, str]) -> None:
        for node in block.nodes():
            if node.kind() == "prim::GetAttr":
                owner = owners.get(node.inputsAt(0).debugName())
                if owner is not None:
                    path = f"{owner}.{node.s('name')}".lstrip(".")
                    owners[node.output().debugName()] = path
                    self._hold(path, operator.attrgetter(path)(script), node.output().uses())
            for inner in node.blocks():
                self._find_attributes(script, inner, owners)

    @property
    def input_names(self) -> list[str]:
        return [value.debugName().split(".")[0] for value in list(self._graph.inputs())[1:]]

    def _hold(self, path: str, value: Any, uses: list[Any]) -> None:
        name = path.replace(".", "__")
        if path in self._held or isinstance(value, torch.jit.ScriptModule):
            return
        self._held[path] = name
        if isinstance(value, Tensor) and value.numel() == 1 and all(map(_takes_number, uses)):
            self.__dict__[name] = value.item()
        elif isinstance(value, Tensor) and not value.is_quantized:
            self.register_buffer(name, value.detach())
        else:
            self.__dict__[name] = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs = list(self._graph.inputs())
        names = self.input_names
        given = dict(zip(names, args, strict=False)) | kwargs
        missing = [name for name in names if name not in given]
        if missing:
            raise UnsupportedError(
                f"the TorchScript model needs '{missing[0]}'", "pass all of its arguments as example_inputs"
            )
        values: dict[str, Any] = {inputs[0].debugName(): _Path("")}
        values.update({value.debugName(): given[name] for value, name in zip(inputs[1:], names, strict=True)})
        results = self._run(self._graph, values)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, block: Any, values: dict[str, Any]) -> list[Any]:
        for node in block.nodes():
            operands = [values[value.debugName()] for value in node.inputs()]
            results = self._step(node, operands, values)
            for value, result in zip(node.outputs(), results, strict=True):
                values[value.debugName()] = result
        end = block.return_node() if hasattr(block, "return_node") else block.returnNode()
        return [values[value.debugName()] for value in end.inputs()]

    def _step(self, node: Any, operands: list[Any], values: dict[str, Any]) -> list[Any]:
        kind = node.kind()
        if kind == "prim::Constant":
            return [node.output().toIValue()]
        if kind == "prim::GetAttr":
            path = _Path(f"{operands[0]}.{node.s('name')}".lstrip("."))
            return [getattr(self, self._held[path]) if path in self._held else path]
        if kind == "prim::If":
            return self._run(list(node.blocks())[0 if operands[0] else 1], values)
        if kind == "prim::Loop":
            return self._loop(node, operands, values)
        if kind in UNPACKING:
            return list(operands[0])
        if kind == "prim::DictConstruct":
            return [dict(zip(operands[0::2], operands[1::2], strict=True))]
        if kind == "prim::RaiseException":
            raise UnsupportedError(f"the TorchScript model raises: {operands[0]}")
        result = _call(node, kind, operands)
        return [result] if node.outputsSize() == 1 else list(result) if node.outputsSize() else []

    def _loop(self, node: Any, operands: list[Any], values: dict[str, Any]) -> list[Any]:
        count, going, *carried = operands
        body = next(iter(node.blocks()))
        inputs = [value.debugName() for value in body.inputs()]
        step = 0
        while going and step < count:
            values.update(zip(inputs, [step, *carried], strict=True))
            going, *carried = self._run(body, values)
            step += 1
        return carried


class _Path(str):
    """A submodule, by its path."""


def _takes_number(use: Any) -> bool:
    space, _, name = use.user.kind().partition("::")
    return space == "quantized" or (space == "aten" and name in NUMBER_READERS)


def _call(node: Any, kind: str, operands: list[Any]) -> Any:
    space, name = kind.split("::")
    if name in SCALAR and space == "aten" and all(map(_is_number, operands)):
        return SCALAR[name](*operands[: 2 if name in BINARY else 1])
    if kind in PYTHON:
        return PYTHON[kind](*operands)
    try:
        packet = getattr(getattr(torch.ops, space), name)
    except AttributeError:
        raise UnsupportedError(f"TorchScript's {kind}") from None
    schema = torch._C.parse_schema(node.schema())
    overload = getattr(packet, schema.overload_name or "default", packet)
    positional, named = [], {}
    for value, argument in zip(operands, schema.arguments, strict=False):
        if argument.kwarg_only:
            named[argument.name] = _as_declared(value, argument)
        else:
            positional.append(_as_declared(value, argument))
    return overload(*positional, **named)


def _as_declared(value: Any, argument: Any) -> Any:
    """TorchScript has numbers where Python has types and layouts."""
    if argument.name == "layout":
        return None
    if argument.name in DTYPE_ARGUMENTS and type(value) is int:
        return _DTYPES[value]
    return value
