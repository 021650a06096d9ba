// Vectors of small integers and the instructions that multiply them.
#pragma once
#include <utility>

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

template <size_t... I>
INGOT_INLINE VI parts_in_order(VI words, std::index_sequence<I...>) {
  constexpr size_t kParts = kLanes / 4;
  return __builtin_shufflevector(words, words, int(I % kParts * 4 + I / kParts)...);
}
// Four vectors of numbers that fit in bytes as one vector of bytes, in order. Narrowed in pairs, 128 bits at a time,
// they lie so, in words of 4 bytes (v0.1 is word 1 of vector 0), and are then put in order:
//
//   v0.0 v1.0 v2.0 v3.0 | v0.1 v1.1 v2.1 v3.1 | ...
INGOT_INLINE Bytes as_bytes(const VI (&v)[4], bool is_signed) {
  const Bytes mixed = narrow_pair(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]), is_signed);
  return __builtin_bit_cast(Bytes,
                            parts_in_order(__builtin_bit_cast(VI, mixed), std::make_index_sequence<size_t(kLanes)>()));
}

// The zero point of row, column or channel i, of `kind` (I8Zero); 0 where there is none.
enum I8Zero : int64_t { kNoZero = 0, kOneZero = 1, kZeroPerRow = 2, kZeroPerColumn = 2 };
INGOT_INLINE int32_t zero_at(const void* zeros, int64_t kind, int64_t i, bool is_signed) {
  if (kind == kNoZero) return 0;
  const auto* z = static_cast<const uint8_t*>(zeros) + (kind == kOneZero ? 0 : i);
  return is_signed ? int32_t(int8_t(*z)) : int32_t(*z);
}

}  // namespace ingot::kernel
