#include "planner/pack_narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/gemm.h"

namespace ingot {
namespace {

using namespace kernel;

bool is_4_bit(DType t) { return t == DType::I4 || t == DType::U4; }

int integer_at(DType dtype, const std::byte* data, int64_t index) {
  if (!is_4_bit(dtype)) {
    const auto byte = static_cast<uint8_t>(data[index]);
    return dtype == DType::I8 ? static_cast<int8_t>(byte) : byte;
  }
  const auto byte = static_cast<uint8_t>(data[index / 2]);
  const int number = index % 2 ? byte >> 4 : byte & 15;
  return dtype == DType::I4 && number > 7 ? number - 16 : number;
}

float half_at(DType dtype, const std::byte* data, int64_t index) {
  uint16_t number = 0;
  std::memcpy(&number, data + 2 * index, sizeof number);
  return (dtype == DType::BF16 ? bf16_to_f32(VH(number)) : f16_to_f32(VH(number)))[0];
}

PanelType panel_type(const NarrowMatrix& m) {
  if (m.dtype == DType::BF16) return kPanelBF16;
  if (m.dtype == DType::F16) return kPanelF16;
  return is_4_bit(m.dtype) && (m.block % kNibbles == 0 || m.block >= m.k) ? kPanelU4 : kPanelI8;
}

// Panels hold i8 and u4, whatever the model has: what is stored is the model's number less this.
int shift_of(const NarrowMatrix& m, int64_t type) {
  if (type == kPanelU4) return m.dtype == DType::I4 ? -8 : 0;
  return m.dtype == DType::U8 ? 128 : 0;
}

void pack_halves(const NarrowMatrix& m, int64_t width, char* panel, int64_t first, int64_t columns) {
  for (int64_t k = 0; k < m.k; k++)
    for (int64_t j = 0; j < columns; j++)
      std::memcpy(panel + (k * width + j) * 2, m.values + 2 * (k * m.row + (first + j) * m.col), 2);
}

// Row k of the group, column j of the panel:  i8 [rows][panel], or u4 in words [rows / 8][panel], where row k is in
// place nibble_place(k % 8) (drawn in kernels/narrow.h).
void put(char* rows, const NarrowPanels& layout, int64_t k, int64_t j, int number) {
  if (layout.type == kPanelI8) {
    rows[k * layout.panel + j] = static_cast<char>(number);
    return;
  }
  char* at = rows + (k / kNibbles * layout.panel + j) * 4;
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  word |= static_cast<uint32_t>(number & 15) << 4 * nibble_place(static_cast<int>(k % kNibbles));
  std::memcpy(at, &word, sizeof word);
}

uint16_t to_half(float x) { return f32_to_f16(VF(x))[0]; }
bool are_halves(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return f16_to_f32(VH(to_half(x)))[0] == x; });
}

}  // namespace

std::vector<float> as_floats(DType dtype, const std::byte* data, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    float& to = out[static_cast<size_t>(i)];
    if (dtype == DType::F32)
      std::memcpy(&to, data + 4 * i, sizeof to);
    else
      to = bits(dtype) == 16 ? half_at(dtype, data, i) : static_cast<float>(integer_at(dtype, data, i));
  }
  return out;
}

NarrowPacking narrow_packing(const NarrowMatrix& m, int64_t lanes) {
  const PanelType type = panel_type(m);
  NarrowPacking out{{type, best_panel(lanes, m.n), m.k, max_of(1, m.block ? m.block : m.k), 0, 0}, 0};
  if (!has_scales(type)) return out;
  out.layout.half = are_halves(*m.scale);
  out.zero = -shift_of(m, type);
  if (!m.zero || m.zero->empty()) return out;
  const float first = m.zero->front();
  const bool same = std::all_of(m.zero->begin(), m.zero->end(), [&](float z) { return z == first; });
  if (same && std::floor(first) == first && std::fabs(first) < 1e6f)
    out.zero += static_cast<int64_t>(first);
  else
    out.layout.zeros = 1;
  return out;
}

// The panel is drawn in kernels/narrow.h: for each group its rows, its scales, its zero points.
void pack_narrow_panel(const NarrowMatrix& m, const NarrowPacking& packing, std::byte* packed, int64_t panel) {
  const NarrowPanels& layout = packing.layout;
  char* at = reinterpret_cast<char*>(packed) + panel * narrow_panel_bytes(layout);
  const int64_t first = panel * layout.panel, columns = min_of(layout.panel, m.n - first);
  std::fill_n(at, narrow_panel_bytes(layout), char(0));
  if (!has_scales(layout.type)) return pack_halves(m, layout.panel, at, first, columns);
  const int shift = shift_of(m, layout.type);
  for (int64_t g = 0; g < narrow_groups(layout); g++) {
    const NarrowGroup group = narrow_group(layout, at, g);
    auto* rows = const_cast<char*>(group.rows);
    for (int64_t k = g * layout.block; k < min_of(m.k, (g + 1) * layout.block); k++)
      for (int64_t j = 0; j < columns; j++)
        put(rows, layout, k - g * layout.block, j,
            integer_at(m.dtype, m.values, k * m.row + (first + j) * m.col) - shift);
    for (int64_t j = 0; j < columns; j++) {
      const auto index = static_cast<size_t>(g * m.s_group + (first + j) * m.s_column);
      char* scale = const_cast<char*>(group.scale);
      const float number = (*m.scale)[index];
      const uint16_t half = to_half(number);
      if (layout.half)
        std::memcpy(scale + 2 * j, &half, sizeof half);
      else
        std::memcpy(scale + 4 * j, &number, sizeof number);
      if (group.zero) const_cast<float*>(group.zero)[j] = (*m.zero)[index] - static_cast<float>(shift);
    }
  }
}

}  // namespace ingot
