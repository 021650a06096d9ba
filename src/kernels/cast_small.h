// Cast where an expression cannot do it: from or to floats of 8 and 4 bits and integers of 4 and 2 bits.
// Operands: x, y. A unit is kCastChunk elements, whole bytes of every type.
// Integers to integers keep the low bits; floats to integers truncate and then keep them.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kCastChunk = 1024;

struct CastSmallParams {
  int64_t from, to;  // DType
  int64_t saturate;  // of 8-bit floats
  int64_t round;     // of e8m0: RoundE8m0
  int64_t count;
};

INGOT_KERNEL(ingot_cast_small);

}  // namespace ingot
