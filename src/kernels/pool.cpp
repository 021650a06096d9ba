#include "kernels/pool.h"

#include <type_traits>

#include "kernels/window.h"

namespace ingot::kernel {

inline constexpr int kPoolVectors = 4;  // vectors of channels per step: enough independent chains

// The window of one output pixel.
template <class T>
struct PoolWindow {
  const T* x;  // tap (0, 0, 0), may lie outside; only taps inside are read
  Taps taps[3];
  float scale;  // one over the count of an average
};

INGOT_INLINE Taps pool_taps(const PoolParams& p, int dim, int64_t o) {
  return taps_inside(o, p.in[dim], p.kernel[dim], p.stride[dim], p.dilation[dim], p.pad[dim]);
}

INGOT_INLINE float pool_scale(const PoolParams& p, const Taps (&taps)[3]) {
  if (p.kind == kMaxPool) return 1.f;
  int64_t count = 1;
  INGOT_UNROLL for (int i = 0; i < 3; i++) {
    int64_t end = p.in[i] + p.pad_behind[i] - taps[i].origin;  // room from tap 0 to the end of the padded image
    count *=
        p.count_include_pad ? max_of(0, min_of(p.kernel[i], div_up(end, p.dilation[i]))) : taps[i].last - taps[i].first;
  }
  return count == 0 ? 0.f : 1.f / float(count);
}

template <class T>
inline constexpr T kLowest = std::is_signed_v<T> ? T(-1 - 127) : T(0);  // of 8 bits
template <>
inline constexpr float kLowest<float> = -__builtin_inff();

template <int NV, class T>
INGOT_INLINE void pool_channels(const PoolParams& p, const PoolWindow<T>& w, T* y, int64_t channel, int64_t lanes) {
  int64_t row = p.in[2] * p.channels, plane = p.in[1] * row;
  bool is_max = !std::is_same_v<T, float> || p.kind == kMaxPool;
  Vec<T> acc[NV];
  INGOT_UNROLL for (int v = 0; v < NV; v++) acc[v] = Vec<T>(is_max ? kLowest<T> : T(0));
  for (int64_t d = w.taps[0].first; d < w.taps[0].last; d++)
    for (int64_t h = w.taps[1].first; h < w.taps[1].last; h++)
      for (int64_t t = w.taps[2].first; t < w.taps[2].last; t++) {
        const T* x =
            w.x + d * p.dilation[0] * plane + h * p.dilation[1] * row + t * p.dilation[2] * p.channels + channel;
        INGOT_UNROLL for (int v = 0; v < NV; v++) {
          Vec<T> value = load_partial(x + v * kLanes, lanes);
          if (is_max)
            acc[v] = acc[v] > value ? acc[v] : value;
          else
            acc[v] += value;
        }
      }
  INGOT_UNROLL for (int v = 0; v < NV; v++) {
    if constexpr (std::is_same_v<T, float>) acc[v] = is_max ? acc[v] : acc[v] * w.scale;
    store_partial(y + channel + v * kLanes, acc[v], lanes);
  }
}

template <class T>
INGOT_INLINE void pool_pixel(const PoolParams& p, const PoolWindow<T>& w, T* y) {
  int64_t c = 0;
  for (; c + kPoolVectors * kLanes <= p.channels; c += kPoolVectors * kLanes)
    pool_channels<kPoolVectors>(p, w, y, c, kLanes);
  for (; c + kLanes <= p.channels; c += kLanes) pool_channels<1>(p, w, y, c, kLanes);
  if (c < p.channels) pool_channels<1>(p, w, y, c, p.channels - c);
}

template <class T>
INGOT_INLINE KernelStatus pool_body(const KernelCall* call) {
  const PoolParams& p = *reinterpret_cast<const PoolParams*>(call->param);
  int64_t row_size = p.in[2] * p.channels, plane = p.in[1] * row_size;
  T* y = static_cast<T*>(call->operand[1]);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    int64_t h = unit % p.out[1], d = unit / p.out[1] % p.out[0], n = unit / (p.out[1] * p.out[0]);
    PoolWindow<T> w;
    w.taps[0] = pool_taps(p, 0, d);
    w.taps[1] = pool_taps(p, 1, h);
    const T* row = static_cast<const T*>(call->operand[0]) + (n * p.in[0] + w.taps[0].origin) * plane +
                   w.taps[1].origin * row_size;
    for (int64_t ox = 0; ox < p.out[2]; ox++) {
      w.taps[2] = pool_taps(p, 2, ox);
      w.x = row + w.taps[2].origin * p.channels;
      w.scale = pool_scale(p, w.taps);
      pool_pixel(p, w, y + (unit * p.out[2] + ox) * p.channels);
    }
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" {
ingot::KernelStatus ingot_pool_f32(const ingot::KernelCall* call) { return ingot::kernel::pool_body<float>(call); }
ingot::KernelStatus ingot_max_pool_u8(const ingot::KernelCall* call) { return ingot::kernel::pool_body<uint8_t>(call); }
ingot::KernelStatus ingot_max_pool_i8(const ingot::KernelCall* call) { return ingot::kernel::pool_body<int8_t>(call); }
}
