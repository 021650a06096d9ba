// What DynamicQuantizeLinear computes from all of x before it quantizes:
//   scale = (max(x, 0) - min(x, 0)) / 255, or 1 where that is 0;  zero = saturate( round( -min(x, 0) / scale ) )
// ingot_value_range has the range of each chunk of x: operands x, ranges [units][2]; a unit is kRangeChunk elements.
// ingot_value_range_scale makes the two numbers of them: operands ranges, scale (f32), zero (u8); one unit.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kRangeChunk = 4096;  // stays in L1 from the smallest to the largest

struct ValueRangeParams {
  int64_t count;  // elements of x
};

INGOT_KERNEL(ingot_value_range);
INGOT_KERNEL(ingot_value_range_scale);

}  // namespace ingot
