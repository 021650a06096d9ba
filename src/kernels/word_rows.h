// Products that walk K in words of 4 bytes (kernels/word_panels.h): sizes that their kernels and their callers agree
// on.
#pragma once
#include "kernels/tile.h"

namespace ingot::kernel {

inline constexpr int kTilePanel = 32;  // columns of a panel of AMX tiles

// Rows of a group: a multiple of 16; the last group may have fewer. Where all groups are equal, the number does not
// depend on the group, so that code that is specialised for the sizes has a constant.
INGOT_INLINE constexpr int64_t group_rows(int64_t m, int64_t groups) { return div_up(div_up(m, groups), 16) * 16; }
INGOT_INLINE constexpr int64_t group_rows(int64_t m, int64_t groups, int64_t group) {
  const int64_t rows = group_rows(m, groups);
  if (groups == 1) return m;
  return m % rows == 0 && m / rows == groups ? rows : max_of(0, min_of(rows, m - group * rows));
}
// Bytes between copies of rows of so many bytes: whole lines, and not a multiple of 256, or they would share few cache
// sets.
INGOT_INLINE constexpr int64_t copy_stride(int64_t row_bytes) {
  const int64_t bytes = div_up(row_bytes, 64) * 64;
  return bytes % 256 == 0 ? bytes + 64 : bytes;
}

}  // namespace ingot::kernel
