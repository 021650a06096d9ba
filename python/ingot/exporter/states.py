"""A quantized module from its state_dict and the float module it was made from.

States of eager quantization, FX and torchao say all there is to know. Those of PT2E are states of a graph: it is made
anew from an example of the inputs. A converted graph keeps the scales of activations in its code, not in its state.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.ao.quantization as tq
from torch import Tensor, nn

from ingot.errors import InvalidInputError, UnsupportedError, first_line

RECURRENT = (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _is_quantized(value: Any) -> bool:
    if isinstance(value, torch.ScriptObject):
        return True
    if isinstance(value, tuple | list):
        return any(map(_is_quantized, value))
    return isinstance(value, Tensor) and (value.is_quantized or _is_torchao(value))


def _is_torchao(value: Any) -> bool:
    return type(value).__module__.startswith("torchao.")


def _quantized_modules(state: Mapping[str, Any], modules: dict[str, nn.Module]) -> dict[str, str]:
    """Path of each module with quantized weights -> the first of its keys."""
    found: dict[str, str] = {}
    for key, value in state.items():
        if not _is_quantized(value):
            continue
        path = key
        while path and path not in modules:
            path = path.rpartition(".")[0]
        if not path and key.rpartition(".")[0]:
            raise InvalidInputError(
                f"the state holds '{key}', the float module no such module", "the two do not belong together"
            )
        found.setdefault(path, key)
    return found


def _checked_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(state, Mapping) or not state:
        raise InvalidInputError("the state_dict is no mapping or empty")
    if not any(map(_is_quantized, state.values())):
        raise InvalidInputError("the state_dict holds no quantized weight", "the state of a converted model is needed")
    return state


def rebuild(float_module: nn.Module, state: Mapping[str, Any], example_inputs: Any, config: Any) -> nn.Module:
    if isinstance(state, Mapping) and any(re.search(r"(^|\.)activation_post_process_\d+\.", key) for key in state):
        return _prepared(float_module, state, example_inputs, config)
    if isinstance(state, Mapping) and any(key.startswith("_frozen_param") for key in state):
        raise UnsupportedError(
            "the state of a converted PT2E model lacks the scales of its activations",
            "save the state of the prepared model, or the whole model: torch.export.save",
        )
    if isinstance(state, Mapping) and any(re.search(r"(^|\.)layout$", key) for key in state):
        return _narrow(float_module, state)
    _checked_state(state)
    work = copy.deepcopy(float_module).eval()
    if any(map(_is_torchao, state.values())):
        _load(work, state, assign=True)
        return work
    if any(re.search(r"_(scale|zero_point)_\d+$", key) for key in state):
        result = _traced(work)
        _load(result, state)
        return result
    modules = dict(work.named_modules())
    quantized = _quantized_modules(state, modules)
    dynamic = {path for path in quantized if _is_dynamic(path, state)}
    static = set(quantized) - dynamic
    if static:
        # Normalizations, arithmetic and stubs of a static model have a scale and no quantized weight.
        static |= {key.removesuffix(".scale") for key in state if key.endswith(".scale") and key[:-6] in modules}
    for path, module in modules.items():
        if isinstance(module, NORMALIZATIONS) and not any(key.startswith(path + ".") for key in state):
            work.set_submodule(path, nn.Identity())
    result = _with_quantized_classes(work, static, dynamic, state)
    _load(result, state)
    return result


def _prepared(float_module: nn.Module, state: Mapping[str, Any], example_inputs: Any, config: Any) -> nn.Module:
    """A graph that trains with simulated quantization: of ingot.prepare_qat, or of torchao's quantizer for x86."""
    if example_inputs is None:
        raise InvalidInputError(
            "the state is of a graph prepared by PT2E, which has to be made again",
            "Model.from_state_dict(float_module, state, example_inputs=x)",
        )
    from ingot.torch_quantizer import prepare_qat
    from ingot.torch_quantizer.training import prepare_for_x86

    if all(key.startswith("module.") for key in state):
        prepared = prepare_qat(float_module, config, example_inputs)
        _load(prepared, state)
        return prepared.converted().callable
    if config is not None:
        raise InvalidInputError("config is for states of what prepare_qat gave", "this one is of torchao's own")
    graph = prepare_for_x86(float_module, example_inputs)
    _load(graph, state)
    return graph


def _narrow(float_module: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """Of a weight-only model."""
    from ingot.torch_quantizer.graphs import shared_copy
    from ingot.torch_quantizer.weight_only.layers import restore

    work = restore(copy.deepcopy(shared_copy(float_module)), state).eval()
    _load(work, state)
    return work


def _traced(work: nn.Module) -> nn.Module:
    """What FX makes of the module; scales of its inputs are buffers under names of nodes."""
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    engine = torch.backends.quantized.engine if torch.backends.quantized.engine != "none" else "x86"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return convert_fx(prepare_fx(work, tq.get_default_qconfig_mapping(engine), example_inputs=()))
        except Exception as error:
            raise InvalidInputError(
                f"the state is of a model that FX traced; {type(work).__name__} cannot be traced: {first_line(error)}"
            ) from error


def _with_quantized_classes(
    work: nn.Module, static: set[str], dynamic: set[str], state: Mapping[str, Any]
) -> nn.Module:
    """PyTorch's own conversion chooses the classes; what it computes is overwritten by the state."""
    engine = torch.backends.quantized.engine if torch.backends.quantized.engine != "none" else "x86"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in static:
            module = work.get_submodule(path)
            table = isinstance(module, nn.Embedding | nn.EmbeddingBag)
            module.qconfig = tq.float_qparams_weight_only_qconfig if table else tq.get_default_qconfig(engine)
        spec: dict[str, Any] = {}
        for path in dynamic:
            module = work.get_submodule(path)
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                module.qconfig = tq.float_qparams_weight_only_qconfig
                static = static | {path}
            else:
                spec[path] = tq.per_channel_dynamic_qconfig if _per_channel(path, state) else tq.default_dynamic_qconfig
        if static:
            work = tq.convert(tq.prepare(work))
        return tq.quantize_dynamic(work, spec) if spec else work


def _is_dynamic(path: str, state: Mapping[str, Any]) -> bool:
    """Dynamic modules have no scale of their result, or one that was never set."""
    scale, zero_point = (state.get(f"{path}.{name}".lstrip(".")) for name in ("scale", "zero_point"))
    return scale is None or (float(scale) == 1.0 and int(zero_point or 0) == 0)


def _per_channel(path: str, state: Mapping[str, Any]) -> bool:
    for key, value in state.items():
        if key.startswith(path + "."):
            for tensor in value if isinstance(value, tuple | list) else [value]:
                if isinstance(tensor, Tensor) and tensor.is_quantized:
                    return tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
    return False


def _load(result: nn.Module, state: Mapping[str, Any], *, assign: bool = False) -> None:
    try:
        # The attribute _metadata holds the version of each module's format.
        wrong = result.load_state_dict(copy.copy(state), strict=False, assign=assign)
    except Exception as error:
        raise InvalidInputError(
            f"the state does not fit the float module: {str(error).strip().splitlines()[-1].strip()}"
        ) from error
    missing = [key for key in wrong.missing_keys if not key.endswith(".dtype")]
    unexpected = [key for key in wrong.unexpected_keys if "activation_post_process" not in key]
    if missing or unexpected:
        first = f"it lacks '{missing[0]}'" if missing else f"'{unexpected[0]}' has no place"
        raise InvalidInputError(f"the state does not fit the float module: {first}", "the two do not belong together")
