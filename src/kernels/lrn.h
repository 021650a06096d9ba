// Local response normalisation over channels:
//   y[n][c][i] = x[n][c][i] / (bias + alpha / size * sum_{j in window(c)} x[n][j][i]^2)^beta
//   window(c) = [c - floor((size-1)/2), c + ceil((size-1)/2)], cut at the ends.
// Operands: x, y. A unit is one (n, i): pixels; `step` lies between the channels of a pixel.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct LrnParams {
  int64_t dtype;  // F32 or F64
  int64_t channels;
  int64_t pixels;      // of one image
  int64_t step;        // between channels: pixels (NCHW) or 1 (channels last)
  int64_t pixel_step;  // between pixels: 1 or channels
  int64_t size;
  double alpha, beta, bias;
};

INGOT_KERNEL(ingot_lrn);

}  // namespace ingot
