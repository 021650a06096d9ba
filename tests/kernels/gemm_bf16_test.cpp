// Products of bf16 by bf16 against their definition in double: both forms, packed B and plain B of any strides, every
// height, tails of N and K, batches, results in f32 and bf16. Compiled with the kernels, for each build, where
// vdpbf16ps and tiles are done in software, and for the targets that have them.
// clang-format off: before the kernels
#include "tiles.h"
// clang-format on
#include "../../src/kernels/gemm_bf16_dot.cpp"
#include "../../src/kernels/gemm_bf16_tiles.cpp"
#include "reference.h"

namespace ingot::kernel {
namespace {

struct Shape {
  int64_t m, n, k;
  Bf16Form form = kBf16Dot;
  bool packed = true, a_transposed = false, b_transposed = false, c_half = false;
  int64_t batch[2] = {1, 1};        // A and C have both dims
  bool b_batched = false;           // B has the second of them
  int64_t a_gap = 0, m_blocks = 0;  // elements between rows of A
};

uint16_t to_bf16(float x) { return f32_to_bf16(VF(x))[0]; }
double wide(uint16_t x) { return bf16_to_f32(VH(x))[0]; }
std::vector<uint16_t> random_bf16(Random& random, int64_t count) {
  std::vector<uint16_t> v(static_cast<size_t>(count));
  for (auto& x : v) x = to_bf16(random.value());
  return v;
}

KernelStatus call_kernel(const GemmBf16Params& p, const KernelCall& call) {
  return p.form == kBf16Tiles ? ingot_gemm_bf16_tiles(&call) : ingot_gemm_bf16_dot(&call);
}

// The parameters of a shape, as ops/product.cpp fills them in.
GemmBf16Params params_of(const Shape& s) {
  GemmBf16Params p{};
  const int64_t a_line = (s.a_transposed ? s.m : s.k) + s.a_gap;
  p.form = s.form, p.m = s.m, p.n = s.n, p.k = s.k;
  p.panel = bf16_panel(s.form, kLanes, s.n);
  p.m_blocks = s.m_blocks ? s.m_blocks : bf16_m_blocks(s.m);
  p.b_packed = s.packed, p.c_half = s.c_half;
  p.a_row = s.a_transposed ? 1 : a_line, p.a_col = s.a_transposed ? a_line : 1;
  p.b_row = s.b_transposed ? 1 : s.n, p.b_col = s.b_transposed ? s.k : 1;
  p.batch[0] = 1, p.batch[1] = s.batch[0], p.batch[2] = s.batch[1];
  p.a_batch[2] = a_line * (s.a_transposed ? s.k : s.m), p.a_batch[1] = p.a_batch[2] * s.batch[1];
  p.b_batch[2] = s.b_batched ? s.k * s.n : 0;
  p.c_row = s.n, p.c_batch[2] = s.m * s.n, p.c_batch[1] = p.c_batch[2] * s.batch[1];
  p.a_packing = bf16_must_copy(p);
  p.extras = 2, p.extra[0] = {0, 1}, p.extra[1] = {s.n, 1};
  return p;
}

std::vector<uint16_t> packed_panels(const GemmBf16Params& p, const std::vector<uint16_t>& b) {
  std::vector<uint16_t> packed(static_cast<size_t>(bf16_packed_elements(p.form, p.panel, p.k, p.n)) + 1, 0xaaaa);
  const int64_t elements = p.panel * bf16_padded_depth(p.form, p.k);
  for (int64_t i = 0; i < div_up(p.n, p.panel); i++)
    bf16_pack_panel(packed.data() + i * elements, b.data() + i * p.panel * p.b_col, p.form, p.panel, p.k,
                    p.n - i * p.panel, p.b_row, p.b_col);
  EXPECT_EQ(packed.back(), 0xaaaa) << "overrun";
  return packed;
}

void check(const Shape& s, unsigned seed = 1) {
  SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " form " << s.form << " packed "
                                    << s.packed << " a^T " << s.a_transposed << " b^T " << s.b_transposed << " batch "
                                    << s.batch[0] << "x" << s.batch[1] << " gap " << s.a_gap);
  Random random(seed);
  const GemmBf16Params p = params_of(s);
  const int64_t entries = s.batch[0] * s.batch[1];
  // One element more: operands are never null.
  const std::vector<uint16_t> a = random_bf16(random, entries * p.a_batch[2] + 1);
  const std::vector<uint16_t> b = random_bf16(random, (s.b_batched ? s.batch[1] : 1) * s.k * s.n + 1);
  const std::vector<uint16_t> packed = s.packed ? packed_panels(p, b) : b;
  const std::vector<float> bias = random.values(s.n + 1), other = random.values(entries * s.m * s.n + 1);
  std::vector<float> c(static_cast<size_t>(entries * s.m * s.n + 1), kUntouched);
  std::vector<uint16_t> c_half(c.size(), 0xbeef);
  const int64_t bytes = bf16_scratch(p).total;
  std::vector<uint8_t> scratch(static_cast<size_t>(bytes + 4), 0xff);  // NaN in either type
  void* operands[] = {const_cast<uint16_t*>(a.data()), const_cast<uint16_t*>(packed.data()),
                      s.c_half ? static_cast<void*>(c_half.data()) : c.data(), const_cast<float*>(bias.data()),
                      const_cast<float*>(other.data())};
  test_extras = 2;
  for (int64_t begin = 0, units = bf16_units(p), done = 0; begin < units;) {
    const int64_t end = random.coin() ? units : random.in(begin + 1, units);
    const KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, scratch.data(), done};
    ASSERT_EQ(call_kernel(p, call), kOk);
    begin = done = end;
  }
  for (int64_t i = 0; i < 4; i++) EXPECT_EQ(scratch[static_cast<size_t>(bytes + i)], 0xff) << "scratch overrun";
  EXPECT_EQ(c.back(), kUntouched);
  EXPECT_EQ(c_half.back(), 0xbeef);
  for (int64_t e = 0; e < entries; e++)
    for (int64_t m = 0; m < s.m; m++)
      for (int64_t n = 0; n < s.n; n++) {
        double sum = 0;
        for (int64_t k = 0; k < s.k; k++)
          sum += wide(a[static_cast<size_t>(e * p.a_batch[2] + m * p.a_row + k * p.a_col)]) *
                 wide(b[static_cast<size_t>(e % s.batch[1] * p.b_batch[2] + k * p.b_row + n * p.b_col)]);
        const auto at = static_cast<size_t>((e * s.m + m) * s.n + n);
        const double expected = std::max(sum + bias[static_cast<size_t>(n)] + other[at], -1.0);
        if (s.c_half)
          ASSERT_LE(std::abs(wide(c_half[at]) - expected), std::abs(expected) / 256 + 1e-5)
              << e << " " << m << " " << n;
        else
          ASSERT_TRUE(close(expected, c[at], s.k)) << e << " " << m << " " << n;
      }
}

