// kI8Dot: a tile of rows by a panel of columns in registers, one vpdpbusd for 4 products of a lane.
#include "kernels/gemm_i8_panels.h"

namespace ingot::kernel {

template <int NR, int MR>
INGOT_LATE void dot_tile(const PanelCall& x, const int8_t* words, int64_t row, Prefetch& prefetch) {
  constexpr int NV = NR / kLanes;
  const GemmI8Params& p = x.p;
  const auto* b = reinterpret_cast<const uint8_t*>(words);
  VI acc[MR][NV];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      load(x.start + j * kLanes);
  const uint8_t *rows[MR], *const *at = x.at + (row - x.first_row);
  each_run_at_hand(p, [&](int64_t offset, int64_t bytes) INGOT_INLINED {
    INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = at[i] + offset;
    dot_run(acc, rows, b, bytes, prefetch);
    b += bytes * NR;
  });
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store(x.sums + i * NR + j * kLanes, acc[i][j]);
}

template <int NR>
INGOT_LATE void dot_panels(const KernelCall* call, const GemmI8Params& p) {
  each_group(call, p, [&](const PanelCall& x, int64_t first, int64_t last) INGOT_INLINED {
    const Tiling tiling = cut_rows(x.rows, kTileRows<NR>);
    const int64_t lines = p.b_packed && tiling.count > 1 ? div_up(16 * NR / kCacheLine, tiling.count) : 0;
    for (int64_t panel = first; panel < last; panel++) {
      const PanelOfBytes b = panel_of(x, panel);
      begin_panel(x, b);
      Prefetch prefetch{reinterpret_cast<const char*>(b.words + i8_padded_depth(p) * NR), lines};
      for_tiles<kTileRows<NR>>(tiling, 0, tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
        const int64_t row = x.first_row + tile_start(tiling, tile);
        dot_tile<NR, decltype(h)::value>(x, b.words, row, prefetch);
        finish_rows<NR>(x, b, x.sums, row, decltype(h)::value, panel * NR);
      });
    }
  });
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_i8_dot(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  const auto& p = *reinterpret_cast<const GemmI8Params*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED { dot_panels<decltype(width)::value>(call, p); });
  return ingot::kOk;
}
