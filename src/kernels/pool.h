// Pooling of channels-last activations, fp32 or (max only) 8-bit integers, up to three spatial dims:
//   max:      Y[n][o][c] = max over taps t inside the image of X[n][o * stride - pad + t * dilation][c]
//   average:  the sum over those taps divided by their number; with count_include_pad by the number of taps inside the
//             padded image. Taps behind the padding, which ceil_mode can produce, never count.
// A window without any tap gives -inf or the lowest integer (max) or 0 (average).
//
// Operands: X, Y.  Units: rows of output pixels, batch * out[0] * out[1].  No scratch.
#pragma once
#include "kernels/abi.h"
#include "kernels/pack.h"
#include "kernels/sizes.h"

namespace ingot::kernel {

enum PoolKind : int64_t { kMaxPool = 0, kAveragePool = 1 };

struct PoolParams {
  int64_t kind, count_include_pad;
  int64_t batch, channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3];
  int64_t pad[3], pad_behind[3];
};
inline constexpr SizeField kPoolSizes[] = {INGOT_SIZE(PoolParams, batch),  INGOT_SIZE(PoolParams, channels),
                                           INGOT_SIZE(PoolParams, in),     INGOT_SIZE(PoolParams, out),
                                           INGOT_SIZE(PoolParams, stride), INGOT_SIZE(PoolParams, dilation),
                                           INGOT_SIZE(PoolParams, pad),    INGOT_SIZE(PoolParams, pad_behind)};
static_assert(sizeof(PoolParams) == 25 * 8);

INGOT_INLINE int64_t pool_units(const PoolParams& p) { return p.batch * p.out[0] * p.out[1]; }

INGOT_KERNEL(ingot_pool_f32);
INGOT_KERNEL(ingot_max_pool_u8);
INGOT_KERNEL(ingot_max_pool_i8);

}  // namespace ingot::kernel
