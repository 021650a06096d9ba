#include "kernels/norm_rows.h"

#include "base/dtype.h"
#include "kernels/abi.h"
#include "kernels/vec.h"

namespace ingot::kernel {
namespace {

constexpr int kChains = 4;
constexpr int64_t kBlock = 4096;  // elements summed in T before going to double

// sum (x - shift) or sum (x - shift)^2
template <bool Square, class T>
INGOT_INLINE double row_sum(const T* x, int64_t n, T shift) {
  double total = 0;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t end = n - start > kBlock ? start + kBlock : n;
    Vec<T> acc[kChains];
    for (auto& a : acc) a = Vec<T>(T(0));
    int64_t i = start;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes) INGOT_UNROLL for (int j = 0; j < kChains; j++) {
        const Vec<T> d = load(x + i + j * kLanes) - shift;
        acc[j] += Square ? d * d : d;
      }
    const Vec<T> sum = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    T s = 0;
    for (int l = 0; l < kLanes; l++) s += sum[l];
    for (; i < end; i++) {
      const T d = x[i] - shift;
      s += Square ? d * d : d;
    }
    total += double(s);
  }
  return total;
}

// y = (x - mean) * factor * scale + bias with scale and bias fixed over the stretch, or one per element.
template <class T>
INGOT_INLINE void write(T* y, const T* x, int64_t n, T mean, T factor, T bias) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store<T>(y + i, (load(x + i) - mean) * factor + bias);
  for (; i < n; i++) y[i] = (x[i] - mean) * factor + bias;
}
template <class T>
INGOT_INLINE void write(T* y, const T* x, int64_t n, T mean, T factor, const T* scale, const T* bias) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec<T> v = (load(x + i) - mean) * factor;
    if (scale) v *= load(scale + i);
    if (bias) v += load(bias + i);
    store<T>(y + i, v);
  }
  for (; i < n; i++) {
    T v = (x[i] - mean) * factor;
    if (scale) v *= scale[i];
    if (bias) v += bias[i];
    y[i] = v;
  }
}

template <class T>
__attribute__((noinline)) KernelStatus rows(const KernelCall* call, const NormRowsParams& p) {
  const T *scale = static_cast<const T*>(call->operand[1]), *bias = static_cast<const T*>(call->operand[2]);
  auto *means = static_cast<float*>(call->operand[4]), *inverses = static_cast<float*>(call->operand[5]);
  for (int64_t r = call->begin; r < call->end; r++) {
    const T* x = static_cast<const T*>(call->operand[0]) + r * p.cols;
    T* y = static_cast<T*>(call->operand[3]) + r * p.cols;
    const T mean = p.center ? T(row_sum<false, T>(x, p.cols, T(0)) / double(p.cols)) : T(0);
    const double inverse = 1 / __builtin_sqrt(row_sum<true, T>(x, p.cols, mean) / double(p.cols) + p.epsilon);
    if (means) means[r] = float(mean);
    if (inverses) inverses[r] = float(inverse);
    const int64_t first = r % p.groups * p.group_step;
    if (p.inner == 1 && p.column_step == 1) {
      write<T>(y, x, p.cols, mean, T(inverse), scale ? scale + first : scale, bias ? bias + first : bias);
      continue;
    }
    const int64_t stretch = p.column_step ? p.inner : p.cols;
    for (int64_t c = 0; c < p.cols; c += stretch) {
      const int64_t s = first + c / stretch * p.column_step;
      write<T>(y + c, x + c, stretch, mean, T(inverse) * (scale ? scale[s] : T(1)), bias ? bias[s] : T(0));
    }
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_norm_rows(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const NormRowsParams*>(call->param);
  if (static_cast<DType>(p.dtype) == DType::F64) return rows<double>(call, p);
  return rows<float>(call, p);
}

}  // namespace ingot::kernel
