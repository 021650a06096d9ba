// Products of 8-bit integers against their definition in 64 bits: all types, zero points, forms and shapes, with values
// from the whole range and values chosen to overflow 16 bits. Compiled with the kernels, for each build and for each
// target that has more instructions for them; elsewhere vpdpbusd and tiles are done in software.
// clang-format off: before the kernels
#include "tiles.h"
// clang-format on
#include "../../src/kernels/gemm_i8_chained.cpp"
#include "../../src/kernels/gemm_i8_dot.cpp"
#include "../../src/kernels/gemm_i8_pairs.cpp"
#include "../../src/kernels/gemm_i8_rows.cpp"
#include "../../src/kernels/gemm_i8_tiles.cpp"

#include "../../src/planner/pack_i8.cpp"
#include "../../src/planner/pack_i8_chained.cpp"
#include "reference.h"

namespace ingot::kernel {

// The tests look at the accumulators themselves, or at bytes of them.
static ResultBytes result_bytes = kNoBytes;
extern "C" VI ingot_hook_bytes(VI acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t,
                               int64_t, const ExprProgram*) {
  const VI sum = acc + static_cast<const int32_t*>(extra[0])[row * strides[0].row_stride];
  return result_bytes == kSignedBytes ? (sum << 18) >> 24 : (sum >> 6) & 255;
}
extern "C" void ingot_hook_store(VI acc, void* out, int64_t at, void* const* extra, const EpilogueOperand* strides,
                                 int64_t row, int64_t col, int64_t lanes, const ExprProgram* program) {
  const int32_t bias = static_cast<const int32_t*>(extra[0])[row * strides[0].row_stride];
  const VI bytes = ingot_hook_bytes(acc, extra, strides, row, col, lanes, program);
  for (int64_t i = 0; i < lanes; i++)
    if (result_bytes == kNoBytes)
      static_cast<int32_t*>(out)[at + i] = acc[i] + bias;
    else
      static_cast<uint8_t*>(out)[at + i] = static_cast<uint8_t>(bytes[i]);
}

namespace {

enum Values { kUniform, kGaussian, kExtreme, kTop, kAdversarial };

struct Shape {
  int64_t m, n, k;
  bool a_signed = false, b_signed = true;
  I8Zero a_zero = kOneZero, b_zero = kNoZero;
  I8Form form = kI8Pairs;
  bool packed = true;  // ahead, not by the kernel
  Values values = kUniform;
};

// The forms, and of them those that also pack B themselves.
constexpr I8Form kForms[] = {kI8Chained, kI8Pairs, kI8Rows, kI8Dot, kI8Tiles};
constexpr I8Form kPackingForms[] = {kI8Pairs, kI8Dot, kI8Tiles};
template <class Run>
void each_form(Run run) {
  for (I8Form form : kForms) run(form, true);
  for (I8Form form : kPackingForms) run(form, false);
}

uint8_t random_byte(Random& random, Values values, bool is_signed) {
  if (values == kGaussian && is_signed) {  // nearly: the sum of four uniform numbers
    const float sum = random.value() + random.value() + random.value() + random.value();
    return static_cast<uint8_t>(static_cast<int8_t>(sum * 32));
  }
  if (values == kExtreme) return random.coin() ? (is_signed ? 0x80 : 0xff) : (is_signed ? 0x7f : 0);
  if (values == kTop) return is_signed ? 0x7f : 0xff;
  return static_cast<uint8_t>(random.in(0, 255));
}
int64_t number(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : byte; }

void check(Shape s, Random& random) {
  if (s.form == kI8Rows) s.m = std::min(s.m, i8_few_rows(kI8Rows));
  std::vector<uint8_t> a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(s.k * s.n));
  for (auto& x : b) x = random_byte(random, s.values, s.b_signed);
  for (int64_t m = 0; m < s.m; m++)
    for (int64_t k = 0; k < s.k; k++) {
      uint8_t& x = a[static_cast<size_t>(m * s.k + k)];
      x = random_byte(random, s.values == kGaussian ? kUniform : s.values, s.a_signed);
      // A row against one column: the largest number wherever the weights are positive (or negative) pushes that
      // column's partial sums as far as they go.
      if (s.values == kAdversarial) {
        const int64_t w = number(b[static_cast<size_t>(k * s.n + m * 37 % s.n)], s.b_signed);
        x = (m % 2 ? w > 0 : w < 0) ? 0xff : 0;
        if (s.a_signed) x ^= 0x80;
      }
    }
  std::vector<uint8_t> a_zero(static_cast<size_t>(s.m)), b_zero(static_cast<size_t>(s.n));
  for (auto& x : a_zero) x = static_cast<uint8_t>(random.in(0, 255));
  for (auto& x : b_zero) x = static_cast<uint8_t>(random.in(0, 255));
  std::vector<int32_t> bias(static_cast<size_t>(s.m));
  for (auto& x : bias) x = static_cast<int32_t>(random.in(-1000000, 1000000));

