// Vectors of the build being compiled: kernels are written once against these.
// kLanes elements of any type make a vector; wider elements simply take more registers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/isa/lanes.h"
#include "kernels/isa/masks.h"

#define INGOT_INLINE static inline __attribute__((always_inline))
// A function of which a specialised kernel keeps few instances (a tile of one height out of six): in the bitcode it
// stays a function, which the code generator inlines once it knows that it is called.
#if defined(INGOT_NATIVE)
#define INGOT_LATE [[maybe_unused]] static __attribute__((noinline))
#else
#define INGOT_LATE [[maybe_unused]] static
#endif
#define INGOT_UNROLL _Pragma("clang loop unroll(full)")

namespace ingot::kernel {

template <class T>
using Vec = T __attribute__((ext_vector_type(kLanes)));
using VF = Vec<float>;
using VI = Vec<int32_t>;
using VD = Vec<double>;

template <class T>
INGOT_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
INGOT_INLINE void store(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}
#if defined(__AVX512F__)
using LaneMask = bool __attribute__((ext_vector_type(kLanes)));
// n is less than kLanes.
INGOT_INLINE LaneMask first_lanes(int64_t n) {
  return __builtin_bit_cast(LaneMask, uint16_t((uint32_t(1) << (n < 0 ? 0 : n)) - 1));
}
#endif

// The first n elements at p, the rest `fill`: never reads past p[n-1].
template <class T>
INGOT_INLINE Vec<T> load_partial(const T* p, int64_t n, T fill = T(0)) {
  if (n >= kLanes) return load(p);
#if defined(__AVX512F__)
  return __builtin_masked_load(first_lanes(n), p, Vec<T>(fill));
#else
#if defined(INGOT_MASKED_LANES)
  if constexpr (sizeof(T) == 4) {
    const MaskedInts mask = first_lanes(n);
    const auto v = __builtin_bit_cast(Vec<T>, load_lanes(p, mask));
    if (__builtin_constant_p(fill) && fill == T(0)) return v;
    return __builtin_bit_cast(VI, mask) != 0 ? v : Vec<T>(fill);
  }
#endif
  Vec<T> v = Vec<T>(fill);
  for (int i = 0; i < kLanes; i++)
    if (i < n) v[i] = p[i];
  return v;
#endif
}
template <class T>
INGOT_INLINE void store_partial(T* p, Vec<T> v, int64_t n) {
  if (n >= kLanes) return store(p, v);
#if defined(__AVX512F__)
  const auto mask = unknown_mask(__builtin_bit_cast(uint16_t, first_lanes(n)));
  __builtin_masked_store(__builtin_bit_cast(LaneMask, mask), v, p);
#else
#if defined(INGOT_MASKED_LANES)
  if constexpr (sizeof(T) == 4) return store_lanes(p, first_lanes(n), __builtin_bit_cast(MaskedFloats, v));
#endif
  for (int i = 0; i < kLanes; i++)
    if (i < n) p[i] = v[i];
#endif
}

// f over all lanes, halves first.
template <class T, class F>
INGOT_INLINE T fold_lanes(Vec<T> v, F f) {
  auto fold = [f](auto self, auto h) {
    auto half = f(h.lo, h.hi);
    if constexpr (sizeof half == 2 * sizeof(T))
      return f(T(half[0]), T(half[1]));
    else
      return self(self, half);
  };
  return fold(fold, v);
}
template <class T>
INGOT_INLINE T sum_lanes(Vec<T> v) {
  return fold_lanes<T>(v, [](auto a, auto b) { return a + b; });
}
template <class T>
INGOT_INLINE T max_lanes(Vec<T> v) {
  return fold_lanes<T>(v, [](auto a, auto b) { return a < b ? b : a; });
}

}  // namespace ingot::kernel
