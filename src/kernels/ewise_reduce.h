// A reduction of an element-wise expression, f32, without storing the expression's values:
//   out[o] = reduce_r f( x0[o, r], x1[o, r], ... ),   reduce: sum, mean, prod, max, min
//
// The index space is that of an element-wise loop (kernels/ewise.h) whose one result is `out`, with stride 0 along the
// reduced dims. The values of a stretch of a row go to scratch, which stays in L1, and are reduced from there.
//  - The innermost dim is reduced: a unit is one result.
//  - It is kept: a unit is kEwiseReduceColumns neighbouring results.
// Operands: the inputs, out.
#pragma once
#include "kernels/abi.h"
#include "kernels/ewise.h"
#include "kernels/reduce.h"

namespace ingot {

inline constexpr int64_t kEwiseReduceColumns = 256, kEwiseReduceStretch = 1024;

struct EwiseReduceParams {
  int64_t kind, inner_kept;
  EwiseParams space;
  int64_t count;  // elements reduced to one
};
inline constexpr SizeField kEwiseReduceSizes[] = {
    INGOT_SIZE(EwiseReduceParams, space.dims), INGOT_SIZE(EwiseReduceParams, space.strides),
    INGOT_SIZE(EwiseReduceParams, space.chunks), INGOT_SIZE(EwiseReduceParams, count)};

// Scratch before that of the interpreter: a stretch of values; sums of columns in float and in double.
inline constexpr int64_t kEwiseReduceScratch = kEwiseReduceStretch * 4 + kEwiseReduceColumns * (4 + 8);

INGOT_KERNEL(ingot_ewise_reduce);

}  // namespace ingot
