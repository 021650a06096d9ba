// What each row of kernels/ewise_ops.h computes, on vectors: struct op_<name> with apply<T>(Vec<T>...). One definition
// serves all element types of the row; floats behave as IEEE and numpy have it, integers wrap.
#pragma once
#include <type_traits>

#include "kernels/half.h"
#include "kernels/integer.h"
#include "kernels/vmath_f64.h"

namespace ingot::kernel {

template <class T>
inline constexpr bool kFloating = std::is_floating_point_v<T>;
// What comparing gives: an integer as wide as T per lane, 0 or -1.
template <class T>
using Mask = decltype(Vec<T>() == Vec<T>());
using VB = Vec<uint8_t>;  // bool: 0 or 1

template <class T>
INGOT_INLINE VB to_bool(Mask<T> m) {
  return __builtin_bit_cast(VB, __builtin_convertvector(m, Vec<int8_t>)) & uint8_t(1);
}
template <class T>
INGOT_INLINE Mask<T> to_mask(VB b) {
  return __builtin_convertvector(b != uint8_t(0), Mask<T>);
}

// Integer division toward zero that never traps: x / 0 = 0, MIN / -1 = MIN. Up to 32 bits it goes through a float type
// wide enough for the quotient to be exact: a / b is at least 1/|a| (relative) away from the next integer.
template <class T>
INGOT_INLINE Vec<T> divide_integers(Vec<T> a, Vec<T> b) {
  Mask<T> zero = b == T(0);
  Mask<T> minus = std::is_signed_v<T> ? b == T(-1) : Mask<T>(0);
  Vec<T> d = (zero | minus) ? Vec<T>(T(1)) : b;
  Vec<T> q;
  if constexpr (sizeof(T) == 8) {
    q = a / d;
  } else {
    using F = std::conditional_t<sizeof(T) == 4, double, float>;
    using I = std::conditional_t<sizeof(T) == 4, T, int32_t>;
    Vec<F> quotient = __builtin_convertvector(a, Vec<F>) / __builtin_convertvector(d, Vec<F>);
    q = __builtin_convertvector(__builtin_convertvector(quotient, Vec<I>), Vec<T>);
  }
  q = minus ? T(0) - a : q;
  return zero ? Vec<T>(T(0)) : q;
}
template <class T>
INGOT_INLINE Vec<T> remainder_integers(Vec<T> a, Vec<T> b) {
  Vec<T> r = a - divide_integers<T>(a, b) * b;
  return b == T(0) ? Vec<T>(T(0)) : r;
}

// a^b by squaring. A negative exponent gives the truncated 1 / a^-b: 0 but for a = 1 and -1; 0^-n = 0.
template <class T>
INGOT_INLINE Vec<T> power_integers(Vec<T> a, Vec<T> b) {
  Vec<T> one = Vec<T>(T(1)), zero = Vec<T>(T(0));
  Vec<T> r = one;
  if constexpr (std::is_signed_v<T>) {
    Mask<T> unit = (a == T(1)) | (a == T(-1));
    r = ((b < T(0)) & ~unit) ? zero : r;
    b = b < T(0) ? b & T(1) : b;  // only the parity matters to 1 and -1, and r = 0 stays 0
  }
  while (__builtin_reduce_or(b) != 0) {
    r = (b & T(1)) != T(0) ? r * a : r;
    a = a * a;
    b = b >> T(1);
  }
  return r;
}

#define INGOT_OP1(NAME, ...)            \
  struct op_##NAME {                    \
    template <class T>                  \
    INGOT_INLINE auto apply(Vec<T> a) { \
      using V = Vec<T>;                 \
      (void)sizeof(V);                  \
      __VA_ARGS__                       \
    }                                   \
  };
#define INGOT_OP2(NAME, ...)                      \
  struct op_##NAME {                              \
    template <class T>                            \
    INGOT_INLINE auto apply(Vec<T> a, Vec<T> b) { \
      using V = Vec<T>;                           \
      (void)sizeof(V);                            \
      __VA_ARGS__                                 \
    }                                             \
  };
