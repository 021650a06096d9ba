#include "passes/quantize_weights.h"

#include <algorithm>
#include <cmath>

#include "kernels/half.h"
#include "kernels/pack.h"

namespace ingot {
namespace {

// x seen as [outer, n, inner] around the axis, with a scale for each group of `block` along n (i4) or each n (i8).
struct Walk {
  int64_t outer = 1, n = 1, inner = 1;
};
Walk walk_of(const std::vector<int64_t>& dims, int64_t axis) {
  Walk w;
  for (size_t d = 0; d < dims.size(); d++)
    (static_cast<int64_t>(d) < axis ? w.outer : static_cast<int64_t>(d) == axis ? w.n : w.inner) *= dims[d];
  return w;
}

bool all_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

int rounded(float x, float scale, int low, int high) {
  return static_cast<int>(std::clamp(std::nearbyint(x / scale), static_cast<float>(low), static_cast<float>(high)));
}

QuantizedWeights in_8_bits(const Constant& c, int64_t axis) {
  const auto x = c.as<float>();
  const Walk w = walk_of(c.dims, axis);
  std::vector<float> scale(static_cast<size_t>(w.n));
  auto each = [&](const auto& visit) {
    for (int64_t o = 0; o < w.outer; o++)
      for (int64_t n = 0; n < w.n; n++)
        for (int64_t i = 0; i < w.inner; i++)
          visit(static_cast<size_t>((o * w.n + n) * w.inner + i), static_cast<size_t>(n));
  };
  each([&](size_t at, size_t n) { scale[n] = std::max(scale[n], std::fabs(x[at])); });
  for (float& s : scale) s = s / 127 > 0 ? s / 127 : 1.f;
  std::vector<int8_t> out(x.size());
  each([&](size_t at, size_t n) { out[at] = static_cast<int8_t>(rounded(x[at], scale[n], -127, 127)); });
  return {make_constant(DType::I8, c.dims, out), make_constant(DType::F32, {w.n}, scale)};
}

// Panels hold a scale in 16 bits where that loses nothing (planner/pack_narrow.h).
float as_normal_half(float x) {
  const float half = kernel::f16_to_f32(kernel::f32_to_f16(kernel::VF(x)))[0];
  return std::fabs(x) > 0x1p-14f && std::isfinite(half) ? half : x;
}

QuantizedWeights in_4_bits(const Constant& c, int64_t axis, int64_t block) {
  const auto x = c.as<float>();
  const Walk w = walk_of(c.dims, axis);
  const int64_t groups = kernel::div_up(w.n, block);
  std::vector<int64_t> dims = c.dims;
  dims[static_cast<size_t>(axis)] = groups;
  std::vector<float> scale(static_cast<size_t>(w.outer * groups * w.inner));
  auto each = [&](const auto& visit) {
    for (int64_t o = 0; o < w.outer; o++)
      for (int64_t n = 0; n < w.n; n++)
        for (int64_t i = 0; i < w.inner; i++)
          visit(static_cast<size_t>((o * w.n + n) * w.inner + i),
                static_cast<size_t>((o * groups + n / block) * w.inner + i));
  };
  each([&](size_t at, size_t g) {
    if (std::fabs(x[at]) > std::fabs(scale[g])) scale[g] = x[at];
  });
  for (float& s : scale) s = s / -8 != 0 ? as_normal_half(s / -8) : 1.f;
  std::vector<uint8_t> out((x.size() + 1) / 2);
  each([&](size_t at, size_t g) {
    const int number = rounded(x[at], scale[g], -8, 7);
    out[at / 2] = static_cast<uint8_t>(out[at / 2] | (number & 15) << at % 2 * 4);
  });
  return {make_constant(DType::I4, c.dims, out), make_constant(DType::F32, dims, scale)};
}

}  // namespace

ConstantPtr in_half(const Constant& c, DType to) {
  using namespace kernel;
  const auto x = c.as<float>();
  const auto count = static_cast<int64_t>(x.size());
  std::vector<uint16_t> out(x.size());
  bool fits = true;
  for (int64_t i = 0; i < count; i += kLanes) {
    const VF v = load_partial(x.data() + i, count - i);
    const VH h = to == DType::BF16 ? f32_to_bf16(v) : f32_to_f16(v);
    const VF back = to == DType::BF16 ? bf16_to_f32(h) : f16_to_f32(h);
    for (int j = 0; j < kLanes; j++) fits &= !std::isfinite(v[j]) || std::isfinite(back[j]);
    store_partial(out.data() + i, h, count - i);
  }
  return fits ? make_constant(to, c.dims, out) : nullptr;
}

QuantizedWeights quantize_weights(const Constant& c, int64_t axis, int64_t block) {
  if (!all_finite(c.as<float>())) return {};
  return block == 0 ? in_8_bits(c, axis) : in_4_bits(c, axis, block);
}

}  // namespace ingot
