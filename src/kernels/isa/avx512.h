// Instructions on 512 bits: the same names as in isa/sse.h.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

using Bytes64 = uint8_t __attribute__((ext_vector_type(64)));
using Shorts32 = int16_t __attribute__((ext_vector_type(32)));
using Ints16 = int32_t __attribute__((ext_vector_type(16)));
using Floats16 = float __attribute__((ext_vector_type(16)));

INGOT_INLINE Shorts32 multiply_bytes(Bytes64 u, Bytes64 i) {
  using Char = char __attribute__((vector_size(64)));
  return __builtin_bit_cast(Shorts32,
                            __builtin_ia32_pmaddubsw512(__builtin_bit_cast(Char, u), __builtin_bit_cast(Char, i)));
}
INGOT_INLINE Ints16 multiply_shorts(Shorts32 a, Shorts32 b) {
  using Short = short __attribute__((vector_size(64)));
  return __builtin_bit_cast(Ints16,
                            __builtin_ia32_pmaddwd512(__builtin_bit_cast(Short, a), __builtin_bit_cast(Short, b)));
}
INGOT_INLINE Ints16 nearest_int(Floats16 x) {
  using Int = int __attribute__((vector_size(64)));
  constexpr int kAsRounded = 4;  // by the current rounding mode
  return __builtin_bit_cast(Ints16, __builtin_ia32_cvtps2dq512_mask(x, Int{}, uint16_t(-1), kAsRounded));
}
INGOT_INLINE Shorts32 narrow_pair(Ints16 a, Ints16 b) {
  using Int = int __attribute__((vector_size(64)));
  return __builtin_bit_cast(Shorts32,
                            __builtin_ia32_packssdw512(__builtin_bit_cast(Int, a), __builtin_bit_cast(Int, b)));
}
INGOT_INLINE Bytes64 narrow_pair(Shorts32 a, Shorts32 b, bool is_signed) {
  using Short = short __attribute__((vector_size(64)));
  const auto x = __builtin_bit_cast(Short, a), y = __builtin_bit_cast(Short, b);
  return is_signed ? __builtin_bit_cast(Bytes64, __builtin_ia32_packsswb512(x, y))
                   : __builtin_bit_cast(Bytes64, __builtin_ia32_packuswb512(x, y));
}

#if defined(__AVX512VNNI__)
INGOT_INLINE Ints16 add_products_vnni(Ints16 acc, Bytes64 u, Bytes64 i) {
  using Char = char __attribute__((vector_size(64)));
  using Int = int __attribute__((vector_size(64)));
  return __builtin_bit_cast(Ints16,
                            __builtin_ia32_vpdpbusd512(__builtin_bit_cast(Int, acc), __builtin_bit_cast(Char, u),
                                                       __builtin_bit_cast(Char, i)));
}
#endif

}  // namespace ingot::kernel
