// Pooling against its definition, over random shapes. Compiled once for each build together with the kernel.
#include "../../src/kernels/pool.cpp"

#include "reference.h"

namespace ingot::kernel {
namespace {

double expected(const PoolParams& p, const std::vector<float>& x, int64_t n, const int64_t (&o)[3], int64_t c) {
  double best = -INFINITY, sum = 0;
  int64_t inside_count = 0, padded_count = 0;
  for (int64_t kd = 0; kd < p.kernel[0]; kd++)
    for (int64_t kh = 0; kh < p.kernel[1]; kh++)
      for (int64_t kw = 0; kw < p.kernel[2]; kw++) {
        int64_t k[3] = {kd, kh, kw}, at = n;
        bool inside = true, padded = true;
        for (int i = 0; i < 3; i++) {
          int64_t pos = o[i] * p.stride[i] - p.pad[i] + k[i] * p.dilation[i];
          inside &= pos >= 0 && pos < p.in[i];
          padded &= pos < p.in[i] + p.pad_behind[i];
          at = at * p.in[i] + pos;
        }
        padded_count += padded;
        if (!inside) continue;
        inside_count++;
        sum += x[at * p.channels + c];
        best = std::max(best, double(x[at * p.channels + c]));
      }
  if (p.kind == kMaxPool) return best;
  int64_t count = p.count_include_pad ? padded_count : inside_count;
  return count == 0 ? 0 : sum / double(count);
}

void check(const PoolParams& p, Random& random) {
  std::vector<float> x = random.values(p.batch * p.in[0] * p.in[1] * p.in[2] * p.channels);
  std::vector<float> y(p.batch * p.out[0] * p.out[1] * p.out[2] * p.channels, kUntouched);
  void* operands[] = {x.data(), y.data()};
  int64_t units = pool_units(p), middle = random.in(0, units);
  for (auto [begin, end] : {std::pair{int64_t(0), middle}, std::pair{middle, units}}) {
    KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, nullptr, 0};
    ASSERT_EQ(ingot_pool_f32(&call), kOk);
  }
  SCOPED_TRACE(::testing::Message() << "kind " << p.kind << " include " << p.count_include_pad << " channels "
                                    << p.channels << " in " << p.in[0] << "x" << p.in[1] << "x" << p.in[2] << " kernel "
                                    << p.kernel[0] << "x" << p.kernel[1] << "x" << p.kernel[2] << " stride "
                                    << p.stride[2] << " dilation " << p.dilation[2] << " pad " << p.pad[2]);
  for (size_t i = 0; i < y.size(); i++) {
    int64_t c = i % p.channels, pixel = i / p.channels, w = pixel % p.out[2], h = pixel / p.out[2] % p.out[1];
    int64_t d = pixel / p.out[2] / p.out[1] % p.out[0], n = pixel / p.out[2] / p.out[1] / p.out[0];
    double e = expected(p, x, n, {d, h, w}, c);
    if (std::isinf(e))
      ASSERT_EQ(y[i], float(e));
    else
      ASSERT_TRUE(close(e, y[i], 1)) << "pixel " << pixel << " channel " << c;
  }
}

PoolParams random_params(Random& random) {
  PoolParams p{.kind = random.in(0, 1),
               .count_include_pad = random.coin(),
               .batch = random.in(1, 2),
               .channels = random.in(1, 90)};
  for (int i = 0; i < 3; i++) {
    bool flat = i == 0 && random.in(0, 3) != 0;
    p.kernel[i] = flat ? 1 : random.in(1, 4), p.stride[i] = random.in(1, 3), p.dilation[i] = random.in(1, 2);
    p.pad[i] = flat ? 0 : random.in(0, p.kernel[i] - 1), p.pad_behind[i] = flat ? 0 : random.in(0, p.kernel[i] - 1);
    p.in[i] = flat ? 1 : random.in(1, 10);
    int64_t extent = (p.kernel[i] - 1) * p.dilation[i] + 1;
    while (p.in[i] + p.pad[i] + p.pad_behind[i] < extent) p.in[i]++;
    int64_t room = p.in[i] + p.pad[i] + p.pad_behind[i] - extent;
    p.out[i] = (random.coin() ? room : room + p.stride[i] - 1) / p.stride[i] + 1;  // floor or ceil mode
  }
  return p;
}

TEST(Pool, RandomShapes) {
  Random random(1);
  for (int i = 0; i < 400; i++) {
    check(random_params(random), random);
    if (HasFatalFailure()) return;
  }
}

TEST(Pool, CeilModeWindowBehindThePaddingCountsOnlyThePaddedImage) {
  Random random(2);
  PoolParams p{.kind = kAveragePool, .count_include_pad = 1, .batch = 1, .channels = 1};
  for (int i = 0; i < 3; i++) p.in[i] = p.out[i] = p.kernel[i] = p.stride[i] = p.dilation[i] = 1;
  p.in[2] = 4, p.kernel[2] = 3, p.stride[2] = 2, p.pad[2] = 0, p.pad_behind[2] = 0, p.out[2] = 2;
  std::vector<float> x = {1, 2, 3, 5}, y(2);
  void* operands[] = {x.data(), y.data()};
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, 1, nullptr, 0};
  ASSERT_EQ(ingot_pool_f32(&call), kOk);
  EXPECT_FLOAT_EQ(y[0], 2);
  EXPECT_FLOAT_EQ(y[1], 4);  // (3 + 5) / 2, not / 3
}

}  // namespace
}  // namespace ingot::kernel
