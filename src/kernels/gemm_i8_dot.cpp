// kI8Dot: a tile of rows by a panel of columns in registers, one vpdpbusd for 4 products of a lane.
#include "kernels/gemm_i8_panels.h"

namespace ingot::kernel {

template <int MR, int NV>
INGOT_INLINE void dot_step(VI (&acc)[MR][NV], const uint8_t* const (&a)[MR], int64_t k, const int8_t* b) {
  Bytes row[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) row[j] = load_as<Bytes>(b + j * int64_t(sizeof(Bytes)));
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    const Bytes word = __builtin_bit_cast(Bytes, VI(word_at(a[i] + k)));
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] = add_products(acc[i][j], word, row[j]);
  }
  end_step(acc[MR - 1]);
}

// acc += a[:][0..bytes) * b; few accumulators are kept several times, to have enough independent chains.
template <int MR, int NV>
INGOT_INLINE void dot_run(VI (&acc)[MR][NV], const uint8_t* const (&a)[MR], const int8_t* b, int64_t bytes,
                          Prefetch& prefetch) {
  constexpr int chains = kAccumulators / (MR * NV), parts = chains >= 4 ? 4 : chains >= 2 ? 2 : 1, kWords = 4;
  constexpr int64_t kRow = NV * int64_t(sizeof(Bytes));
  VI part[parts][MR][NV];
  INGOT_UNROLL for (int p = 0; p < parts; p++) INGOT_UNROLL for (int i = 0; i < MR; i++)
      INGOT_UNROLL for (int j = 0; j < NV; j++) part[p][i][j] = p == 0 ? acc[i][j] : VI(0);
  int64_t k = 0;
  for (; k + 4 * kWords <= bytes; k += 4 * kWords, b += kWords * kRow) {
    advance(prefetch);
    INGOT_UNROLL for (int u = 0; u < kWords; u++) dot_step(part[u % parts], a, k + 4 * u, b + u * kRow);
  }
  for (; k < bytes; k += 4, b += kRow) dot_step(part[0], a, k, b);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) {
    acc[i][j] = part[0][i][j];
    INGOT_UNROLL for (int p = 1; p < parts; p++) acc[i][j] += part[p][i][j];
  }
}

template <int NR, int MR>
INGOT_LATE void dot_tile(const PanelCall& x, const int8_t* b, int64_t row, Prefetch& prefetch) {
  constexpr int NV = NR / kLanes;
  const GemmI8Params& p = x.p;
  VI acc[MR][NV];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      load(x.start + j * kLanes);
  const uint8_t *rows[MR], *const *at = x.at + (row - x.first_row);
  if (p.a_packing || panel_runs(p) == 1) {
    INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = at[i];
    dot_run(acc, rows, b, i8_padded_depth(p), prefetch);
  } else {
    for (int64_t run = 0; run < panel_runs(p); run++, b += p.run_bytes * NR) {
      INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = at[i] + run_offset(p, run);
      dot_run(acc, rows, b, p.run_bytes, prefetch);
    }
  }
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
