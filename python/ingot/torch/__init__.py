"""Ingot for PyTorch: a backend of torch.compile, and a wrapper that needs no dynamo.

fast = torch.compile(model, backend="ingot", options={"compile_options": "-O3"})
fast = ingot.torch.compile(model, dynamic=True)

Importing this changes nothing outside it.
"""

from ingot.torch.backend import backend
from ingot.torch.explanation import explain
from ingot.torch.intercept import Interception, intercept_forward
from ingot.torch.module import IngotModule, compile
from ingot.torch.recurrent import RecurrentLayers, whole_recurrent_layers
from ingot.torch.report import Fallback, FallbackWarning, GraphReport, Report
from ingot.torch.sessions import CacheInfo, WeightMemory, cache_info, clear_cache
from ingot.torch.verify import VerificationError

__all__ = [
    "CacheInfo",
    "Fallback",
    "FallbackWarning",
    "GraphReport",
    "IngotModule",
    "Interception",
    "RecurrentLayers",
    "Report",
    "VerificationError",
    "WeightMemory",
    "backend",
    "cache_info",
    "clear_cache",
    "compile",
    "explain",
    "intercept_forward",
    "whole_recurrent_layers",
]
