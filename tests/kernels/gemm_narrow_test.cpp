// GEMM with weights in fewer bits against its definition: every type, scales per matrix, column and block, zero points,
// few rows and many, blocks that do not divide K. Compiled once for each build, where vpdpbusd is done in software, and
// for targets that have it, with the kernels and the packer.
#include "../../src/kernels/gemm.cpp"
#include "../../src/kernels/gemm_few.cpp"
#include "../../src/kernels/gemm_fixed.cpp"
#include "../../src/kernels/gemm_row_dot.cpp"

#include "../../src/planner/pack_narrow.cpp"
#include "reference.h"

namespace ingot::kernel {
namespace {

enum Zero { kNone, kOne, kInteger, kFraction };

struct NarrowShape {
  int64_t m, n, k;
  DType dtype;
  int64_t block = 0;
  Zero zero = kNone;
  bool b_transposed = false, a_transposed = false, scale_of_all = false, half_scales = false;
  int64_t k_slice = 0, m_blocks = 0, a_digits = 3;
  float size = 1, bad = 0;  // of the elements of A; one of them, where it is not 0
};

struct Weights {
  std::vector<std::byte> bytes;
  NarrowMatrix matrix;
  std::vector<double> wide;  // [k][n]
};

void put_number(std::vector<std::byte>& bytes, DType dtype, int64_t index, int number) {
  if (bits(dtype) == 8) {
    bytes[static_cast<size_t>(index)] = static_cast<std::byte>(number);
    return;
  }
  bytes[static_cast<size_t>(index / 2)] |= static_cast<std::byte>((number & 15) << index % 2 * 4);
}

Weights make_weights(const NarrowShape& s, Random& random) {
  Weights w;
  NarrowMatrix& m = w.matrix;
  m.k = s.k, m.n = s.n, m.dtype = s.dtype, m.block = s.block;
  m.row = s.b_transposed ? 1 : s.n, m.col = s.b_transposed ? s.k : 1;
  w.bytes.assign(static_cast<size_t>(s.k * s.n * bits(s.dtype) / 8 + 1), std::byte{0});
  w.wide.resize(static_cast<size_t>(s.k * s.n));
  const bool half = bits(s.dtype) == 16, is_signed = s.dtype == DType::I8 || s.dtype == DType::I4;
  const int64_t range = int64_t{1} << (half ? 0 : bits(s.dtype)), low = is_signed ? -range / 2 : 0;
  const int64_t groups = s.block ? div_up(s.k, s.block) : 1, columns = s.scale_of_all ? 1 : s.n;
  m.s_group = columns, m.s_column = s.scale_of_all ? 0 : 1;
  std::vector<float> scale, zero;
  const float one_zero = float(random.in(low, low + range - 1));
  for (int64_t i = 0; i < groups * columns; i++) {
    scale.push_back((random.value() + 2.f) / float(range));
    if (s.half_scales) scale.back() = f16_to_f32(f32_to_f16(VF(scale.back())))[0];
    const float integer = float(random.in(low, low + range - 1));
    zero.push_back(s.zero == kOne ? one_zero : s.zero == kInteger ? integer : integer + 0.25f);
  }
  for (int64_t k = 0; k < s.k; k++)
    for (int64_t n = 0; n < s.n; n++) {
      const int64_t at = k * m.row + n * m.col;
      double& wide = w.wide[static_cast<size_t>(k * s.n + n)];
      if (half) {
        const VF v = VF(random.value());
        const uint16_t stored = (s.dtype == DType::BF16 ? f32_to_bf16(v) : f32_to_f16(v))[0];
        std::memcpy(w.bytes.data() + 2 * at, &stored, 2);
        wide = half_at(s.dtype, w.bytes.data(), at);
        continue;
      }
      const int number = static_cast<int>(random.in(low, low + range - 1));
      put_number(w.bytes, s.dtype, at, number);
      const auto p = static_cast<size_t>((s.block ? k / s.block : 0) * m.s_group + n * m.s_column);
      wide = (number - double(s.zero == kNone ? 0.f : zero[p])) * scale[p];
    }
  m.values = w.bytes.data();
  if (!half) m.scale = std::make_shared<std::vector<float>>(scale);
  if (!half && s.zero != kNone) m.zero = std::make_shared<std::vector<float>>(zero);
  return w;
}

void run(const GemmParams& p, void** operands, Random& random, KernelFn kernel = nullptr) {
  const int64_t floats = div_up(gemm_scratch_bytes(p), 4);
  std::vector<float> scratch(static_cast<size_t>(floats + 1), NAN);
  scratch[static_cast<size_t>(floats)] = kUntouched;
  if (!kernel) kernel = p.form == kGemmFew ? ingot_gemm_few : p.form == kGemmFixed ? ingot_gemm_fixed : ingot_gemm_f32;
  test_extras = 1;
  for (int64_t begin = 0, units = gemm_units(p); begin < units;) {
    const int64_t end = random.coin() ? units : random.in(begin + 1, units);
    KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, scratch.data(), begin};
    ASSERT_EQ(kernel(&call), kOk);
    begin = end;
  }
  EXPECT_EQ(scratch[static_cast<size_t>(floats)], kUntouched) << "scratch overrun";
}

void check(const NarrowShape& s, unsigned seed = 1) {
  SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " " << name(s.dtype) << " block "
                                    << s.block << " zero " << s.zero << " b^T " << s.b_transposed << " a^T "
                                    << s.a_transposed << " slice " << s.k_slice << " digits " << s.a_digits << " seed "
                                    << seed);
  Random random(seed);
  const Weights w = make_weights(s, random);
  const NarrowPacking packing = narrow_packing(w.matrix, kLanes);
  const int64_t size = narrow_bytes(packing.layout, s.n);
  std::vector<std::byte> packed(static_cast<size_t>(size) + 1, std::byte{0xaa});  // operands are never null
  for (int64_t i = 0; i < div_up(s.n, packing.layout.panel); i++)
    pack_narrow_panel(w.matrix, packing, packed.data(), i);

