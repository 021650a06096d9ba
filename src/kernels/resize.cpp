#include "kernels/resize.h"

#include "kernels/abi.h"
#include "kernels/element.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

struct Roi {
  double start, end;
};

double roi_at(const void* roi, int64_t dtype, int64_t i) {
  switch (static_cast<DType>(dtype)) {
    case DType::F16:
      return static_cast<double>(widen(static_cast<const F16*>(roi)[i]));
    case DType::F64:
      return static_cast<const double*>(roi)[i];
    default:
      return static_cast<double>(static_cast<const float*>(roi)[i]);
  }
}

Roi roi_of(const KernelCall* call, const ResizeParams& p, const ResizeAxis& a) {
  const void* roi = call->operand[1];
  if (a.roi < 0 || !roi) return {0, 1};
  return {roi_at(roi, p.roi_dtype, a.roi), roi_at(roi, p.roi_dtype, a.roi + p.roi_count)};
}

INGOT_INLINE bool outside(const ResizeParams& p, const ResizeAxis& a, double x) {
  return p.transform == kCropAndResize && !(x >= 0 && x <= static_cast<double>(a.in - 1));
}

// --- nearest

// The source index of output coordinate o; -1 where the extrapolation value stands.
INGOT_INLINE int64_t nearest(const ResizeParams& p, const ResizeAxis& a, Roi roi, int64_t o) {
  if (!a.resized) return o;
  const double x = resize_coordinate(a, p.transform, roi.start, roi.end, o);
  return outside(p, a, x) ? -1 : nearest_index(a, p.nearest_mode, x);
}

template <class T>
INGOT_INLINE T extrapolated(const ResizeParams& p) {
  T value{};
  with_number_type(p.dtype, [&]<class N>() {
    if constexpr (sizeof(N) <= sizeof(T)) {
      const N n = narrow<N>(static_cast<Wide<N>>(p.extrapolation));
      __builtin_memcpy(&value, &n, sizeof(N));
    }
  });
  return value;
}

// A row whose elements are single: `index` per output coordinate, or each element `repeat` times.
template <class T>
INGOT_INLINE void nearest_elements(T* out, const T* in, const int64_t* index, const ResizeAxis& a, int64_t repeat,
                                   T border) {
  if (repeat == 2) {
    for (int64_t i = 0; i < a.in; i++) out[2 * i] = out[2 * i + 1] = in[i];
  } else if (repeat > 0) {
    for (int64_t i = 0; i < a.in; i++)
      for (int64_t k = 0; k < repeat; k++) out[i * repeat + k] = in[i];
  } else {
    for (int64_t o = 0; o < a.out; o++) out[o] = index[o] < 0 ? border : in[index[o]];
  }
}

template <class T>
INGOT_INLINE void fill(T* out, int64_t n, T value) {
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

template <class T>
INGOT_INLINE void nearest_blocks(T* out, const T* in, const int64_t* index, const ResizeAxis& a, int64_t block,
                                 T border) {
  for (int64_t o = 0; o < a.out; o++) {
    if (index[o] < 0)
      fill(out + o * block, block, border);
    else
      copy_bytes(out + o * block, in + index[o] * block, block * static_cast<int64_t>(sizeof(T)));
  }
}

template <class T>
INGOT_INLINE void nearest_rows(const KernelCall* call, const ResizeParams& p) {
  const int last = static_cast<int>(p.rank) - 1;
  const ResizeAxis& inner = p.axis[last];
  auto* index = static_cast<int64_t*>(call->scratch);
  Roi roi[kMaxResizeRank];
  for (int d = 0; d <= last; d++) roi[d] = roi_of(call, p, p.axis[d]);
  for (int64_t o = 0; o < inner.out; o++) index[o] = nearest(p, inner, roi[last], o);
  const T border = extrapolated<T>(p);
  const int64_t row = inner.out * p.block;
  int64_t previous = -1;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    T* out = static_cast<T*>(call->operand[2]) + unit * row;
    int64_t source = 0, stride = 1, rest = unit;
    bool inside = true;
    for (int d = last - 1; d >= 0; d--) {
      const int64_t i = nearest(p, p.axis[d], roi[d], rest % p.axis[d].out);
      inside &= i >= 0;
      source += i * stride;
      stride *= p.axis[d].in;
      rest /= p.axis[d].out;
    }
    source = (source + rest * stride) * inner.in * p.block;
    const T* in = static_cast<const T*>(call->operand[0]) + source;
    if (!inside)
      fill(out, row, border);
    else if (source == previous)  // the row above, once more
      copy_bytes(out, out - row, row * static_cast<int64_t>(sizeof(T)));
    else if (p.block == 1)
      nearest_elements(out, in, index, inner, p.repeat, border);
    else
      nearest_blocks(out, in, index, inner, p.block, border);
    previous = inside ? source : -1;
  }
}

