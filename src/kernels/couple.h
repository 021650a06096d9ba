// Class probabilities p from those of pairs, r_ij = P(i | i or j) for i < j (Wu, Lin and Weng, 2004):
//   minimise  sum_{i < j} (r_ji p_i - r_ij p_j)^2,   sum_i p_i = 1
// by their fixed-point iteration. Operands: r [rows, classes (classes - 1) / 2] (f64), p [rows, classes] (f64). A unit
// is a row. Scratch: classes * (classes + 1) doubles.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct CoupleParams {
  int64_t classes;
};

INGOT_KERNEL(ingot_couple);

}  // namespace ingot
