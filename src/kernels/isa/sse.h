// Instructions on 128 bits, which every build has.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

using Bytes16 = uint8_t __attribute__((ext_vector_type(16)));
using Shorts8 = int16_t __attribute__((ext_vector_type(8)));
using Ints4 = int32_t __attribute__((ext_vector_type(4)));
using Floats4 = float __attribute__((ext_vector_type(4)));

// Each pair of neighbours: u[0] i[0] + u[1] i[1] in 16 bits, where it saturates; i is signed.
INGOT_INLINE Shorts8 multiply_bytes(Bytes16 u, Bytes16 i) {
  using Char = char __attribute__((vector_size(16)));
  return __builtin_bit_cast(Shorts8,
                            __builtin_ia32_pmaddubsw128(__builtin_bit_cast(Char, u), __builtin_bit_cast(Char, i)));
}
// Each pair of neighbours: a[0] b[0] + a[1] b[1] in 32 bits.
INGOT_INLINE Ints4 multiply_shorts(Shorts8 a, Shorts8 b) {
  using Short = short __attribute__((vector_size(16)));
  return __builtin_bit_cast(Ints4,
                            __builtin_ia32_pmaddwd128(__builtin_bit_cast(Short, a), __builtin_bit_cast(Short, b)));
}
// To the nearest integer, half to even; the value must be in range.
INGOT_INLINE Ints4 nearest_int(Floats4 x) { return __builtin_bit_cast(Ints4, __builtin_ia32_cvtps2dq(x)); }
// Two vectors as one of elements half as wide, each to the nearest that fits: in every 128 bits first those of a, then
// those of b.
INGOT_INLINE Shorts8 narrow_pair(Ints4 a, Ints4 b) {
  using Int = int __attribute__((vector_size(16)));
  return __builtin_bit_cast(Shorts8,
                            __builtin_ia32_packssdw128(__builtin_bit_cast(Int, a), __builtin_bit_cast(Int, b)));
}
INGOT_INLINE Bytes16 narrow_pair(Shorts8 a, Shorts8 b, bool is_signed) {
  using Short = short __attribute__((vector_size(16)));
  const auto x = __builtin_bit_cast(Short, a), y = __builtin_bit_cast(Short, b);
  return is_signed ? __builtin_bit_cast(Bytes16, __builtin_ia32_packsswb128(x, y))
                   : __builtin_bit_cast(Bytes16, __builtin_ia32_packuswb128(x, y));
}

}  // namespace ingot::kernel
