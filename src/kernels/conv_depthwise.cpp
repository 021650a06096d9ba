#include "kernels/conv.h"
#include "kernels/microkernel.h"
#include "kernels/window.h"

namespace ingot::kernel {

// One row of output pixels, all taps of which in the outer dims are known to be inside.
struct DepthwiseRow {
  const float* x;  // image row of tap (0, 0) at column 0: may lie outside, only taps inside are read
  const float* w;
  float* y;  // first pixel of the output row
  Taps depth, height;
  int64_t first_pixel;  // index of that pixel in the whole output
};

// MR neighbouring pixels from column `ox` on, channels [channel, channel + lanes) with taps [left, right) of the width.
template <int MR, int NV>
INGOT_INLINE void depthwise_step(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e, int64_t ox,
                                 int64_t left, int64_t right, int64_t channel, int64_t lanes) {
  int64_t channels = p.in_channels, row_floats = p.in[2] * channels, plane_floats = p.in[1] * row_floats;
  VF acc[MR][NV];
  clear(acc);
  for (int64_t d = r.depth.first; d < r.depth.last; d++)
    for (int64_t h = r.height.first; h < r.height.last; h++) {
      const float* x = r.x + d * p.dilation[0] * plane_floats + h * p.dilation[1] * row_floats +
                       (ox * p.stride[2] - p.pad[2]) * channels + channel;
      const float* w = r.w + (d * p.kernel[1] + h) * p.kernel[2] * channels + channel;
      for (int64_t t = left; t < right; t++) INGOT_UNROLL for (int j = 0; j < NV; j++) {
          VF tap = load_partial(w + t * channels + j * kLanes, lanes);
          INGOT_UNROLL for (int i = 0; i < MR; i++) acc[i][j] +=
              tap * load_partial(x + (i * p.stride[2] + t * p.dilation[2]) * channels + j * kLanes, lanes);
        }
    }
  apply_to_tile(e, acc, r.first_pixel + ox, channel, (NV - 1) * kLanes + lanes);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store_partial(r.y + (ox + i) * channels + channel + j * kLanes, acc[i][j], lanes);
}

template <int MR>
INGOT_INLINE void depthwise_pixels(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e, int64_t ox,
                                   int64_t left, int64_t right) {
  int64_t c = 0;
  for (; c + kDepthwiseColumns <= p.in_channels; c += kDepthwiseColumns)
    depthwise_step<MR, kDepthwiseColumns / kLanes>(p, r, e, ox, left, right, c, kLanes);
  for (; c + kLanes <= p.in_channels; c += kLanes) depthwise_step<MR, 1>(p, r, e, ox, left, right, c, kLanes);
  if (c < p.in_channels) depthwise_step<MR, 1>(p, r, e, ox, left, right, c, p.in_channels - c);
}

INGOT_INLINE void depthwise_row(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e) {
  Interior inner = interior(p.out[2], p.in[2], p.kernel[2], p.stride[2], p.dilation[2], p.pad[2]);
  for (int64_t ox = 0; ox < p.out[2]; ox++) {
    if (ox == inner.first) ox = inner.last;
    if (ox >= p.out[2]) break;
    Taps width = taps_inside(ox, p.in[2], p.kernel[2], p.stride[2], p.dilation[2], p.pad[2]);
    depthwise_pixels<1>(p, r, e, ox, width.first, width.last);
  }
  if (inner.first == inner.last) return;
  constexpr int kMax = kTileRows<kDepthwiseColumns>;
  Tiling tiling = cut_rows(inner.last - inner.first, kMax, p.tile_rows);
  for_tiles<kMax>(tiling, 0, tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
    depthwise_pixels<decltype(h)::value>(p, r, e, inner.first + tile_start(tiling, tile), 0, p.kernel[2]);
  });
}

INGOT_INLINE KernelStatus depthwise_body(const KernelCall* call) {
  const ConvParams& p = *reinterpret_cast<const ConvParams*>(call->param);
  Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  int64_t row_floats = p.in[2] * p.in_channels, plane_floats = p.in[1] * row_floats;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    int64_t h = unit % p.out[1], d = unit / p.out[1] % p.out[0], n = unit / (p.out[1] * p.out[0]);
    DepthwiseRow r;
    r.depth = taps_inside(d, p.in[0], p.kernel[0], p.stride[0], p.dilation[0], p.pad[0]);
    r.height = taps_inside(h, p.in[1], p.kernel[1], p.stride[1], p.dilation[1], p.pad[1]);
    r.x = static_cast<const float*>(call->operand[0]) + (n * p.in[0] + r.depth.origin) * plane_floats +
          r.height.origin * row_floats;
    r.w = static_cast<const float*>(call->operand[1]);
    r.first_pixel = unit * p.out[2];
    r.y = static_cast<float*>(call->operand[2]) + r.first_pixel * p.in_channels;
    depthwise_row(p, r, epilogue);
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_conv_depthwise_f32(const ingot::KernelCall* call) {
  return ingot::kernel::depthwise_body(call);
}
