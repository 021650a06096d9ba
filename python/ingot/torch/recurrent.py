"""Recurrent layers as operators that a tracer does not look into.

PyTorch traces aten.lstm and the like step by step, which fixes the number of steps. torch.ops.ingot.lstm, gru, rnn_tanh
and rnn_relu compute the same, with gradients, and stay whole. `WholeRecurrences` puts them in place of PyTorch's in
what this thread captures; `whole_recurrent_layers` does so for what dynamo traces, where only its caller may decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

library = torch.library.Library("ingot", "DEF")  # operators of our own
_ARGUMENTS = "Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first"


def _define(name: str, function: Callable[..., Any], states: int) -> Callable[..., Any]:
    given = ", ".join(f"Tensor state{i}" for i in range(states))
    results = ", ".join(["Tensor"] * (1 + states))
    library.define(f"{name}(Tensor x, {given}, {_ARGUMENTS}) -> ({results})")
    library.define(f"{name}_backward(Tensor[] grads, Tensor x, {given}, {_ARGUMENTS}) -> Tensor[]")

    def compute(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        hx = args[0] if states == 1 else list(args[:states])
        params, has_biases, num_layers, bidirectional, batch_first = args[states:]
        found = function(x, hx, params, has_biases, num_layers, 0.0, False, bidirectional, batch_first)
        return tuple(found)

    def shapes(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        bidirectional = args[states + 3]
        width = args[0].shape[-1] * (2 if bidirectional else 1)
        return (x.new_empty([*x.shape[:-1], width]), *(torch.empty_like(s) for s in args[:states]))

    def gradients(grads: Sequence[Tensor], x: Tensor, *args: Any) -> list[Tensor]:
        """Of x, the states and the parameters: by running the layer again."""
        params, *rest = args[states:]
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (x, *args[:states], *params)]
            found = compute(*leaves[: 1 + states], leaves[1 + states :], *rest)
        return list(torch.autograd.grad(found, leaves, list(grads)))

    def gradient_shapes(grads: Sequence[Tensor], x: Tensor, *args: Any) -> list[Tensor]:
        return [torch.empty_like(t) for t in (x, *args[:states], *args[states])]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, *given = inputs
        ctx.save_for_backward(x, *given[:states], *given[states])
        ctx.rest = given[states + 1 :]

    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *given = ctx.saved_tensors
        tensors, params = given[:states], given[states:]
        found = getattr(torch.ops.ingot, f"{name}_backward")(list(grads), x, *tensors, params, *ctx.rest)
        return (*found[: 1 + states], found[1 + states :], *(None for _ in ctx.rest))

    library.impl(name, compute, "CPU")
    library.impl(f"{name}_backward", gradients, "CPU")
    torch.library.register_fake(f"ingot::{name}", shapes, lib=library)
    torch.library.register_fake(f"ingot::{name}_backward", gradient_shapes, lib=library)
    torch.library.register_autograd(f"ingot::{name}", backward, setup_context=keep, lib=library)
    operator = getattr(torch.ops.ingot, name)

    def call(x: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
        found = operator(x, *((hx,) if states == 1 else hx), list(params), *rest)
        return tuple(found)

    return call


lstm = _define("lstm", torch.lstm, 2)
gru = _define("gru", torch.gru, 1)
rnn_tanh = _define("rnn_tanh", torch.rnn_tanh, 1)
rnn_relu = _define("rnn_relu", torch.rnn_relu, 1)

_WHOLE = {torch.lstm: lstm, torch.gru: gru, torch.rnn_tanh: rnn_tanh, torch.rnn_relu: rnn_relu}


def _whole(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What the call of a recurrent layer gives, computed by one operator, or one for each layer where dropout comes
    between them; NotImplemented for packed sequences, and where PyTorch chooses types itself."""
    if len(args) != 9 or not isinstance(args[2], (list, tuple)) or torch.is_autocast_enabled("cpu"):
        return NotImplemented
    x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = args
    if not train or dropout == 0:
        return call(x, hx, params, has_biases, num_layers, bidirectional, batch_first)
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    directions, count = 2 if bidirectional else 1, len(params) // num_layers
    ends = []
    for layer in range(num_layers):
        x = torch.dropout(x, dropout, True) if layer else x
        own = [s[layer * directions : (layer + 1) * directions] for s in states]
        part = params[layer * count : (layer + 1) * count]
        x, *last = call(x, own if len(own) > 1 else own[0], part, has_biases, 1, bidirectional, batch_first)
        ends.append(last)
    return (x, *(torch.cat(parts) for parts in zip(*ends, strict=True)))


class WholeRecurrences(TorchFunctionMode):  # type: ignore[misc]
    """Recurrent layers called in here are single operators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = None if kwargs else _WHOLE.get(func)
        found = NotImplemented if call is None else _whole(call, args)
        return func(*args, **(kwargs or {})) if found is NotImplemented else found


class RecurrentLayers:
    """What `whole_recurrent_layers` gives: a handle with `remove()`, and a context manager."""

    _KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)

    def __init__(self) -> None:
        aten = torch.ops.aten
        operators = {aten.lstm.input: lstm, aten.gru.input: gru}
        operators |= {aten.rnn_tanh.input: rnn_tanh, aten.rnn_relu.input: rnn_relu}
        self._before = [(op, key, op.py_kernels.get(key)) for op in operators for key in self._KEYS]
        self._patch = torch._dynamo.config.patch(allow_rnn=True)
        self._patch.__enter__()
        for op, key, before in self._before:
            self._set(op, key, _traced(operators[op], before))

    @staticmethod
    def _set(op: Any, key: DispatchKey, kernel: Callable[..., Any] | None) -> None:
        op.py_kernels.pop(key, None)
        if kernel is not None:
            op.py_kernels[key] = kernel
        op._dispatch_cache.clear()

    def remove(self) -> None:
        """PyTorch traces recurrent layers as it did before."""
        for op, key, before in self._before:
            self._set(op, key, before)
        if self._before:
            self._patch.__exit__(None, None, None)
        self._before = []

    def __enter__(self) -> RecurrentLayers:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _traced(call: Callable[..., Any], before: Callable[..., Any] | None) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        found = _whole(call, args)
        if found is not NotImplemented:
            return found
        return NotImplemented if before is None else before(*args)

    return kernel


def whole_recurrent_layers() -> RecurrentLayers:
    """From here on, or inside `with`, torch.compile of any backend follows nn.LSTM, nn.GRU and nn.RNN (which it leaves
    to eager otherwise) and takes each as one operator, for sequences of any length."""
    return RecurrentLayers()
