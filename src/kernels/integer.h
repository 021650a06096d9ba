// Vectors of small integers and the instructions that multiply them.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

using Bytes = uint8_t __attribute__((ext_vector_type(4 * kLanes)));
using Shorts = int16_t __attribute__((ext_vector_type(2 * kLanes)));
using Bytes16 = uint8_t __attribute__((ext_vector_type(16)));
using Shorts8 = int16_t __attribute__((ext_vector_type(8)));
using Ints4 = int32_t __attribute__((ext_vector_type(4)));

template <class V>
INGOT_INLINE V load_as(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
INGOT_INLINE int32_t word_at(const void* p) { return load_as<int32_t>(p); }

INGOT_INLINE Shorts8 multiply_bytes(Bytes16 u, Bytes16 i) {
  using Char = char __attribute__((vector_size(16)));
  return __builtin_bit_cast(Shorts8,
                            __builtin_ia32_pmaddubsw128(__builtin_bit_cast(Char, u), __builtin_bit_cast(Char, i)));
}
INGOT_INLINE Ints4 multiply_shorts(Shorts8 a, Shorts8 b) {
  using Short = short __attribute__((vector_size(16)));
  return __builtin_bit_cast(Ints4,
                            __builtin_ia32_pmaddwd128(__builtin_bit_cast(Short, a), __builtin_bit_cast(Short, b)));
}
#if defined(__AVX2__)
INGOT_INLINE Shorts multiply_bytes(Bytes u, Bytes i) {
  using Char = char __attribute__((vector_size(32)));
  return __builtin_bit_cast(Shorts,
                            __builtin_ia32_pmaddubsw256(__builtin_bit_cast(Char, u), __builtin_bit_cast(Char, i)));
}
INGOT_INLINE VI multiply_shorts(Shorts a, Shorts b) {
  using Short = short __attribute__((vector_size(32)));
  return __builtin_bit_cast(VI, __builtin_ia32_pmaddwd256(__builtin_bit_cast(Short, a), __builtin_bit_cast(Short, b)));
}
#endif

// acc + the sum of four products of u8 and i8 in each lane.
INGOT_INLINE VI add_products(VI acc, Bytes u, Bytes i) {
#if defined(__AVXVNNI__)
  using Char = char __attribute__((vector_size(32)));
  using Int = int __attribute__((vector_size(32)));
  return __builtin_bit_cast(VI, __builtin_ia32_vpdpbusd256(__builtin_bit_cast(Int, acc), __builtin_bit_cast(Char, u),
                                                           __builtin_bit_cast(Char, i)));
#else
  using Unsigned = uint16_t __attribute__((ext_vector_type(2 * kLanes)));
  const auto halves = __builtin_bit_cast(Unsigned, u);
  const auto weights = __builtin_bit_cast(Shorts, i);
  const auto low = __builtin_bit_cast(Shorts, halves & uint16_t(255)), high = __builtin_bit_cast(Shorts, halves >> 8);
  return acc + multiply_shorts(low, Shorts(weights << 8) >> 8) + multiply_shorts(high, weights >> 8);
#endif
}

// The zero point of row, column or channel i, of `kind` (I8Zero); 0 where there is none.
enum I8Zero : int64_t { kNoZero = 0, kOneZero = 1, kZeroPerRow = 2, kZeroPerColumn = 2 };
INGOT_INLINE int32_t zero_at(const void* zeros, int64_t kind, int64_t i, bool is_signed) {
  if (kind == kNoZero) return 0;
  const auto* z = static_cast<const uint8_t*>(zeros) + (kind == kOneZero ? 0 : i);
  return is_signed ? int32_t(int8_t(*z)) : int32_t(*z);
}

}  // namespace ingot::kernel
