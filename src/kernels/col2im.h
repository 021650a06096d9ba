// The second half of a transposed convolution: overlapping windows added up.
//   y[n][c][o] = bias[c] + sum over taps t and inputs i with i * stride + t * dilation - pad = o  of  col[n][c][t][i]
// Operands: col, bias (or null), y. A unit is one row of results.
// ingot_col2im_last: the same of f32 channels last, y[n][o][c] and, for each of `groups` groups of channels,
// col[n][i][t][c].
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct Col2imParams {
  int64_t dtype;  // F32, F64 or I32
  int64_t channels;
  int64_t batch, groups;  // ingot_col2im_last
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
};

INGOT_KERNEL(ingot_col2im);
INGOT_KERNEL(ingot_col2im_last);

}  // namespace ingot
