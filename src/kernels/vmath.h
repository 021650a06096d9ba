// Vector mathematics in single precision: branch-free, right for every float, the same source in every build.
// What needs double inside (sin, cos, pow), the double-precision versions and the rare functions are in vmath_f64.h.
//
// Largest error in ulp over every 251st float and all special values (tests/kernels/vmath_test.cpp; INGOT_EXHAUSTIVE=1
// takes all 2^32), x86-64-v3 / v2: exp 1.55 / 1.40, log 0.85 / 0.87, erf 1.64 / 1.90, tanh 2.48 / 2.48.
//
// No FMA may be assumed: x86-64-v2 has none, and elsewhere the compiler contracts a*b+c as it likes. So every
// argument reduction uses constants with enough trailing zeros for its products to be exact in plain float
// arithmetic, and no step relies on a*b being rounded before it is added.
//
// Clamps are written `lo > x ? lo : x`: one instruction that returns x when x is NaN.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

INGOT_INLINE VI vbits(VF x) { return __builtin_bit_cast(VI, x); }
INGOT_INLINE VF vfloat(VI x) { return __builtin_bit_cast(VF, x); }

// c[0] + c[1] x + ... by Horner: fewest instructions, and kernels keep several vectors in flight.
template <class V, class T, int N>
INGOT_INLINE V vpoly(V x, const T (&c)[N]) {
  V p = V(c[N - 1]);
  INGOT_UNROLL
  for (int i = N - 2; i >= 0; i--) p = p * x + c[i];
  return p;
}

// Adding 1.5 * 2^23 rounds a small float to an integer and leaves that integer in the low bits of the sum;
// unlike a conversion it is defined for NaN.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr int32_t kOneBits = 0x3f800000;
inline constexpr float kInfinity = __builtin_inff();

// 2^n for the integer n held in the low bits of t = n + kRoundMagic; |n| <= 126.
INGOT_INLINE VF vpow2_magic(VF t) { return vfloat((vbits(t) << 23) + kOneBits); }

// e^x = (e^r 2^k) 2^k, x = 2k ln2 + r, |r| <= ln2. Scaling twice by 2^k reaches both infinity and the denormals
// (the second product is the only one that rounds) without computing two different powers.
INGOT_INLINE VF vexp(VF x) {
  x = 89.0f < x ? VF(89.0f) : x;
  x = -104.0f > x ? VF(-104.0f) : x;
  VF t = x * 0.72134752f + kRoundMagic;
  VF k = t - kRoundMagic;
  VF r = x - k * 1.38623046875f;  // 2 ln2 in two parts, the first of 14 bits
  r = r - k * 6.389237e-05f;
  VF q = vpoly(r, {5.0000036e-01f, 1.6666616e-01f, 4.16612e-02f, 8.335967e-03f, 1.4105447e-03f, 1.9630203e-04f});
  VF p = (q * r) * r + r + 1.0f;
  VF s = vpow2_magic(t);
  return (p * s) * s;
}

// log x = e ln2 + log(1+f), 1+f = x 2^-e in [sqrt(1/2), sqrt 2); log(1+f) = f + f^2 (f q(f) - 1/2).
INGOT_INLINE VF vlog(VF x) {
  VI tiny = x < 0x1p-126f;
  VF xs = tiny ? x * 0x1p24f : x;  // denormals have no exponent of their own
  VI e = (vbits(xs) - 0x3f3504f3) >> 23;
  VF f = vfloat(vbits(xs) - (e << 23)) - 1.0f;
  VF n = __builtin_convertvector(e, VF) - (tiny ? VF(24.0f) : VF(0.0f));
  VF q = vpoly(f, {3.333333e-01f, -2.500082e-01f, 2.0001242e-01f, -1.6623409e-01f, 1.4201581e-01f, -1.3159613e-01f,
                   1.2762198e-01f, -7.636395e-02f});
  VF y = (f * f) * (f * q - 0.5f);
  VF r = n * 0.693115234375f + (f + (y + n * 3.1946184e-05f));  // ln2 in two parts, the first of 14 bits
  r = x < kInfinity ? r : x;                                    // infinity and NaN
  r = x == 0.0f ? VF(-kInfinity) : r;
  return x < 0.0f ? VF(__builtin_nanf("")) : r;
}

// |x| < 1: erf x = x + x f(x^2), accurate relative to a small result. Above: 1 - p(|x|)^4, where an error in p
// counts only as much as erfc x does. Both are cheap enough to compute and select; there is no division.
INGOT_INLINE VF verf(VF x) {
  VI sign = vbits(x) & INT32_MIN;
  VF u = x * x;
  VF near = vpoly(u, {1.2837917e-01f, -3.7612626e-01f, 1.1283579e-01f, -2.6853347e-02f, 5.187162e-03f, -7.997853e-04f,
                      7.806904e-05f});
  near = x * near + x;
  VF a = vfloat(vbits(x) ^ sign);
  VI is_near = a < 1.0f, is_one = a > 3.9192057f;  // from there on 1 is the nearest float
  VF p = vpoly(a, {1.0039772e+00f, -3.025724e-01f, -7.408484e-02f, -4.0531162e-02f, 6.0669962e-02f, -2.0460058e-02f,
                   2.9279492e-03f, -1.5709324e-04f});
  p = p * p;
  VF far = is_one ? VF(1.0f) : 1.0f - p * p;
  return is_near ? near : vfloat(vbits(far) | sign);
}