#define INGOT_OP3(NAME, ...)                                \
  struct op_##NAME {                                        \
    template <class T>                                      \
    INGOT_INLINE auto apply(Vec<T> a, Vec<T> b, Vec<T> c) { \
      using V = Vec<T>;                                     \
      (void)sizeof(V);                                      \
      __VA_ARGS__                                           \
    }                                                       \
  };

INGOT_OP2(add, return a + b;)
INGOT_OP2(sub, return a - b;)
INGOT_OP2(mul, return a * b;)
INGOT_OP2(div, if constexpr (kFloating<T>) return a / b; else return divide_integers<T>(a, b);)
INGOT_OP2(mod, V r = remainder_integers<T>(a, b); return ((r != T(0)) & ((r < T(0)) != (b < T(0)))) ? r + b : r;)
INGOT_OP2(
    fmod, if constexpr (kFloating<T>) {
      V r;
      for (int i = 0; i < kLanes; i++) r[i] = sizeof(T) == 4 ? __builtin_fmodf(a[i], b[i]) : __builtin_fmod(a[i], b[i]);
      return r;
    } else return remainder_integers<T>(a, b);)
INGOT_OP2(min, V m = a < b ? a : b; if constexpr (kFloating<T>) m = a != a ? a : m; return m;)
INGOT_OP2(max, V m = a > b ? a : b; if constexpr (kFloating<T>) m = a != a ? a : m; return m;)
INGOT_OP2(pow, if constexpr (kFloating<T>) return vpow(a, b); else return power_integers<T>(a, b);)
INGOT_OP3(fma3, return a * b + c;)

INGOT_OP1(neg, return -a;)
INGOT_OP1(abs, if constexpr (std::is_unsigned_v<T>) return a; else return __builtin_elementwise_abs(a);)
INGOT_OP1(sign, V s = a > T(0) ? V(T(1)) : a; if constexpr (!std::is_unsigned_v<T>) s = a < T(0) ? V(T(-1)) : s;
          return s;)
INGOT_OP1(square, return a * a;)
INGOT_OP1(floor, return __builtin_elementwise_floor(a);)
INGOT_OP1(ceil, return __builtin_elementwise_ceil(a);)
INGOT_OP1(round, return __builtin_elementwise_roundeven(a);)
INGOT_OP1(trunc, return __builtin_elementwise_trunc(a);)
INGOT_OP1(round_f16, return f16_to_f32(f32_to_f16(a));)
INGOT_OP1(round_bf16, return bf16_to_f32(f32_to_bf16(a));)
INGOT_OP1(sqrt, return __builtin_elementwise_sqrt(a);)
INGOT_OP1(rsqrt, return T(1) / __builtin_elementwise_sqrt(a);)
INGOT_OP1(recip, return T(1) / a;)

INGOT_OP1(exp, return vexp(a);)
INGOT_OP1(log, return vlog(a);)
INGOT_OP1(log1p, return vlog1p(a);)
INGOT_OP1(expm1, return vexpm1(a);)
INGOT_OP1(erf, return verf(a);)
INGOT_OP1(sin, return vsin(a);)
INGOT_OP1(cos, return vcos(a);)
INGOT_OP1(tan, return vtan(a);)
INGOT_OP1(asin, return vasin(a);)
INGOT_OP1(acos, return vacos(a);)
INGOT_OP1(atan, return vatan(a);)
INGOT_OP1(sinh, return vsinh(a);)
INGOT_OP1(cosh, return vcosh(a);)
INGOT_OP1(tanh, return vtanh(a);)
INGOT_OP1(asinh, return vasinh(a);)
INGOT_OP1(acosh, return vacosh(a);)
INGOT_OP1(atanh, return vatanh(a);)
INGOT_OP1(sigmoid, return vsigmoid(a);)
INGOT_OP1(softplus, return vsoftplus(a);)
INGOT_OP1(silu, return vsilu(a);)
INGOT_OP1(gelu, return vgelu_erf(a);)
INGOT_OP1(gelu_tanh, return vgelu_tanh(a);)
INGOT_OP1(mish, return vmish(a);)

