"""The meaning of a quantized PyTorch model, written with float operators and quantize/dequantize pairs.

Under ReferenceMode a quantized model computes on floats: what PyTorch's integer kernels do becomes dequantize -> the
float operator -> quantize, in the operators of torch.ops.quantized_decomposed, with the scales, zero points and integer
weights of the model. A tracer that runs it sees ordinary tensors only, and every pair stands in the data flow where the
quantization is: nothing has to be matched afterwards. This holds for eager, FX, PT2E, TorchScript and torchao models
alike, since in the end they all call the same few operators.

A value that PyTorch holds as a quantized tensor is, here, the float tensor that a pair gave, remembered with its Grid.
Each family of operators has a file, which registers its handlers when it is imported.
"""

from ingot.exporter.reference import conversions, dynamic, embeddings, pointwise, products, recurrent
from ingot.exporter.reference.mode import Grid, ReferenceMode

__all__ = ["Grid", "ReferenceMode", "conversions", "dynamic", "embeddings", "pointwise", "products", "recurrent"]
