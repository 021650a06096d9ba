"""onnxmlirtorch: a backend of torch.compile, a wrapper, and a look at what a forward is called with."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING, Any

import ingot.torch
from ingot.compat import MigrationWarning
from ingot.torch.backend import intercepted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

# Options of the same meaning under another name.
NAMES = {"onnxmlir-intercept": "intercept", "compile_tag": "tag", "compiler_container": "compiler_image_name"}


def options_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Ingot's options: names changed, what is None left out, flags of the other compiler dropped with a warning."""
    options = {NAMES.get(name, name): value for name, value in (given or {}).items() if value is not None}
    if isinstance(options.get("compile_options"), str):
        options["compile_options"] = known_flags(options["compile_options"])
    return options


def known_flags(text: str) -> str:
    kept: list[str] = []
    dropped: list[str] = []
    for flag in shlex.split(text):
        known = flag in ("-O0", "-O1", "-O2", "-O3") or flag.startswith(("--pattern=", "--threads="))
        (kept if known else dropped).append(flag)
    if dropped:
        warnings.warn(f"flags of another compiler are ignored: {' '.join(dropped)}", MigrationWarning, stacklevel=5)
    return shlex.join(kept)


def onnxmlir_backend(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any
) -> Callable[..., Any]:
    """`torch.compile(model, backend=onnxmlir_backend, options={...})`. With "onnxmlir-intercept", every call prints its
    arguments and runs the original forward."""
    chosen = options_of({**(options or {}), **more})
    hook = chosen.pop("intercept", False)
    if hook:
        return intercepted(graph, graph.forward, hook)
    return ingot.torch.backend(graph, inputs, options=chosen)


def compile(torch_model: torch.nn.Module, **options: Any) -> Any:
    """The model, compiled when it is first called."""
    return ingot.torch.compile(torch_model, **options_of(options))


ONNXMLIRTorch = compile


def interceptForward(model: torch.nn.Module, **options: Any) -> torch.nn.Module:  # noqa: N802
    """From here on, every call prints its arguments and runs the original forward. The model itself is given back."""
    ingot.torch.intercept_forward(model, **options)
    return model
