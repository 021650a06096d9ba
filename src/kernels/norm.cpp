#include "kernels/norm.h"

#include "kernels/abi.h"
#include "kernels/vmath_f64.h"

namespace ingot::kernel {
namespace {

template <class T>
INGOT_INLINE Vec<T> larger(Vec<T> a, Vec<T> b) {
  return a < b ? b : a;
}

// body(i, lanes) for each vector of [begin, end): all whole but perhaps the last, so the loop has no partial accesses.
template <class F>
INGOT_INLINE void for_vectors(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, int64_t(kLanes));
  if (i < end) body(i, end - i);
}
#define INGOT_VECTOR_BODY [&](int64_t i, int64_t lanes) __attribute__((always_inline))

// Long sums are taken in blocks, and the blocks added in double.
constexpr int64_t kSumBlock = 4096;

// ---- softmax ----

template <class T>
INGOT_INLINE T max_of(const T* x, int64_t n) {
  const T lowest = T(-kInfinity);
  Vec<T> m0 = Vec<T>(lowest), m1 = m0, m2 = m0, m3 = m0;  // four chains hide the latency
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    m0 = larger<T>(m0, load(x + i));
    m1 = larger<T>(m1, load(x + i + kLanes));
    m2 = larger<T>(m2, load(x + i + 2 * kLanes));
    m3 = larger<T>(m3, load(x + i + 3 * kLanes));
  }
  m0 = larger<T>(larger<T>(m0, m1), larger<T>(m2, m3));
  for_vectors(i, n, INGOT_VECTOR_BODY { m0 = larger<T>(m0, load_partial(x + i, lanes, lowest)); });
  return max_lanes<T>(m0);
}

// Along contiguous elements.
template <class T>
INGOT_INLINE void softmax_row(const T* x, T* y, int64_t n, bool log) {
  const T m = max_of<T>(x, n);
  // Lanes beyond the row hold -inf: e^(-inf - m) = 0 adds nothing, and a row with m = -inf is NaN whatever they hold.
  double total = 0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = n - start < kSumBlock ? n : start + kSumBlock;
    Vec<T> sum = Vec<T>(T(0));
    for_vectors(
        start, end, INGOT_VECTOR_BODY {
          Vec<T> e = vexp_falling(load_partial(x + i, lanes, T(-kInfinity)) - m);
          sum += e;
          if (!log) store_partial(y + i, e, lanes);
        });
    total += sum_lanes<T>(sum);
  }
  const T scale = T(1.0 / total);
  const T shift = log ? vlog(Vec<T>(T(total)))[0] : T(0);
  for_vectors(
      0, n, INGOT_VECTOR_BODY {
        Vec<T> v = load_partial((log ? x : y) + i, lanes);
        store_partial<T>(y + i, log ? v - m - shift : v * scale, lanes);
      });
}

// Along `stride` for kLanes neighbouring columns, of which `lanes` are there.
template <class T>
INGOT_INLINE void softmax_columns(const T* x, T* y, int64_t n, int64_t stride, int64_t lanes, bool log) {
  Vec<T> m = Vec<T>(T(-kInfinity));
  for (int64_t i = 0; i < n; i++) m = larger<T>(m, load_partial(x + i * stride, lanes));
  Vec<T> sum = Vec<T>(T(0));
  for (int64_t start = 0; start < n; start += 64) {  // in two levels, which keeps long sums accurate
    const int64_t end = n - start < 64 ? n : start + 64;
    Vec<T> part = Vec<T>(T(0));
    for (int64_t i = start; i < end; i++) {
      Vec<T> e = vexp_falling(load_partial(x + i * stride, lanes) - m);
      part += e;
      if (!log) store_partial(y + i * stride, e, lanes);
    }
    sum += part;
  }
  const Vec<T> scale = T(1) / sum;
  const Vec<T> shift = log ? m + vlog(sum) : scale;
  for (int64_t i = 0; i < n; i++) {
    const T* from = (log ? x : y) + i * stride;
    Vec<T> v = load_partial(from, lanes);
    store_partial(y + i * stride, log ? v - shift : v * scale, lanes);
  }
}

template <class T>
INGOT_INLINE KernelStatus softmax(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const SoftmaxParams*>(call->param);
  const T* x = static_cast<const T*>(call->operand[0]);
  T* y = static_cast<T*>(call->operand[1]);
  const bool log = p.log != 0;
  const int64_t blocks = (p.inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    if (p.inner == 1) {
      softmax_row<T>(x + unit * p.n, y + unit * p.n, p.n, log);
      continue;
    }
    const int64_t first = unit % blocks * kSoftmaxColumns;
    const int64_t last = first + kSoftmaxColumns < p.inner ? first + kSoftmaxColumns : p.inner;
    const int64_t base = unit / blocks * p.n * p.inner;
    for_vectors(
        first, last, INGOT_VECTOR_BODY { softmax_columns<T>(x + base + i, y + base + i, p.n, p.inner, lanes, log); });
  }
  return kOk;
}

