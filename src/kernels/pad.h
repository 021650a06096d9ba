// Padding. Along each dim, `kept` elements of the source stand after `before` added ones:
//   out[.., i, ..] = in[.., f(i - before), ..]
//   constant: f(j) = j, and what lies outside [0, kept) is the constant
//   reflect:  f mirrors at the first and last element without repeating them, with period 2 (kept - 1)
//   edge:     f clamps to [0, kept)
//   wrap:     f(j) = j mod kept
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum PadMode : int64_t { kPadConstant = 0, kPadReflect = 1, kPadEdge = 2, kPadWrap = 3 };
inline constexpr int kMaxPadRank = 12;

// Operands: in, constant (or null for 0), out. A unit is a row: the last dim, which has source stride 1.
struct PadParams {
  int64_t rank, size, mode;
  int64_t flip;               // size 1: what every byte of the result is xored with
  int64_t offset;             // of the first kept element, in elements
  int64_t dims[kMaxPadRank];  // of out
  int64_t kept[kMaxPadRank], before[kMaxPadRank];
  int64_t stride[kMaxPadRank];  // of the source, in elements
};

INGOT_KERNEL(ingot_pad);

}  // namespace ingot
