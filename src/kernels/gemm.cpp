#include "kernels/gemm_operands.h"

namespace ingot::kernel {

// The rows of one block of A, and the part of K that is being summed.
struct GemmSlice {
  Tiling tiling;
  int64_t first_tile, last_tile;
  int64_t k0, len;
  bool first, last;
};

// A slice of a block of A packed tile by tile; tile rows [row, row + h) begin at (row - first row) * padded length.
INGOT_INLINE int64_t padded_length(int64_t len) { return div_up(len, kUnroll) * kUnroll; }
INGOT_INLINE void gemm_pack_a(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, float* scratch) {
  for (int64_t tile = s.first_tile; tile < s.last_tile; tile++) {
    int64_t row = tile_start(s.tiling, tile), rows = tile_start(s.tiling, tile + 1) - row;
    pack_rows(scratch, x.a + row * p.a_row + s.k0 * p.a_col, rows, s.len, p.a_row, p.a_col);
    scratch += rows * padded_length(s.len);
  }
}

// A slice of a panel of B: its rows are ld floats apart.
struct PanelOfB {
  const float* at;
  int64_t ld;
};
template <int NR>
INGOT_INLINE PanelOfB gemm_panel_of_b(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, int64_t panel,
                                      float* scratch) {
  if (p.b_type != kPanelF32) {
    NarrowPanels narrow = gemm_narrow(p);
    const char* bytes = reinterpret_cast<const char*>(x.b) + panel * narrow_panel_bytes(narrow);
    expand_panel<NR>(scratch, narrow, bytes, s.k0, s.len, float(p.b_zero));
    return {scratch, NR};
  }
  if (p.b_packed) return {x.b + (panel * p.k + s.k0) * NR, NR};
  const float* src = x.b + s.k0 * p.b_row + panel * NR * p.b_col;
  int64_t cols = p.n - panel * NR;
  // Packing costs about as much as two tiles, so few rows read a row-major B where it is.
  if (p.b_col == 1 && cols >= NR && s.last_tile - s.first_tile <= 2) return {src, p.b_row};
  pack_panel<NR>(scratch, src, s.len, cols, p.b_row, p.b_col);
  return {scratch, NR};
}

// Where a packed B is read next: the same slice of the next panel, or the next slice of the first.
template <int NR>
INGOT_INLINE const char* gemm_next_panel(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, int64_t first,
                                         int64_t last, int64_t panel) {
  const char* b = reinterpret_cast<const char*>(x.b);
  bool within = panel + 1 < last;
  int64_t to = within ? panel + 1 : first, k = within ? s.k0 : s.k0 + s.len;
  if (p.b_type == kPanelF32) return b + (to * p.k + k) * NR * int64_t(sizeof(float));
  NarrowPanels narrow = gemm_narrow(p);
  return b + to * narrow_panel_bytes(narrow) + k * narrow_row_bytes(narrow);  // without scales: near enough
}

template <int NR, int MR>
INGOT_LATE void gemm_tile(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, const float* packed_a,
                          PanelOfB b, int64_t panel, int64_t tile, bool first_use, Prefetch& prefetch,
                          const Epilogue& epilogue) {
  int64_t row = tile_start(s.tiling, tile), row_in_block = row - tile_start(s.tiling, s.first_tile);
  const float* first = p.a_packing ? packed_a + row_in_block * padded_length(s.len) : x.a + row * p.a_row + s.k0;
  int64_t stride = p.a_packing ? kUnroll : p.a_row;
  const float* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = first + i * stride;
  int64_t col = panel * NR;
  Destination d{x.c + row * p.c_row + col, p.c_row, x.first_row + row, col, p.n - col, s.first, s.last};
  prefetch_destination<MR>(d, epilogue);
  VF acc[MR][NR / kLanes];
  clear(acc);
  // Rows of a dense A follow each other: the next tile's, when A is read for the first time.
  const bool dense = !p.a_packing && p.a_row == p.k && s.len == p.k;
  constexpr int64_t kRowLines = div_up(MR * kUnroll * int64_t(sizeof(float)), kCacheLine);
  PrefetchBoth both{prefetch,
                    {reinterpret_cast<const char*>(first + MR * p.a_row), dense && first_use ? kRowLines : 0}};
  accumulate(acc, rows, p.a_packing ? MR * kUnroll : kUnroll, b.at, b.ld, s.len, both);
  prefetch = both.panel;
  finish(acc, d, epilogue);
}

// Panels [first_panel, last_panel) of one block of rows.
template <int NR>
INGOT_LATE void gemm_block(const KernelCall* call, int64_t entry, int64_t block, bool, int64_t first_panel,
                           int64_t last_panel) {
  const GemmParams& p = gemm_params(call);
  const Epilogue epilogue = gemm_epilogue(call, p);
  GemmMatrices x = gemm_matrices(call, p, entry);
  float* scratch = static_cast<float*>(call->scratch);
  float* panel_scratch = scratch + gemm_a_scratch_floats(p);
  GemmSlice s;
  s.tiling = cut_rows(p.m, kTileRows<NR>, p.tile_rows);
  s.first_tile = s.tiling.count * block / p.m_blocks;
  s.last_tile = s.tiling.count * (block + 1) / p.m_blocks;
  int64_t slices = max_of(1, div_up(p.k, p.k_slice));
  int64_t row_bytes = p.b_type == kPanelF32 ? NR * int64_t(sizeof(float)) : narrow_row_bytes(gemm_narrow(p));
  // A panel that is read once is one stream, which the processor prefetches better by itself.
  bool reused = s.last_tile - s.first_tile > 1;
  int64_t lines = p.b_packed && reused ? prefetch_lines(row_bytes, s.tiling.count / p.m_blocks) : 0;
  for (int64_t i = 0; i < slices; i++) {
    s.k0 = i * p.k_slice;
    s.len = p.k % p.k_slice == 0 ? min_of(p.k_slice, p.k) : min_of(p.k_slice, p.k - s.k0);
    s.first = i == 0;
    s.last = i == slices - 1;
    if (p.a_packing) gemm_pack_a(p, x, s, scratch);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
      PanelOfB b = gemm_panel_of_b<NR>(p, x, s, panel, panel_scratch);
      Prefetch prefetch{gemm_next_panel<NR>(p, x, s, first_panel, last_panel, panel), lines};
      for_tiles<kTileRows<NR>>(s.tiling, s.first_tile, s.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        gemm_tile<NR, decltype(h)::value>(p, x, s, scratch, b, panel, tile, panel == first_panel, prefetch, epilogue);
      });
    }
  }
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_f32(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  return each_block(call, [](auto width, auto... at) INGOT_INLINED { gemm_block<decltype(width)::value>(at...); });
}