// Bounds are written `bound > x ? bound : x`, which lets a NaN x through and is one instruction.
template <class T>
INGOT_INLINE Vec<T> at_least(Vec<T> x, Vec<T> lo) {
  return lo > x ? lo : x;
}
template <class T>
INGOT_INLINE Vec<T> at_most(Vec<T> x, Vec<T> hi) {
  return hi < x ? hi : x;
}

INGOT_OP1(relu, return at_least<T>(a, V(T(0)));)
INGOT_OP1(softsign, return a / (T(1) + __builtin_elementwise_abs(a));)
INGOT_OP1(hardswish, V g = a * T(1.0 / 6) + T(0.5); return a * at_most<T>(at_least<T>(g, V(T(0))), V(T(1)));)
INGOT_OP2(leaky_relu, return a < T(0) ? a * b : a;)
INGOT_OP2(prelu, return a < T(0) ? a * b : a;)
INGOT_OP2(elu, return a < T(0) ? b * vexpm1(a) : a;)
INGOT_OP2(celu, return at_least<T>(a, V(T(0))) + at_most<T>(b * vexpm1(a / b), V(T(0)));)
INGOT_OP3(selu, return c * (a > T(0) ? a : b * vexpm1(a));)
INGOT_OP2(thresholded_relu, return a > b ? a : V(T(0));)
INGOT_OP3(hard_sigmoid, return at_most<T>(at_least<T>(a * b + c, V(T(0))), V(T(1)));)
INGOT_OP3(shrink, V above = a > c ? a - b : V(T(0)); if constexpr (std::is_unsigned_v<T>) return above;
          else return a < -c ? a + b : above;)
INGOT_OP3(clip, return at_most<T>(at_least<T>(a, b), c);)

INGOT_OP2(eq, return to_bool<T>(a == b);)
INGOT_OP2(ne, return to_bool<T>(a != b);)
INGOT_OP2(lt, return to_bool<T>(a < b);)
INGOT_OP2(le, return to_bool<T>(a <= b);)
INGOT_OP2(gt, return to_bool<T>(a > b);)
INGOT_OP2(ge, return to_bool<T>(a >= b);)
INGOT_OP1(isnan, return to_bool<T>(a != a);)
INGOT_OP1(isinf, return to_bool<T>(__builtin_elementwise_abs(a) == T(kInfinity));)
INGOT_OP1(isinf_pos, return to_bool<T>(a == T(kInfinity));)
INGOT_OP1(isinf_neg, return to_bool<T>(a == T(-kInfinity));)

INGOT_OP2(and, return a & b;)
INGOT_OP2(or, return a | b;)
INGOT_OP2(xor, return a ^ b;)
INGOT_OP1(not, return a ^ T(1);)
INGOT_OP2(bitand, return a & b;)
INGOT_OP2(bitor, return a | b;)
INGOT_OP2(bitxor, return a ^ b;)
INGOT_OP1(bitnot, return ~a;)
template <class T>
INGOT_INLINE Mask<T> is_shift(Vec<T> count) {
  return __builtin_convertvector(count, Vec<std::make_unsigned_t<T>>) < std::make_unsigned_t<T>(sizeof(T) * 8);
}
INGOT_OP2(shl, return is_shift<T>(b) ? a << (b & T(sizeof(T) * 8 - 1)) : V(T(0));)
INGOT_OP2(shr, return is_shift<T>(b) ? a >> (b & T(sizeof(T) * 8 - 1)) : V(T(0));)
#undef INGOT_OP1
#undef INGOT_OP2
#undef INGOT_OP3

struct op_where {
  template <class T>
  INGOT_INLINE Vec<T> apply(VB condition, Vec<T> a, Vec<T> b) {
    return to_mask<T>(condition) ? a : b;
  }
};

// Float to the signed integer I, saturating; NaN gives 0. The conversion itself only ever sees values in range.
template <class I, class T>
INGOT_INLINE Vec<I> saturate_to(Vec<T> x) {
  const T limit = T(1ull << (sizeof(I) * 8 - 1));
  Mask<T> above = x >= limit;
  Vec<T> in_range = (above | (x != x)) ? Vec<T>(T(0)) : at_least<T>(x, Vec<T>(-limit));
  Vec<I> r = __builtin_convertvector(in_range, Vec<I>);
  return __builtin_convertvector(above, Mask<I>) ? Vec<I>(I((1ull << (sizeof(I) * 8 - 1)) - 1)) : r;
}