  GemmParams p{};
  p.panel = packing.layout.panel;
  p.b_packed = 1, p.b_type = packing.layout.type, p.b_zeros = packing.layout.zeros, p.b_half = packing.layout.half,
  p.b_block = packing.layout.block;
  p.a_digits = s.a_digits, p.b_zero = packing.zero, p.m = s.m, p.n = s.n, p.k = s.k,
  p.batch[0] = p.batch[1] = p.batch[2] = 1;
  gemm_cut(p, kLanes, gemm_form(p));
  p.a_row = s.a_transposed ? 1 : s.k, p.a_col = s.a_transposed ? s.m : 1, p.c_row = s.n;
  p.a_packing |= s.a_transposed;
  if (s.k_slice) p.k_slice = p.form == kGemmFixed ? div_up(s.k_slice, kRunRows) * kRunRows : s.k_slice;
  if (s.m_blocks) p.m_blocks = s.m_blocks;
  p.extras = 1, p.extra[0] = {0, 1};
  std::vector<float> a = random.values(s.m * s.k + 1), c(static_cast<size_t>(s.m * s.n), kUntouched);
  for (float& x : a) x *= s.size;
  if (s.bad != 0) a[static_cast<size_t>(s.k / 2)] = s.bad;
  std::vector<float> bias = random.values(s.n);
  void* operands[] = {a.data(), packed.data(), c.data(), bias.data()};
  run(p, operands, random);
  if (gemm_in_digits(p)) {
    std::vector<float> dot(c.size(), kUntouched);
    operands[2] = dot.data();
    run(p, operands, random, ingot_gemm_row_dot);
    EXPECT_EQ(std::memcmp(dot.data(), c.data(), c.size() * sizeof(float)), 0) << "vpdpbusd gives other bits";
  }
  // What 16 bits may lose: half a unit of each element, times the largest weight: 15 * 3 / 16, or 255 * 3 / 256.
  const bool rounded = s.a_digits == 2 && (p.form == kGemmFixed || gemm_in_digits(p));
  const double lost = rounded ? double(s.k) * s.size / (127 << 8) / 2 * 3 : 0;
  for (int64_t m = 0; m < s.m; m++)
    for (int64_t n = 0; n < s.n; n++) {
      double sum = 0, size_of_terms = 0;
      for (int64_t k = 0; k < s.k; k++) {
        const double term =
            double(a[static_cast<size_t>(m * p.a_row + k * p.a_col)]) * w.wide[static_cast<size_t>(k * s.n + n)];
        sum += term;
        size_of_terms += std::abs(term);
      }
      const double expected = std::max(sum + bias[static_cast<size_t>(n)], -1.0);
      const float actual = c[static_cast<size_t>(m * s.n + n)];
      if (!std::isfinite(sum)) {
        EXPECT_FALSE(std::isfinite(actual) && actual != -1.f) << m << " " << n;
        continue;
      }
      // Zero points are subtracted from the sum where rows are few: the terms are up to twice as large.
      ASSERT_LE(std::abs(expected - actual), lost + 1e-6 + 1e-6 * (size_of_terms + std::sqrt(double(s.k))))
          << m << " " << n;
    }
}

