"""Ingot for PyTorch."""
