// What Det and Inverse share: X has square matrices of floats, [..., n, n].
#pragma once
#include "ops/via_f32.h"

namespace ingot {

// Sets the result's type to that of X and gives the shape of X.
inline const Shape& infer_square_matrices(InferContext& ctx) {
  const DType t = ctx.dtype(0);
  ctx.set_dtype(0, t);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "X is {}, expected f16, bf16, f32 or f64", name(t));
  const Shape& x = ctx.shape(0);
  const size_t rank = x.size();
  ctx.require(rank >= 2 && (!x[rank - 1].is_const() || !x[rank - 2].is_const() || x[rank - 1] == x[rank - 2]),
              "X is {}, expected square matrices [..., n, n]", str(x));
  return x;
}

}  // namespace ingot
