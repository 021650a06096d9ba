#include "kernels/grid_sample.h"

#include "kernels/abi.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

// x mirrored into [low, high].
INGOT_INLINE double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  if (x >= low && x <= high) return x;
  const bool below = x < low;
  const double distance = below ? low - x : x - high, times = __builtin_floor(distance / range);
  const double rest = distance - times * range;
  const bool even = times - 2 * __builtin_floor(times / 2) == 0;
  return even == below ? low + rest : high - rest;
}

INGOT_INLINE double clamped(double x, double low, double high) { return x > low ? (x < high ? x : high) : low; }

struct Taps {
  int64_t index[4];  // -1: outside, reads 0
  double weight[4];
};

INGOT_INLINE Taps taps_at(double g, int64_t n, const GridSampleParams& p) {
  const double size = static_cast<double>(n), last = size - 1;
  const double low = p.align_corners ? 0 : -0.5, high = p.align_corners ? last : size - 0.5;
  double x = p.align_corners ? (g + 1) / 2 * last : ((g + 1) * size - 1) / 2;
  if (p.taps == 1) x = __builtin_rint(x);
  if (p.padding == kSampleBorder) x = clamped(x, 0, last);
  if (p.padding == kSampleReflection) x = reflect(x, low, high);
  Taps t;
  const double before = p.taps == 1 ? __builtin_rint(x) : __builtin_floor(x), r = x - before;
  constexpr double a = -0.75;
  switch (p.taps) {
    case 1:
      t.weight[0] = 1;
      break;
    case 2:
      t.weight[0] = 1 - r;
      t.weight[1] = r;
      break;
    default:
      t.weight[0] = ((a * (r + 1) - 5 * a) * (r + 1) + 8 * a) * (r + 1) - 4 * a;
      t.weight[1] = ((a + 2) * r - (a + 3)) * r * r + 1;
      t.weight[2] = ((a + 2) * (1 - r) - (a + 3)) * (1 - r) * (1 - r) + 1;
      t.weight[3] = ((a * (2 - r) - 5 * a) * (2 - r) + 8 * a) * (2 - r) - 4 * a;
  }
  for (int64_t k = 0; k < p.taps; k++) {
    double i = before + static_cast<double>(k) - (p.taps == 4 ? 1 : 0);
    if (p.padding == kSampleReflection) i = __builtin_trunc(reflect(i, low, high));
    if (p.padding != kSampleZeros) i = clamped(i, 0, last);
    t.index[k] = i >= 0 && i <= last ? static_cast<int64_t>(i) : -1;
  }
  return t;
}

template <class T, class A>
INGOT_INLINE void sample(const KernelCall* call, const GridSampleParams& p, const Taps* taps, int64_t unit) {
  const int64_t batch = unit / p.positions, position = unit % p.positions;
  int64_t plane = 1, combinations = 1;
  for (int64_t d = 0; d < p.rank; d++) plane *= p.in[d], combinations *= p.taps;
  const T* in = static_cast<const T*>(call->operand[0]) + batch * p.channels * plane;
  T* out = static_cast<T*>(call->operand[2]) + batch * p.channels * p.positions + position;
  int64_t offset[64];
  A weight[64];
  int64_t used = 0;
  for (int64_t c = 0; c < combinations; c++) {
    int64_t at = 0, rest = c, stride = 1;
    double w = 1;
    bool inside = true;
    for (int64_t d = p.rank - 1; d >= 0; d--) {
      const int64_t i = taps[d].index[rest % p.taps];
      w *= taps[d].weight[rest % p.taps];
      inside &= i >= 0;
      at += i * stride;
      stride *= p.in[d];
      rest /= p.taps;
    }
    if (!inside) continue;
    offset[used] = at;
    weight[used++] = static_cast<A>(w);
  }
  for (int64_t channel = 0; channel < p.channels; channel++) {
    A sum = 0;
    for (int64_t c = 0; c < used; c++) sum += weight[c] * static_cast<A>(widen(in[channel * plane + offset[c]]));
    out[channel * p.positions] = narrow<T>(static_cast<Wide<T>>(sum));
  }
}

double grid_at(const void* grid, int64_t dtype, int64_t i) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return static_cast<const double*>(grid)[i];
    case DType::F16:
      return static_cast<double>(widen(static_cast<const F16*>(grid)[i]));
    case DType::BF16:
      return static_cast<double>(widen(static_cast<const BF16*>(grid)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(grid)[i]);
  }
}

}  // namespace

extern "C" KernelStatus ingot_grid_sample(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const GridSampleParams*>(call->param);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    Taps taps[kMaxSampleRank];
    for (int64_t d = 0; d < p.rank; d++)
      taps[d] = taps_at(grid_at(call->operand[1], p.grid_dtype, unit * p.rank + p.rank - 1 - d), p.in[d], p);
    switch (static_cast<DType>(p.dtype)) {
      case DType::F64:
        sample<double, double>(call, p, taps, unit);
        break;
      case DType::F16:
        sample<F16, float>(call, p, taps, unit);
        break;
      case DType::BF16:
        sample<BF16, float>(call, p, taps, unit);
        break;
      default:
        sample<float, float>(call, p, taps, unit);
        break;
    }
  }
  return kOk;
}

}  // namespace ingot::kernel