// --- linear and cubic

INGOT_INLINE double keys(double x, double a) {
  x = x < 0 ? -x : x;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

INGOT_INLINE double triangle(double x) {
  x = x < 0 ? -x : x;
  return x < 1 ? 1 - x : 0;
}

// Taps of output coordinate o: source indices and weights. A first index of -1 says: outside.
template <class A>
void taps_of(const ResizeParams& p, const ResizeAxis& a, Roi roi, int64_t o, int32_t* index, A* weight) {
  const double x = resize_coordinate(a, p.transform, roi.start, roi.end, o);
  if (outside(p, a, x)) {
    for (int64_t k = 0; k < a.taps; k++) index[k] = -1, weight[k] = 0;
    return;
  }
  // The tap before x is the last one strictly before it, so 0 < r <= 1.
  const double before = __builtin_ceil(x) - 1, r = x - before, stretch = p.antialias && a.scale < 1 ? a.scale : 1;
  const double first = before - static_cast<double>(a.taps / 2 - 1), last = static_cast<double>(a.in - 1);
  double sum = 0;
  for (int64_t k = 0; k < a.taps; k++) {
    const double at = first + static_cast<double>(k);
    const double distance = (static_cast<double>(k - (a.taps / 2 - 1)) - r) * stretch;
    double w = p.mode == kCubic ? keys(distance, p.cubic_a) : triangle(distance);
    if (p.exclude_outside && (at < 0 || at > last)) w = 0;
    index[k] = static_cast<int32_t>(at > 0 ? (at < last ? at : last) : 0);
    weight[k] = static_cast<A>(w);
    sum += w;
  }
  if ((p.exclude_outside || p.antialias) && sum != 0)
    for (int64_t k = 0; k < a.taps; k++) weight[k] = static_cast<A>(static_cast<double>(weight[k]) / sum);
}

// out[:] = sum_k weight[k] * in[index[k], :], rows of n elements.
template <class S, class A>
INGOT_INLINE void weighted_rows(A* out, const S* in, int64_t n, const int32_t* index, const A* weight, int64_t taps,
                                A border) {
  if (index[0] < 0) {
    for (int64_t i = 0; i < n; i++) out[i] = border;
    return;
  }
  const S *a = in + index[0] * n, *b = in + index[1] * n;
  for (int64_t i = 0; i < n; i++)
    out[i] = weight[0] * static_cast<A>(widen(a[i])) + weight[1] * static_cast<A>(widen(b[i]));
  for (int64_t k = 2; k < taps; k++) {
    const S* c = in + index[k] * n;
    for (int64_t i = 0; i < n; i++) out[i] += weight[k] * static_cast<A>(widen(c[i]));
  }
}

// The same for rows of one element, all output coordinates of an axis. inside: no coordinate is outside.
template <class A>
INGOT_INLINE void weighted_elements(A* out, const A* in, int64_t n, const int32_t* index, const A* weight, int64_t taps,
                                    A border, bool inside) {
  if (inside && taps == 2) {
    for (int64_t o = 0; o < n; o++)
      out[o] = weight[2 * o] * in[index[2 * o]] + weight[2 * o + 1] * in[index[2 * o + 1]];
    return;
  }
  for (int64_t o = 0; o < n; o++, index += taps, weight += taps) {
    A sum = weight[0] * in[index[0] < 0 ? 0 : index[0]] + weight[1] * in[index[1] < 0 ? 0 : index[1]];
    for (int64_t k = 2; k < taps; k++) sum += weight[k] * in[index[k] < 0 ? 0 : index[k]];
    out[o] = index[0] < 0 ? border : sum;
  }
}

// Rounded to even and saturated for integers.
template <class T, class A>
INGOT_INLINE T from_sum(A x) {
  if constexpr (kIsFloating<T>) {
    return narrow<T>(static_cast<Wide<T>>(x));
  } else {
    constexpr T low = T(-1) < T(0) ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0), high = T(~low);
    const A r = sizeof(A) == 4 ? static_cast<A>(__builtin_rintf(static_cast<float>(x)))
                               : static_cast<A>(__builtin_rint(static_cast<double>(x)));
    if (!(r > static_cast<A>(low))) return low;
    return r >= static_cast<A>(high) ? high : static_cast<T>(r);
  }
}

