// Accuracy of the vector mathematics against double libm, in ulp of the float result.
// Every 251st float and the special values by default; all 2^32 with INGOT_EXHAUSTIVE=1 (minutes per function).
// Built once for each build, with that level's flags.
#include "kernels/vmath_f64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace ingot::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<float> kSpecial = {
    0.0f,        -0.0f,      1.0f,          -1.0f,          0x1p-126f, -0x1p-126f,     1e-45f,        -1e-45f,
    0x1p-127f,   -0x1p-127f, 3.4028235e38f, -3.4028235e38f, kInf,      -kInf,          kNan,          88.72284f,
    88.722839f,  88.8f,      -87.33655f,    -103.9721f,     -103.98f,  -104.5f,        0.5f,          -0.5f,
    0.99999994f, 1.0000001f, 3.9f,          3.95f,          9.01f,     10.0f,          0.34657359f,   0.69314718f,
    1.5707964f,  3.1415927f, 1e8f,          1.0001e8f,      2.0f,      0x1.6a09e6p-1f, 0x1.6a09e8p-1f};

// Distance in units of the last place of the exact result. Overflow counts as one beyond the largest float.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isnan(got)) return HUGE_VAL;
  if (want == 0) return got == 0 ? 0 : HUGE_VAL;
  const double limit = 0x1p128;
  double g = std::clamp(double(got), -limit, limit), w = std::clamp(want, -limit, limit);
  // The last place of a double of exponent e, rounded to float: 2^(e - 23), and never below 2^-149.
  const int e = int(__builtin_bit_cast(uint64_t, w) >> 52 & 0x7ff) - 1023;
  const int place = std::clamp(e - 23, -149, 104);
  return std::fabs(g - w) * __builtin_bit_cast(double, uint64_t(1023 - place) << 52);
}

struct Worst {
  double error = 0;
  float at = 0;
  void add(double e, float x) {
    if (e > error || std::isnan(e)) *this = {e, x};
  }
  void add(const Worst& o) { add(o.error, o.at); }
};

template <class F, class Ref>
void check_vector(F f, Ref ref, VF x, float lo, float hi, Worst& worst) {
  VF y = f(x);
  for (int i = 0; i < kLanes; i++)
    if (!(x[i] < lo || x[i] > hi)) {
      double want = ref(double(x[i]));
      if (y[i] == float(want) && worst.error > 0.5) continue;  // rounded right; most are, and this is quick
      worst.add(ulps(y[i], want), x[i]);
    }
}

// The worst error of f over the floats in [lo, hi] and NaN.
template <class F, class Ref>
Worst sweep(F f, Ref ref, float lo, float hi) {
  const char* all = std::getenv("INGOT_EXHAUSTIVE");
  const uint64_t step = all && *all == '1' ? 1 : 251;
  Worst worst;
  std::mutex mutex;
  auto part = [&](uint64_t begin, uint64_t end) {
    Worst mine;
    for (uint64_t b = begin; b < end; b += step * kLanes) {
      VI bits;
      for (int i = 0; i < kLanes; i++) bits[i] = int32_t(b + i * step);
      check_vector(f, ref, vfloat(bits), lo, hi, mine);
    }
    std::lock_guard lock(mutex);
    worst.add(mine);
  };
  const uint64_t half = uint64_t(1) << 31;
  std::thread other(part, half, 2 * half);
  part(0, half);
  other.join();
  for (float s : kSpecial) check_vector(f, ref, VF(s), lo, hi, worst);
  return worst;
}

template <class F, class Ref>
void expect_accuracy(const char* name, F f, Ref ref, double bound, float lo = -kInf, float hi = kInf) {
  Worst worst = sweep(f, ref, lo, hi);
  std::printf("  %-10s %d lanes  max %.4f ulp at %.9g\n", name, kLanes, worst.error, worst.at);
  EXPECT_LE(worst.error, bound) << name << " at " << worst.at;
  // Sign of zero and NaN are part of every result.
  for (float s : kSpecial) {
    double want = ref(double(s));
    float got = f(VF(s))[0];
    if (!std::isnan(want) && s >= lo && s <= hi && s == 0)
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << name << s;
  }
}

