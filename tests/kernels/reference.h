// What the kernel tests share: random data, a plain definition of an epilogue, and comparison with sums in double.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/hooks.h"

namespace ingot::kernel {

// The epilogue of every test: acc, plus each extra operand as its strides say, then a maximum with -1 so that it is not
// linear (an epilogue applied to partial sums, or twice, shows).
inline int64_t test_extras = 0;
inline float test_epilogue(float acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col) {
  for (int64_t i = 0; i < test_extras; i++)
    acc += static_cast<const float*>(extra[i])[row * strides[i].row_stride + col * strides[i].col_stride];
  return std::max(acc, -1.f);
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool coin() { return in(0, 1) == 1; }
  float value() { return std::uniform_real_distribution<float>(-1, 1)(engine_); }
  std::vector<float> values(int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = value();
    return v;
  }

 private:
  std::mt19937 engine_;
};

// A float that was computed as a sum of `terms` products of numbers up to 1, against the sum in double.
inline ::testing::AssertionResult close(double expected, float actual, int64_t terms) {
  double tolerance = 2e-7 * std::sqrt(double(terms) + 4) * 4 + 1e-6 * std::abs(expected);
  if (std::abs(expected - double(actual)) <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected " << expected << ", found " << actual;
}

inline constexpr float kUntouched = 12345.f;  // what outputs hold before, to find stores that should not be

}  // namespace ingot::kernel

// Defined in the tests' own translation unit, at the level under test.
namespace ingot::kernel {
extern "C" inline VF ingot_hook_epilogue(VF acc, void* const* extra, const EpilogueOperand* strides, int64_t row,
                                         int64_t col, int64_t lanes, const ExprProgram*) {
  for (int64_t i = 0; i < lanes; i++) acc[i] = test_epilogue(acc[i], extra, strides, row, col + i);
  for (int64_t i = lanes; i < kLanes; i++) acc[i] = NAN;
  return acc;
}
}  // namespace ingot::kernel
