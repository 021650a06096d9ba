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

// Channel i of each group of G in all lanes of the group.
template <int G>
INGOT_INLINE VF spread(VF x, int i) {
  VF out;
  INGOT_UNROLL for (int j = 0; j < kLanes; j++) out[j] = x[j / G * G + i];
  return out;
}

// MR neighbouring pixels from column `ox` on, channels [channel, channel + lanes). Edge: some of their taps are outside
// the image; looking at each takes no time beside the loads.
template <bool Edge, int G, int MR, int NV>
INGOT_INLINE void depthwise_step(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e, int64_t ox,
                                 int64_t channel, int64_t lanes) {
  int64_t channels = p.in_channels, row_floats = p.in[2] * channels, plane_floats = p.in[1] * row_floats;
  int64_t origin = ox * p.stride[2] - p.pad[2];
  VF acc[MR][NV];
  clear(acc);
  for (int64_t d = r.depth.first; d < r.depth.last; d++)
    for (int64_t h = r.height.first; h < r.height.last; h++) {
      const float* x = r.x + d * p.dilation[0] * plane_floats + h * p.dilation[1] * row_floats + channel;
      const float* w = r.w + (d * p.kernel[1] + h) * p.kernel[2] * G * channels + channel;
      for (int64_t t = 0; t < p.kernel[2]; t++, w += G * channels) {
        VF tap[G][NV];
        INGOT_UNROLL for (int g = 0; g < G; g++) INGOT_UNROLL for (int j = 0; j < NV; j++) tap[g][j] =
            load_partial(w + g * channels + j * kLanes, lanes);
        INGOT_UNROLL for (int i = 0; i < MR; i++) {
          const int64_t column = origin + i * p.stride[2] + t * p.dilation[2];
          if (Edge && uint64_t(column) >= uint64_t(p.in[2])) continue;
          INGOT_UNROLL for (int j = 0; j < NV; j++) {
            const VF v = load_partial(x + column * channels + j * kLanes, lanes);
            INGOT_UNROLL for (int g = 0; g < G; g++) acc[i][j] += tap[g][j] * spread<G>(v, g);
          }
        }
      }
    }
  apply_to_tile(e, acc, r.first_pixel + ox, channel, (NV - 1) * kLanes + lanes);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store_partial(r.y + (ox + i) * channels + channel + j * kLanes, acc[i][j], lanes);
}

template <bool Edge, int G, int MR>
INGOT_LATE void depthwise_pixels(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e, int64_t ox) {
  int64_t c = 0;
  for (; c + kDepthwiseColumns <= p.in_channels; c += kDepthwiseColumns)
    depthwise_step<Edge, G, MR, kDepthwiseColumns / kLanes>(p, r, e, ox, c, kLanes);
  for (; c + kLanes <= p.in_channels; c += kLanes) depthwise_step<Edge, G, MR, 1>(p, r, e, ox, c, kLanes);
  if (c < p.in_channels) depthwise_step<Edge, G, MR, 1>(p, r, e, ox, c, p.in_channels - c);
}

template <int G>
INGOT_INLINE void depthwise_row(const ConvParams& p, const DepthwiseRow& r, const Epilogue& e) {
  const Interior inner = interior(p.out[2], p.in[2], p.kernel[2], p.stride[2], p.dilation[2], p.pad[2]);
  constexpr int kMax = kTileRows<kDepthwiseColumns>;
  const Tiling tiling = cut_rows(p.out[2], kMax, p.tile_rows);
  for_tiles<kMax>(tiling, 0, tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
    constexpr int MR = decltype(h)::value;
    const int64_t ox = tile_start(tiling, tile);
    if (ox >= inner.first && ox + MR <= inner.last)
      depthwise_pixels<false, G, MR>(p, r, e, ox);
    else
      depthwise_pixels<true, G, MR>(p, r, e, ox);
  });
}

template <int G>
INGOT_LATE void depthwise(const KernelCall* call, const ConvParams& p) {
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
    depthwise_row<G>(p, r, epilogue);
  }
}

INGOT_INLINE KernelStatus depthwise_body(const KernelCall* call) {
  const ConvParams& p = *reinterpret_cast<const ConvParams*>(call->param);
  if (p.panel == 1) depthwise<1>(call, p);
  if (p.panel == 2) depthwise<2>(call, p);
  if (p.panel == 4) depthwise<4>(call, p);
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_conv_depthwise_f32(const ingot::KernelCall* call) {
  return ingot::kernel::depthwise_body(call);
}
