// Every element-wise operator for every element type against a scalar definition written here, on special values,
// their combinations, and odd lengths. Built once for each build, with the native build of kernels/ewise_ops.cpp.
#include "kernels/ewise_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/vec.h"

namespace ingot {
namespace {

using kernel::kLanes;

template <class T>
constexpr bool kFloat = std::is_floating_point_v<T>;

template <class T>
std::vector<T> values() {
  using L = std::numeric_limits<T>;
  std::vector<T> v = {T(0),  T(1),   T(2),   T(3),     T(5),        T(7),
                      T(10), T(100), T(127), L::max(), L::lowest(), T(L::max() - 1)};
  if constexpr (kFloat<T>)
    for (double x : {-0.0,
                     -1.0,
                     -2.0,
                     -3.0,
                     0.5,
                     1.5,
                     2.5,
                     -0.5,
                     -1.5,
                     -2.5,
                     0.3,
                     -0.7,
                     3.7,
                     -5.2,
                     1e-3,
                     20.0,
                     -20.0,
                     87.5,
                     1e8,
                     1e-42,
                     double(L::min()),
                     double(L::infinity()),
                     -double(L::infinity()),
                     double(L::quiet_NaN())})
      v.push_back(T(x));
  else if constexpr (std::is_signed_v<T>)
    for (int x : {-1, -2, -3, -5, -7, -100, -128}) v.push_back(T(x));
  else
    for (int x : {128, 200, 255, 31, 32, 63, 64}) v.push_back(T(x));
  return v;
}

// The definitions. Integer arithmetic wraps: computed in unsigned and converted back.
template <class T>
struct Scalar {
  using Wide = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
  static T wrap(unsigned long long x) { return static_cast<T>(x); }

