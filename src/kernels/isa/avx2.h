// Instructions on 256 bits: the same names as in isa/sse.h.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

using Bytes32 = uint8_t __attribute__((ext_vector_type(32)));
using Shorts16 = int16_t __attribute__((ext_vector_type(16)));
using Ints8 = int32_t __attribute__((ext_vector_type(8)));
using Floats8 = float __attribute__((ext_vector_type(8)));

INGOT_INLINE Shorts16 multiply_bytes(Bytes32 u, Bytes32 i) {
  using Char = char __attribute__((vector_size(32)));
  return __builtin_bit_cast(Shorts16,
                            __builtin_ia32_pmaddubsw256(__builtin_bit_cast(Char, u), __builtin_bit_cast(Char, i)));
}
INGOT_INLINE Ints8 multiply_shorts(Shorts16 a, Shorts16 b) {
  using Short = short __attribute__((vector_size(32)));
  return __builtin_bit_cast(Ints8,
                            __builtin_ia32_pmaddwd256(__builtin_bit_cast(Short, a), __builtin_bit_cast(Short, b)));
}
INGOT_INLINE Ints8 nearest_int(Floats8 x) { return __builtin_bit_cast(Ints8, __builtin_ia32_cvtps2dq256(x)); }
INGOT_INLINE Shorts16 narrow_pair(Ints8 a, Ints8 b) {
  using Int = int __attribute__((vector_size(32)));
  return __builtin_bit_cast(Shorts16,
                            __builtin_ia32_packssdw256(__builtin_bit_cast(Int, a), __builtin_bit_cast(Int, b)));
}
INGOT_INLINE Bytes32 narrow_pair(Shorts16 a, Shorts16 b, bool is_signed) {
  using Short = short __attribute__((vector_size(32)));
  const auto x = __builtin_bit_cast(Short, a), y = __builtin_bit_cast(Short, b);
  return is_signed ? __builtin_bit_cast(Bytes32, __builtin_ia32_packsswb256(x, y))
                   : __builtin_bit_cast(Bytes32, __builtin_ia32_packuswb256(x, y));
}

#if defined(__AVXVNNI__)
// acc + the sum of four products of u8 and i8 in each lane: vpdpbusd.
INGOT_INLINE Ints8 add_products_vnni(Ints8 acc, Bytes32 u, Bytes32 i) {
  using Char = char __attribute__((vector_size(32)));
  using Int = int __attribute__((vector_size(32)));
  return __builtin_bit_cast(Ints8, __builtin_ia32_vpdpbusd256(__builtin_bit_cast(Int, acc), __builtin_bit_cast(Char, u),
                                                              __builtin_bit_cast(Char, i)));
}
#endif

#if !defined(__AVX512F__)
// A step of kI8Chained (kernels/gemm_i8_chained.cpp): the products of a vector of rows with a chain of words of 2
// columns. In assembly, since all 16 registers are in use and LLVM's order of the instructions spills.
#define INGOT_CHAIN_IN_ASSEMBLY
// Ones to multiply by. In memory where no register is left: 3 vectors have 6 accumulators beside 6 weights, and the
// other 4 registers are enough in this order of instructions only.
alignas(32) inline constexpr int16_t kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
struct Ones {
  Shorts16 value = Shorts16(int16_t(1));
  const int16_t (*memory)[16] = &kOnes;
  __attribute__((always_inline)) Ones() {
    asm("" : "+r"(memory));  // a short address, instead of one relative to the code in every instruction
  }
};
// clang-format off
#define INGOT_FIRST_WORD              \
  "vmovdqu %[x0], %[x]\n"             \
  "vpmaddubsw %[w00], %[x], %[s0]\n"  \
  "vpmaddubsw %[w01], %[x], %[s1]\n"
#define INGOT_NEXT_WORD(i)                \
  "vmovdqu %[x" #i "], %[x]\n"            \
  "vpmaddubsw %[w" #i "0], %[x], %[y]\n"  \
  "vpmaddubsw %[w" #i "1], %[x], %[x]\n"  \
  "vpaddw %[y], %[s0], %[s0]\n"           \
  "vpaddw %[x], %[s1], %[s1]\n"
#define INGOT_WIDEN                  \
  "vpmaddwd %[one], %[s0], %[s0]\n"  \
  "vpmaddwd %[one], %[s1], %[s1]\n"  \
  "vpaddd %[s0], %[c0], %[c0]\n"     \
  "vpaddd %[s1], %[c1], %[c1]"
#define INGOT_WORD(i) \
  [x##i] "m"(*reinterpret_cast<const Bytes32*>(a[i])), [w##i##0] "x"(w[i][0]), [w##i##1] "x"(w[i][1])
#define INGOT_CHAIN(text, ...)                                                                                       \
  asm(text INGOT_WIDEN                                                                                               \
      : [c0] "+x"(c[0]), [c1] "+x"(c[1]), [x] "=&x"(x), [y] "=&x"(y), [s0] "=&x"(s0), [s1] "=&x"(s1) : __VA_ARGS__)
#define INGOT_PAIR(one) INGOT_CHAIN(INGOT_FIRST_WORD INGOT_NEXT_WORD(1), INGOT_WORD(0), INGOT_WORD(1), one)
#define INGOT_TRIPLE(one) \
  INGOT_CHAIN(INGOT_FIRST_WORD INGOT_NEXT_WORD(1) INGOT_NEXT_WORD(2), INGOT_WORD(0), INGOT_WORD(1), INGOT_WORD(2), one)
// clang-format on
template <int V>
INGOT_INLINE void add_chain_in_assembly(Ints8 (&c)[2], const uint8_t* const (&a)[2], const Bytes32 (&w)[2][2],
                                        const Ones& one) {
  Shorts16 x, y, s0, s1;
  INGOT_PAIR([one] "x"(one.value));
}
template <int V>
INGOT_INLINE void add_chain_in_assembly(Ints8 (&c)[2], const uint8_t* const (&a)[3], const Bytes32 (&w)[3][2],
                                        const Ones& one) {
  Shorts16 x, y, s0, s1;
  if constexpr (V < 3)
    INGOT_TRIPLE([one] "x"(one.value));
  else
    INGOT_TRIPLE([one] "m"(*one.memory));
}
#undef INGOT_FIRST_WORD
#undef INGOT_NEXT_WORD
#undef INGOT_WIDEN
#undef INGOT_WORD
#undef INGOT_CHAIN
#undef INGOT_PAIR
#undef INGOT_TRIPLE
#endif

}  // namespace ingot::kernel
