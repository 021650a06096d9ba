// Element-wise loops: out_r[i] = f_r(x0[i], x1[i], ...) over a broadcast index space, f from the fused expression.
//
// The planner collapses neighbouring dims that every operand walks alike, so most loops have rank 1 or 2. A unit is
// one chunk of kEwiseChunk elements along the innermost dim of one row.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/sizes.h"

namespace ingot {

inline constexpr int kEwiseMaxOperands = 16;  // inputs + results
inline constexpr int kEwiseMaxRank = 6;
inline constexpr int64_t kEwiseChunk = 4096;

struct EwiseParams {
  int64_t inputs, results, rank;
  int64_t inner_kind[kEwiseMaxOperands];              // step of the innermost dim: 0, 1, or 2 for any other
  int64_t dims[kEwiseMaxRank];                        // outermost first; dims[rank-1] is the innermost
  int64_t strides[kEwiseMaxOperands][kEwiseMaxRank];  // in elements; results too
  int64_t chunks;                                     // per row: ceil(dims[rank-1] / kEwiseChunk)
};
inline constexpr SizeField kEwiseSizes[] = {INGOT_SIZE(EwiseParams, dims), INGOT_SIZE(EwiseParams, strides),
                                            INGOT_SIZE(EwiseParams, chunks)};
inline constexpr int kEwiseParamCount = sizeof(EwiseParams) / 8;

INGOT_KERNEL(ingot_ewise);

}  // namespace ingot