constexpr DType kTypes[] = {DType::BF16, DType::F16, DType::I8, DType::U8, DType::I4, DType::U4};
constexpr DType kIntegers[] = {DType::I8, DType::U8, DType::I4, DType::U4};

TEST(GemmNarrow, EveryTypeHeightAndTail) {
  for (DType t : kTypes)
    for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 17, 40})
      for (int64_t n : {1, 7, 16, 23, 24, 25, 50}) check({.m = m, .n = n, .k = 37, .dtype = t});
}

TEST(GemmNarrow, EveryLengthOfK) {
  for (DType t : kTypes)
    for (int64_t k = 0; k <= 34; k++)
      for (int64_t m : {1, 6, 11}) check({.m = m, .n = 40, .k = k, .dtype = t});
}

TEST(GemmNarrow, BlocksOfAnySize) {
  for (DType t : kIntegers)
    for (int64_t block : {1, 5, 8, 16, 32, 48, 64, 128, 200})
      for (Zero zero : {kNone, kOne, kInteger, kFraction})
        for (int64_t m : {1, 8, 12})
          for (int64_t k : {64, 75, 130}) check({.m = m, .n = 30, .k = k, .dtype = t, .block = block, .zero = zero});
}

TEST(GemmNarrow, ScalesInHalves) {
  for (DType t : kIntegers)
    for (int64_t block : {0, 5, 16, 32, 64})
      for (Zero zero : {kNone, kOne, kFraction})
        for (int64_t m : {1, 3, 12})
          check({.m = m, .n = 50, .k = 130, .dtype = t, .block = block, .zero = zero, .half_scales = true});
}

TEST(GemmNarrow, RowsOf16Bits) {
  for (DType t : kIntegers)
    for (int64_t block : {0, 1, 5, 16, 32, 48, 64, 80})
      for (int64_t k : {1, 31, 64, 130})
        for (Zero zero : {kNone, kOne, kFraction})
          for (int64_t m : {1, 5, 7})
            check({.m = m, .n = 50, .k = k, .dtype = t, .block = block, .zero = zero, .a_digits = 2});
}

TEST(GemmNarrow, RowsOf16BitsInEveryTile) {
  for (DType t : {DType::I8, DType::U4})
    for (int64_t m = 2; m <= 40; m++)
      for (int64_t n : {16, 24, 70}) check({.m = m, .n = n, .k = 70, .dtype = t, .block = 32, .a_digits = 2});
}

