// Packs a constant matrix that is stored in fewer bits than f32 into panels (kernels/narrow.h says how they are laid
// out).
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "kernels/narrow.h"

namespace ingot {

// B[k][n], bf16, f16 or integers of 8 or 4 bits, with strides in elements. Integers have a scale, and may have a zero
// point, for each `block` rows of each column: at s_group and s_column elements from each other. block 0: one for all
// rows.
struct NarrowMatrix {
  int64_t k = 0, n = 0, row = 0, col = 0;
  DType dtype = DType::Undefined;
  const std::byte* values = nullptr;
  std::shared_ptr<const std::vector<float>> scale, zero;
  int64_t block = 0, s_group = 0, s_column = 0;
};

struct NarrowPacking {
  kernel::NarrowPanels layout;
  int64_t zero = 0;  // of all, where layout.zeros is 0
};

// 4-bit numbers stay so where their blocks are whole words; otherwise they take a byte.
// lanes: of the target.
NarrowPacking narrow_packing(const NarrowMatrix&, int64_t lanes);
// One panel to its place in `packed`.
void pack_narrow_panel(const NarrowMatrix&, const NarrowPacking&, std::byte* packed, int64_t panel);

// The elements of f32, f16, bf16, or integers of 8 or 4 bits.
std::vector<float> as_floats(DType, const std::byte* data, int64_t count);

}  // namespace ingot
