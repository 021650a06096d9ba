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
INGOT_INLINE void multiply_run(const RowTiles& t, int64_t offset, const int8_t* b, int64_t bytes) {
  constexpr int64_t kRow = kTilePanel * 4;
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < bytes; k += kTileBytes, b += kTileBytes * kTilePanel) {
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

template <bool Two>
INGOT_INLINE void multiply_rows(const PanelCall& x, const RowTiles& t, const int8_t* b) {
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
    multiply_run<Two>(t, p.a_packing ? 0 : run_place(p, run), b, bytes);
  store_tile<0>(x.sums, kRow);
  store_tile<1>(x.sums + kTileColumns, kRow);
  if constexpr (Two) {
    int32_t* second = x.sums + t.rows[0] * kTilePanel;
    store_tile<2>(second, kRow);
    store_tile<3>(second + kTileColumns, kRow);
  }
}

// Calls body(tiles, first row) for all rows of the group. Rows where they are form a tile only within the last of their
// dims, where they are the same distance apart.
template <class Body>
INGOT_INLINE void each_row_tiles(const PanelCall& x, const Body& body) {
  const GemmI8Params& p = x.p;
  const int64_t line = p.a_packing ? x.rows : p.row_dims[3], stride = p.a_packing ? i8_copy_stride(p) : p.row_stride[3];
  for (int64_t row = 0; row < x.rows;) {
    const int64_t in_line = p.a_packing ? row : (x.first_row + row) % line;
    const int64_t left = min_of(x.rows - row, line - in_line), count = min_of(left, 32);
    // Not 32 and a rest of one or two rows, but two of nearly equal height.
    const int64_t take = left > 32 && left < 48 ? div_up(left, 2) : count;
    const int64_t half = take > 16 ? div_up(take, 2) : take;
    RowTiles t{{x.at[row], nullptr}, {half, take - half}, stride};
    if (t.rows[1]) t.at[1] = x.at[row + half];
    body(t, x.first_row + row);
    row += take;
  }
}

INGOT_INLINE void tile_panels(const KernelCall* call, const GemmI8Params& p) {
  int64_t shape[2] = {-1, -1};
  each_group(call, p, [&](const PanelCall& x, int64_t first, int64_t last) INGOT_INLINED {
    for (int64_t panel = first; panel < last; panel++) {
      const PanelOfBytes b = panel_of(x, panel);
      begin_panel(x, b);
      each_row_tiles(x, [&](const RowTiles& t, int64_t row) INGOT_INLINED {
        if (t.rows[0] != shape[0] || t.rows[1] != shape[1]) {
          set_tiles(tile_shapes(t));
          shape[0] = t.rows[0], shape[1] = t.rows[1];
        }
        t.rows[1] ? multiply_rows<true>(x, t, b.words) : multiply_rows<false>(x, t, b.words);
        finish_rows<kTilePanel>(x, b, row, t.rows[0] + t.rows[1], panel * kTilePanel);
      });
    }
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
