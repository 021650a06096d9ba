// Softmax and layer normalisation against naive definitions in double. Built once for each build.
#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/abi.h"

namespace ingot {
namespace kernel {
extern "C" KernelStatus ingot_softmax_f32(const KernelCall*);
extern "C" KernelStatus ingot_softmax_f64(const KernelCall*);
extern "C" KernelStatus ingot_layernorm_f32(const KernelCall*);
extern "C" KernelStatus ingot_layernorm_f64(const KernelCall*);
}  // namespace kernel
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> random_values(size_t n, double scale = 3, double offset = 0) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<double> normal(offset, scale);
  std::vector<T> v(n);
  for (T& x : v) x = T(normal(random));
  return v;
}

// Runs units [0, units) in two halves, as threads would.
template <class Params>
void run(KernelFn f, const Params& p, const std::vector<void*>& operands, int64_t units) {
  KernelCall call{operands.data(), reinterpret_cast<const int64_t*>(&p), nullptr, 0, units / 2, nullptr, 0};
  ASSERT_EQ(f(&call), kOk);
  call.begin = units / 2;
  call.end = units;
  ASSERT_EQ(f(&call), kOk);
}

template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  for (size_t i = 0; i < want.size(); i++) {
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(got[i])) << what << " at " << i << ": " << got[i];
    else if (std::isinf(want[i]))
      EXPECT_EQ(double(got[i]), want[i]) << what << " at " << i;
    else
      ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << what << " at " << i;
  }
  for (size_t i = want.size(); i < got.size(); i++) ASSERT_EQ(got[i], T(-77)) << what << ": wrote past the end";
}

// ---- softmax ----

template <class T>
std::vector<double> naive_softmax(const std::vector<T>& x, int64_t outer, int64_t n, int64_t inner, bool log) {
  std::vector<double> y(x.size());
  for (int64_t o = 0; o < outer; o++)
    for (int64_t c = 0; c < inner; c++) {
      auto at = [&](int64_t i) { return size_t((o * n + i) * inner + c); };
      double m = -kInf, sum = 0;
      for (int64_t i = 0; i < n; i++) m = std::max(m, double(x[at(i)]));
      for (int64_t i = 0; i < n; i++) sum += std::exp(x[at(i)] - m);
      for (int64_t i = 0; i < n; i++) y[at(i)] = log ? x[at(i)] - m - std::log(sum) : std::exp(x[at(i)] - m) / sum;
    }
  return y;
}

template <class T>
void check_softmax(KernelFn f, std::vector<T> x, int64_t outer, int64_t n, int64_t inner, double tolerance) {
  for (bool log : {false, true}) {
    SoftmaxParams p{log, n, inner};
    std::vector<T> y(x.size() + 16, T(-77));
    const int64_t units = outer * ((inner + kSoftmaxColumns - 1) / kSoftmaxColumns);
    run(f, p, {x.data(), y.data()}, units);
    std::string what =
        std::to_string(outer) + "x" + std::to_string(n) + "x" + std::to_string(inner) + (log ? " log" : "");
    expect_close(y, naive_softmax(x, outer, n, inner, log), tolerance, what);
    std::vector<T> in_place = x;
    run(f, p, {in_place.data(), in_place.data()}, units);
    for (size_t i = 0; i < x.size(); i++)
      EXPECT_TRUE(in_place[i] == y[i] || (std::isnan(in_place[i]) && std::isnan(y[i]))) << what << " in place at " << i;
  }
}

TEST(Softmax, Shapes) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 4096, 5000})
    for (int64_t inner : {1, 2, 3, 5, 8, 15, 16, 17, 40}) {
      const int64_t outer = n > 1000 ? 1 : 3;
      check_softmax(kernel::ingot_softmax_f32, random_values<float>(size_t(outer * n * inner)), outer, n, inner, 1e-6);
    }
}

TEST(Softmax, Doubles) {
  for (int64_t n : {1, 5, 8, 33})
    for (int64_t inner : {1, 3, 17})
      check_softmax(kernel::ingot_softmax_f64, random_values<double>(size_t(2 * n * inner)), 2, n, inner, 1e-14);
}

TEST(Softmax, LargeValuesDoNotOverflow) {
  check_softmax(kernel::ingot_softmax_f32, random_values<float>(3 * 77, 1e4), 3, 77, 1, 1e-6);
  check_softmax(kernel::ingot_softmax_f32, random_values<float>(3 * 77, 3e37), 3, 77, 1, 1e-6);
}

// Masked positions get 0; a row of only -inf is NaN, as is one with NaN or +inf in it.
TEST(Softmax, Infinities) {
  const float inf = float(kInf), nan = std::nanf("");
  for (int64_t n : {1, 3, 8, 13}) {
    std::vector<float> x = random_values<float>(size_t(6 * n));
    auto at = [&](int64_t row, int64_t i) -> float& { return x[size_t(row * n + i)]; };
    for (int64_t i = 0; i < n; i++) at(0, i) = -inf;
    for (int64_t i = 1; i < n; i += 2) at(1, i) = -inf;
    at(2, n - 1) = nan;
    at(3, n / 2) = inf;
    at(4, 0) = nan;
    check_softmax(kernel::ingot_softmax_f32, x, 6, n, 1, 1e-6);
    check_softmax(kernel::ingot_softmax_f32, x, 1, 6, n, 1e-6);
    check_softmax(kernel::ingot_softmax_f32, x, n, 6, 1, 1e-6);
  }
}