  GemmI8Params p{};
  p.form = s.form;
  p.b_packed = s.packed;
  p.a_signed = s.a_signed, p.b_signed = s.b_signed;
  p.a_zero = s.a_zero, p.b_zero = s.b_zero;
  p.m = s.m, p.n = s.n;
  p.lanes = kLanes;
  p.row_groups = i8_row_groups(p.form, s.m);
  p.panel = i8_panel_columns(p.form, kLanes, s.n);
  for (int d = 0; d < 4; d++) p.row_dims[d] = d == 3 ? s.m : 1, p.row_stride[d] = d == 3 ? s.k : 0;
  for (int d = 0; d < 3; d++) p.runs[d] = p.batch[d] = 1;
  p.run_bytes = s.k;
  p.a_packing = i8_must_copy(p);
  // B lies in memory by rows or by columns.
  const bool by_columns = !s.packed && random.coin();
  p.b_row = by_columns ? 1 : s.n, p.b_col = by_columns ? s.k : 1;
  std::vector<uint8_t> b_columns(b.size());
  for (int64_t k = 0; k < s.k; k++)
    for (int64_t n = 0; n < s.n; n++) b_columns[static_cast<size_t>(n * s.k + k)] = b[static_cast<size_t>(k * s.n + n)];
  p.entry_row = s.m;
  p.c_row = s.n;
  p.extras = 1, p.extra[0] = {1, 0};

