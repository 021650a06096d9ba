"""PyTorch to ONNX: float, half, and int8 from every kind of quantized model.

source -> sources: one module -> capture: an ATen graph in which the quantization stands as quantize/dequantize pairs
(reference/) -> ingot.torch.translate: Ingot's graph -> the C++ core: QDQ or integer operators, biases, opset -> verify.
"""

from ingot.exporter.config import Torch2ONNXConfig
from ingot.exporter.model import Model, export
from ingot.exporter.report import Difference, ExportReport, Operation

__all__ = ["Difference", "ExportReport", "Model", "Operation", "Torch2ONNXConfig", "export"]
