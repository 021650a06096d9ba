// Vectors of small integers and the instructions that multiply them.
#pragma once
#include "kernels/isa/sse.h"
#if defined(__AVX2__)
#include "kernels/isa/avx2.h"
#endif
#if defined(__AVX512F__)
#include "kernels/isa/avx512.h"
#endif

namespace ingot::kernel {

using Bytes = uint8_t __attribute__((ext_vector_type(4 * kLanes)));
using Shorts = int16_t __attribute__((ext_vector_type(2 * kLanes)));

template <class V>
INGOT_INLINE V load_as(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
INGOT_INLINE int32_t word_at(const void* p) { return load_as<int32_t>(p); }

// acc + the sum of four products of u8 and i8 in each lane, by one instruction where this file may use it.
#if (defined(__AVX512F__) && defined(__AVX512VNNI__)) || (!defined(__AVX512F__) && defined(__AVXVNNI__))
#define INGOT_ADDS_BYTE_PRODUCTS
INGOT_INLINE VI add_products(VI acc, Bytes u, Bytes i) { return add_products_vnni(acc, u, i); }
#else
INGOT_INLINE VI add_products(VI acc, Bytes u, Bytes i) {
  using Unsigned = uint16_t __attribute__((ext_vector_type(2 * kLanes)));
  const auto halves = __builtin_bit_cast(Unsigned, u);
  const auto weights = __builtin_bit_cast(Shorts, i);
  const auto low = __builtin_bit_cast(Shorts, halves & uint16_t(255)), high = __builtin_bit_cast(Shorts, halves >> 8);
  return acc + multiply_shorts(low, Shorts(weights << 8) >> 8) + multiply_shorts(high, weights >> 8);
}
#endif

// The zero point of row, column or channel i, of `kind` (I8Zero); 0 where there is none.
enum I8Zero : int64_t { kNoZero = 0, kOneZero = 1, kZeroPerRow = 2, kZeroPerColumn = 2 };
INGOT_INLINE int32_t zero_at(const void* zeros, int64_t kind, int64_t i, bool is_signed) {
  if (kind == kNoZero) return 0;
  const auto* z = static_cast<const uint8_t*>(zeros) + (kind == kOneZero ? 0 : i);
  return is_signed ? int32_t(int8_t(*z)) : int32_t(*z);
}

}  // namespace ingot::kernel
