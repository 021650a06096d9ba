#include "kernels/fill.h"

#include "kernels/abi.h"
#include "kernels/element.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

template <class T>
INGOT_INLINE void fill(T* out, int64_t n, T value) {
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

template <class T>
INGOT_INLINE void range(const KernelCall* call) {
  const Wide<T> start = widen(*static_cast<const T*>(call->operand[0]));
  const Wide<T> delta = widen(*static_cast<const T*>(call->operand[1]));
  T* out = static_cast<T*>(call->operand[2]);
  for (int64_t i = call->begin; i < call->end; i++)
    out[i] = narrow<T>(static_cast<Wide<T>>(start + static_cast<Wide<T>>(i) * delta));
}

template <class T>
INGOT_INLINE void trilu(const KernelCall* call, const TriluParams& p) {
  const T* in = static_cast<const T*>(call->operand[0]);
  const int64_t k = call->operand[1] ? *static_cast<const int64_t*>(call->operand[1]) : 0;
  T* out = static_cast<T*>(call->operand[2]);
  auto clamp = [&](int64_t c) { return c < 0 ? 0 : c > p.columns ? p.columns : c; };
  // k may be anything an int64 holds; past the matrix it makes no difference.
  const int64_t shift = k < -p.rows ? -p.rows : k > p.columns ? p.columns : k;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t r = unit % p.rows;
    const int64_t from = p.upper ? clamp(r + shift) : 0, to = p.upper ? p.columns : clamp(r + shift + 1);
    const T* src = in + unit * p.columns;
    T* dst = out + unit * p.columns;
    fill(dst, from, T{});
    copy_bytes(dst + from, src + from, (to - from) * p.size);
    fill(dst + to, p.columns - to, T{});
  }
}

// Truncated to an int64; what none holds becomes one that no axis has.
template <class T>
INGOT_INLINE int64_t to_index(T x) {
  if constexpr (kIsFloating<T>) {
    return x > T(-0x1p62) && x < T(0x1p62) ? static_cast<int64_t>(x) : INT64_MIN;
  } else {
    const auto i = static_cast<int64_t>(x);
    return x > T(0) && i < 0 ? INT64_MIN : i;
  }
}

template <class T, class Index>
INGOT_INLINE void one_hot(const KernelCall* call, const OneHotParams& p) {
  const T off = static_cast<const T*>(call->operand[1])[0], on = static_cast<const T*>(call->operand[1])[1];
  const Index* indices = static_cast<const Index*>(call->operand[0]);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    T* out = static_cast<T*>(call->operand[2]) + unit * p.depth * p.inner;
    fill(out, p.depth * p.inner, off);
    for (int64_t i = 0; i < p.inner; i++) {
      const int64_t d = wrap_index(to_index(widen(indices[unit * p.inner + i])), p.depth);
      if (d >= 0) out[d * p.inner + i] = on;
    }
  }
}

}  // namespace

extern "C" KernelStatus ingot_fill(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const FillParams*>(call->param);
  with_element_size(p.size, [&]<class T>() {
    T value;
    __builtin_memcpy(&value, &p.low, sizeof(T));
    fill(static_cast<T*>(call->operand[0]) + call->begin, call->end - call->begin, value);
  });
  return kOk;
}

extern "C" KernelStatus ingot_range(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RangeParams*>(call->param);
  with_number_type(p.dtype, [&]<class T>() { range<T>(call); });
  return kOk;
}

extern "C" KernelStatus ingot_eye(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const EyeParams*>(call->param);
  with_element_size(p.size, [&]<class T>() {
    T one;
    __builtin_memcpy(&one, &p.one, sizeof(T) < 8 ? sizeof(T) : 8);
    for (int64_t r = call->begin; r < call->end; r++) {
      T* row = static_cast<T*>(call->operand[0]) + r * p.columns;
      fill(row, p.columns, T{});
      if (r + p.k >= 0 && r + p.k < p.columns) row[r + p.k] = one;
    }
  });
  return kOk;
}

extern "C" KernelStatus ingot_trilu(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const TriluParams*>(call->param);
  with_element_size(p.size, [&]<class T>() { trilu<T>(call, p); });
  return kOk;
}

extern "C" KernelStatus ingot_one_hot(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const OneHotParams*>(call->param);
  with_element_size(
      p.size, [&]<class T>() { with_number_type(p.index_dtype, [&]<class Index>() { one_hot<T, Index>(call, p); }); });
  return kOk;
}

}  // namespace ingot::kernel