// e^r - 1 for |r| <= ln2/2, accurate relative to itself: r + r^2 q(r).
INGOT_INLINE VF vexpm1_reduced(VF r) {
  VF q = vpoly(r, {4.9999997e-01f, 1.6666546e-01f, 4.1667435e-02f, 8.366277e-03f, 1.3870732e-03f});
  return (r * r) * q + r;
}

// e^x for x <= 0, as a softmax takes it: results below the normal floats are 0. Masked scores are -inf, and a result
// that is denormal, or on its way to 0 through denormals, costs an Intel core some 150 cycles.
INGOT_INLINE VF vexp_falling(VF x) {
  constexpr float kLowest = -87.3f;  // e^-87.3 is normal
  VF c = kLowest > x ? VF(kLowest) : x;
  VF t = c * 1.44269504f + kRoundMagic;
  VF n = t - kRoundMagic;
  VF r = c - n * 0.693115234375f;
  r = r - n * 3.1946184e-05f;
  VF e = (vexpm1_reduced(r) + 1.0f) * vpow2_magic(t);
  return x < kLowest ? VF(0.0f) : e;
}

// tanh a = E / (2 - E), E = 1 - e^-2a = (1 - 2^n) - 2^n (e^r - 1), for a = |x| up to 10 where it is 1.
INGOT_INLINE VF vtanh(VF x) {
  VI sign = vbits(x) & INT32_MIN;
  VF a = vfloat(vbits(x) ^ sign);
  a = 10.0f < a ? VF(10.0f) : a;
  VF t = a * -2.88539008f + kRoundMagic;
  VF n = t - kRoundMagic;
  VF r = -2.0f * a - n * 0.693115234375f;
  r = r - n * 3.1946184e-05f;
  VF s = vpow2_magic(t);
  VF e = (1.0f - s) - s * vexpm1_reduced(r);
  return vfloat(vbits(e / (2.0f - e)) | sign);
}

// e^-|x| keeps both tails accurate: 1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below.
INGOT_INLINE VF vsigmoid(VF x) {
  VF e = vexp(vfloat(vbits(x) | INT32_MIN));
  return (x < 0.0f ? e : VF(1.0f)) / (1.0f + e);
}

// e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)): the half power keeps 2^128 out of the intermediate.
INGOT_INLINE VF vexpm1(VF x) {
  VF c = 89.0f < x ? VF(89.0f) : x;
  c = -18.0f > c ? VF(-18.0f) : c;
  VF t = c * 1.44269504f + kRoundMagic;
  VF n = t - kRoundMagic;
  VF r = c - n * 0.693115234375f;
  r = r - n * 3.1946184e-05f;
  VF s = vfloat((vbits(t) << 23) + (kOneBits - (1 << 23)));
  VF y = 2.0f * (s * vexpm1_reduced(r) + (s - 0.5f));
  return x == 0.0f ? x : y;  // keeps the sign of zero
}

// log(1+x) = log u + (x - (u - 1)) / u with u = 1 + x as rounded: the second term is what rounding lost.
INGOT_INLINE VF vlog1p(VF x) {
  VF u = 1.0f + x;
  VF l = vlog(u);
  VF y = l + (x - (u - 1.0f)) / u;
  y = ((x > -1.0f) & (x < kInfinity)) ? y : l;
  return x == 0.0f ? x : y;
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)
INGOT_INLINE VF vsoftplus(VF x) {
  VF e = vexp(vfloat(vbits(x) | INT32_MIN));
  return (0.0f > x ? VF(0.0f) : x) + vlog1p(e);
}

// x / (1 + e^-x): one exponential and no select; the tail below -88 rounds to -0.
INGOT_INLINE VF vsilu(VF x) { return x / (1.0f + vexp(-x)); }

// x tanh(log(1 + e^x)) = x n / (n + 2), n = e^x (e^x + 2); beyond x = 20 the quotient is 1.
INGOT_INLINE VF vmish(VF x) {
  VF e = vexp(20.0f < x ? VF(20.0f) : x);
  VF n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

// gelu x = max(x, 0) - h(|x|), h(a) = a/2 erfc(a/sqrt2), erfc(a/sqrt2) = p(a)^4.
// No 1 + erf(x/sqrt2) that cancels, and no exponential either.
INGOT_INLINE VF vgelu_erf(VF x) {
  VF a = vfloat(vbits(x) & INT32_MAX);
  VF c = 6.0f < a ? VF(6.0f) : a;
  VF p = vpoly(c, {1.0f, -1.9947115e-01f, -5.968115e-02f, 5.453377e-03f, 4.6930327e-03f, -2.6938785e-04f,
                   -1.9609772e-04f, -7.299332e-06f, 1.7081327e-05f, -3.3914953e-06f, 2.8472826e-07f, -9.2307735e-09f});
  p = p * p;
  p = p * p;
  VF h = (0.5f * c) * p;
  h = c == 6.0f ? VF(0.0f) : h;
  return (-0.0f > x ? VF(-0.0f) : x) - h;
}

// x/2 (1 + tanh z) = x / (1 + e^-2z), z = sqrt(2/pi) (x + 0.044715 x^3): small results stay accurate.
INGOT_INLINE VF vgelu_tanh(VF x) {
  VF z2 = x * (x * x * -0.071354814f - 1.5957691f);
  return x / (1.0f + vexp(z2));
}

}  // namespace ingot::kernel
