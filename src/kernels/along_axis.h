// Kernels that walk one axis. The tensor is seen as [outer, n, inner]; for each (outer, inner) there is a line of n
// elements, `inner` apart. Where lines lie side by side they are walked together, kLineBlock at a time, in memory
// order.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kLineBlock = 64;

// Blocks of lines in one outer index.
inline int64_t line_blocks(int64_t inner) { return (inner + kLineBlock - 1) / kLineBlock; }

struct AxisParams {
  int64_t n, inner;
  int64_t dtype;
};

// CumSum, CumProd:  y_k = x_0 + ... + x_k (or the product), to x_{k-1} when exclusive; from the back when reverse.
// Operands: in, out. A unit is a block of lines.
struct CumulateParams {
  AxisParams axis;
  int64_t product, exclusive, reverse;
};

// ArgMax, ArgMin:  the index of the greatest (least) element of each line; the first, or the last, of equals. NaN is
// greatest and least. Operands: in, out (int64). A unit is a block of lines.
struct ArgParams {
  AxisParams axis;
  int64_t greatest, last;
};

// Hardmax:  1 at the first greatest element of each line, else 0. Operands: in, out. A unit is a block of lines.
struct HardmaxParams {
  AxisParams axis;
};

// TopK:  the k greatest (least) elements of each line, best first, equals by lower index. NaN counts as greatest.
// Operands: in, values, indices (int64). A unit is a line. Scratch: k * 8 bytes.
struct TopKParams {
  AxisParams axis;
  int64_t k, greatest;
};

INGOT_KERNEL(ingot_arg);
INGOT_KERNEL(ingot_cumulate);
INGOT_KERNEL(ingot_hardmax);
INGOT_KERNEL(ingot_top_k);

}  // namespace ingot