constexpr Bf16Form kForms[] = {kBf16Dot, kBf16Tiles};

TEST(GemmBf16, EveryHeight) {
  for (Bf16Form form : kForms)
    for (int64_t m = 1; m <= 40; m++) check({.m = m, .n = 70, .k = 66, .form = form}, unsigned(m));
}

TEST(GemmBf16, EveryTailOfN) {
  for (Bf16Form form : kForms)
    for (int64_t n : {1, 2, 7, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 130})
      for (bool packed : {true, false}) check({.m = 9, .n = n, .k = 40, .form = form, .packed = packed}, unsigned(n));
}

TEST(GemmBf16, EveryLengthOfK) {
  for (Bf16Form form : kForms)
    for (int64_t k = 0; k <= 70; k++)
      for (int64_t m : {1, 5, 35})
        for (bool packed : {true, false}) check({.m = m, .n = 50, .k = k, .form = form, .packed = packed}, unsigned(k));
}

TEST(GemmBf16, TransposedOperands) {
  for (Bf16Form form : kForms)
    for (bool a : {false, true})
      for (bool b : {false, true})
        for (bool packed : {false, true})
          for (int64_t k : {33, 64})
            check({.m = 21, .n = 53, .k = k, .form = form, .packed = packed, .a_transposed = a, .b_transposed = b});
}

TEST(GemmBf16, RowsApart) {
  for (Bf16Form form : kForms)
    for (int64_t gap : {1, 3, 32}) check({.m = 37, .n = 40, .k = 64, .form = form, .a_gap = gap});
}

TEST(GemmBf16, Batches) {
  for (Bf16Form form : kForms)
    for (bool b_batched : {false, true})
      for (int64_t k : {31, 64})
        check({.m = 13, .n = 37, .k = k, .form = form, .packed = false, .batch = {2, 3}, .b_batched = b_batched});
}

TEST(GemmBf16, GroupsOfRows) {
  for (Bf16Form form : kForms)
    for (int64_t m : {160, 161, 300})
      for (int64_t k : {31, 64}) check({.m = m, .n = 100, .k = k, .form = form});
  for (Bf16Form form : kForms) check({.m = 90, .n = 100, .k = 33, .form = form, .m_blocks = 3});
}

TEST(GemmBf16, ResultsInBf16) {
  for (Bf16Form form : kForms)
    for (int64_t m : {1, 8, 33})
      for (int64_t n : {5, 48, 64, 100}) check({.m = m, .n = n, .k = 50, .form = form, .c_half = true});
}

// Also where the compiler knows how many: tails of constant shapes.
template <int64_t Lanes>
void check_partial_store() {
  uint16_t to[kLanes + 1];
  for (auto& x : to) x = 0xbeef;
  VF value = VF(1.f);
  asm volatile("" : "+m"(value));
  store_partial(to, f32_to_bf16(value), Lanes);
  for (int64_t i = 0; i <= kLanes; i++) EXPECT_EQ(to[i], i < Lanes ? to_bf16(1.f) : 0xbeef) << i << " of " << Lanes;
}
TEST(GemmBf16, PartialStoresWriteNothingElse) {
  check_partial_store<0>();
  check_partial_store<1>();
  check_partial_store<2>();
  check_partial_store<3>();
  check_partial_store<kLanes>();
}

// 1 + 2^-8 has 9 bits: a product of two such is exact only if it is not rounded to bf16, nor the operands again.
TEST(GemmBf16, ProductsAreExact) {
  for (Bf16Form form : kForms) {
    const Shape s{.m = 1, .n = 1, .k = 2, .form = form};
    GemmBf16Params p = params_of(s);
    p.extras = 0;
    const std::vector<uint16_t> a = {to_bf16(1.0078125f), to_bf16(1.f)}, b = {to_bf16(1.0078125f), to_bf16(-1.f)};
    const std::vector<uint16_t> packed = packed_panels(p, b);
    float c = kUntouched;
    std::vector<uint8_t> scratch(static_cast<size_t>(bf16_scratch(p).total));
    void* operands[] = {const_cast<uint16_t*>(a.data()), const_cast<uint16_t*>(packed.data()), &c};
    test_extras = 0;
    ASSERT_EQ(call_kernel(p, {operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, 1, scratch.data(), 0}), kOk);
    EXPECT_EQ(c, 1.0078125f * 1.0078125f - 1.f);
  }
}

}  // namespace
}  // namespace ingot::kernel
