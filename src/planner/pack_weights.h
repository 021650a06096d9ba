// Brings constant weights into the layout their kernels read, once, when a model is prepared to run.
#pragma once
#include "graph/graph.h"

namespace ingot {

// For every MatMul, Gemm and Conv whose weights are a constant matrix or filter: operand 1 becomes the packed
// constant, attribute "packed" the columns of a panel (1 for depthwise filters) and "packed_shape" the dims it had.
// Matrices of bf16, f16 and quantized ones stay as narrow as they are (kernels/narrow.h): "packed_type",
// "packed_block", "packed_zeros", "packed_half" and "packed_zero" say how; other filters become f32, transformed where
// the node has attribute "winograd" (ops/conv.h). A matrix of bf16 that meets bf16 on a target with a unit for it has
// "packed_form" (ops/product.h) instead. Equal weights are packed once for all graphs of the process
// (planner/shared_weights.h), and originals that nobody reads any more are dropped.
//
// For MatMulInteger and ConvInteger "packed_form" is the name of a PackedForm (ops/quantized_product.h),
// "packed_signed" says whether the bytes were i8, and "packed_shape" is as above.
//
// Uses all cores. Only a step before running: the packed graph is not what the emitter writes.
void pack_weights(Graph&, const Target& = cpu_target());

}  // namespace ingot
