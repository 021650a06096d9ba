// Reductions:  out[o] = post( reduce_r pre( x[o, r] ) )  over kept indices o and reduced indices r of a dense tensor.
//
// The dims of x come collapsed: none is 1, neighbours that are both kept or both reduced are one. So the last dim,
// which is contiguous, is one of:
//  - reduced: a unit is one result; its rows are summed with several vectors of partial results;
//  - kept: a unit is kReduceColumns neighbouring results, computed side by side in vector lanes.
// Float sums are kept in blocks of at most a few hundred additions per lane, and the blocks added in double, so the
// error does not grow with the number of elements. Max and min of anything with a NaN are NaN. Empty reductions give
// the identity: 0, 1, the lowest, the highest value.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum ReduceKind : int64_t { kReduceSum, kReduceMean, kReduceProd, kReduceMax, kReduceMin, kReduceLogSumExp };
enum ReducePre : int64_t { kPreNone, kPreAbs, kPreSquare };
enum ReducePost : int64_t { kPostNone, kPostSqrt, kPostLog };

inline constexpr int kReduceMaxRank = 8;
inline constexpr int64_t kReduceColumns = 64;

// Operands: x, out. Dims and strides outermost first.
struct ReduceParams {
  int64_t kind, pre, post;
  int64_t dtype;       // DType of x and out: F32, F64, I32, I64, U32, U64, I8, U8
  int64_t inner_kept;  // the last dim of x is kept
  int64_t kept_rank, reduced_rank;
  // not structural:
  int64_t kept_dims[kReduceMaxRank], kept_strides[kReduceMaxRank];
  int64_t reduced_dims[kReduceMaxRank], reduced_strides[kReduceMaxRank];
  int64_t count;  // elements reduced to one
};

INGOT_KERNEL(ingot_reduce);

}  // namespace ingot
