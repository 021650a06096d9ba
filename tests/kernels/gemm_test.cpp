// GEMM against its definition, over random shapes, strides and splits into units. Compiled once for each build together
// with the kernel: clang++ -march=<build> -Isrc tests/kernels/gemm_test.cpp -lgtest -lgtest_main
#include "../../src/kernels/gemm.cpp"

#include "reference.h"

namespace ingot::kernel {
namespace {

struct GemmCase {
  GemmParams p{};
  std::vector<float> a, b, c, bias, residual;
  std::vector<float> packed;

  int64_t entries() const { return p.batch[0] * p.batch[1] * p.batch[2]; }
  static int64_t offset(const GemmParams& p, const int64_t (&stride)[3], int64_t entry) {
    int64_t i2 = entry % p.batch[2], i1 = entry / p.batch[2] % p.batch[1], i0 = entry / p.batch[2] / p.batch[1];
    return i0 * stride[0] + i1 * stride[1] + i2 * stride[2];
  }
};

const std::vector<int64_t> kPanels = kLanes == 16 ? std::vector<int64_t>{16, 32, 48, 64} : std::vector<int64_t>{16, 24};
const int64_t kWidest = kPanels.back();

struct GemmShape {
  int64_t m, n, k, panel = 16;
  bool a_transposed = false, a_packing = false, b_packed = true, b_transposed = false, b_strided = false;
  int64_t batch[3] = {1, 1, 1};
  bool b_broadcast = false;
  int64_t m_blocks = 0, k_slice = 0;
};

GemmCase make_case(const GemmShape& s, Random& random) {
  GemmCase t;
  GemmParams& p = t.p;
  p.panel = s.panel, p.b_packed = s.b_packed, p.a_packing = s.a_packing || s.a_transposed;
  p.k_slice = s.k_slice ? s.k_slice : gemm_k_slice(s.k), p.m_blocks = s.m_blocks ? s.m_blocks : gemm_m_blocks(s.m);
  p.tile_rows = tallest_tile(s.m, tile_rows(kLanes, s.panel));
  p.m = s.m, p.n = s.n, p.k = s.k;
  int64_t pad_a = random.in(0, 3), pad_b = random.in(0, 3), pad_c = random.in(0, 3);
  p.a_row = s.a_transposed ? 1 : s.k + pad_a, p.a_col = s.a_transposed ? s.m + pad_a : 1;
  int64_t inner = s.b_strided ? 2 : 1;
  p.b_row = s.b_transposed ? inner : (s.n + pad_b) * inner, p.b_col = s.b_transposed ? (s.k + pad_b) * inner : inner;
  p.c_row = s.n + pad_c;
  int64_t a_size = (s.m + 3) * (s.k + 3), b_size = (s.n + 3) * (s.k + 3) * inner, c_size = s.m * p.c_row;
  int64_t entries = 1, b_entries = 1;
  int64_t packed_size = packed_floats(s.k, s.n, s.panel);
  for (int i = 2; i >= 0; i--) {
    p.batch[i] = s.batch[i];
    p.a_batch[i] = entries * a_size, p.c_batch[i] = entries * c_size;
    p.b_batch[i] = s.b_broadcast && i < 2 ? 0 : b_entries * (s.b_packed ? packed_size : b_size);
    entries *= s.batch[i];
    if (!(s.b_broadcast && i < 2)) b_entries *= s.batch[i];
  }
  t.a = random.values(entries * a_size), t.b = random.values(b_entries * b_size);
  t.c.assign(entries * c_size, kUntouched);
  t.bias = random.values(s.n), t.residual = random.values(entries * s.m * s.n);
  p.extras = 2, p.extra[0] = {0, 1}, p.extra[1] = {s.n, 1};
  if (s.b_packed) {
    t.packed.assign(b_entries * packed_size + 1, NAN);
    for (int64_t i = 0; i < b_entries; i++)
      pack_b(t.packed.data() + i * packed_size, t.b.data() + i * b_size, s.k, s.n, p.b_row, p.b_col, s.panel, 0,
             div_up(s.n, s.panel));
  }
  return t;
}

void run(GemmCase& t, Random& random) {
  int64_t units = gemm_units(t.p), floats = gemm_scratch_bytes(t.p) / 4;
  std::vector<float> scratch_memory(floats + 32, NAN);
  auto* scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch_memory.data()) + 63) / 64 * 64);
  scratch[floats] = kUntouched;
  void* operands[] = {t.a.data(), t.p.b_packed ? t.packed.data() : t.b.data(), t.c.data(), t.bias.data(),
                      t.residual.data()};
  test_extras = 2;
  for (int64_t begin = 0; begin < units;) {
    int64_t end = random.coin() ? units : random.in(begin + 1, units);
    KernelCall call{operands, reinterpret_cast<const int64_t*>(&t.p), nullptr, begin, end, scratch, 0};
    ASSERT_EQ(ingot_gemm_f32(&call), kOk);
    begin = end;
  }
  EXPECT_EQ(scratch[floats], kUntouched) << "scratch overrun";
}

