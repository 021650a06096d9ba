"""What users hand in: modules of every kind of quantization, exported programs, files, states. All become a module."""

from __future__ import annotations

import copy
import math
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ingot.errors import InvalidInputError, InvalidModelError, IoError, UnsupportedError, first_line
from ingot.exporter.torchscript import Interpreted

if TYPE_CHECKING:
    import os


def module_of(source: Any) -> nn.Module:
    """The module to trace. The source is not changed."""
    if isinstance(source, ExportedProgram):
        return source.module()
    if isinstance(source, torch.jit.ScriptModule):
        return Interpreted(source)
    if isinstance(source, nn.Module):
        return converted(source)
    raise InvalidInputError(
        f"{type(source).__name__} is no model", "a torch.nn.Module, an ExportedProgram, or a .pt2 or TorchScript file"
    )


def load(path: str | os.PathLike[str]) -> ExportedProgram | torch.jit.ScriptModule:
    """A .pt2 file (torch.export.save) or a TorchScript file (torch.jit.save)."""
    file = Path(path)
    if not file.is_file():
        raise IoError(f"{file}: no such file")
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        raise InvalidModelError(f"{file}: neither a .pt2 nor a TorchScript file") from None
    inside = {name.partition("/")[2] or name for name in names}  # all but the archive's own folder
    script = "constants.pkl" in inside
    pt2 = bool(inside & {"archive_format", "serialized_exported_program.json"})
    if not script and not pt2:
        raise InvalidModelError(
            f"{file}: holds neither an exported program nor TorchScript",
            "of a state_dict, make the module first: Model.from_state_dict(float_module, torch.load(file))",
        )
    try:
        if script:
            return torch.jit.load(str(file), map_location="cpu")
        return torch.export.load(str(file))
    except Exception as error:
        raise InvalidModelError(f"{file}: {first_line(error)}") from error


def example_of(program: ExportedProgram) -> Any:
    """The inputs a program was made with, where it kept them."""
    args, kwargs = program.example_inputs or ((), {})
    if args and kwargs:
        raise InvalidInputError("example_inputs is missing", "the program takes positional and keyword arguments")
    return kwargs or args or None


def axes_of(program: ExportedProgram, names: tuple[str, ...]) -> dict[str, dict[int, str]]:
    """The free dims of a program's inputs."""
    user = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder") if node.name in user]
    tensors = [value for value in values if isinstance(value, Tensor)]
    axes: dict[str, dict[int, str]] = {}
    for name, tensor in zip(names, tensors, strict=False):
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and not size.node.expr.is_number:
                axes.setdefault(name, {})[axis] = str(size.node.expr)
    return axes


def _observers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Observers and fake quantizers, by what they do: torch's and torchao's have no common base."""
    return [(name, m) for name, m in model.named_modules() if hasattr(m, "calculate_qparams")]


def converted(model: nn.Module) -> nn.Module:
    """Models that are prepared (with observers or fake quantization) but not converted are converted, as a copy."""
    found = _observers(model)
    if not found:
        return model
    _check_calibrated(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = copy.deepcopy(model)
        if not isinstance(model, torch.fx.GraphModule):
            return torch.ao.quantization.convert(work.eval())
        if not any(isinstance(node.target, torch._ops.OpOverload) for node in model.graph.nodes):  # of FX, not PT2E
            from torch.ao.quantization.quantize_fx import convert_to_reference_fx

            return convert_to_reference_fx(work.eval())
        try:
            from ingot.torch_quantizer.training import converted_graph
        except ImportError:
            raise UnsupportedError("a PT2E model that is not converted needs torchao", "pip install torchao") from None
        return converted_graph(work)


def _check_calibrated(observers: list[tuple[str, nn.Module]]) -> None:
    for name, observer in observers:
        inner = getattr(observer, "activation_post_process", observer)
        low = getattr(inner, "min_val", None)
        # Observers of weights fill themselves when the model is converted.
        if "weight" not in name and isinstance(low, Tensor) and low.numel() and math.isinf(float(low.flatten()[0])):
            raise InvalidModelError(
                f"'{name}' was never calibrated", "run the prepared model on sample data before it is exported"
            )