// ONNX leaves floats out of the integer's range undefined. Here they never trap: the types C converts through a wider
// register (8 and 16 bits, u32) wrap as they do there, so -1.0 to u8 is 255; i32, i64 and large u64 saturate.
template <class To, class From>
INGOT_INLINE Vec<To> cast(Vec<From> x) {
  if constexpr (!kFloating<From> || kFloating<To>) {
    return __builtin_convertvector(x, Vec<To>);
  } else if constexpr (sizeof(To) <= 2) {
    return __builtin_convertvector(saturate_to<int32_t, From>(x), Vec<To>);
  } else if constexpr (std::is_signed_v<To>) {
    return saturate_to<To, From>(x);
  } else if constexpr (sizeof(To) == 4) {
    return __builtin_convertvector(saturate_to<int64_t, From>(x), Vec<To>);
  } else {
    const From half = From(0x1p63);
    Vec<To> low = __builtin_convertvector(saturate_to<int64_t, From>(x), Vec<To>);
    Vec<To> high = __builtin_convertvector(saturate_to<int64_t, From>(x - half), Vec<To>) + (To(1) << 63);
    return __builtin_convertvector(x >= half, Mask<To>) ? high : low;
  }
}
#define INGOT_CAST(NAME, To)               \
  struct op_cast_##NAME {                  \
    template <class From>                  \
    INGOT_INLINE auto apply(Vec<From> x) { \
      return cast<To, From>(x);            \
    }                                      \
  };
INGOT_CAST(f32, float)
INGOT_CAST(f64, double)
INGOT_CAST(i8, int8_t)
INGOT_CAST(i16, int16_t)
INGOT_CAST(i32, int32_t)
INGOT_CAST(i64, int64_t)
INGOT_CAST(u8, uint8_t)
INGOT_CAST(u16, uint16_t)
INGOT_CAST(u32, uint32_t)
INGOT_CAST(u64, uint64_t)
#undef INGOT_CAST
// To the nearest integer, half to even; the value must be in range.
INGOT_INLINE VI nearest(VF x) { return nearest_int(x); }
INGOT_INLINE VI nearest(VD x) { return __builtin_convertvector(__builtin_elementwise_roundeven(x), VI); }

// A number of the type To, not yet narrowed. A bound that is an integer may be applied before rounding. NaN gives the
// lowest number. The zero point is whole.
template <class To, class From>
INGOT_INLINE VI quantize(Vec<From> x, Vec<From> zero) {
  const From low = std::is_signed_v<To> ? -128 : 0, high = low + 255;
  x = x > low - zero ? x : low - zero;
  x = x < high - zero ? x : high - zero;
  return nearest(x) + __builtin_convertvector(zero, VI);
}
// The same for zero points that are not negative, as numbers that narrowing saturates (as_bytes): one below the range
// may stay there. What no integer can hold becomes the lowest integer, NaN too; above, a bound is needed.
template <class To>
INGOT_INLINE VI quantize_to_saturate(VF x, VF zero) {
  const VF high = (std::is_signed_v<To> ? 127.f : 255.f) - zero;
  return nearest(high < x ? high : x) + __builtin_convertvector(zero, VI);
}
struct op_quantize_u8 {
  template <class From>
  INGOT_INLINE auto apply(Vec<From> x, Vec<From> zero) {
    return __builtin_convertvector(quantize<uint8_t, From>(x, zero), Vec<uint8_t>);
  }
};
struct op_quantize_i8 {
  template <class From>
  INGOT_INLINE auto apply(Vec<From> x, Vec<From> zero) {
    return __builtin_convertvector(quantize<int8_t, From>(x, zero), Vec<int8_t>);
  }
};
struct op_cast_bool {
  template <class From>
  INGOT_INLINE auto apply(Vec<From> x) {
    return to_bool<From>(x != From(0));  // NaN is true
  }
};

}  // namespace ingot::kernel