  PackedI8 packed;
  if (s.packed) packed = pack_i8(i8_matrix(b.data(), s.k, s.n, s.n, 1, s.b_signed), s.form, kLanes);
  constexpr int32_t kBefore = 0x5a5a5a5a;
  std::vector<int32_t> c(static_cast<size_t>(s.m * s.n + 1), kBefore);
  const int64_t size = i8_scratch_bytes(p);
  std::vector<uint8_t> memory(static_cast<size_t>(size + 128), 0xcd);
  auto* scratch = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  void* operands[] = {
      a.data(),      s.packed ? static_cast<void*>(packed.bytes.data()) : by_columns ? b_columns.data() : b.data(),
      c.data(),      a_zero.data(),
      b_zero.data(), bias.data()};
  const KernelFn kernel = p.form == kI8Chained ? ingot_gemm_i8_chained
                          : p.form == kI8Dot   ? ingot_gemm_i8_dot
                          : p.form == kI8Rows  ? ingot_gemm_i8_rows
                          : p.form == kI8Tiles ? ingot_gemm_i8_tiles
                                               : ingot_gemm_i8_pairs;
  const auto run = [&](ResultBytes bytes, void* to) {
    result_bytes = bytes;
    p.c_bytes = bytes;
    operands[2] = to;
    for (int64_t begin = 0, units = i8_units(p); begin < units;) {
      const int64_t end = random.coin() ? units : random.in(begin + 1, units);
      KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, scratch, begin};
      ASSERT_EQ(kernel(&call), kOk);
      begin = end;
    }
    EXPECT_EQ(scratch[size], 0xcd) << "scratch overrun";
  };
  run(kNoBytes, c.data());
  EXPECT_EQ(c.back(), kBefore);
  for (int64_t m = 0; m < s.m; m++)
    for (int64_t n = 0; n < s.n; n++) {
      const int64_t za =
          s.a_zero == kNoZero ? 0 : number(a_zero[static_cast<size_t>(s.a_zero == kOneZero ? 0 : m)], s.a_signed);
      const int64_t zb =
          s.b_zero == kNoZero ? 0 : number(b_zero[static_cast<size_t>(s.b_zero == kOneZero ? 0 : n)], s.b_signed);
      int64_t sum = bias[static_cast<size_t>(m)];
      for (int64_t k = 0; k < s.k; k++)
        sum += (number(a[static_cast<size_t>(m * s.k + k)], s.a_signed) - za) *
               (number(b[static_cast<size_t>(k * s.n + n)], s.b_signed) - zb);
      ASSERT_EQ(c[static_cast<size_t>(m * s.n + n)], static_cast<int32_t>(sum))
          << "row " << m << " column " << n << " of " << s.m << "x" << s.n << "x" << s.k << " form " << s.form
          << s.packed << " signed " << s.a_signed << s.b_signed << " zeros " << s.a_zero << s.b_zero << " values "
          << s.values;
    }
  for (ResultBytes bytes : {kUnsignedBytes, kSignedBytes}) {
    std::vector<uint8_t> results(c.size(), 0x5a);
    run(bytes, results.data());
    for (size_t i = 0; i + 1 < c.size(); i++)
      ASSERT_EQ(results[i], static_cast<uint8_t>(c[i] >> 6)) << i << " of " << s.m << "x" << s.n << " form " << s.form;
    EXPECT_EQ(results.back(), 0x5a);
  }
}

TEST(GemmI8, EveryKind) {
  Random random(1);
  each_form([&](I8Form form, bool packed) {
    for (bool a_signed : {false, true})
      for (bool b_signed : {false, true})
        for (I8Zero a_zero : {kNoZero, kOneZero, kZeroPerRow})
          for (I8Zero b_zero : {kNoZero, kOneZero, kZeroPerColumn})
            for (Values values : {kUniform, kGaussian, kExtreme, kTop, kAdversarial})
              check({random.in(1, 40), random.in(1, 150), random.in(1, 90), a_signed, b_signed, a_zero, b_zero, form,
                     packed, values},
                    random);
  });
}

TEST(GemmI8, Shapes) {
  Random random(2);
  const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257};
  auto size = [&] { return sizes[random.in(0, std::size(sizes) - 1)]; };
  each_form([&](I8Form form, bool packed) {
    for (int i = 0; i < 40; i++)
      check({size(), size(), size(), random.coin(), random.coin(), static_cast<I8Zero>(random.in(0, 2)),
             static_cast<I8Zero>(random.in(0, 2)), form, packed, static_cast<Values>(random.in(0, 4))},
            random);
  });
}

TEST(GemmI8, LongSums) {
  Random random(3);
  for (int64_t k : {767, 768, 1024, 3072, 4099, 20000})
    each_form([&](I8Form form, bool packed) {
      for (Values values : {kUniform, kGaussian, kTop, kAdversarial})
        check({random.in(1, 20), random.in(1, 9), k, random.coin(), random.coin(), kOneZero,
               static_cast<I8Zero>(random.in(0, 2)), form, packed, values},
              random);
    });
}

// Gaussian weights chain, weights of the whole range do not.
TEST(GemmI8, FormByWeights) {
  Random random(4);
  for (Values values : {kGaussian, kExtreme}) {
    std::vector<uint8_t> b(64 * 512);
    for (auto& x : b) x = random_byte(random, values, true);
    const PackedI8 packed = pack_i8(i8_matrix(b.data(), 512, 64, 64, 1, true), kLanes);
    EXPECT_EQ(packed.form, values == kGaussian ? kI8Chained : kI8Pairs);
  }
}

}  // namespace
}  // namespace ingot::kernel
