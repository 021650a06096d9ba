// Winograd's convolution against the definition, over sizes, channels, pads and both tiles, and its error beside that
// of the direct kernel. Compiled once for each build together with the kernels, like gemm_test.cpp.
#include "../../src/kernels/conv_winograd.cpp"
#include "../../src/kernels/conv.cpp"

#include "reference.h"

namespace ingot::kernel {
namespace {

struct WinogradCase {
  WinogradParams p{};
  std::vector<float> x, w, y, bias, residual;
};

struct Extent {
  int64_t in, pad, behind;
};
WinogradCase make_case(int64_t m, int64_t batch, int64_t in_channels, int64_t out_channels, const Extent (&sides)[2],
                       Random& random) {
  WinogradCase t;
  WinogradParams& p = t.p;
  p.m = m, p.batch = batch, p.in_channels = in_channels, p.out_channels = out_channels;
  for (int i = 0; i < 2; i++)
    p.in[i] = sides[i].in, p.pad[i] = sides[i].pad, p.out[i] = sides[i].in + sides[i].pad + sides[i].behind - 2;
  p.extras = 2, p.extra[0] = {0, 1}, p.extra[1] = {out_channels, 1};
  winograd_choose(p, kLanes);
  const int64_t outputs = batch * p.out[0] * p.out[1] * out_channels;
  t.x = random.values(batch * p.in[0] * p.in[1] * in_channels);
  t.w = random.values(out_channels * in_channels * 9);
  t.y.assign(outputs, kUntouched);
  t.bias = random.values(out_channels), t.residual = random.values(outputs);
  return t;
}

// In ranges of units that end anywhere, as threads get them.
void run(WinogradCase& t, Random& random) {
  std::vector<float> packed(winograd_packed_floats(t.p), NAN);
  for (int64_t i = winograd_panels(t.p); i-- > 0;) winograd_pack_weights(packed.data(), t.w.data(), t.p, i, i + 1);
  const int64_t floats = winograd_scratch_bytes(t.p) / 4, units = winograd_units(t.p);
  std::vector<float> memory(floats + 32, NAN);
  auto* scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  scratch[floats] = kUntouched;
  void* operands[] = {t.x.data(), packed.data(), t.y.data(), t.bias.data(), t.residual.data()};
  for (int64_t begin = 0; begin < units;) {
    const int64_t end = random.coin() ? units : random.in(begin + 1, units);
    KernelCall call{operands, reinterpret_cast<const int64_t*>(&t.p), nullptr, begin, end, scratch, 0};
    ASSERT_EQ(ingot_conv_winograd_f32(&call), kOk);
    begin = end;
  }
  EXPECT_EQ(scratch[floats], kUntouched) << "scratch overrun";
}

double expected_sum(const WinogradCase& t, int64_t pixel, int64_t c) {
  const WinogradParams& p = t.p;
  const int64_t x = pixel % p.out[1], y = pixel / p.out[1] % p.out[0], n = pixel / p.out[1] / p.out[0];
  double sum = 0;
  for (int64_t tap = 0; tap < 9; tap++) {
    const int64_t in_y = y - p.pad[0] + tap / 3, in_x = x - p.pad[1] + tap % 3;
    if (in_y < 0 || in_y >= p.in[0] || in_x < 0 || in_x >= p.in[1]) continue;
    const float* pixel_at = &t.x[((n * p.in[0] + in_y) * p.in[1] + in_x) * p.in_channels];
    for (int64_t i = 0; i < p.in_channels; i++) sum += double(pixel_at[i]) * t.w[(c * p.in_channels + i) * 9 + tap];
  }
  return sum;
}

void check(WinogradCase& t, Random& random) {
  const WinogradParams& p = t.p;
  SCOPED_TRACE(::testing::Message() << "m " << p.m << " batch " << p.batch << " channels " << p.in_channels << " > "
                                    << p.out_channels << " in " << p.in[0] << "x" << p.in[1] << " out " << p.out[0]
                                    << "x" << p.out[1] << " pad " << p.pad[0] << "," << p.pad[1] << " blocks "
                                    << p.blocks << " panel " << p.panel);
  test_extras = 2;
  run(t, random);
  // The transforms of m = 4 multiply errors by a few.
  const int64_t terms = p.in_channels * 9 * (p.m == 4 ? 16 : 2);
  for (int64_t i = 0; i < int64_t(t.y.size()); i++) {
    const int64_t c = i % p.out_channels;
    const double expected = std::max(expected_sum(t, i / p.out_channels, c) + t.bias[c] + t.residual[i], -1.0);
    ASSERT_TRUE(close(expected, t.y[i], terms)) << "pixel " << i / p.out_channels << " channel " << c;
  }
}

TEST(Winograd, EverySmallImage) {
  Random random(1);
  for (int64_t m : {2, 4})
    for (int64_t height = 1; height <= 13; height += 2)
      for (int64_t width : {1, 2, 3, 4, 5, 8, 9, 12, 17}) {
        const int64_t pad = random.in(0, 2), behind = random.in(height + pad < 3 ? 2 : 0, 2);
        const int64_t left = random.in(width < 3 ? 1 : 0, 2), right = random.in(width + left < 3 ? 1 : 0, 2);
        WinogradCase t = make_case(m, random.in(1, 2), random.in(1, 20), random.in(1, 20),
                                   {{height, pad, behind}, {width, left, right}}, random);
        check(t, random);
        if (HasFatalFailure()) return;
      }
}

TEST(Winograd, ChannelsOfEveryTail) {
  Random random(2);
  for (int64_t channels = 1; channels <= 70; channels++) {
    WinogradCase t = make_case(channels % 2 ? 2 : 4, 1, channels, random.in(1, 70), {{5, 1, 1}, {6, 1, 1}}, random);
    check(t, random);
    if (HasFatalFailure()) return;
  }
}

TEST(Winograd, BlocksAndPanels) {
  Random random(3);
  for (int i = 0; i < 60; i++) {
    WinogradCase t = make_case(
        random.coin() ? 2 : 4, 2, random.in(1, 70), random.in(1, 70),
        {{random.in(3, 13), random.in(0, 2), random.in(0, 2)}, {random.in(3, 17), random.in(0, 2), random.in(0, 2)}},
        random);
    t.p.panel = random.coin() ? 16 : kLanes == 16 ? 48 : 24;
    t.p.blocks = random.in(1, winograd_tiles(t.p));
    check(t, random);
    if (HasFatalFailure()) return;
  }
}

// Summed in pieces: more channels than one of them.
TEST(Winograd, ManyChannels) {
  Random random(4);
  for (int64_t m : {2, 4}) {
    WinogradCase t = make_case(m, 1, 300, 33, {{6, 1, 1}, {5, 1, 1}}, random);
    check(t, random);
  }
}

TEST(Winograd, NothingToDo) {
  Random random(5);
  WinogradCase t = make_case(4, 0, 8, 8, {{6, 1, 1}, {6, 1, 1}}, random);
  EXPECT_EQ(winograd_units(t.p), 0);
}

// RMS error against double for numbers as activations and weights are, without an epilogue.
double error_of(const std::vector<float>& y, const WinogradCase& t) {
  double error = 0, sum = 0;
  for (size_t i = 0; i < y.size(); i += 7) {
    const int64_t c = int64_t(i) % t.p.out_channels;
    const double expected = std::max(expected_sum(t, int64_t(i) / t.p.out_channels, c), -1.0);
    error += (expected - y[i]) * (expected - y[i]), sum += expected * expected;
  }
  return std::sqrt(error / sum);
}

double direct_error(const WinogradCase& t) {
  ConvParams p{};
  p.batch = 1, p.groups = 1, p.in_channels = t.p.in_channels, p.out_channels = t.p.out_channels;
  for (int i = 0; i < 3; i++) {
    p.in[i] = i ? t.p.in[i - 1] : 1, p.out[i] = i ? t.p.out[i - 1] : 1, p.pad[i] = i ? t.p.pad[i - 1] : 0;
    p.kernel[i] = i ? 3 : 1, p.stride[i] = p.dilation[i] = 1;
  }
  conv_choose(p, kLanes);
  std::vector<float> packed(conv_packed_floats(p)), y(t.y.size()), memory(conv_scratch_bytes(p) / 4 + 32);
  conv_pack_weights(packed.data(), t.w.data(), p, 0, conv_panels(p));
  void* operands[] = {const_cast<float*>(t.x.data()), packed.data(), y.data()};
  auto* scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, conv_units(p), scratch, 0};
  EXPECT_EQ(ingot_conv_f32(&call), kOk);
  return error_of(y, t);
}

TEST(Winograd, ErrorIsNearThatOfTheDirectKernel) {
  Random random(6);
  struct Layer {
    int64_t channels, side;
  };
  for (const Layer& l : {Layer{8, 20}, {32, 20}, {64, 28}, {128, 20}, {192, 20}, {256, 14}, {320, 10}}) {
    const int64_t m = winograd_best(l.channels, l.channels, l.side, l.side);
    ASSERT_NE(m, 0);
    WinogradCase t = make_case(m, 1, l.channels, l.channels, {{l.side, 1, 1}, {l.side, 1, 1}}, random);
    for (float& x : t.x) x = std::max(x, 0.f);
    test_extras = 0;
    run(t, random);
    const double error = error_of(t.y, t), direct = direct_error(t);
    EXPECT_LT(error, 2.3 * direct) << "m " << m << ", " << l.channels << " channels";
  }
}

TEST(Winograd, FormByChannelsAndImage) {
  EXPECT_EQ(winograd_best(64, 64, 56, 56), 4);
  EXPECT_EQ(winograd_best(128, 128, 28, 28), 4);
  EXPECT_EQ(winograd_best(256, 256, 14, 14), 2);
  EXPECT_EQ(winograd_best(512, 512, 7, 7), 0);
  EXPECT_EQ(winograd_best(16, 64, 56, 56), 2);
  EXPECT_EQ(winograd_best(3, 64, 224, 224), 0);
  EXPECT_EQ(winograd_best(64, 64, kUnknownSide, kUnknownSide), 2);
}

}  // namespace
}  // namespace ingot::kernel
