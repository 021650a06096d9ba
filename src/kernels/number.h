// Element types as C++ types, for kernels that compute with single elements and are written once for all of them.
// Arithmetic is done in Wide<T>: float for the 16-bit floats, T itself for all others.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "kernels/half.h"

namespace ingot::kernel {

template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<F16> {
  using Type = float;
};
template <>
struct WideOf<BF16> {
  using Type = float;
};
template <class T>
using Wide = typename WideOf<T>::Type;

template <class T>
INGOT_INLINE T widen(T x) {
  return x;
}
INGOT_INLINE float widen(BF16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
INGOT_INLINE float widen(F16 x) {
#if defined(__F16C__)
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
#else
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, magnitude = x.bits & 0x7fff;
  if (magnitude >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // Moving the exponent by a product is exact, also for subnormals.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, scaled));
#endif
}

// To the nearest, ties to even.
template <class T>
struct Narrow {
  __attribute__((always_inline)) static T from(T x) { return x; }
};
template <>
struct Narrow<BF16> {
  __attribute__((always_inline)) static BF16 from(float x) {
    const auto b = __builtin_bit_cast(uint32_t, x);
    if (x != x) return {static_cast<uint16_t>(b >> 16 | 0x40)};
    return {static_cast<uint16_t>((b + 0x7fff + (b >> 16 & 1)) >> 16)};
  }
};
template <>
struct Narrow<F16> {
  __attribute__((always_inline)) static F16 from(float x) {
#if defined(__F16C__)
    return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(x))};
#else
    const auto b = __builtin_bit_cast(uint32_t, x);
    const uint32_t sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};
    if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // rounds past the largest
    if (magnitude < 0x38800000) {                                                // subnormal: let an addition round
      const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
      return {static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000))};
    }
    const uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
    return {static_cast<uint16_t>(sign | rounded >> 13)};
#endif
  }
};
template <class T>
INGOT_INLINE T narrow(Wide<T> x) {
  return Narrow<T>::from(x);
}

template <class T>
inline constexpr bool kIsFloating = static_cast<Wide<T>>(0.5) != 0;

// Calls f.template operator()<T>() with the C++ type of a numeric element type (Bool as uint8_t).
template <class F>
INGOT_INLINE auto with_number_type(int64_t dtype, F f) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return f.template operator()<double>();
    case DType::F16:
      return f.template operator()<F16>();
    case DType::BF16:
      return f.template operator()<BF16>();
    case DType::I8:
      return f.template operator()<int8_t>();
    case DType::I16:
      return f.template operator()<int16_t>();
    case DType::I32:
      return f.template operator()<int32_t>();
    case DType::I64:
      return f.template operator()<int64_t>();
    case DType::U8:
    case DType::Bool:
      return f.template operator()<uint8_t>();
    case DType::U16:
      return f.template operator()<uint16_t>();
    case DType::U32:
      return f.template operator()<uint32_t>();
    case DType::U64:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<float>();
  }
}

}  // namespace ingot::kernel