void check(const GemmShape& s, unsigned seed = 1) {
  Random random(seed);
  GemmCase t = make_case(s, random);
  run(t, random);
  SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " panel " << s.panel << " a^T "
                                    << s.a_transposed << " packed " << s.b_packed << " b^T " << s.b_transposed
                                    << " strided " << s.b_strided << " blocks " << t.p.m_blocks << " slice "
                                    << t.p.k_slice << " seed " << seed);
  const GemmParams& p = t.p;
  GemmParams plain = p;  // offsets in the unpacked B
  int64_t b_size = (s.n + 3) * (s.k + 3) * (s.b_strided ? 2 : 1), packed_size = packed_floats(s.k, s.n, s.panel);
  if (p.b_packed)
    for (int i = 0; i < 3; i++) plain.b_batch[i] = packed_size ? p.b_batch[i] / packed_size * b_size : 0;
  for (int64_t e = 0; e < t.entries(); e++)
    for (int64_t m = 0; m < s.m; m++)
      for (int64_t n = 0; n < p.c_row; n++) {
        float actual = t.c[GemmCase::offset(p, p.c_batch, e) + m * p.c_row + n];
        if (n >= s.n) {
          ASSERT_EQ(actual, kUntouched) << "store past the columns, row " << m << " col " << n;
          continue;
        }
        double sum = 0;
        for (int64_t k = 0; k < s.k; k++)
          sum += double(t.a[GemmCase::offset(p, p.a_batch, e) + m * p.a_row + k * p.a_col]) *
                 t.b[GemmCase::offset(plain, plain.b_batch, e) + k * p.b_row + n * p.b_col];
        double expected = std::max(sum + t.bias[n] + t.residual[(e * s.m + m) * s.n + n], -1.0);
        ASSERT_TRUE(close(expected, actual, s.k)) << "entry " << e << " row " << m << " col " << n;
      }
}

TEST(Gemm, EveryHeightAndTail) {
  for (int64_t panel : kPanels)
    for (int64_t m = 1; m <= 14; m++)
      for (int64_t n : {1, 7, 8, 15, 16, 17, 24, 25, 47, 48, 50}) check({.m = m, .n = n, .k = 37, .panel = panel});
}

TEST(Gemm, EveryLengthOfK) {
  for (int64_t k = 0; k <= 34; k++)
    for (int64_t m : {1, 2, 6, 9}) {
      check({.m = m, .n = 40, .k = k});
      check({.m = m, .n = 40, .k = k, .panel = kWidest, .b_packed = false});
    }
}

TEST(Gemm, SlicesOfKAccumulate) {
  for (int64_t k : {1500, 1536, 2050}) check({.m = 13, .n = 50, .k = k, .panel = kWidest});
  for (int64_t slice : {1, 5, 8, 24}) check({.m = 13, .n = 50, .k = 48, .k_slice = slice});
  for (int64_t slice : {5, 8, 24})
    check({.m = 13, .n = 50, .k = 48, .a_packing = true, .b_packed = false, .k_slice = slice});
}

TEST(Gemm, PlainBOfAnyStrides) {
  for (bool transposed : {false, true})
    for (bool strided : {false, true})
      for (int64_t m : {1, 5, 30})
        for (int64_t n : {3, 16, 24, 61})
          for (int64_t panel : kPanels)
            check({.m = m,
                   .n = n,
                   .k = 29,
                   .panel = panel,
                   .b_packed = false,
                   .b_transposed = transposed,
                   .b_strided = strided});
}

TEST(Gemm, PackedFromAnyStrides) {
  for (bool transposed : {false, true})
    for (bool strided : {false, true})
      for (int64_t n : {3, 24, 61}) check({.m = 7, .n = n, .k = 29, .b_transposed = transposed, .b_strided = strided});
}

TEST(Gemm, BatchesBroadcast) {
  for (bool broadcast : {false, true})
    for (bool packed : {false, true})
      check({.m = 9, .n = 33, .k = 20, .b_packed = packed, .batch = {2, 3, 2}, .b_broadcast = broadcast});
}

TEST(Gemm, RandomShapes) {
  Random random(7);
  for (unsigned i = 0; i < 300; i++)
    check({.m = random.in(1, random.coin() ? 10 : 150),
           .n = random.in(1, 100),
           .k = random.in(0, 130),
           .panel = random.coin() ? 16 : kWidest,
           .a_transposed = random.coin(),
           .a_packing = random.coin(),
           .b_packed = random.coin(),
           .b_transposed = random.coin(),
           .b_strided = random.in(0, 4) == 0,
           .batch = {random.in(1, 2), 1, random.in(1, 3)},
           .b_broadcast = random.coin(),
           .m_blocks = random.in(1, 5),
           .k_slice = random.coin() ? 0 : random.in(1, 64)},
          i);
}

}  // namespace
}  // namespace ingot::kernel
