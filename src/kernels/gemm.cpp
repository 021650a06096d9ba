#include "kernels/gemm.h"

#include "kernels/microkernel.h"

namespace ingot::kernel {

// One batch entry: its matrices and the row of the whole result at which it begins.
struct GemmMatrices {
  const float* a;
  const float* b;
  float* c;
  int64_t first_row;
};

INGOT_INLINE GemmMatrices gemm_matrices(const KernelCall* call, const GemmParams& p, int64_t entry) {
  int64_t i2 = entry % p.batch[2], i1 = entry / p.batch[2] % p.batch[1], i0 = entry / (p.batch[2] * p.batch[1]);
  auto at = [&](const int64_t (&stride)[3])
                __attribute__((always_inline)) { return i0 * stride[0] + i1 * stride[1] + i2 * stride[2]; };
  return {static_cast<const float*>(call->operand[0]) + at(p.a_batch),
          static_cast<const float*>(call->operand[1]) + at(p.b_batch),
          static_cast<float*>(call->operand[2]) + at(p.c_batch), entry * p.m};
}

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
  if (p.b_packed) return {x.b + (panel * p.k + s.k0) * NR, NR};
  const float* src = x.b + s.k0 * p.b_row + panel * NR * p.b_col;
  int64_t cols = p.n - panel * NR;
  // Packing costs about as much as two tiles, so few rows read a row-major B where it is.
  if (p.b_col == 1 && cols >= NR && s.last_tile - s.first_tile <= 2) return {src, p.b_row};
  pack_panel<NR>(scratch, src, s.len, cols, p.b_row, p.b_col);
  return {scratch, NR};
}

template <int NR, int MR>
INGOT_LATE void gemm_tile(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, const float* packed_a,
                          PanelOfB b, int64_t panel, int64_t tile, Prefetch& prefetch, const Epilogue& epilogue) {
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
  accumulate(acc, rows, p.a_packing ? MR * kUnroll : kUnroll, b.at, b.ld, s.len, prefetch);
  finish(acc, d, epilogue);
}

// Panels [first_panel, last_panel) of one block of rows.
template <int NR>
INGOT_INLINE void gemm_block(const KernelCall* call, const GemmParams& p, int64_t entry, int64_t block,
                             int64_t first_panel, int64_t last_panel) {
  Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  GemmMatrices x = gemm_matrices(call, p, entry);
  float* scratch = static_cast<float*>(call->scratch);
  float* panel_scratch = scratch + gemm_a_scratch_floats(p);
  GemmSlice s;
  s.tiling = cut_rows(p.m, kTileRows<NR>);
  s.first_tile = s.tiling.count * block / p.m_blocks;
  s.last_tile = s.tiling.count * (block + 1) / p.m_blocks;
  int64_t slices = max_of(1, div_up(p.k, p.k_slice));
  int64_t lines = p.b_packed ? prefetch_lines(NR, s.tiling.count / p.m_blocks) : 0;
  for (int64_t i = 0; i < slices; i++) {
    s.k0 = i * p.k_slice;
    s.len = p.k % p.k_slice == 0 ? min_of(p.k_slice, p.k) : min_of(p.k_slice, p.k - s.k0);
    s.first = i == 0;
    s.last = i == slices - 1;
    if (p.a_packing) gemm_pack_a(p, x, s, scratch);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
      PanelOfB b = gemm_panel_of_b<NR>(p, x, s, panel, panel_scratch);
      const float* next = panel + 1 < last_panel ? b.at + p.k * NR : x.b + (first_panel * p.k + s.k0 + s.len) * NR;
      Prefetch prefetch{reinterpret_cast<const char*>(next), lines};
      for_tiles<kTileRows<NR>>(s.tiling, s.first_tile, s.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        gemm_tile<NR, decltype(h)::value>(p, x, s, scratch, b, panel, tile, prefetch, epilogue);
      });
    }
  }
}

template <int NR>
INGOT_LATE void gemm(const KernelCall* call, const GemmParams& p) {
  int64_t panels = div_up(p.n, NR);
  for (int64_t unit = call->begin; unit < call->end;) {
    int64_t first = unit % panels, last = min_of(panels, first + call->end - unit), group = unit / panels;
    gemm_block<NR>(call, p, group / p.m_blocks, group % p.m_blocks, first, last);
    unit += last - first;
  }
}

INGOT_INLINE KernelStatus gemm_body(const KernelCall* call) {
  const GemmParams& p = *reinterpret_cast<const GemmParams*>(call->param);
  if (p.panel == 24)
    gemm<24>(call, p);
  else
    gemm<16>(call, p);
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_f32(const ingot::KernelCall* call) { return ingot::kernel::gemm_body(call); }
