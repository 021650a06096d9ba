// f16 and bf16 <-> f32: round to nearest even, NaN stays NaN, denormals are kept.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

// An element in memory.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

using VH = Vec<uint16_t>;
using VU = Vec<uint32_t>;

INGOT_INLINE VF bf16_to_f32(VH h) { return __builtin_bit_cast(VF, __builtin_convertvector(h, VU) << 16); }
INGOT_INLINE VH f32_to_bf16(VF x) {
  VU b = __builtin_bit_cast(VU, x);
  VU rounded = b + 0x7fffu + (b >> 16 & 1u);
  return __builtin_convertvector((x == x ? rounded : b | 0x400000u) >> 16, VH);
}

#if defined(__F16C__)

INGOT_INLINE VF f16_to_f32(VH h) { return __builtin_convertvector(__builtin_bit_cast(Vec<_Float16>, h), VF); }
INGOT_INLINE VH f32_to_f16(VF x) { return __builtin_bit_cast(VH, __builtin_convertvector(x, Vec<_Float16>)); }

#else

// The exponents differ by 112: shift the bits into place and multiply, which is exact for denormals too.
INGOT_INLINE VF f16_to_f32(VH h) {
  VU b = __builtin_convertvector(h, VU);
  VU magnitude = b & 0x7fffu;
  VU f = __builtin_bit_cast(VU, __builtin_bit_cast(VF, magnitude << 13) * 0x1p112f);
  f |= magnitude >= 0x7c00u ? VU(0x7f800000u) : VU(0u);  // infinity and NaN
  return __builtin_bit_cast(VF, f | (b & 0x8000u) << 16);
}
INGOT_INLINE VH f32_to_f16(VF x) {
  VU b = __builtin_bit_cast(VU, x);
  VU sign = b & 0x80000000u;
  VU a = b ^ sign;
  VU normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;  // a carry out of the mantissa is right as it is
  VU tiny = __builtin_bit_cast(VU, __builtin_bit_cast(VF, a) + 0.5f) - 0x3f000000u;  // 0.5 has ulp 2^-24
  VU r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x47800000u ? VU(0x7c00u) : r;
  r = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x1ffu) : r;
  return __builtin_convertvector(r | sign >> 16, VH);
}

#endif

}  // namespace ingot::kernel