TEST(Softmax, LongRowsSumToOne) {
  const int64_t n = 200000;
  std::vector<float> x = random_values<float>(size_t(n), 0.1), y(size_t(n), 0);
  run(kernel::ingot_softmax_f32, SoftmaxParams{0, n, 1}, {x.data(), y.data()}, 1);
  double sum = 0;
  for (float v : y) sum += v;
  EXPECT_NEAR(sum, 1, 5e-7);
}

// ---- layer normalisation ----

struct Case {
  int64_t rows, n;
  bool gamma = true, beta = true, rms = false, columns = true;
  int64_t row_channels = 1, channels = 1;
  double eps = 1e-5, scale = 3, offset = 0;
};

template <class T>
void check_layernorm(KernelFn f, const Case& c, double tolerance) {
  LayerNormParams p{c.gamma, c.beta, 1, 1, c.rms, c.columns, c.n, c.row_channels, c.channels, c.eps};
  std::vector<T> x = random_values<T>(size_t(c.rows * c.n), c.scale, c.offset);
  const size_t affine = size_t(c.columns ? c.n : c.channels);
  std::vector<T> gamma = random_values<T>(affine + 1, 1), beta = random_values<T>(affine + 2, 1);
  std::vector<T> y(x.size() + 16, T(-77)), mean(size_t(c.rows) + 4, T(-77)), invstd(size_t(c.rows) + 4, T(-77));
  run(f, p,
      {x.data(), c.gamma ? gamma.data() : nullptr, c.beta ? beta.data() : nullptr, y.data(), mean.data(),
       invstd.data()},
      c.rows);
  std::vector<double> want(x.size()), want_mean, want_invstd;
  for (int64_t r = 0; r < c.rows; r++) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < c.n; i++) m += x[size_t(r * c.n + i)];
    m = c.rms ? 0 : m / double(c.n);
    for (int64_t i = 0; i < c.n; i++) v += std::pow(x[size_t(r * c.n + i)] - m, 2);
    const double s = 1 / std::sqrt(v / double(c.n) + c.eps);
    want_mean.push_back(m);
    want_invstd.push_back(s);
    for (int64_t i = 0; i < c.n; i++) {
      const int64_t run = c.n / c.row_channels;
      const size_t k = size_t(c.columns ? i : (r * c.row_channels + i / run) % c.channels);
      want[size_t(r * c.n + i)] = (x[size_t(r * c.n + i)] - m) * s * (c.gamma ? gamma[k] : 1) + (c.beta ? beta[k] : 0);
    }
  }
  std::string what = "rows " + std::to_string(c.rows) + ", n " + std::to_string(c.n);
  expect_close(y, want, tolerance, what);
  expect_close(mean, want_mean, tolerance, what + " mean");
  expect_close(invstd, want_invstd, tolerance, what + " invstd");
}

TEST(LayerNorm, Columns) {
  for (int64_t n : {1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 100, 768, 4099, 10000})
    for (bool gamma : {false, true})
      for (bool beta : {false, true})
        for (bool rms : {false, true}) {
          Case c{.rows = 3, .n = n, .gamma = gamma, .beta = beta, .rms = rms};
          check_layernorm<float>(kernel::ingot_layernorm_f32, c, 3e-6);
          check_layernorm<double>(kernel::ingot_layernorm_f64, c, 1e-12);
        }
}

TEST(LayerNorm, InstanceAndGroup) {
  for (int64_t spatial : {1, 5, 49, 1000}) {
    Case instance{.rows = 6, .n = spatial, .columns = false, .channels = 3};
    check_layernorm<float>(kernel::ingot_layernorm_f32, instance, 3e-6);
    Case group{.rows = 4, .n = 3 * spatial, .columns = false, .row_channels = 3, .channels = 6};
    check_layernorm<float>(kernel::ingot_layernorm_f32, group, 3e-6);
    Case scale_only{.rows = 4, .n = 3 * spatial, .beta = false, .columns = false, .row_channels = 3, .channels = 6};
    check_layernorm<float>(kernel::ingot_layernorm_f32, scale_only, 3e-6);
  }
}

// A mean far larger than the deviation cancels when squares are summed first; two passes keep what the input has.
TEST(LayerNorm, OffsetInput) {
  Case c{.rows = 2, .n = 1024, .scale = 1, .offset = 1000};
  check_layernorm<float>(kernel::ingot_layernorm_f32, c, 3e-6);
}

TEST(LayerNorm, LongRows) {
  Case c{.rows = 1, .n = 300000, .scale = 1, .offset = 0.5};
  check_layernorm<float>(kernel::ingot_layernorm_f32, c, 3e-6);
}

TEST(LayerNorm, ConstantRow) {
  std::vector<float> x(20, 3.25f), y(20);
  LayerNormParams p{0, 0, 0, 0, 0, 1, 20, 1, 1, 1e-5};
  run(kernel::ingot_layernorm_f32, p, {x.data(), nullptr, nullptr, y.data(), nullptr, nullptr}, 1);
  for (float v : y) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace ingot
