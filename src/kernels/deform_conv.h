// Deformable convolution, up to three spatial dims: every tap of every result reads the input at a place of its own,
//   y[n][c][o] = b[c] + sum_{i, t} w[c][i][t] mask[n][g][t][o] x[n][i][ o * stride - pad + t * dilation +
//   offset[n][g][t][o] ]
// interpolated linearly, with zeros outside; i runs over the channels of c's group, g is the offset group of i.
// Operands: x, w, offset, b, mask, y; b and mask may be null. A unit is one (n, o). Scratch: out_channels doubles.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct DeformConvParams {
  int64_t dtype;  // F32 or F64
  int64_t rank;   // offsets of a tap: of the last `rank` of the three dims
  int64_t groups, offset_groups, in_channels, out_channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
};

INGOT_KERNEL(ingot_deform_conv);

}  // namespace ingot
