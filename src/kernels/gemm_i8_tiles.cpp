// kI8Tiles: products of bytes with AMX.
#include "kernels/gemm_i8_panels.h"
#if defined(__AMX_INT8__)
#include "kernels/isa/amx.h"
#define INGOT_TILES
#endif
#if defined(INGOT_TILES)
#include "kernels/amx_panels.h"

namespace ingot::kernel {

// The sums of the rows with a panel, to `sums`.
template <bool Two>
INGOT_INLINE void multiply_rows(const PanelCall& x, const RowTiles& t, const int8_t* words, int32_t* sums,
                                Prefetch& prefetch) {
  const GemmI8Params& p = x.p;
  const auto* b = reinterpret_cast<const uint8_t*>(words);
  load_tile<0>(x.start, 0);  // the same start for each row
  load_tile<1>(x.start + kTileColumns, 0);
  if constexpr (Two) {
    load_tile<2>(x.start, 0);
    load_tile<3>(x.start + kTileColumns, 0);
  }
  each_run_at_hand(p, [&](int64_t offset, int64_t bytes) INGOT_INLINED {
    multiply_run<ByteTiles, Two>(t, offset, b, bytes, prefetch);
    b += bytes * kTilePanel;
  });
  store_sums<Two>(t, sums);
}

// The rows of the group from `row` on that are multiplied together. Rows where they are form a tile only within the
// last of their dims, where they are the same distance apart.
INGOT_INLINE RowTiles row_tiles(const PanelCall& x, int64_t row) {
  const GemmI8Params& p = x.p;
  const int64_t line = p.a_packing ? x.rows : p.row_dims[3];
  const int64_t in_line = p.a_packing ? row : (x.first_row + row) % line;
  RowTiles t = cut_row_tiles(min_of(x.rows - row, line - in_line), p.a_packing ? i8_copy_stride(p) : p.row_stride[3]);
  t.at[0] = x.at[row];
  if (t.rows[1]) t.at[1] = x.at[row + t.rows[0]];
  return t;
}

INGOT_INLINE void tile_panel(const PanelCall& x, int64_t panel, ShapeInUse& shape) {
  const PanelOfBytes b = panel_of(x, panel);
  begin_panel(x, b);
  Prefetch prefetch{reinterpret_cast<const char*>(b.words + i8_padded_depth(x.p) * kTilePanel),
                    x.p.b_packed ? tile_prefetch_lines(x.rows) : 0};
  const auto sums = [&](int64_t which) INGOT_INLINED { return x.sums + which * 32 * kTilePanel; };
  for_row_tiles(
      x.rows, shape, [&](int64_t row) INGOT_INLINED { return row_tiles(x, row); },
      [&](const RowTiles& t, int64_t which) INGOT_INLINED {
        t.rows[1] ? multiply_rows<true>(x, t, b.words, sums(which), prefetch)
                  : multiply_rows<false>(x, t, b.words, sums(which), prefetch);
      },
      [&](int64_t row, int64_t rows, int64_t which)
          INGOT_INLINED { finish_rows<kTilePanel>(x, b, sums(which), x.first_row + row, rows, panel * kTilePanel); });
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
#if defined(INGOT_TILES)
  ingot::kernel::tile_panels(call, *reinterpret_cast<const ingot::kernel::GemmI8Params*>(call->param));
  return ingot::kOk;
#else
  return ingot::kBadValue;
#endif
}
