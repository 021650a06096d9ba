// Products of words (kernels/word_panels.h) with AMX: 32 rows by a panel of 32 columns in four tiles of sums, 64 bytes
// of K at a time.
//
//            b0 b1          tiles 0 to 3: sums        tiles 4, 5: rows of A        tiles 6, 7: columns of B
//         a0  0  1
//         a1  2  3
//
// Whoever includes this has included isa/amx.h, or something with the same names, before.
#pragma once
#include "kernels/word_panels.h"

namespace ingot::kernel {

inline constexpr int64_t kTileBytes = 64, kTileColumns = 16;  // of a row of A; of B
inline constexpr int64_t kTilePanelRow = kTilePanel * 4;      // bytes of a word of all columns, and of a row of sums
static_assert(kTilePanel == 2 * kTileColumns);

// Two neighbouring tiles of rows; the second may be empty. Rows of a tile are the same distance apart.
struct RowTiles {
  const uint8_t* at[2];
  int64_t rows[2], stride;
};

INGOT_INLINE TileShapes tile_shapes(const RowTiles& t) {
  TileShapes shapes;
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = kTileBytes;
  for (int i = 0; i < 2; i++) {
    shapes.rows[2 * i] = shapes.rows[2 * i + 1] = shapes.rows[4 + i] = uint8_t(max_of(1, t.rows[i]));
    shapes.rows[6 + i] = 16;
  }
  return shapes;
}

// The first rows of `left` that lie the same distance apart: as many as are multiplied together. Not 32 and a rest of
// few rows, but two of nearly equal height.
INGOT_INLINE RowTiles cut_row_tiles(int64_t left, int64_t stride) {
  const int64_t take = left > 32 && left < 48 ? div_up(left, 2) : min_of(left, 32);
  const int64_t half = take > 16 ? div_up(take, 2) : take;
  return {{nullptr, nullptr}, {half, take - half}, stride};
}

// Sums += bytes [offset, offset + bytes) of the rows * b. Unit: isa/amx.h.
template <class Unit, bool Two>
INGOT_INLINE void multiply_run(const RowTiles& t, int64_t offset, const uint8_t* b, int64_t bytes, Prefetch& prefetch) {
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < bytes; k += kTileBytes, b += kTileBytes * kTilePanel) {
    advance(prefetch);
    load_tile<6>(b, kTilePanelRow);
    load_tile<4>(t.at[0] + offset + k, t.stride);
    Unit::template multiply<0, 4, 6>();
    load_tile<7>(b + kTileBytes, kTilePanelRow);
    Unit::template multiply<1, 4, 7>();
    if constexpr (Two) {
      load_tile<5>(t.at[1] + offset + k, t.stride);
      Unit::template multiply<2, 5, 6>();
      Unit::template multiply<3, 5, 7>();
    }
  }
}

// Sums of the rows, [rows][kTilePanel] of 4 bytes.
template <bool Two>
INGOT_INLINE void store_sums(const RowTiles& t, void* sums) {
  auto* to = static_cast<uint8_t*>(sums);
  store_tile<0>(to, kTilePanelRow);
  store_tile<1>(to + kTileBytes, kTilePanelRow);
  if constexpr (Two) {
    store_tile<2>(to + t.rows[0] * kTilePanelRow, kTilePanelRow);
    store_tile<3>(to + t.rows[0] * kTilePanelRow + kTileBytes, kTilePanelRow);
  }
}

// The shapes that the tiles have now.
struct ShapeInUse {
  int64_t rows[2] = {-1, -1};
};

// A panel and `rows` rows. tiles(row): the next rows; multiply(row tiles, which): their sums, into one of two places;
// finish(row, count, which): the epilogue. That of some rows comes after the next ones are on their way through the
// tiles, so that both units have work.
template <class Tiles, class Multiply, class Finish>
INGOT_INLINE void for_row_tiles(int64_t rows, ShapeInUse& shape, const Tiles& tiles, const Multiply& multiply,
                                const Finish& finish) {
  int64_t before = 0, rows_before = 0, which = 0;
  for (int64_t row = 0; row < rows || rows_before;) {
    int64_t taken = 0;
    if (row < rows) {
      const RowTiles t = tiles(row);
      taken = t.rows[0] + t.rows[1];
      if (t.rows[0] != shape.rows[0] || t.rows[1] != shape.rows[1]) {
        set_tiles(tile_shapes(t));
        shape.rows[0] = t.rows[0], shape.rows[1] = t.rows[1];
      }
      multiply(t, which);
    }
    which = 1 - which;
    if (rows_before) finish(before, rows_before, which);
    before = row;
    rows_before = taken;
    row += taken;
  }
}
// Lines of the next panel to prefetch for each 64 bytes of K.
INGOT_INLINE int64_t tile_prefetch_lines(int64_t rows) {
  const int64_t steps = max_of(1, div_up(rows, 32));
  return steps > 1 ? div_up(kTilePanel, steps) : 0;
}

}  // namespace ingot::kernel
