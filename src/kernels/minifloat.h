// Scalars of the types below a byte-sized integer or a half: f8, f4, e8m0, and integers of 2 and 4 bits, two or four to
// a byte, the first in the low bits. One description of a float format serves reading and writing:
//   value = (-1)^s 2^(e - bias) 1.m,  or  (-1)^s 2^(1 - bias) 0.m  for e = 0
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "kernels/vec.h"

namespace ingot::kernel {

// What the codes at the top mean. Ieee: infinity and NaNs. Fn: only all ones is NaN. Fnuz: minus zero is NaN, nothing
// else is special. Finite: nothing is.
enum class Specials { Ieee, Fn, Fnuz, Finite };

struct FloatFormat {
  int exponent, mantissa, bias;
  Specials specials;
};

INGOT_INLINE FloatFormat float_format(DType t) {
  switch (t) {
    case DType::F16:
      return {5, 10, 15, Specials::Ieee};
    case DType::BF16:
      return {8, 7, 127, Specials::Ieee};
    case DType::F8E4M3FN:
      return {4, 3, 7, Specials::Fn};
    case DType::F8E4M3FNUZ:
      return {4, 3, 8, Specials::Fnuz};
    case DType::F8E5M2:
      return {5, 2, 15, Specials::Ieee};
    case DType::F8E5M2FNUZ:
      return {5, 2, 16, Specials::Fnuz};
    default:
      return {2, 1, 1, Specials::Finite};  // F4E2M1
  }
}

INGOT_INLINE double power_of_two(int e) { return __builtin_bit_cast(double, uint64_t(e + 1023) << 52); }

INGOT_INLINE double decode_float(uint32_t code, const FloatFormat& f) {
  const uint32_t top = (1u << f.exponent) - 1, ones = (1u << f.mantissa) - 1,
                 sign_bit = 1u << (f.exponent + f.mantissa);
  const uint32_t e = code >> f.mantissa & top, m = code & ones;
  if (f.specials == Specials::Fnuz && code == sign_bit) return __builtin_nan("");
  if (f.specials == Specials::Ieee && e == top && m) return __builtin_nan("");
  if (f.specials == Specials::Fn && e == top && m == ones) return __builtin_nan("");
  double v = e ? power_of_two(int(e) - f.bias) * (1 + double(m) / (ones + 1))
               : power_of_two(1 - f.bias) * (double(m) / (ones + 1));
  if (f.specials == Specials::Ieee && e == top) v = __builtin_inf();
  return code & sign_bit ? -v : v;
}

// The largest finite code, without sign.
INGOT_INLINE uint32_t largest_code(const FloatFormat& f) {
  const uint32_t all = (1u << (f.exponent + f.mantissa)) - 1;
  if (f.specials == Specials::Ieee) return all - (1u << f.mantissa);
  return f.specials == Specials::Fn ? all - 1 : all;
}

// Rounds to nearest even. Beyond the largest value: that value if `saturate`, otherwise infinity, or NaN without one.
INGOT_INLINE uint32_t encode_float(double x, const FloatFormat& f, bool saturate) {
  const uint32_t sign = __builtin_signbit(x) ? 1u << (f.exponent + f.mantissa) : 0, largest = largest_code(f);
  const uint32_t top = ((1u << f.exponent) - 1) << f.mantissa, quiet = top | 1u << (f.mantissa - 1);
  const uint32_t nan = f.specials == Specials::Fnuz ? 1u << (f.exponent + f.mantissa)
                       : f.specials == Specials::Fn ? largest + 1
                                                    : quiet;
  if (x != x) {  // without a NaN: minus zero, which is the NaN of Fnuz
    const bool unsigned_nan = f.specials == Specials::Fnuz || f.specials == Specials::Finite;
    return unsigned_nan ? 1u << (f.exponent + f.mantissa) : sign | nan;
  }
  const double a = __builtin_fabs(x);
  int e = int(__builtin_bit_cast(uint64_t, a) >> 52) - 1023;
  if (e < 1 - f.bias) e = 1 - f.bias;
  uint32_t code = largest + 1;
  if (a <= 2 * decode_float(largest, f)) {  // in units of the last place; carries move into the exponent by themselves
    const auto units = uint32_t(__builtin_rint(a * power_of_two(f.mantissa - e)));
    code = units + (uint32_t(e + f.bias - 1) << f.mantissa);
  }
  if (code > largest) {
    if (saturate || f.specials == Specials::Finite) return sign | largest;
    if (f.specials == Specials::Ieee) return sign | top;
    return f.specials == Specials::Fnuz ? nan : sign | nan;
  }
  return code == 0 && f.specials == Specials::Fnuz ? 0 : sign | code;
}

enum RoundE8m0 : int64_t { kRoundUp, kRoundDown, kRoundNearest };

// 2^(code - 127); 255 is NaN.
INGOT_INLINE double decode_e8m0(uint32_t code) {
  return code == 255 ? __builtin_nan("") : power_of_two(int(code) - 127);
}
INGOT_INLINE uint32_t encode_e8m0(double x, int64_t round, bool saturate) {
  if (x != x) return 255;
  const uint64_t b = __builtin_bit_cast(uint64_t, x) & ~(uint64_t(1) << 63), fraction = b << 12;
  int64_t code = int64_t(b >> 52) - 1023 + 127;
  if (round == kRoundUp ? fraction != 0 : round == kRoundNearest && fraction >> 63) code++;
  if (code < 0) return saturate ? 0 : 255;
  if (code > 254) return saturate ? 254 : 255;
  return uint32_t(code);
}

}  // namespace ingot::kernel