// ---- layer normalisation ----

struct Moments {
  double sum, squares;
};
// The sums of x - center and of its square. Two chains of each hide the latency.
template <class T>
INGOT_INLINE Moments moments(const T* x, int64_t n, T center) {
  Moments total{0, 0};
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = n - start < kSumBlock ? n : start + kSumBlock;
    const Vec<T> zero = Vec<T>(T(0));
    Vec<T> s0 = zero, s1 = zero, q0 = zero, q1 = zero;
    int64_t i = start;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      Vec<T> d0 = load(x + i) - center, d1 = load(x + i + kLanes) - center;
      s0 += d0, s1 += d1;
      q0 += d0 * d0, q1 += d1 * d1;
    }
    for_vectors(
        i, end, INGOT_VECTOR_BODY {
          Vec<T> d = load_partial(x + i, lanes, center) - center;
          s0 += d;
          q0 += d * d;
        });
    total.sum += sum_lanes<T>(s0 + s1);
    total.squares += sum_lanes<T>(q0 + q1);
  }
  return total;
}

struct Statistics {
  double mean, variance;
};
// Two passes: a first mean, then the moments about it, which also correct it. Without them the rounding of a sum of
// large values would show in every result.
template <class T>
INGOT_INLINE Statistics statistics(const T* x, int64_t n, bool rms) {
  const double count = static_cast<double>(n);
  const T first = rms ? T(0) : T(moments<T>(x, n, T(0)).sum / count);
  const Moments m = moments<T>(x, n, first);
  if (rms) return {0, m.squares / count};
  const double correction = m.sum / count;
  return {first + correction, m.squares / count - correction * correction};
}

// y = (x - mean) scale + shift for a run that shares scale and shift; mean = high + low, as T cannot hold all its bits.
template <class T>
INGOT_INLINE void affine_run(const T* x, T* y, int64_t n, T high, T low, T scale, T shift) {
  shift = shift - low * scale;
  for_vectors(
      0, n, INGOT_VECTOR_BODY { store_partial<T>(y + i, (load_partial(x + i, lanes) - high) * scale + shift, lanes); });
}
// The same with gamma and beta per column.
template <class T>
INGOT_INLINE void affine_columns(const T* x, T* y, int64_t n, T high, T low, T invstd, const T* gamma, const T* beta) {
  for_vectors(
      0, n, INGOT_VECTOR_BODY {
        Vec<T> v = (load_partial(x + i, lanes) - high) * invstd - low * invstd;
        if (gamma) v = v * load_partial(gamma + i, lanes);
        if (beta) v = v + load_partial(beta + i, lanes);
        store_partial<T>(y + i, v, lanes);
      });
}

template <class T>
INGOT_INLINE KernelStatus layernorm(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const LayerNormParams*>(call->param);
  const T* gamma = p.has_gamma ? static_cast<const T*>(call->operand[1]) : nullptr;
  const T* beta = p.has_beta ? static_cast<const T*>(call->operand[2]) : nullptr;
  for (int64_t row = call->begin; row < call->end; row++) {
    const T* x = static_cast<const T*>(call->operand[0]) + row * p.n;
    T* y = static_cast<T*>(call->operand[3]) + row * p.n;
    const Statistics s = statistics<T>(x, p.n, p.rms != 0);
    const T high = T(s.mean), low = T(s.mean - high);
    const T invstd = T(1.0 / __builtin_sqrt(s.variance + p.epsilon));
    if (p.has_mean) static_cast<T*>(call->operand[4])[row] = high;
    if (p.has_invstd) static_cast<T*>(call->operand[5])[row] = invstd;
    if (p.affine_columns) {
      affine_columns<T>(x, y, p.n, high, low, invstd, gamma, beta);
      continue;
    }
    const int64_t run = p.n / p.row_channels;
    for (int64_t r = 0; r < p.row_channels; r++) {
      const int64_t channel = (row * p.row_channels + r) % p.channels;
      const T scale = gamma ? invstd * gamma[channel] : invstd;
      affine_run<T>(x + r * run, y + r * run, run, high, low, scale, beta ? beta[channel] : T(0));
    }
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_softmax_f32(const KernelCall* call) { return softmax<float>(call); }
extern "C" KernelStatus ingot_softmax_f64(const KernelCall* call) { return softmax<double>(call); }
extern "C" KernelStatus ingot_layernorm_f32(const KernelCall* call) { return layernorm<float>(call); }
extern "C" KernelStatus ingot_layernorm_f64(const KernelCall* call) { return layernorm<double>(call); }

}  // namespace ingot::kernel
