// Depthwise convolution of 8-bit integers, channels last, exact in 32 bits, with a fused epilogue that also stores:
//   Y[pixel][c] = epilogue( sum over taps t of (X[pixel + t][c] - x_zero) * W[t][c] )
// X has its padding, of the zero point, around it. Taps are multiplied in pairs by pmaddwd.
//
// Operands: X, W, Y, x_zero, then the extra operands of the epilogue. Units: rows of output pixels.
// W is packed: sums of each channel's weights, i32, then the weights less their zero points, i16. Channels are padded
// with zeros to a multiple of kDepthwiseChannels, and so is the last pair of an odd number of taps:
//
//   sums                         taps 0 and 1                              taps 2 and 3
//   c0   c1   c2   ...  c15    | c0      c1      c2      ...  c15        | c0      ...
//                              | t0 t1   t0 t1   t0 t1        t0 t1      | t2 t3
#pragma once
#include "kernels/abi.h"
#include "kernels/pack.h"
#include "kernels/sizes.h"
#include "kernels/store_sums.h"

namespace ingot::kernel {

inline constexpr int64_t kDepthwiseChannels = 16, kMaxDepthwiseTaps = 128;

struct DepthwiseI8Params {
  int64_t x_signed, x_zero;  // x_zero: kNoZero or kOneZero
  int64_t channels;
  int64_t out[3], batch;
  int64_t image, step[3];     // bytes of X between images, and between output pixels along each spatial dim
  int64_t kernel[3], tap[3];  // taps and the bytes between them
  int64_t c_bytes;            // ResultBytes
  int64_t extras;
  EpilogueOperand extra[kMaxEpilogueOperands];
};

inline constexpr SizeField kDepthwiseI8Sizes[] = {
    INGOT_SIZE(DepthwiseI8Params, channels),      INGOT_SIZE(DepthwiseI8Params, out),
    INGOT_SIZE(DepthwiseI8Params, batch),         INGOT_SIZE(DepthwiseI8Params, image),
    INGOT_SIZE(DepthwiseI8Params, step),          INGOT_SIZE(DepthwiseI8Params, tap),
    INGOT_SIZE_ABOVE(1, DepthwiseI8Params, extra)};

INGOT_INLINE int64_t depthwise_padded(int64_t channels) {
  return div_up(channels, kDepthwiseChannels) * kDepthwiseChannels;
}
INGOT_INLINE int64_t depthwise_pairs(int64_t taps) { return div_up(taps, 2); }
INGOT_INLINE int64_t depthwise_bytes(int64_t taps, int64_t channels) {
  return depthwise_padded(channels) * 4 * (1 + depthwise_pairs(taps));
}

INGOT_KERNEL(ingot_depthwise_i8);

}  // namespace ingot::kernel
