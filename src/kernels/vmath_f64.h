// Vector mathematics with double inside: sin, cos and pow of floats, and all functions of doubles.
//
// sin, cos and pow lose bits where single precision is reduced or scaled: sin x needs x - n pi/2 to far more bits
// than x has, x^y = 2^(y log2 x) needs log2 x to 8 bits more than the result. In double both are simple, so these
// convert, compute, and round once. Functions that models rarely use, and those of doubles, call libm lane by lane.
#pragma once
#include "kernels/vmath.h"

namespace ingot::kernel {

using VL = Vec<int64_t>;

inline constexpr double kRoundMagic64 = 0x1.8p52;  // as kRoundMagic, for doubles
inline constexpr int64_t kRoundMagic64Bits = 0x4338000000000000;
inline constexpr int64_t kOneBits64 = 0x3ff0000000000000;

INGOT_INLINE VL vbits(VD x) { return __builtin_bit_cast(VL, x); }
INGOT_INLINE VD vdouble(VL x) { return __builtin_bit_cast(VD, x); }
INGOT_INLINE VD widen(VF x) { return __builtin_convertvector(x, VD); }
INGOT_INLINE VF narrow(VD x) { return __builtin_convertvector(x, VF); }

#define INGOT_LANEWISE(name, V, f)                   \
  INGOT_INLINE V name(V x) {                         \
    V y;                                             \
    for (int i = 0; i < kLanes; i++) y[i] = f(x[i]); \
    return y;                                        \
  }
INGOT_LANEWISE(vsin_libm, VF, __builtin_sinf)
INGOT_LANEWISE(vcos_libm, VF, __builtin_cosf)
INGOT_LANEWISE(vtan, VF, __builtin_tanf)
INGOT_LANEWISE(vasin, VF, __builtin_asinf)
INGOT_LANEWISE(vacos, VF, __builtin_acosf)
INGOT_LANEWISE(vatan, VF, __builtin_atanf)
INGOT_LANEWISE(vsinh, VF, __builtin_sinhf)
INGOT_LANEWISE(vcosh, VF, __builtin_coshf)
INGOT_LANEWISE(vasinh, VF, __builtin_asinhf)
INGOT_LANEWISE(vacosh, VF, __builtin_acoshf)
INGOT_LANEWISE(vatanh, VF, __builtin_atanhf)
INGOT_LANEWISE(vexp, VD, __builtin_exp)
INGOT_LANEWISE(vlog, VD, __builtin_log)
INGOT_LANEWISE(vlog1p, VD, __builtin_log1p)
INGOT_LANEWISE(vexpm1, VD, __builtin_expm1)
INGOT_LANEWISE(verf, VD, __builtin_erf)
INGOT_LANEWISE(verfc, VD, __builtin_erfc)
INGOT_LANEWISE(vsin, VD, __builtin_sin)
INGOT_LANEWISE(vcos, VD, __builtin_cos)
INGOT_LANEWISE(vtan, VD, __builtin_tan)
INGOT_LANEWISE(vasin, VD, __builtin_asin)
INGOT_LANEWISE(vacos, VD, __builtin_acos)
INGOT_LANEWISE(vatan, VD, __builtin_atan)
INGOT_LANEWISE(vsinh, VD, __builtin_sinh)
INGOT_LANEWISE(vcosh, VD, __builtin_cosh)
INGOT_LANEWISE(vtanh, VD, __builtin_tanh)
INGOT_LANEWISE(vasinh, VD, __builtin_asinh)
INGOT_LANEWISE(vacosh, VD, __builtin_acosh)
INGOT_LANEWISE(vatanh, VD, __builtin_atanh)
#undef INGOT_LANEWISE

INGOT_INLINE VD vpow(VD x, VD y) {
  VD z;
  for (int i = 0; i < kLanes; i++) z[i] = __builtin_pow(x[i], y[i]);
  return z;
}
INGOT_INLINE VD vexp_falling(VD x) { return vexp(x); }
INGOT_INLINE VD vsilu(VD x) { return x / (1.0 + vexp(-x)); }
INGOT_INLINE VD vsigmoid(VD x) {
  VD e = vexp(-__builtin_elementwise_abs(x));
  return (x < 0.0 ? e : VD(1.0)) / (1.0 + e);
}
INGOT_INLINE VD vsoftplus(VD x) { return (0.0 > x ? VD(0.0) : x) + vlog1p(vexp(-__builtin_elementwise_abs(x))); }
INGOT_INLINE VD vmish(VD x) { return x * vtanh(vsoftplus(x)); }
INGOT_INLINE VD vgelu_erf(VD x) { return 0.5 * x * verfc(x * -0.70710678118654752440); }
INGOT_INLINE VD vgelu_tanh(VD x) { return x / (1.0 + vexp(x * (x * x * -0.071354816272600242 - 1.5957691216057308))); }

// sin or cos (quadrant 1) of a float: x = n pi/2 + r, |r| <= pi/4, then the Taylor polynomial of sin r or cos r
// that n asks for. pi/2 is split so that n times its first part is exact for |x| <= 1e8.
INGOT_INLINE VF vsin_quadrant(VF x, int64_t quadrant) {
  VD d = widen(x);
  VD t = d * 0.63661977236758134308 + kRoundMagic64;
  VD n = t - kRoundMagic64;
  VD r = d - n * 1.57079631090164184570;
  r = r - n * 1.58932547735281966916e-8;
  VD u = r * r;
  VD s = vpoly(u, {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800});
  s = r * (u * s + 1.0);
  VD c = vpoly(u, {1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800});
  VL q = vbits(t) + quadrant;
  VD y = (q & 1) != 0 ? c : s;
  return narrow(vdouble(vbits(y) ^ (q << 62 & INT64_MIN)));
}
// Lane by lane: what lies in other lanes, which may be no part of the tensor, changes no result.
INGOT_INLINE VF vsin(VF x) {
  const VI far = __builtin_elementwise_abs(x) > 1e8f;
  const VF near = vsin_quadrant(x, 0);
  return __builtin_reduce_or(far) ? (far ? vsin_libm(x) : near) : near;
}
INGOT_INLINE VF vcos(VF x) {
  const VI far = __builtin_elementwise_abs(x) > 1e8f;
  const VF near = vsin_quadrant(x, 1);
  return __builtin_reduce_or(far) ? (far ? vcos_libm(x) : near) : near;
}

// log2 of a finite x > 0 converted from float (so never a denormal double): x = 2^e m, m in [sqrt(1/2), sqrt 2),
// ln m = 2 (s + s^3/3 + s^5/5 + ...), s = (m-1)/(m+1).
INGOT_INLINE VD vlog2_wide(VD x) {
  VL e = (vbits(x) - 0x3fe6a09e667f3bcd) >> 52;
  VD m = vdouble(vbits(x) - (e << 52));
  VD s = (m - 1.0) / (m + 1.0);
  VD p = vpoly(s * s, {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15});
  VD n = vdouble(e + kRoundMagic64Bits) - kRoundMagic64;
  return n + s * p * 2.8853900817779268147;
}
// 2^z, |z| <= 1000
INGOT_INLINE VD vexp2_wide(VD z) {
  VD t = z + kRoundMagic64;
  VD r = (z - (t - kRoundMagic64)) * 0.69314718055994530942;
  VD p = vpoly(r, {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880});
  return p * vdouble((vbits(t) << 52) + kOneBits64);
}

// x^y as C's powf defines it: x^0 = 1^y = 1 even for NaN, (-1)^(+-inf) = 1, a negative x takes its sign from odd y
// and is NaN for y that is no integer.
INGOT_INLINE VF vpow(VF x, VF y) {
  VF a = __builtin_elementwise_abs(x);
  VD l = vlog2_wide(widen(a));
  l = widen(a) < __builtin_inf() ? l : widen(a);
  l = widen(a) == 0.0 ? VD(-__builtin_inf()) : l;
  VD z = l == 0.0 ? VD(0.0) : widen(y) * l;
  z = 200.0 < z ? VD(200.0) : z;
  z = -200.0 > z ? VD(-200.0) : z;
  VF r = narrow(vexp2_wide(z));
  VI integer = __builtin_elementwise_trunc(y) == y;
  VI odd = integer & (__builtin_elementwise_trunc(y * 0.5f) != y * 0.5f);
  r = vfloat(vbits(r) ^ (vbits(x) & odd & INT32_MIN));
  r = ((x < 0.0f) & (a < kInfinity) & ~integer) ? VF(__builtin_nanf("")) : r;
  return y == 0.0f ? VF(1.0f) : r;
}

}  // namespace ingot::kernel
