// GridSample: the input read at positions that a second tensor gives, in [-1, 1] across each spatial dim.
//   align_corners:  x = (g + 1) / 2 * (n - 1)         otherwise:  x = ((g + 1) * n - 1) / 2
// Per dim 1 tap (nearest, ties to even), 2 (linear) or 4 (cubic, Keys with a = -0.75) around x; the result is the sum
// over all combinations. What lies outside is 0, the nearest element (border), or mirrored at the border (reflection).
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum SamplePadding : int64_t { kSampleZeros = 0, kSampleBorder = 1, kSampleReflection = 2 };
inline constexpr int kMaxSampleRank = 3;

// Operands: in [N, C, in...], grid [N, positions, rank] (last dim first), out [N, C, positions].
// A unit is one position of one batch, all channels.
struct GridSampleParams {
  int64_t channels, positions, rank;
  int64_t dtype, grid_dtype;
  int64_t taps, padding, align_corners;
  int64_t in[kMaxSampleRank];
};

INGOT_KERNEL(ingot_grid_sample);

}  // namespace ingot
