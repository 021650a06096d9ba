// Casts between all element types, selection, logic, and the half-precision conversions.
// Built once for each build, with the native build of kernels/ewise_ops.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/ewise_ops.h"
#include "kernels/half.h"

namespace ingot {
namespace {

EwiseChunkFn find(const std::string& op, DType d) {
  const EwiseKernel* k = ingot_find_ewise(op.c_str(), static_cast<int32_t>(d));
  return k ? k->apply : nullptr;
}

// What the table promises for floats beyond the integer's range: through i32 (8 and 16 bits) or i64 (u32), saturating
// there; i32, i64 and u64 above their range saturate; NaN is 0.
template <class I, class F>
I saturate(F x) {
  if (x != x) return 0;
  if (double(x) >= -double(std::numeric_limits<I>::min())) return std::numeric_limits<I>::max();
  if (double(x) < double(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
  return I(x);
}
template <class From, class To>
To cast(From x) {
  if constexpr (!std::is_floating_point_v<From> || std::is_floating_point_v<To>)
    return To(x);
  else if constexpr (sizeof(To) <= 2)
    return To(saturate<int32_t>(x));
  else if constexpr (std::is_signed_v<To>)
    return saturate<To>(x);
  else if constexpr (sizeof(To) == 4)
    return To(saturate<int64_t>(x));
  else if (double(x) >= 0x1p64)
    return ~To(0);
  else if (double(x) >= 0x1p63)
    return To(x);
  else
    return To(saturate<int64_t>(x));
}

template <class T>
std::vector<T> values(DType d) {
  if (d == DType::Bool) return {T(0), T(1), T(1), T(0), T(1)};
  using L = std::numeric_limits<T>;
  std::vector<T> v = {T(0), T(1), T(2), T(100), T(127), T(128), T(200), T(255), L::max(), L::lowest()};
  if constexpr (std::is_floating_point_v<T>)
    for (double x : {-0.0,
                     -1.0,
                     -0.5,
                     0.5,
                     1.9,
                     -1.9,
                     256.7,
                     300.0,
                     65536.5,
                     -129.0,
                     2147483520.0,
                     2147483648.0,
                     -2147483648.0,
                     -3e9,
                     4294967040.0,
                     5e9,
                     9.2e18,
                     0x1p63,
                     1.2e19,
                     0x1p64,
                     -9.3e18,
                     1e30,
                     -1e30,
                     1e-42,
                     double(L::infinity()),
                     -double(L::infinity()),
                     double(L::quiet_NaN())})
      v.push_back(T(x));
  if constexpr (std::is_integral_v<T>)
    for (int x : {-1, -2, -128}) v.push_back(T(x));
  return v;
}

template <class From, class To>
void check_cast(DType from, DType to) {
  EwiseChunkFn f = find("cast_" + std::string(name(to)), from);
  ASSERT_TRUE(f);
  std::vector<From> in = values<From>(from);
  const size_t n = in.size();
  in.resize(n + 16);
  std::vector<To> out(n + 16);
  f(in.data(), nullptr, nullptr, out.data(), int64_t(n));
  for (size_t i = 0; i < n; i++) {
    To want = to == DType::Bool ? To(in[i] != From(0)) : cast<From, To>(in[i]);
    if (want != want)
      EXPECT_NE(out[i], out[i]);
    else
      EXPECT_EQ(out[i], want) << +in[i] << ": " << std::string(name(from)) << " to " << std::string(name(to));
  }
}

template <class From>
void check_casts_from(DType from) {
#define TO(NAME, T, D, ...) check_cast<From, T>(from, DType::D);
  INGOT_EWISE_TYPES_Any(TO, )
#undef TO
}
#define FROM(NAME, T, D, ...) \
  TEST(EwiseCast, from_##NAME) { check_casts_from<T>(DType::D); }
INGOT_EWISE_TYPES_Any(FROM, )

    template <class T>
    void check_where(DType d) {
  EwiseChunkFn f = find("where", d);
  ASSERT_TRUE(f);
  std::vector<uint8_t> condition(48);
  std::vector<T> a(48), b(48), out(48);
  for (size_t i = 0; i < 48; i++) condition[i] = i * i % 3 == 1, a[i] = T(i & 1), b[i] = T(~i & 1);
  f(condition.data(), a.data(), b.data(), out.data(), 37);
  for (size_t i = 0; i < 37; i++) EXPECT_EQ(out[i], condition[i] ? a[i] : b[i]) << i;
}
TEST(EwiseSelect, AllTypes) {
#define WHERE(NAME, T, D, ...) check_where<T>(DType::D);
  INGOT_EWISE_TYPES_Any(WHERE, )
}

TEST(EwiseLogic, TruthTables) {
  std::vector<uint8_t> a = {0, 0, 1, 1, 0, 0, 1, 1}, b = {0, 1, 0, 1, 0, 1, 0, 1}, out(8);
  auto apply = [&](const char* op) {
    find(op, DType::Bool)(a.data(), b.data(), nullptr, out.data(), 4);
    return std::vector<uint8_t>(out.begin(), out.begin() + 4);
  };
  using V = std::vector<uint8_t>;
  EXPECT_EQ(apply("and"), (V{0, 0, 0, 1}));
  EXPECT_EQ(apply("or"), (V{0, 1, 1, 1}));
  EXPECT_EQ(apply("xor"), (V{0, 1, 1, 0}));
  EXPECT_EQ(apply("not"), (V{1, 1, 0, 0}));
  EXPECT_EQ(apply("eq"), (V{1, 0, 0, 1}));
  EXPECT_EQ(apply("ne"), (V{0, 1, 1, 0}));
}

// ---- half precision ----
using namespace kernel;

float half_value(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (e == 31) return m ? std::nanf("") : sign * std::numeric_limits<float>::infinity();
  return sign * (e ? std::ldexp(float(1024 + m), e - 25) : std::ldexp(float(m), -24));
}

TEST(Half, AllF16WidenAndReturn) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    VF wide = f16_to_f32(VH(uint16_t(h)));
    VH back = f32_to_f16(wide);
    float want = half_value(uint16_t(h));
    if (want != want) {
      EXPECT_NE(wide[0], wide[0]) << h;
      EXPECT_NE(half_value(back[0]), half_value(back[0])) << h;
    } else {
      EXPECT_EQ(wide[0], want) << h;
      EXPECT_EQ(back[kLanes - 1], h);
    }
  }
}

TEST(Half, F16RoundsToNearestEven) {
  // Between every pair of neighbours: just below, at, and just above the middle. 65520 is the middle to infinity.
  for (uint32_t h = 0; h < 0x7c00; h++) {
    double low = half_value(uint16_t(h)), high = h == 0x7bff ? 65536.0 : half_value(uint16_t(h + 1));
    float middle = float((low + high) / 2);
    for (float sign : {1.0f, -1.0f}) {
      const uint32_t s = sign < 0 ? 0x8000 : 0;
      EXPECT_EQ(f32_to_f16(VF(sign * std::nextafter(middle, 0.0f)))[0], h | s) << h;
      EXPECT_EQ(f32_to_f16(VF(sign * middle))[0], (h + (h & 1)) | s) << h;
      EXPECT_EQ(f32_to_f16(VF(sign * std::nextafter(middle, 1e9f)))[0], (h + 1) | s) << h;
    }
  }
  for (float x : {65536.0f, 1e9f, 3e38f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(f32_to_f16(VF(x))[0], 0x7c00);
  for (float x : {1e-9f, 1e-40f, 0.0f}) EXPECT_EQ(f32_to_f16(VF(-x))[0], 0x8000) << x;
}

TEST(Half, Bf16) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    VF wide = bf16_to_f32(VH(uint16_t(h)));
    float want = __builtin_bit_cast(float, h << 16);
    if (want != want) {
      EXPECT_NE(wide[0], wide[0]);
      VF back = bf16_to_f32(f32_to_bf16(wide));
      EXPECT_NE(back[0], back[0]) << h;
      continue;
    }
    EXPECT_EQ(wide[0], want);
    EXPECT_EQ(f32_to_bf16(wide)[0], h);
    if ((h & 0x7fff) >= 0x7f80) continue;
    auto near = [&](uint32_t low) { return f32_to_bf16(VF(__builtin_bit_cast(float, h << 16 | low)))[0]; };
    EXPECT_EQ(near(0x7fff), h);
    EXPECT_EQ(near(0x8000), h + (h & 1));
    EXPECT_EQ(near(0x8001), h + 1);
  }
  uint32_t payload_in_low_bits = 0x7f800001;  // must not round to infinity
  VF back = bf16_to_f32(f32_to_bf16(VF(__builtin_bit_cast(float, payload_in_low_bits))));
  EXPECT_NE(back[0], back[0]);
}

}  // namespace
}  // namespace ingot
