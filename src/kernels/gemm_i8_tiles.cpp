// kI8Tiles: 32 rows by 32 columns in four tiles of AMX, 64 bytes of K at a time.
//
//            b0 b1          tiles 0 to 3: sums        tiles 4, 5: rows of A        tiles 6, 7: columns of B
//         a0  0  1
//         a1  2  3
#include "kernels/gemm_i8_panels.h"
#if defined(__AMX_INT8__)
#include "kernels/isa/amx.h"

namespace ingot::kernel {

inline constexpr int64_t kTileBytes = 64, kTileColumns = 16;  // of a row of A; of B
inline constexpr int kTilePanel = int(kI8TilePanel);
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

template <bool Two>
INGOT_INLINE void multiply_run(const RowTiles& t, int64_t offset, const int8_t* b, int64_t bytes, Prefetch& prefetch) {
  constexpr int64_t kRow = kTilePanel * 4;
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < bytes; k += kTileBytes, b += kTileBytes * kTilePanel) {
    advance(prefetch);
    load_tile<6>(b, kRow);
    load_tile<4>(t.at[0] + offset + k, t.stride);
    multiply_tiles<0, 4, 6>();
    load_tile<7>(b + kTileBytes, kRow);
    multiply_tiles<1, 4, 7>();
    if constexpr (Two) {
      load_tile<5>(t.at[1] + offset + k, t.stride);
      multiply_tiles<2, 5, 6>();
      multiply_tiles<3, 5, 7>();
    }
  }
}

// The sums of the rows with a panel, to `sums`.
template <bool Two>
INGOT_INLINE void multiply_rows(const PanelCall& x, const RowTiles& t, const int8_t* b, int32_t* sums,
                                Prefetch& prefetch) {
  const GemmI8Params& p = x.p;
  constexpr int64_t kRow = kTilePanel * 4;
  load_tile<0>(x.start, 0);  // the same start for each row
  load_tile<1>(x.start + kTileColumns, 0);
  if constexpr (Two) {
    load_tile<2>(x.start, 0);
    load_tile<3>(x.start + kTileColumns, 0);
  }
  const int64_t runs = p.a_packing ? 1 : panel_runs(p), bytes = p.a_packing ? i8_padded_depth(p) : p.run_bytes;
  for (int64_t run = 0; run < runs; run++, b += bytes * kTilePanel)
    multiply_run<Two>(t, p.a_packing ? 0 : run_offset(p, run), b, bytes, prefetch);
  store_tile<0>(sums, kRow);
  store_tile<1>(sums + kTileColumns, kRow);
  if constexpr (Two) {
    int32_t* second = sums + t.rows[0] * kTilePanel;
    store_tile<2>(second, kRow);
    store_tile<3>(second + kTileColumns, kRow);
  }
}

// The rows of the group from `row` on that are multiplied together. Rows where they are form a tile only within the
// last of their dims, where they are the same distance apart.
INGOT_INLINE RowTiles row_tiles(const PanelCall& x, int64_t row) {
  const GemmI8Params& p = x.p;
  const int64_t line = p.a_packing ? x.rows : p.row_dims[3];
  const int64_t in_line = p.a_packing ? row : (x.first_row + row) % line;
  const int64_t left = min_of(x.rows - row, line - in_line);
  // Not 32 and a rest of few rows, but two of nearly equal height.
  const int64_t take = left > 32 && left < 48 ? div_up(left, 2) : min_of(left, 32);
  const int64_t half = take > 16 ? div_up(take, 2) : take;
  RowTiles t{{x.at[row], x.at[row]}, {half, take - half}, p.a_packing ? i8_copy_stride(p) : p.row_stride[3]};
  if (t.rows[1]) t.at[1] = x.at[row + half];
  return t;
}

// The shapes that the tiles have now.
struct ShapeInUse {
  int64_t rows[2] = {-1, -1};
};

// One panel: the epilogue of some rows comes after the next ones are on their way through the tiles, so that both units
// have work.
INGOT_INLINE void tile_panel(const PanelCall& x, int64_t panel, ShapeInUse& shape) {
  const PanelOfBytes b = panel_of(x, panel);
  begin_panel(x, b);
  const int64_t steps = max_of(1, div_up(x.rows, 32));
  Prefetch prefetch{reinterpret_cast<const char*>(b.words + i8_padded_depth(x.p) * kTilePanel),
                    x.p.b_packed && steps > 1 ? div_up(kTilePanel, steps) : 0};
  int64_t before = 0, rows_before = 0, which = 0;
  for (int64_t row = 0; row < x.rows || rows_before;) {
    int64_t rows = 0;
    if (row < x.rows) {
      const RowTiles t = row_tiles(x, row);
      rows = t.rows[0] + t.rows[1];
      if (t.rows[0] != shape.rows[0] || t.rows[1] != shape.rows[1]) {
        set_tiles(tile_shapes(t));
        shape.rows[0] = t.rows[0], shape.rows[1] = t.rows[1];
      }
      int32_t* sums = x.sums + which * 32 * kTilePanel;
      t.rows[1] ? multiply_rows<true>(x, t, b.words, sums, prefetch)
                : multiply_rows<false>(x, t, b.words, sums, prefetch);
    }
    which = 1 - which;
    if (rows_before)
      finish_rows<kTilePanel>(x, b, x.sums + which * 32 * kTilePanel, x.first_row + before, rows_before,
                              panel * kTilePanel);
    before = row;
    rows_before = rows;
    row += rows;
  }
}

INGOT_INLINE void tile_panels(const KernelCall* call, const GemmI8Params& p) {
  ShapeInUse shape;
  each_group(call, p, [&](const PanelCall& x, int64_t first, int64_t last) INGOT_INLINED {
    for (int64_t panel = first; panel < last; panel++) tile_panel(x, panel, shape);
  });
  release_tiles();
}

}  // namespace ingot::kernel
#endif

// Elsewhere it is never chosen, and does not exist.
extern "C" ingot::KernelStatus ingot_gemm_i8_tiles(const ingot::KernelCall* call) {
#if defined(__AMX_INT8__)
  ingot::kernel::tile_panels(call, *reinterpret_cast<const ingot::kernel::GemmI8Params*>(call->param));
  return ingot::kOk;
#else
  return ingot::kBadValue;
#endif
}
