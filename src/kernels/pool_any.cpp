#include "kernels/pool_any.h"

#include "base/dtype.h"
#include "kernels/abi.h"
#include "kernels/vec.h"
#include "kernels/window.h"

namespace ingot::kernel {
namespace {

// The row of results a unit computes, and where its inputs start.
struct Row {
  int64_t image, channel;  // n, c
  int64_t at[2];           // the first two spatial indices of the result
};

INGOT_INLINE Row row_of(const PoolAnyParams& p, int64_t unit) {
  Row r;
  r.at[1] = unit % p.out[1];
  unit /= p.out[1];
  r.at[0] = unit % p.out[0];
  unit /= p.out[0];
  r.channel = unit % p.channels;
  r.image = unit / p.channels;
  return r;
}

// Windows [first, last) of the row whose tap t lies inside the input.
INGOT_INLINE void inside(const PoolAnyParams& p, int64_t t, int64_t& first, int64_t& last) {
  const int64_t shift = t * p.dilation[2] - p.begin[2];  // of the tap for window 0
  first = shift >= 0 ? 0 : (-shift + p.stride[2] - 1) / p.stride[2];
  const int64_t room = p.in[2] - 1 - shift;
  last = room < 0 ? 0 : room / p.stride[2] + 1;
  if (last > p.out[2]) last = p.out[2];
}

INGOT_INLINE Taps taps_of(const PoolAnyParams& p, int dim, int64_t o) {
  return taps_inside(o, p.in[dim], p.kernel[dim], p.stride[dim], p.dilation[dim], p.begin[dim]);
}

// f(offset of the tap's element for window 0, first, last) for the taps inside in all dims. Kernels may be far larger
// than the input: what is outside is not walked over.
template <class F>
INGOT_INLINE void for_taps(const PoolAnyParams& p, const Row& r, F f) {
  const Taps outer[2] = {taps_of(p, 0, r.at[0]), taps_of(p, 1, r.at[1])};
  const int64_t begin = p.out[2] > 0 ? taps_of(p, 2, p.out[2] - 1).first : 0, end = taps_of(p, 2, 0).last;
  for (int64_t a = outer[0].first; a < outer[0].last; a++)
    for (int64_t b = outer[1].first; b < outer[1].last; b++) {
      const int64_t i = outer[0].origin + a * p.dilation[0], j = outer[1].origin + b * p.dilation[1];
      for (int64_t t = begin; t < end; t++) {
        int64_t first, last;
        inside(p, t, first, last);
        f((i * p.in[1] + j) * p.in[2] + t * p.dilation[2] - p.begin[2], first, last);
      }
    }
}

// The taps of window o that an average counts.
INGOT_INLINE int64_t counted(const PoolAnyParams& p, int dim, int64_t o) {
  const int64_t padded = p.begin[dim] + p.in[dim] + p.end[dim];
  const Taps t =
      p.include_pad ? taps_inside(o, padded, p.kernel[dim], p.stride[dim], p.dilation[dim], 0) : taps_of(p, dim, o);
  return t.last - t.first;
}

template <class T>
INGOT_INLINE T lowest() {
  if constexpr (T(0.5f) != T(0))
    return -T(__builtin_inff());
  else
    return T(-1) < T(0) ? T(-128) : T(0);
}

template <class T>
INGOT_INLINE T lp_term(T x, int64_t power) {
  const T a = x < T(0) ? -x : x;
  return power == 1 ? a : power == 2 ? a * a : T(__builtin_pow(double(a), double(power)));
}

template <class T>
INGOT_INLINE void finish_average(const PoolAnyParams& p, const Row& r, T* y) {
  const int64_t outer = counted(p, 0, r.at[0]) * counted(p, 1, r.at[1]);
  for (int64_t o = 0; o < p.out[2]; o++) y[o * p.y_step] /= T(outer * counted(p, 2, o));
}

template <class T>
INGOT_INLINE void max_row(const PoolAnyParams& p, const Row& r, const T* x, T* y) {
  for (int64_t o = 0; o < p.out[2]; o++) y[o * p.y_step] = lowest<T>();
  for_taps(p, r, [&](int64_t at, int64_t first, int64_t last) {
    const T* from = x + at * p.x_step;
    const int64_t step = p.stride[2] * p.x_step;
    for (int64_t o = first; o < last; o++) {
      const T v = from[o * step];
      T& best = y[o * p.y_step];
      best = v > best || v != v ? v : best;
    }
  });
}

// The flat position of the maximum in the whole input, N and C included; the first of equal ones.
template <class T>
INGOT_INLINE void max_row_indices(const PoolAnyParams& p, const Row& r, const T* x, T* y, int64_t* indices) {
  const int64_t pixels = p.in[0] * p.in[1] * p.in[2], plane = (r.image * p.channels + r.channel) * pixels;
  for (int64_t o = 0; o < p.out[2]; o++) {
    y[o * p.y_step] = lowest<T>();
    indices[o * p.y_step] = -1;
  }
  for_taps(p, r, [&](int64_t at, int64_t first, int64_t last) {
    for (int64_t o = first; o < last; o++) {
      const int64_t pixel = at + o * p.stride[2];
      const T v = x[pixel * p.x_step];
      if (indices[o * p.y_step] >= 0 && !(v > y[o * p.y_step]) && !(v != v)) continue;
      y[o * p.y_step] = v;
      const int64_t a = pixel / (p.in[1] * p.in[2]), b = pixel / p.in[2] % p.in[1], c = pixel % p.in[2];
      indices[o * p.y_step] = plane + (p.column_major ? (c * p.in[1] + b) * p.in[0] + a : pixel);
    }
  });
}

template <class T>
INGOT_INLINE void sum_row(const PoolAnyParams& p, const Row& r, const T* x, T* y) {
  for (int64_t o = 0; o < p.out[2]; o++) y[o * p.y_step] = T(0);
  const int64_t step = p.stride[2] * p.x_step;
  for_taps(p, r, [&](int64_t at, int64_t first, int64_t last) {
    const T* from = x + at * p.x_step;
    if (p.kind == kPoolAverage)
      for (int64_t o = first; o < last; o++) y[o * p.y_step] += from[o * step];
    else
      for (int64_t o = first; o < last; o++) y[o * p.y_step] += lp_term<T>(from[o * step], p.p);
  });
  if (p.kind == kPoolAverage) return finish_average<T>(p, r, y);
  for (int64_t o = 0; o < p.out[2]; o++) {
    T& v = y[o * p.y_step];
    v = p.p == 1 ? v : p.p == 2 ? T(__builtin_sqrt(double(v))) : T(__builtin_pow(double(v), 1 / double(p.p)));
  }
}

template <class T>
__attribute__((noinline)) KernelStatus rows(const KernelCall* call, const PoolAnyParams& p) {
  auto* indices = static_cast<int64_t*>(call->operand[2]);
  const int64_t in_pixels = p.in[0] * p.in[1] * p.in[2], out_pixels = p.out[0] * p.out[1] * p.out[2];
  for (int64_t u = call->begin; u < call->end; u++) {
    const Row r = row_of(p, u);
    const T* x = static_cast<const T*>(call->operand[0]) + r.image * p.channels * in_pixels + r.channel * p.x_channel;
    const int64_t out = r.image * p.channels * out_pixels + r.channel * p.y_channel +
                        (r.at[0] * p.out[1] + r.at[1]) * p.out[2] * p.y_step;
    T* y = static_cast<T*>(call->operand[1]) + out;
    if constexpr (T(0.5f) != T(0)) {
      if (p.kind != kPoolMax) {
        sum_row<T>(p, r, x, y);
        continue;
      }
    }
    indices ? max_row_indices<T>(p, r, x, y, indices + out) : max_row<T>(p, r, x, y);
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_pool_any(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const PoolAnyParams*>(call->param);
  switch (static_cast<DType>(p.dtype)) {
    case DType::F32:
      return rows<float>(call, p);
    case DType::F64:
      return rows<double>(call, p);
    case DType::I8:
      return rows<int8_t>(call, p);
    case DType::U8:
      return rows<uint8_t>(call, p);
    default:
      return kBadValue;
  }
}

}  // namespace ingot::kernel
