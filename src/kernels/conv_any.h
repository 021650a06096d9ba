// Convolution for types without a kernel of their own (f64, i32), any layout, up to three spatial dims:
//   y[n][c][o] = sum_{i, t} x[n][g(c)][i][o * stride + t * dilation - pad] * w[c][i][t]
// Operands: x, w, y. A unit is one row of results; for each tap all results of the row at once.
//
// ingot_conv_pack, ingot_conv_pack_depthwise: weights that are not constant, brought into the layout of the f32 kernels
// (kernels/conv.h) when the model runs. Operands: w, packed. Params: ConvParams. Units: panels, and one.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct ConvAnyParams {
  int64_t groups, in_channels, out_channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
  int64_t x_channel, x_step, y_channel, y_step;  // strides: between channels, between neighbouring pixels
};

INGOT_KERNEL(ingot_conv_f64);
INGOT_KERNEL(ingot_conv_i32);
INGOT_KERNEL(ingot_conv_pack);
INGOT_KERNEL(ingot_conv_pack_depthwise);

}  // namespace ingot
