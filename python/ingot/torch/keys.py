"""Keys of compiled graphs: the whole graph with its literals, types, shapes and layouts of inputs, contents of weights,
options, Ingot's version and the CPU. Two graphs with one key compute the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

from ingot._ingot import VERSION, code_version, content_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingot.torch.options import Options


class Symbols:
    """Names of symbolic sizes by order of appearance: captures of the same graph number them differently."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}

    def text(self, size: Any) -> str:
        if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return repr(size)
        expression = size.node.expr
        free = getattr(expression, "free_symbols", ())
        for symbol in sorted(free, key=str):
            self.names.setdefault(symbol, f"d{len(self.names)}")
        renamed = {symbol: type(symbol)(f"{self.names[symbol]}", integer=True) for symbol in free}
        return str(expression.xreplace(renamed)) if renamed else str(expression)


def graph_text(graph: torch.fx.Graph) -> str:
    """The graph with everything that decides what it computes, and no names that do not."""
    symbols = Symbols()
    numbers: dict[torch.fx.Node, int] = {}
    lines = []

    def value(item: Any) -> str:
        if isinstance(item, torch.fx.Node):
            return f"%{numbers[item]}"
        if isinstance(item, (list, tuple)):
            return f"[{','.join(map(value, item))}]"
        if isinstance(item, dict):
            return f"{{{','.join(f'{k}:{value(v)}' for k, v in sorted(item.items()))}}}"
        if isinstance(item, slice):
            return f"slice({value(item.start)},{value(item.stop)},{value(item.step)})"
        if isinstance(item, torch.Tensor):
            return tensor_text(item, symbols) + hashes([item])[0]
        return symbols.text(item)

    for node in graph.nodes:
        numbers[node] = len(numbers)
        what = f"{node.op} {node.target if node.op != 'placeholder' else ''} {value(node.args)} {value(node.kwargs)}"
        if node.op == "placeholder":
            known = node.meta.get("val")
            what += tensor_text(known, symbols) if isinstance(known, torch.Tensor) else symbols.text(known)
        elif node.op == "get_attr":
            found = torch.fx.graph_module._get_attr(graph.owning_module, node.target)
            what = f"get_attr {value(found)}"
        lines.append(what)
    return "\n".join(lines)


def tensor_text(tensor: torch.Tensor, symbols: Symbols) -> str:
    shape = ",".join(map(symbols.text, tensor.shape))
    strides = ",".join(map(symbols.text, tensor.stride())) if tensor.layout is torch.strided else ""
    return f" {tensor.dtype} {tensor.device} {tensor.layout} ({shape}) ({strides})"


def hashes(tensors: list[torch.Tensor]) -> list[str]:
    return content_hashes([t.detach().contiguous() for t in tensors])


def session_key(graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor], options: Options, extra: str = "") -> str:
    """The complete key of a block with these constants."""
    parts = [VERSION, code_version(), torch.__version__, graph_text(graph), option_text(options), extra]
    contents = hashes(list(constants.values()))
    places = {node.name: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    for (name, tensor), content in zip(constants.items(), contents, strict=True):
        parts.append(f"{places[name]} {tensor.dtype} {tuple(tensor.shape)} {content}")
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def option_text(options: Options) -> str:
    """Those options that change what is compiled."""
    flags = options.flags
    compiler = (flags.opt_level, flags.march, flags.threads, sorted(flags.patterns.items()))
    where = (options.compiler_path, options.compiler_image_name, options.cache_dir, options.keep)
    return repr((compiler, options.precision, options.tag, where))