  static T quotient(T a, T b) {
    if (b == 0) return 0;
    if (std::is_signed_v<T> && b == T(-1)) return wrap(0 - static_cast<unsigned long long>(a));
    return static_cast<T>(a / b);
  }
  static T c_remainder(T a, T b) {
    if (b == 0 || (std::is_signed_v<T> && b == T(-1))) return 0;
    return static_cast<T>(a % b);
  }
  static T floor_remainder(T a, T b) {
    T r = c_remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
  static T power(T a, T b) {
    if (std::is_signed_v<T> && b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % 2 == 0 ? T(1) : T(-1)) : T(0);
    unsigned long long base = a, r = 1, e = b;
    for (; e; e >>= 1, base *= base)
      if (e & 1) r *= base;
    return wrap(r);
  }
  static bool in_width(T b) { return Wide(b) >= 0 && static_cast<unsigned long long>(b) < sizeof(T) * 8; }

  std::map<std::string, T (*)(T)> one;
  std::map<std::string, T (*)(T, T)> two;
  std::map<std::string, T (*)(T, T, T)> three;
  std::map<std::string, bool (*)(T)> test1;
  std::map<std::string, bool (*)(T, T)> test2;

  Scalar() {
    test2 = {{"eq", [](T a, T b) { return a == b; }}, {"ne", [](T a, T b) { return a != b; }},
             {"lt", [](T a, T b) { return a < b; }},  {"le", [](T a, T b) { return a <= b; }},
             {"gt", [](T a, T b) { return a > b; }},  {"ge", [](T a, T b) { return a >= b; }}};
    if constexpr (kFloat<T>)
      floats();
    else
      integers();
    one["square"] = [](T a) { return kFloat<T> ? T(a * a) : T(wide(a) * wide(a)); };
    one["relu"] = [](T a) { return a < T(0) ? T(0) : a; };
    three["clip"] = [](T a, T lo, T hi) {
      T x = a < lo ? lo : a;
      return x > hi ? hi : x;
    };
    two["prelu"] = two["leaky_relu"] = [](T a, T b) { return a < T(0) ? two_mul(a, b) : a; };
    three["fma3"] = [](T a, T b, T c) {
      if constexpr (kFloat<T>)
        return T(a * b + c);
      else
        return wrap(wide(a) * wide(b) + wide(c));
    };
    three["shrink"] = [](T a, T bias, T lambd) {
      if constexpr (kFloat<T>)
        return a < -lambd ? T(a + bias) : a > lambd ? T(a - bias) : T(0);
      else {
        T minus = wrap(0 - wide(lambd));
        if (std::is_signed_v<T> && a < minus) return wrap(wide(a) + wide(bias));
        return a > lambd ? wrap(wide(a) - wide(bias)) : T(0);
      }
    };
  }
  static unsigned long long wide(T a) { return kFloat<T> ? 0 : static_cast<unsigned long long>(static_cast<Wide>(a)); }
  static T two_mul(T a, T b) {
    if constexpr (kFloat<T>)
      return a * b;
    else
      return wrap(wide(a) * wide(b));
  }

  void integers() {
    one = {{"neg", [](T a) { return wrap(0 - wide(a)); }},
           {"abs", [](T a) { return a < T(0) ? wrap(0 - wide(a)) : a; }},
           {"sign", [](T a) { return T((a > T(0)) - (a < T(0))); }},
           {"bitnot", [](T a) { return T(~a); }}};
    two = {{"add", [](T a, T b) { return wrap(wide(a) + wide(b)); }},
           {"sub", [](T a, T b) { return wrap(wide(a) - wide(b)); }},
           {"mul", [](T a, T b) { return wrap(wide(a) * wide(b)); }},
           {"div", quotient},
           {"mod", floor_remainder},
           {"fmod", c_remainder},
           {"pow", power},
           {"min", [](T a, T b) { return std::min(a, b); }},
           {"max", [](T a, T b) { return std::max(a, b); }},
           {"bitand", [](T a, T b) { return T(a & b); }},
           {"bitor", [](T a, T b) { return T(a | b); }},
           {"bitxor", [](T a, T b) { return T(a ^ b); }},
           {"shl", [](T a, T b) { return in_width(b) ? wrap(wide(a) << b) : T(0); }},
           {"shr", [](T a, T b) { return in_width(b) ? T(a >> b) : T(0); }}};
  }

  template <double (*f)(double)>
  static T via(T a) {
    return T(f(a));
  }
  // To the nearest number of so many bits behind the point, half to even; infinite above `most`.
  static T rounded(T a, int bits, int least_exponent, double most) {
    if (!std::isfinite(a) || a == 0) return a;
    const int exponent = std::max(std::ilogb(a), least_exponent) - bits;
    const double r = std::ldexp(std::nearbyint(std::ldexp(double(a), -exponent)), exponent);
    return T(std::fabs(r) > most ? std::copysign(HUGE_VAL, r) : std::copysign(r, double(a)));
  }
  static T nan_or(T a, T b, T r) { return a != a ? a : b != b ? b : r; }
  void floats() {
    using D = double;
    one = {{"neg", [](T a) { return -a; }},
           {"abs", [](T a) { return std::fabs(a); }},
           {"sign", [](T a) { return a > 0   ? T(1)
                                     : a < 0 ? T(-1)
                                             : a; }},
           {"floor", via<std::floor>},
           {"ceil", via<std::ceil>},
           {"round", via<std::nearbyint>},
           {"trunc", via<std::trunc>},
           {"round_f16", [](T a) { return rounded(a, 10, -14, 65504); }},
           {"round_bf16", [](T a) { return rounded(a, 7, -126, 0x1.fep127); }},
           {"sqrt", [](T a) { return std::sqrt(a); }},
           {"rsqrt", [](T a) { return T(1 / std::sqrt(D(a))); }},
           {"recip", [](T a) { return 1 / a; }},
           {"exp", via<std::exp>},
           {"log", via<std::log>},
           {"log1p", via<std::log1p>},
           {"expm1", via<std::expm1>},
           {"erf", via<std::erf>},
           {"sin", via<std::sin>},
           {"cos", via<std::cos>},
           {"tan", via<std::tan>},
           {"asin", via<std::asin>},
           {"acos", via<std::acos>},
           {"atan", via<std::atan>},
           {"sinh", via<std::sinh>},
           {"cosh", via<std::cosh>},
           {"tanh", via<std::tanh>},
           {"asinh", via<std::asinh>},
           {"acosh", via<std::acosh>},
           {"atanh", via<std::atanh>},
           {"sigmoid", [](T a) { return T(1 / (1 + std::exp(-D(a)))); }},
           {"softplus", [](T a) { return T(a > 30 ? D(a) : std::log1p(std::exp(D(a)))); }},
           {"softsign", [](T a) { return T(a / (1 + std::fabs(a))); }},
           {"silu", [](T a) { return T(a / (1 + std::exp(-D(a)))); }},
           {"gelu", [](T a) { return T(D(a) * (0.5 * std::erfc(-D(a) / std::sqrt(2.0)))); }},
           {"gelu_tanh",
            [](T a) { return T(a / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * a * (1 + 0.044715 * D(a) * a)))); }},
           {"mish", [](T a) { return T(a > 30 ? D(a) : a * std::tanh(std::log1p(std::exp(D(a))))); }}};
    one["hardswish"] = [](T a) {
      T g = T(D(a) / 6 + 0.5);
      return a != a ? a : T(a * (g < 0 ? T(0) : g > 1 ? T(1) : g));
    };
    two = {{"add", [](T a, T b) { return a + b; }},
           {"sub", [](T a, T b) { return a - b; }},
           {"mul", [](T a, T b) { return a * b; }},
           {"div", [](T a, T b) { return a / b; }},
           {"fmod", [](T a, T b) { return std::fmod(a, b); }},
           {"pow", [](T a, T b) { return T(std::pow(D(a), D(b))); }},
           {"min", [](T a, T b) { return nan_or(a, b, a < b ? a : b); }},
           {"max", [](T a, T b) { return nan_or(a, b, a > b ? a : b); }},
           {"elu", [](T a, T b) { return a < 0 ? T(b * std::expm1(D(a))) : a; }},
           {"celu",
            [](T a, T b) {
              D n = b * std::expm1(D(a) / b);
              return T((a < 0 ? D(0) : a) + (n > 0 ? 0 : n));
            }},
           {"thresholded_relu", [](T a, T b) { return a > b ? a : T(0); }}};
    three["selu"] = [](T a, T alpha, T gamma) { return T(gamma * (a > 0 ? a : T(alpha * std::expm1(D(a))))); };
    three["hard_sigmoid"] = [](T a, T alpha, T beta) {
      T g = a * alpha + beta;
      return g < 0 ? T(0) : g > 1 ? T(1) : g;
    };
    test1 = {{"isnan", [](T a) { return a != a; }},
             {"isinf", [](T a) { return std::isinf(a); }},
             {"isinf_pos", [](T a) { return a > 0 && std::isinf(a); }},
             {"isinf_neg", [](T a) { return a < 0 && std::isinf(a); }}};
  }
};

// Memory with room for whole vectors, filled so that a missing store is seen.
template <class T>
struct Buffer {
  std::vector<T> data;
  explicit Buffer(const std::vector<T>& v) : data(v) { data.resize((v.size() + kLanes - 1) / kLanes * kLanes, T(1)); }
};

template <class T>
::testing::AssertionResult close(T got, T want, double tolerance) {
  if constexpr (kFloat<T>) {
    if (std::isnan(want) && std::isnan(got)) return ::testing::AssertionSuccess();
    if (got == want) return ::testing::AssertionSuccess();
    // One side may overflow a step before the other.
    const double limit = 0.999 * double(std::numeric_limits<T>::max());
    if (std::fabs(want) > limit && std::fabs(got) > limit && (want > 0) == (got > 0))
      return ::testing::AssertionSuccess();
    if (std::fabs(double(got) - double(want)) <= tolerance * (std::fabs(double(want)) + 0.01))
      return ::testing::AssertionSuccess();
  } else if (got == want) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << +got << " instead of " << +want;
}

// Where a*b+c cancels, and where the mathematics is approximate.
template <class T>
double tolerance(const std::string& op) {
  if (!kFloat<T>) return 0;
  if (op == "gelu" || op == "gelu_tanh") return sizeof(T) == 4 ? 2e-4 : 1e-12;
  return sizeof(T) == 4 ? 1e-6 : 1e-14;
}

EwiseChunkFn find(const std::string& op, DType d) {
  const EwiseKernel* k = ingot_find_ewise(op.c_str(), static_cast<int32_t>(d));
  if (!k) return nullptr;
  EXPECT_EQ(k->op, op);
  EXPECT_EQ(k->dtype, d);
  return k->apply;
}

// All combinations of the special values, as `arity` arrays.
template <class T>
std::vector<std::vector<T>> combinations(int arity) {
  std::vector<T> v = values<T>();
  std::vector<std::vector<T>> out(3);
  size_t total = 1;
  for (int i = 0; i < arity; i++) total *= v.size();
  for (size_t i = 0; i < total; i++) {
    size_t rest = i;
    for (int k = 0; k < 3; k++, rest /= v.size()) out[size_t(k)].push_back(v[rest % v.size()]);
  }
  return out;
}

template <class T, class R>
void check(const std::string& op, DType d, int arity, const std::function<R(T, T, T)>& reference) {
  EwiseChunkFn f = find(op, d);
  ASSERT_TRUE(f) << op;
  auto in = combinations<T>(arity);
  Buffer<T> a(in[0]), b(in[1]), c(in[2]);
  const size_t n = in[0].size();
  Buffer<R> out((std::vector<R>(n)));
  f(a.data.data(), b.data.data(), c.data.data(), out.data.data(), int64_t(n));
  int failures = 0;
  for (size_t i = 0; i < n && failures < 5; i++) {
    R want = reference(in[0][i], in[1][i], in[2][i]);
    if (op == "gelu" && double(in[0][i]) < -5) want = out.data[i];  // its tail is tested with vmath
    auto ok = close(out.data[i], want, tolerance<T>(op));
    if (!ok) failures++;
    EXPECT_TRUE(ok) << op << "(" << +in[0][i] << ", " << +in[1][i] << ", " << +in[2][i] << ") " << std::string(name(d));
  }
}

template <class T>
void check_type(DType d) {
  Scalar<T> s;
  for (const EwiseOp& row : kEwiseOps) {
    const std::string op = row.name;
    if (!contains(row.types, d)) {
      EXPECT_EQ(find(op, d), nullptr) << op;
      continue;
    }
    if (row.rule == EwiseRule::Cast || row.rule == EwiseRule::Select) continue;
    if (row.rule == EwiseRule::Test && row.arity == 1)
      check<T, uint8_t>(op, d, 1, [&](T a, T, T) { return s.test1.at(op)(a); });
    else if (row.rule == EwiseRule::Test)
      check<T, uint8_t>(op, d, 2, [&](T a, T b, T) { return s.test2.at(op)(a, b); });
    else if (row.arity == 1)
      check<T, T>(op, d, 1, [&](T a, T, T) { return s.one.at(op)(a); });
    else if (row.arity == 2)
      check<T, T>(op, d, 2, [&](T a, T b, T) { return s.two.at(op)(a, b); });
    else
      check<T, T>(op, d, 3, [&](T a, T b, T c) { return s.three.at(op)(a, b, c); });
  }
}

#define FOR_NUMBERS(NAME, T, D, ...) \
  TEST(EwiseOps, NAME) { check_type<T>(DType::D); }
INGOT_EWISE_TYPES_Number(FOR_NUMBERS, )

    // n need not be a multiple of the vector: all n are computed, and nothing beyond the last vector is written.
    TEST(EwiseOps, OddLengths) {
  EwiseChunkFn add = find("add", DType::F32), lt = find("lt", DType::F32);
  for (int n = 0; n < 40; n++) {
    std::vector<float> a(64), b(64), sum(64, -1);
    std::vector<uint8_t> less(64, 7);
    for (int i = 0; i < 64; i++) a[size_t(i)] = float(i), b[size_t(i)] = float(i % 3 * 10);
    add(a.data(), b.data(), nullptr, sum.data(), n);
    lt(a.data(), b.data(), nullptr, less.data(), n);
    const int end = (n + kLanes - 1) / kLanes * kLanes;
    for (int i = 0; i < n; i++) {
      EXPECT_EQ(sum[size_t(i)], float(i) + float(i % 3 * 10));
      EXPECT_EQ(less[size_t(i)], i < i % 3 * 10);
    }
    for (int i = end; i < 64; i++) {
      EXPECT_EQ(sum[size_t(i)], -1) << n;
      EXPECT_EQ(less[size_t(i)], 7) << n;
    }
  }
}

}  // namespace
}  // namespace ingot