template <class T, class A>
struct Interpolation {
  const KernelCall* call;
  const ResizeParams& p;
  A border;
  A* buffer[2];
  int32_t* index[kMaxResizeRank];  // taps of dim d: index[d][o * taps + k]; of dim 0 only those of the unit at hand
  A* weight[kMaxResizeRank];
  Roi roi;  // of dim 0

  // Scratch holds the two buffers, then the tables.
  __attribute__((always_inline)) Interpolation(const KernelCall* c, const ResizeParams& params)
      : call(c), p(params), border(static_cast<A>(params.extrapolation)), roi(roi_of(c, params, params.axis[0])) {
    buffer[0] = static_cast<A*>(call->scratch);
    buffer[1] = buffer[0] + p.buffer;
    char* at = reinterpret_cast<char*>(buffer[1] + p.buffer);
    for (int d = 0; d < p.rank; d++) {
      const ResizeAxis& a = p.axis[d];
      if (!a.resized) continue;
      const int64_t entries = d == 0 ? 1 : a.out;
      weight[d] = reinterpret_cast<A*>(at);
      at += entries * a.taps * 8;
      index[d] = reinterpret_cast<int32_t*>(at);
      at += entries * a.taps * 8;
      if (d == 0) continue;
      const Roi r = roi_of(call, p, a);
      for (int64_t o = 0; o < a.out; o++) taps_of(p, a, r, o, index[d] + o * a.taps, weight[d] + o * a.taps);
    }
  }

  // One pass: dim d of [pre, in, post] resized.
  __attribute__((always_inline)) void pass(int d, A* out, const A* in, int64_t pre, int64_t post) const {
    const ResizeAxis& a = p.axis[d];
    for (int64_t q = 0; q < pre; q++, in += a.in * post) {
      if (post == 1) {
        weighted_elements(out, in, a.out, index[d], weight[d], a.taps, border, p.transform != kCropAndResize);
        out += a.out;
        continue;
      }
      for (int64_t o = 0; o < a.out; o++, out += post)
        weighted_rows(out, in, post, index[d] + o * a.taps, weight[d] + o * a.taps, a.taps, border);
    }
  }

  __attribute__((always_inline)) void unit(int64_t u) const {
    const ResizeAxis& first = p.axis[0];
    int64_t slab = 1, result = 1, passes = 0;
    for (int d = 1; d < p.rank; d++) slab *= p.axis[d].in, result *= p.axis[d].out, passes += p.axis[d].resized;
    T* out = static_cast<T*>(call->operand[2]) + u * result;
    const T* in = static_cast<const T*>(call->operand[0]) + u / first.out * first.in * slab;
    taps_of(p, first, roi, u % first.out, index[0], weight[0]);
    // The last pass writes the result itself when no conversion is due.
    auto target = [&](int64_t left, int side) {
      if constexpr (__is_same(T, A))
        if (left == 0) return out;
      return buffer[side];
    };
    int side = 0;
    A* current = target(passes, side);
    weighted_rows(current, in, slab, index[0], weight[0], first.taps, border);
    int64_t pre = 1, post = slab;
    for (int d = 1; d < p.rank; d++) {
      post /= p.axis[d].in;
      if (p.axis[d].resized) {
        side ^= 1;
        A* next = target(--passes, side);
        pass(d, next, current, pre, post);
        current = next;
      }
      pre *= p.axis[d].out;
    }
    if constexpr (!__is_same(T, A))
      for (int64_t i = 0; i < result; i++) out[i] = from_sum<T>(current[i]);
  }
};

template <class T>
struct Accumulator {
  using Type = float;
};
template <>
struct Accumulator<double> {
  using Type = double;
};
template <>
struct Accumulator<int32_t> : Accumulator<double> {};
template <>
struct Accumulator<uint32_t> : Accumulator<double> {};
template <>
struct Accumulator<int64_t> : Accumulator<double> {};
template <>
struct Accumulator<uint64_t> : Accumulator<double> {};

}  // namespace

extern "C" KernelStatus ingot_resize_nearest(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ResizeParams*>(call->param);
  with_element_size(p.size, [&]<class T>() { nearest_rows<T>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_resize(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ResizeParams*>(call->param);
  with_number_type(p.dtype, [&]<class T>() {
    const Interpolation<T, typename Accumulator<T>::Type> work(call, p);
    for (int64_t u = call->begin; u < call->end; u++) work.unit(u);
  });
  return kOk;
}

}  // namespace ingot::kernel
