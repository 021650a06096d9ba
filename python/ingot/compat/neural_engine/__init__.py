"""intel_extension_for_transformers.backends.neural_engine: `compile`, `autocast` and `Graph`."""

from ingot.compat.neural_engine.compile import Graph, autocast, compile

__all__ = ["Graph", "autocast", "compile"]
