// Pooling for every type and layout: max (with the place of the maximum), average and Lp norm over windows of up to
// three spatial dims.
//   y[n][c][o] = f( x[n][c][o * stride + t * dilation - pad] for the taps t that lie inside the input )
// Max of a window without any tap is the lowest value; a NaN wins. Average divides by the taps inside, or with
// include_pad by those inside the padded input.
//
// Operands: x, y, indices (or null). A unit is one row of results: fixed n, c and all but the last spatial dim.
// Row-wise: for each tap, all windows of the row at once.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum PoolKind : int64_t { kPoolMax, kPoolAverage, kPoolLp };

struct PoolAnyParams {
  int64_t kind, dtype;  // F32, F64; max also I8, U8
  int64_t batch, channels;
  int64_t in[3], out[3];
  int64_t kernel[3], stride[3], dilation[3], begin[3], end[3];
  int64_t include_pad;                           // average
  int64_t p;                                     // Lp
  int64_t column_major;                          // indices count the spatial dims in reverse order
  int64_t x_channel, x_step, y_channel, y_step;  // strides: between channels, between neighbouring pixels
};

INGOT_KERNEL(ingot_pool_any);

}  // namespace ingot
