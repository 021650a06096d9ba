// Batched matrix product for the types that have no kernel of their own (f64, i32, i64, u32, u64):
//   C[b][m][n] = sum_k A[b][m][k] * B[b][k][n],  C dense.   Integers wrap.
// Operands: A, B, C. A unit is one row of C.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct MatmulAnyParams {
  int64_t dtype;
  int64_t m, n, k;
  int64_t batch[3];
  int64_t a_row, a_col, a_batch[3];
  int64_t b_row, b_col, b_batch[3];
};

INGOT_KERNEL(ingot_matmul_any);

}  // namespace ingot
