#include "kernels/det.h"

#include "kernels/number.h"

namespace ingot::kernel {
namespace {

double determinant(double* a, int64_t n) {
  double det = 1;
  for (int64_t k = 0; k < n; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; i++)
      if (__builtin_fabs(a[i * n + k]) > __builtin_fabs(a[pivot * n + k])) pivot = i;
    if (a[pivot * n + k] == 0) return 0;
    if (pivot != k) {
      det = -det;
      for (int64_t j = k; j < n; j++) {
        const double t = a[k * n + j];
        a[k * n + j] = a[pivot * n + j];
        a[pivot * n + j] = t;
      }
    }
    det *= a[k * n + k];
    for (int64_t i = k + 1; i < n; i++) {
      const double f = a[i * n + k] / a[k * n + k];
      for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
    }
  }
  return det;
}

template <class T>
void matrices(const KernelCall* call, int64_t n) {
  auto* scratch = static_cast<double*>(call->scratch);
  for (int64_t u = call->begin; u < call->end; u++) {
    const T* in = static_cast<const T*>(call->operand[0]) + u * n * n;
    for (int64_t i = 0; i < n * n; i++) scratch[i] = double(widen(in[i]));
    static_cast<T*>(call->operand[1])[u] = narrow<T>(static_cast<Wide<T>>(determinant(scratch, n)));
  }
}

}  // namespace

extern "C" KernelStatus ingot_det(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const DetParams*>(call->param);
  with_number_type(p.dtype, [&]<class T>() {
    if constexpr (kIsFloating<T>) matrices<T>(call, p.n);
  });
  return kOk;
}

}  // namespace ingot::kernel
