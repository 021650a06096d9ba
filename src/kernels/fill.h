// Tensors made from a rule: a constant, a range, a triangle or a diagonal of a matrix, one-hot rows.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

// out[i] = value. Operands: out. A unit is an element.
struct FillParams {
  int64_t size;       // bytes of an element
  int64_t low, high;  // its bits
};

// out[i] = start + i * delta. Operands: start, delta, out. A unit is an element.
struct RangeParams {
  int64_t dtype;
};

// out[r, c] = one if c == r + k, else 0. Operands: out. A unit is a row.
struct EyeParams {
  int64_t size, columns, k;
  int64_t one;  // bits
};

// out[b, r, c] = in[b, r, c] if c >= r + k (upper) or c <= r + k (lower), else 0.
// Operands: in, k (int64, or null for 0), out. A unit is a row.
struct TriluParams {
  int64_t size, rows, columns, upper;
};

// out[o, d, i] = on if d == indices[o, i] (counted from the back when negative), else off.
// Operands: indices, values [off, on], out. A unit is one o.
struct OneHotParams {
  int64_t size, index_dtype, depth, inner;
};

INGOT_KERNEL(ingot_eye);
INGOT_KERNEL(ingot_fill);
INGOT_KERNEL(ingot_one_hot);
INGOT_KERNEL(ingot_range);
INGOT_KERNEL(ingot_trilu);

}  // namespace ingot
