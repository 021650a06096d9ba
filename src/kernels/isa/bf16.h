// vdpbf16ps: acc + the sum of two products of bf16 in each lane, the first pair in the low halves. Products are exact,
// sums f32. The instruction takes denormals, of operands and of sums, for 0. Where a file may not use it: the same in
// two steps, which keep denormals.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

using Bf16Pairs = uint8_t __attribute__((ext_vector_type(4 * kLanes)));

#if defined(__AVX512BF16__)
INGOT_INLINE VF add_products(VF acc, Bf16Pairs a, Bf16Pairs b) {
  using Pairs = __bf16 __attribute__((vector_size(64)));
  using Float = float __attribute__((vector_size(64)));
  return __builtin_bit_cast(VF,
                            __builtin_ia32_dpbf16ps_512(__builtin_bit_cast(Float, acc), __builtin_bit_cast(Pairs, a),
                                                        __builtin_bit_cast(Pairs, b)));
}
#else
INGOT_INLINE VF add_products(VF acc, Bf16Pairs a, Bf16Pairs b) {
  using Words = Vec<uint32_t>;
  const Words x = __builtin_bit_cast(Words, a), y = __builtin_bit_cast(Words, b), high = Words(0xffff0000u);
  acc += __builtin_bit_cast(VF, x & high) * __builtin_bit_cast(VF, y & high);
  return acc + __builtin_bit_cast(VF, x << 16) * __builtin_bit_cast(VF, y << 16);
}
#endif

}  // namespace ingot::kernel
