// Convolutions against their definition, over random shapes. Compiled once for each build together with the kernels,
// like gemm_test.cpp.
#include "../../src/kernels/conv.cpp"
#include "../../src/kernels/conv_depthwise.cpp"
#include "../../src/kernels/conv_few.cpp"

#include "reference.h"

namespace ingot::kernel {
namespace {

struct ConvCase {
  ConvParams p{};
  std::vector<float> x, w, y, bias, residual;
};

// Input positions along one dim that an output size needs, with `behind` of padding after the image.
int64_t out_size(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad, int64_t behind) {
  return (in + pad + behind - (kernel - 1) * dilation - 1) / stride + 1;
}

struct Dim {
  int64_t in, kernel = 1, stride = 1, dilation = 1, pad = 0, behind = 0;
};
ConvCase make_case(int64_t batch, int64_t groups, int64_t in_channels, int64_t out_channels, const Dim (&dims)[3],
                   Random& random) {
  ConvCase t;
  ConvParams& p = t.p;
  p.batch = batch, p.groups = groups, p.in_channels = in_channels, p.out_channels = out_channels;
  for (int i = 0; i < 3; i++) {
    const Dim& d = dims[i];
    p.in[i] = d.in, p.kernel[i] = d.kernel, p.stride[i] = d.stride, p.dilation[i] = d.dilation, p.pad[i] = d.pad;
    p.out[i] = out_size(d.in, d.kernel, d.stride, d.dilation, d.pad, d.behind);
  }
  p.extras = 2, p.extra[0] = {0, 1}, p.extra[1] = {out_channels, 1};
  conv_choose(p, kLanes);
  t.x = random.values(batch * p.in[0] * p.in[1] * p.in[2] * in_channels);
  t.w = random.values(out_channels * in_channels / groups * conv_taps(p));
  t.y.assign(conv_pixels(p) * out_channels, kUntouched);
  t.bias = random.values(out_channels), t.residual = random.values(conv_pixels(p) * out_channels);
  return t;
}

void run(ConvCase& t, KernelFn kernel, float* packed, int64_t units, int64_t scratch_bytes, Random& random) {
  int64_t floats = scratch_bytes / 4;
  std::vector<float> memory(floats + 32, NAN);
  auto* scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  scratch[floats] = kUntouched;
  void* operands[] = {t.x.data(), packed, t.y.data(), t.bias.data(), t.residual.data()};
  test_extras = 2;
  for (int64_t begin = 0; begin < units;) {
    int64_t end = random.coin() ? units : random.in(begin + 1, units);
    KernelCall call{operands, reinterpret_cast<const int64_t*>(&t.p), nullptr, begin, end, scratch, 0};
    ASSERT_EQ(kernel(&call), kOk);
    begin = end;
  }
  EXPECT_EQ(scratch[floats], kUntouched) << "scratch overrun";
}

double expected_sum(const ConvCase& t, int64_t n, const int64_t (&o)[3], int64_t c) {
  const ConvParams& p = t.p;
  int64_t in = conv_group_in(p), group = c / conv_group_out(p);
  double sum = 0;
  for (int64_t kd = 0; kd < p.kernel[0]; kd++)
    for (int64_t kh = 0; kh < p.kernel[1]; kh++)
      for (int64_t kw = 0; kw < p.kernel[2]; kw++) {
        int64_t k[3] = {kd, kh, kw}, at = n, tap = 0;
        bool inside = true;
        for (int i = 0; i < 3; i++) {
          int64_t pos = o[i] * p.stride[i] - p.pad[i] + k[i] * p.dilation[i];
          inside &= pos >= 0 && pos < p.in[i];
          at = at * p.in[i] + pos, tap = tap * p.kernel[i] + k[i];
        }
        for (int64_t i = 0; inside && i < in; i++)
          sum += double(t.x[at * p.in_channels + group * in + i]) * t.w[(c * in + i) * conv_taps(p) + tap];
      }
  return sum;
}

void compare(const ConvCase& t) {
  const ConvParams& p = t.p;
  SCOPED_TRACE(::testing::Message() << "batch " << p.batch << " groups " << p.groups << " channels " << p.in_channels
                                    << " > " << p.out_channels << " in " << p.in[0] << "x" << p.in[1] << "x" << p.in[2]
                                    << " kernel " << p.kernel[0] << "x" << p.kernel[1] << "x" << p.kernel[2]
                                    << " stride " << p.stride[1] << "," << p.stride[2] << " dilation " << p.dilation[1]
                                    << "," << p.dilation[2] << " pad " << p.pad[1] << "," << p.pad[2] << " merge "
                                    << p.merge_width << " split " << p.split << " chunk " << p.chunk << " outer "
                                    << p.chunk_outer << " blocks " << p.pixel_blocks << " panel " << p.panel);
  int64_t terms = conv_taps(p) * conv_group_in(p);
  for (int64_t pixel = 0; pixel < conv_pixels(p); pixel++)
    for (int64_t c = 0; c < p.out_channels; c++) {
      int64_t w = pixel % p.out[2], h = pixel / p.out[2] % p.out[1], d = pixel / p.out[2] / p.out[1] % p.out[0];
      int64_t n = pixel / p.out[2] / p.out[1] / p.out[0], at = pixel * p.out_channels + c;
      double expected = std::max(expected_sum(t, n, {d, h, w}, c) + t.bias[c] + t.residual[at], -1.0);
      ASSERT_TRUE(close(expected, t.y[at], terms)) << "pixel " << pixel << " channel " << c;
    }
}

void check_conv(ConvCase& t, Random& random) {
  std::vector<float> packed(conv_packed_floats(t.p), NAN);
  conv_pack_weights(packed.data(), t.w.data(), t.p, 0, conv_panels(t.p));
  run(t, ingot_conv_f32, packed.data(), conv_units(t.p), conv_scratch_bytes(t.p), random);
  compare(t);
}
void check_depthwise(ConvCase& t, Random& random) {
  std::vector<float> packed(t.w.size(), NAN);
  conv_pack_depthwise(packed.data(), t.w.data(), t.p);
  conv_choose_depthwise(t.p, kLanes);
  run(t, ingot_conv_depthwise_f32, packed.data(), conv_depthwise_units(t.p), 0, random);
  compare(t);
}

void check_few(ConvCase& t, Random& random) {
  conv_choose_few(t.p, kLanes);
  t.p.pixel_blocks = random.in(1, 4);
  std::vector<float> packed(conv_packed_floats(t.p), NAN);
  conv_pack_weights(packed.data(), t.w.data(), t.p, 0, conv_panels(t.p));
  run(t, ingot_conv_few_f32, packed.data(), conv_few_units(t.p), conv_scratch_bytes(t.p), random);
  compare(t);
}

// A dim on which a window of the kernel fits somewhere.
Dim random_dim(Random& random, int64_t largest) {
  Dim d{.in = random.in(1, largest),
        .kernel = random.in(1, 4),
        .stride = random.in(1, 3),
        .dilation = random.in(1, 2),
        .pad = random.in(0, 3),
        .behind = random.in(0, 3)};
  while (d.in + d.pad + d.behind < (d.kernel - 1) * d.dilation + 1) d.in++;
  return d;
}

TEST(Conv, ChannelsOfEveryTail) {
  Random random(1);
  for (int64_t in : {1, 3, 8, 21})
    for (int64_t out : {1, 15, 16, 17, 40}) {
      ConvCase t = make_case(1, 1, in, out, {{1}, {7, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}}, random);
      check_conv(t, random);
    }
}

TEST(Conv, StemWithMergedRows) {
  Random random(2);
  ConvCase t = make_case(2, 1, 3, 24, {{1}, {23, 7, 2, 1, 3, 3}, {25, 7, 2, 1, 3, 3}}, random);
  EXPECT_EQ(t.p.merge_width, 1);
  check_conv(t, random);
}

TEST(Conv, LongChannelsAreSplit) {
  Random random(3);
  ConvCase t = make_case(1, 1, 1024, 16, {{1}, {3, 3, 1, 1, 1, 1}, {4, 3, 1, 1, 1, 1}}, random);
  EXPECT_GT(t.p.split, 1);
  check_conv(t, random);
}

TEST(Conv, RandomShapes) {
  Random random(4);
  for (int i = 0; i < 250; i++) {
    int64_t groups = random.coin() ? 1 : random.in(2, 4);
    bool deep = random.in(0, 3) == 0;
    ConvCase t =
        make_case(random.in(1, 2), groups, groups * random.in(1, 20), groups * random.in(1, 30),
                  {deep ? random_dim(random, 4) : Dim{1}, random_dim(random, 8), random_dim(random, 12)}, random);
    ConvParams& p = t.p;
    p.panel = random.coin() ? 16 : kLanes == 16 ? 48 : 24;
    p.merge_width = groups == 1 && p.dilation[2] == 1 && random.coin();
    p.split = conv_segment_length(p) % 2 == 0 && random.coin() ? 2 : 1;
    p.chunk = random.in(1, 20), p.chunk_outer = random.coin(), p.pixel_blocks = random.in(1, 4);
    p.tile_rows = tallest_tile(conv_pixels(p), tile_rows(kLanes, p.panel));
    p.last_vectors = conv_last_vectors(p, kLanes);
    check_conv(t, random);
    if (HasFatalFailure()) return;
  }
}

TEST(ConvToFewChannels, LongFilter) {
  Random random(7);
  for (int64_t out = 1; out <= kConvFewOutputs; out++) {
    ConvCase t = make_case(2, 1, 1, out, {{1}, {1}, {700, 255, 2, 1, 127, 100}}, random);
    check_few(t, random);
  }
}

TEST(ConvToFewChannels, RandomShapes) {
  Random random(8);
  for (int i = 0; i < 150; i++) {
    int64_t groups = random.coin() ? 1 : random.in(2, 3);
    bool deep = random.in(0, 3) == 0;
    ConvCase t =
        make_case(random.in(1, 2), groups, groups * random.in(1, 70), groups * random.in(1, kConvFewOutputs),
                  {deep ? random_dim(random, 4) : Dim{1}, random_dim(random, 8), random_dim(random, 12)}, random);
    check_few(t, random);
    if (HasFatalFailure()) return;
  }
}

TEST(Depthwise, ChannelsOfEveryTail) {
  Random random(5);
  for (int64_t group : {1, 2, 4})
    for (int64_t channels = group; channels < 50; channels += group) {
      ConvCase t =
          make_case(1, channels / group, channels, channels, {{1}, {5, 3, 1, 1, 1, 1}, {15, 3, 1, 1, 1, 1}}, random);
      check_depthwise(t, random);
    }
}

TEST(Depthwise, RandomShapes) {
  Random random(6);
  for (int i = 0; i < 250; i++) {
    int64_t group = int64_t(1) << random.in(0, 2), groups = random.in(1, 50 / group), channels = groups * group;
    bool deep = random.in(0, 3) == 0;
    ConvCase t =
        make_case(random.in(1, 2), groups, channels, channels,
                  {deep ? random_dim(random, 4) : Dim{1}, random_dim(random, 8), random_dim(random, 20)}, random);
    check_depthwise(t, random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ingot::kernel