#define ACCURACY(name, expr, reference, ...)                                                                      \
  TEST(Vmath, name) {                                                                                             \
    expect_accuracy(#name, [](VF x) { return expr; }, [](double x) -> double { return reference; }, __VA_ARGS__); \
  }

ACCURACY(exp, vexp(x), std::exp(x), 1.7)
ACCURACY(exp_falling, vexp_falling(x), x < -87.3f ? 0.0 : std::exp(x), 1.7, -kInf, 0.0f)
ACCURACY(log, vlog(x), std::log(x), 1.0)
ACCURACY(erf, verf(x), std::erf(x), 2.2)
ACCURACY(tanh, vtanh(x), std::tanh(x), 2.6)
ACCURACY(expm1, vexpm1(x), std::expm1(x), 2.5)
ACCURACY(log1p, vlog1p(x), std::log1p(x), 2.5)
ACCURACY(sigmoid, vsigmoid(x), x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)), 3.5)
ACCURACY(softplus, vsoftplus(x), std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))) + (x - x) * 0, 4.0, -3e38f,
         3e38f)
ACCURACY(silu, vsilu(x), x / (1 + std::exp(-x)), 4.0, -87.0f)
ACCURACY(mish, vmish(x), x* std::tanh(std::log1p(std::exp(x))), 6.0, -87.0f, 80.0f)
ACCURACY(sin, vsin(x), std::sin(x), 0.6)
ACCURACY(cos, vcos(x), std::cos(x), 0.6)
ACCURACY(tan, vtan(x), std::tan(x), 1.5)
ACCURACY(atan, vatan(x), std::atan(x), 1.5)
ACCURACY(gelu_erf_right, vgelu_erf(x), x * (0.5 * std::erfc(x * -M_SQRT1_2)), 4.5, 0.0f)
ACCURACY(gelu_erf_to_minus_1, vgelu_erf(x), x * (0.5 * std::erfc(x * -M_SQRT1_2)), 6.0, -1.0f, -0.0f)
ACCURACY(gelu_erf_to_minus_3, vgelu_erf(x), x * (0.5 * std::erfc(x * -M_SQRT1_2)), 40.0, -3.0f, -0.0f)
ACCURACY(gelu_tanh_right, vgelu_tanh(x), x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))), 4.0,
         0.0f)
ACCURACY(gelu_tanh_to_minus_3, vgelu_tanh(x), x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))),
         20.0, -3.0f, -0.0f)

// Left of -6 the true value is below 6e-9 and ours is zero.
TEST(Vmath, GeluVanishesFarLeft) {
  for (float x : {-6.0f, -7.0f, -100.0f, -3e38f, -kInf}) EXPECT_EQ(vgelu_erf(VF(x))[0], 0.0f) << x;
  EXPECT_EQ(vgelu_erf(VF(kInf))[0], kInf);
}

TEST(Vmath, PowMatchesC) {
  std::vector<float> values = kSpecial;
  for (float v :
       {2.0f, 3.0f, -2.0f, -3.0f, 0.3f, -0.3f, 1.5f, 16777216.0f, 16777215.0f, -16777215.0f, 1e-3f, 7.25f, 100.0f})
    values.push_back(v);
  Worst worst;
  auto check = [&](float x, float y) {
    float got = vpow(VF(x), VF(y))[0];
    double want = std::pow(double(x), double(y));
    worst.add(ulps(got, want), x);
    if (!std::isnan(want)) EXPECT_EQ(std::signbit(got), std::signbit(want)) << x << " ^ " << y;
    EXPECT_LE(ulps(got, want), 1.0) << x << " ^ " << y << " = " << got << ", not " << want;
  };
  for (float x : values)
    for (float y : values) check(x, y);
  uint32_t state = 1;
  auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int i = 0; i < 3000000; i++) {
    float x = std::ldexp(1.0f + next() * 0x1p-24f, int(next() % 60) - 30);
    check(x, (next() * 0x1p-23f - 1.0f) * float(1 << next() % 7));
  }
  std::printf("  %-10s %d lanes  max %.4f ulp\n", "pow", kLanes, worst.error);
}

TEST(Vmath, DoublesMatchLibm) {
  VD x;
  for (int i = 0; i < kLanes; i++) x[i] = 0.37 * (i - 2);
  for (int i = 0; i < kLanes; i++) {
    EXPECT_DOUBLE_EQ(vexp(x)[i], std::exp(x[i]));
    EXPECT_DOUBLE_EQ(vsigmoid(x)[i], 1 / (1 + std::exp(-x[i])));
    EXPECT_NEAR(vgelu_erf(x)[i], 0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0))), 1e-15);
    EXPECT_NEAR(vmish(x)[i], x[i] * std::tanh(std::log1p(std::exp(x[i]))), 1e-15);
  }
}

}  // namespace
}  // namespace ingot::kernel
