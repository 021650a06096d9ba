"""Looking at what a model is called with: `intercept_forward`, and the option `intercept` of both backends."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch

from ingot.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def describe(value: Any) -> str:
    """One line: type, shape, element type, device and range of a tensor; anything else briefly."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.device)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (list, tuple, dict, set)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def describe_tensor(tensor: torch.Tensor) -> str:
    kind = type(tensor).__name__
    text = f"{kind} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} {tensor.device}"
    if tensor.requires_grad:
        text += " requires_grad"
    if not tensor.is_contiguous():
        text += f" strides {list(tensor.stride())}"
    return f"{text} {value_range(tensor)}".rstrip()


def value_range(tensor: torch.Tensor) -> str:
    if not tensor.numel() or tensor.device.type == "meta" or tensor.layout is not torch.strided:
        return "" if tensor.numel() else "empty"
    if isinstance(tensor, torch._subclasses.FakeTensor) or tensor.is_complex():
        return ""
    values = tensor.detach()
    if values.dtype is torch.bool:
        return f"{int(values.sum())} of {values.numel()} True"
    if not values.is_floating_point():
        return f"{values.min().item()} .. {values.max().item()}"
    values = values.float()
    finite = values[torch.isfinite(values)]
    text = f"{finite.min().item():.4g} .. {finite.max().item():.4g}" if finite.numel() else "nothing finite"
    return text + (f", {values.numel() - finite.numel()} not finite" if finite.numel() < values.numel() else "")


def walk(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """A value and what it holds, with names such as past.layers[0].keys."""
    yield name, value
    if depth >= 6 or isinstance(value, (torch.Tensor, str, torch.nn.Module)):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(f"{name}[{key!r}]", item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(f"{name}[{i}]", item, depth + 1)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        for key, item in vars(value).items():
            if isinstance(item, (torch.Tensor, list, tuple, dict)):
                yield from walk(f"{name}.{key}", item, depth + 1)


def summarise(title: str, arguments: Mapping[str, Any]) -> str:
    lines = [f"{title}:"]
    for name, value in arguments.items():
        lines += [f"  {path}: {describe(item)}" for path, item in walk(name, value)]
    return "\n".join(lines)


def name_arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that the function gives them."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"args[{i}]": a for i, a in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}[{i}]": v for i, v in enumerate(value)})
        else:
            named[name] = value
    return named


def show(title: str, arguments: Mapping[str, Any], hook: Any) -> None:
    """Prints the summary to stderr and calls the hook, if it is one."""
    print(summarise(title, arguments), file=sys.stderr, flush=True)
    if callable(hook):
        hook(dict(arguments))


class Interception:
    """A forward that is being looked at; `remove()`, or the end of a `with`, puts the original back."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.own = "forward" in vars(model)
        self.original = model.forward

    def remove(self) -> None:
        if getattr(self.model.forward, "_ingot_interception", None) is not self:
            return
        if self.own:
            self.model.forward = self.original
        else:
            del self.model.forward

    def __enter__(self) -> Interception:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def intercept_forward(
    model: torch.nn.Module, hook: Callable[..., Any] | None = None, names: Sequence[str] | None = None
) -> Interception:
    """Every call of model.forward prints a summary of its arguments to stderr, calls hook(dict of arguments by name)
    and then runs the original forward. names: only these arguments. It stays until remove(), or until the `with`
    ends. Methods that call forward, such as generate(), are seen too."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"intercept_forward takes a torch.nn.Module, not a {type(model).__name__}")
    if hook is not None and not callable(hook):
        raise InvalidInputError(f"hook has to be a function, not a {type(hook).__name__}")
    handle = Interception(model)
    if names is not None:
        check_names(handle.original, names)

    @functools.wraps(handle.original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        arguments = name_arguments(handle.original, args, kwargs)
        if names is not None:
            arguments = {name: value for name, value in arguments.items() if name in names}
        show(f"{type(model).__name__}.forward", arguments, hook)
        return handle.original(*args, **kwargs)

    forward._ingot_interception = handle  # type: ignore[attr-defined]
    model.forward = forward
    return handle


def check_names(function: Callable[..., Any], names: Sequence[str]) -> None:
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            raise InvalidInputError(f"forward has no argument '{name}'", "it has " + ", ".join(parameters))
