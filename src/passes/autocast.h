// A graph in a lower precision, from one in f32.
#pragma once
#include <string>

#include "graph/graph.h"

namespace ingot {

// The same graph with the constant weights of MatMul, Gemm, Conv and Gather in fewer bits; arithmetic stays f32:
//   "bf16", "fp16"    16 bits
//   "int8-weights"    8 bits and a scale per column, or row of a table; not Conv
//   "int4-weights"    4 bits and a scale for 32 numbers of a column; tables as above
// or with products of 8-bit integers, the other operand quantized as it comes:
//   "int8"            op(A, B) -> f32(opInteger(Q(A), Q(B))) * scales, for MatMul and Conv
// Small weights and those that the type cannot hold (not finite, too large for fp16) stay f32. Another name is an error
// that lists these. Works on a graph as loaded as well as on one that has been through optimise().
Graph autocast(const Graph&, const std::string& precision);

}  // namespace ingot
