#include "kernels/lrn.h"

#include "base/dtype.h"
#include "kernels/abi.h"

namespace ingot::kernel {
namespace {

template <class T>
void pixels(const KernelCall* call, const LrnParams& p) {
  const int64_t before = (p.size - 1) / 2, after = p.size / 2;
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t at = u / p.pixels * p.channels * p.pixels + u % p.pixels * p.pixel_step;
    const T* x = static_cast<const T*>(call->operand[0]) + at;
    T* y = static_cast<T*>(call->operand[1]) + at;
    for (int64_t c = 0; c < p.channels; c++) {
      const int64_t first = c > before ? c - before : 0;
      const int64_t last = c + after < p.channels - 1 ? c + after : p.channels - 1;
      double sum = 0;
      for (int64_t j = first; j <= last; j++) sum += double(x[j * p.step]) * double(x[j * p.step]);
      const double base = p.bias + p.alpha / double(p.size) * sum;
      // 0.75 is what every network uses.
      const double power = p.beta == 0.75 ? __builtin_sqrt(base * __builtin_sqrt(base)) : __builtin_pow(base, p.beta);
      y[c * p.step] = T(double(x[c * p.step]) / power);
    }
  }
}

}  // namespace

extern "C" KernelStatus ingot_lrn(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const LrnParams*>(call->param);
  if (static_cast<DType>(p.dtype) == DType::F64)
    pixels<double>(call, p);
  else
    pixels<float>(call, p);
  return kOk;
}

}  // namespace ingot::kernel
