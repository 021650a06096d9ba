#include "kernels/matmul_any.h"

#include "base/dtype.h"
#include "kernels/abi.h"
#include "kernels/vec.h"

namespace ingot::kernel {
namespace {

constexpr int kVectors = 4;

// NV vectors of neighbouring columns, rows of B contiguous.
template <class T, int NV>
INGOT_INLINE void columns(const MatmulAnyParams& p, const T* a, const T* b, T* c) {
  Vec<T> acc[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) acc[j] = Vec<T>(T(0));
  for (int64_t k = 0; k < p.k; k++) {
    const Vec<T> x = Vec<T>(a[k * p.a_col]);
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[j] += x * load(b + k * p.b_row + j * kLanes);
  }
  INGOT_UNROLL for (int j = 0; j < NV; j++) store(c + j * kLanes, acc[j]);
}

template <class T>
INGOT_INLINE void row(const MatmulAnyParams& p, const T* a, const T* b, T* c) {
  int64_t n = 0;
  if (p.b_col == 1) {
    for (; n + kVectors * kLanes <= p.n; n += kVectors * kLanes) columns<T, kVectors>(p, a, b + n, c + n);
    for (; n + kLanes <= p.n; n += kLanes) columns<T, 1>(p, a, b + n, c + n);
  }
  for (; n < p.n; n++) {
    T sum = 0;
    for (int64_t k = 0; k < p.k; k++) sum += a[k * p.a_col] * b[k * p.b_row + n * p.b_col];
    c[n] = sum;
  }
}

template <class T>
__attribute__((noinline)) KernelStatus rows(const KernelCall* call, const MatmulAnyParams& p) {
  const T *a = static_cast<const T*>(call->operand[0]), *b = static_cast<const T*>(call->operand[1]);
  T* c = static_cast<T*>(call->operand[2]);
  for (int64_t u = call->begin; u < call->end; u++) {
    int64_t batch = u / p.m, a_at = u % p.m * p.a_row, b_at = 0;
    for (int d = 2; d >= 0; d--) {
      const int64_t index = batch % p.batch[d];
      a_at += index * p.a_batch[d];
      b_at += index * p.b_batch[d];
      batch /= p.batch[d];
    }
    row<T>(p, a + a_at, b + b_at, c + u * p.n);
  }
  return kOk;
}

}  // namespace

// Products and sums of signed integers are the same bits as those of unsigned ones, and these may wrap.
extern "C" KernelStatus ingot_matmul_any(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const MatmulAnyParams*>(call->param);
  switch (static_cast<DType>(p.dtype)) {
    case DType::F64:
      return rows<double>(call, p);
    case DType::I32:
    case DType::U32:
      return rows<uint32_t>(call, p);
    case DType::I64:
    case DType::U64:
      return rows<uint64_t>(call, p);
    default:
      return kBadValue;
  }
}

}  // namespace ingot::kernel
