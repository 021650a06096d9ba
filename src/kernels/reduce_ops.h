// What reductions are made of: identities, combining two partial results, and reducing a contiguous stretch.
#pragma once
#include "kernels/reduce.h"
#include "kernels/vmath.h"

namespace ingot::kernel {

inline constexpr int kPreExp = 100;  // exp(x - shift), inside LogSumExp
inline constexpr int kChains = 4;    // independent partial results

// Not worth the code that unrolling and vectorising would make.
#define INGOT_PLAIN_LOOP _Pragma("clang loop unroll(disable) vectorize(disable)")

template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<float> {
  using type = double;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
inline constexpr bool kIsFloat = T(0.5f) != T(0);
template <class T>
inline constexpr bool kIsSigned = T(-1) < T(0);

template <class T>
INGOT_INLINE T lowest() {
  if constexpr (kIsFloat<T>)
    return -T(__builtin_inff());
  else
    return kIsSigned<T> ? T(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
}
template <class T>
INGOT_INLINE T highest() {
  if constexpr (kIsFloat<T>)
    return T(__builtin_inff());
  else
    return T(~lowest<T>());
}

template <int K, class T>
INGOT_INLINE T identity() {
  if constexpr (K == kReduceMax) return lowest<T>();
  if constexpr (K == kReduceMin) return highest<T>();
  return K == kReduceProd ? T(1) : T(0);
}

// For values and vectors alike. A NaN replaces the result and is never replaced.
template <int K, class V>
INGOT_INLINE V combine(V a, V b) {
  if constexpr (K == kReduceMax) return ((b > a) | (b != b)) ? b : a;
  if constexpr (K == kReduceMin) return ((b < a) | (b != b)) ? b : a;
  if constexpr (K == kReduceProd) return a * b;
  return a + b;
}

template <class T>
INGOT_INLINE Vec<T> exp_lanes(Vec<T> x) {
  if constexpr (sizeof(T) == 4) return vexp(x);
  INGOT_PLAIN_LOOP
  for (int i = 0; i < kLanes; i++) x[i] = __builtin_exp(x[i]);
  return x;
}

template <int P, class T>
INGOT_INLINE Vec<T> pre(Vec<T> x, Vec<T> shift) {
  if constexpr (P == kPreAbs) return x < T(0) ? -x : x;
  if constexpr (P == kPreSquare) return x * x;
  if constexpr (P == kPreExp) return exp_lanes<T>(x - shift);
  return x;
}

template <int K, class T>
INGOT_INLINE T horizontal(Vec<T> v) {
  T r = v[0];
  for (int i = 1; i < kLanes; i++) r = combine<K, T>(r, v[i]);
  return r;
}

template <int K, int P, class T>
INGOT_INLINE T reduce_block(const T* x, int64_t n, Vec<T> shift) {
  Vec<T> acc[kChains];
  for (auto& a : acc) a = Vec<T>(identity<K, T>());
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes)
    INGOT_UNROLL for (int j = 0; j < kChains; j++) acc[j] =
        combine<K>(acc[j], pre<P, T>(load(x + i + j * kLanes), shift));
  for (; i + kLanes <= n; i += kLanes) acc[0] = combine<K>(acc[0], pre<P, T>(load(x + i), shift));
  acc[0] = combine<K>(combine<K>(acc[0], acc[1]), combine<K>(acc[2], acc[3]));
  T r = horizontal<K, T>(acc[0]);
  if (i < n) {
    Vec<T> rest = pre<P, T>(load_partial(x + i, n - i), shift);
    INGOT_PLAIN_LOOP
    for (int64_t j = 0; j < n - i; j++) r = combine<K, T>(r, rest[j]);
  }
  return r;
}

}  // namespace ingot::kernel
