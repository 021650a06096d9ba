// Half-precision operators through the f32 kernels: operands are widened into temporaries, results rounded from them.
//   y = round( f( widen(x0), widen(x1), ... ) )
// One rounding per result, which is what ONNX asks for at most, and no second version of any kernel.
#pragma once
#include "ops/op.h"

namespace ingot {

inline bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }

// Runs `lower` as if every F16 or BF16 operand and result were F32, but for operands that it reads as they are.
void lower_via_f32(LowerContext&, void (*lower)(LowerContext&), const std::vector<size_t>& as_they_are = {});

// `lower` as it is, or through F32 when an operand is half precision.
template <void (*lower)(LowerContext&)>
void with_halves(LowerContext& ctx) {
  bool half = false;
  for (size_t i = 0; i < ctx.input_count(); i++) half |= ctx.has(i) && is_half(ctx.in(i).dtype);
  half ? lower_via_f32(ctx, lower) : lower(ctx);
}

}  // namespace ingot