TEST(GemmNarrow, RowsOf16BitsInSlicesAndBlocks) {
  for (DType t : kIntegers)
    for (int64_t slice : {32, 96})
      for (bool transposed : {false, true})
        check({.m = 33,
               .n = 50,
               .k = 300,
               .dtype = t,
               .block = 48,
               .zero = kInteger,
               .a_transposed = transposed,
               .half_scales = true,
               .k_slice = slice,
               .m_blocks = 3,
               .a_digits = 2});
}

// Integers are used only where the precision of A is said to matter less, and where they cannot overflow.
TEST(GemmNarrow, Forms) {
  GemmParams p{};
  p.b_type = kPanelU4, p.panel = 16, p.m = 64, p.k = 64, p.b_block = 32, p.a_digits = 2;
  EXPECT_EQ(gemm_form(p), kGemmFixed);
  p.b_zero = 100000;
  EXPECT_EQ(gemm_form(p), kGemmWide);
  p.b_zeros = 1;
  EXPECT_EQ(gemm_form(p), kGemmFixed);
  p.a_digits = 3;
  EXPECT_EQ(gemm_form(p), kGemmWide);
  p.a_digits = 2, p.m = 4;
  EXPECT_EQ(gemm_form(p), kGemmFew);
  p.m = 64, p.b_type = kPanelBF16;
  EXPECT_EQ(gemm_form(p), kGemmWide);
  p.m = 1;
  EXPECT_EQ(gemm_form(p), kGemmFew);
  p.b_type = kPanelU4;
  EXPECT_EQ(gemm_form(p), kGemmFew);
}

// What cannot be written in digits, or in 16 bits, is met as floats.
TEST(GemmNarrow, RowsOfEverySize) {
  for (int64_t digits : {2, 3})
    for (int64_t m : {1, 5}) {
      for (float size : {0.f, 1e-42f, 1e-33f, 1e-20f, 1e20f, 1e33f})
        check({.m = m, .n = 50, .k = 130, .dtype = DType::I4, .block = 32, .a_digits = digits, .size = size});
      for (float bad : {INFINITY, -INFINITY, NAN})
        for (Zero zero : {kNone, kFraction})
          for (DType t : {DType::I4, DType::I8})
            check({.m = m, .n = 50, .k = 130, .dtype = t, .block = 32, .zero = zero, .a_digits = digits, .bad = bad});
    }
}

TEST(GemmNarrow, ZeroPointsPerColumnAndMatrix) {
  for (DType t : kIntegers)
    for (Zero zero : {kOne, kInteger, kFraction})
      for (bool scale_of_all : {false, true})
        for (int64_t m : {1, 20})
          check({.m = m, .n = 30, .k = 67, .dtype = t, .zero = zero, .scale_of_all = scale_of_all});
}

TEST(GemmNarrow, SlicesAndBlocksOfRows) {
  for (DType t : kTypes)
    for (int64_t slice : {5, 8, 24, 40})
      check({.m = 33, .n = 50, .k = 100, .dtype = t, .block = bits(t) == 16 ? 0 : 16, .k_slice = slice, .m_blocks = 3});
}

TEST(GemmNarrow, Transposed) {
  for (DType t : kTypes)
    for (bool a : {false, true})
      for (int64_t m : {3, 14}) check({.m = m, .n = 29, .k = 41, .dtype = t, .b_transposed = true, .a_transposed = a});
}

TEST(GemmNarrow, FourBitsTakeHalfAByte) {
  const NarrowPanels u4{kPanelU4, 24, 768, 32, 0, 0}, i8{kPanelI8, 24, 768, 768, 0, 0};
  EXPECT_EQ(narrow_bytes(u4, 24), 768 * 12 + 768 / 32 * 24 * 4);
  EXPECT_EQ(narrow_bytes(i8, 24), 768 * 24 + 24 * 4);
}

}  // namespace
}  // namespace ingot::kernel
