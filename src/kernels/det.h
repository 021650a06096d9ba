// Determinants of square matrices, by elimination with partial pivoting, in double.
// Operands: in [units, n, n], out [units]. A unit is a matrix. Scratch: n * n doubles.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct DetParams {
  int64_t dtype, n;
};

INGOT_KERNEL(ingot_det);

}  // namespace ingot
