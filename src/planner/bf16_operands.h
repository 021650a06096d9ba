// Products whose operands are bf16 numbers that were widened to f32, for targets that multiply bf16:
//   MatMul(f32(a), f32(b))  ->  ingot.MatMul(a, b) with f32_result             a, b: bf16
// f32(x) is a Cast or a result of an ingot.Elementwise that is an operand as it is; b may also be a constant of bf16
// under an f32 A. What is computed in f32 is never rounded.
#pragma once
#include "graph/graph.h"

namespace ingot {

// True if there was one. Does nothing for a target that has no unit for bf16.
bool read_bf16_operands(Graph&, const Target&);

}  // namespace ingot
