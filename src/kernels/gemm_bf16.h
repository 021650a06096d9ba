// Batched matrix product of bf16 by bf16 with a fused epilogue, by units made for it. Products are exact, sums f32:
//   C[b][m][n] = epilogue( sum_k A[b][m][k] * B[b][k][n] ),   row = b * M + m, col = n.   K = 0 gives epilogue(0).
// C is f32, or bf16: then each result is rounded once, after the epilogue.
//
// Two forms, one file each:
//                instruction   K is padded to    columns of a panel
//   kBf16Dot     vdpbf16ps      2                those of a f32 product (kernels/tile.h)
//   kBf16Tiles   AMX tdpbf16ps  32               32
// Both instructions take denormals for 0, those of the operands and of the sums.
//
// Packed B: panels as kernels/word_panels.h draws them, zeros for the columns and the rows of K that there are not:
//   [panel][K/2][panel columns][2 bf16]
// A B that is not packed has any strides: every unit packs its own panel into scratch. Rows of A are read in place
// where their elements lie together and K need not be padded, and are copied to scratch otherwise.
//
// Operands: A, B, C, then the extra operands of the epilogue. Units: batch x m_blocks x panels, panels fastest.
#pragma once
#include "kernels/abi.h"
#include "kernels/half.h"
#include "kernels/hooks.h"
#include "kernels/sizes.h"
#include "kernels/word_rows.h"

namespace ingot::kernel {

enum Bf16Form : int64_t { kBf16Dot = 1, kBf16Tiles = 2 };

struct GemmBf16Params {
  int64_t form;       // Bf16Form: that of the kernel
  int64_t panel;      // columns: bf16_panel
  int64_t a_packing;  // 1: rows of A are copied (bf16_must_copy)
  int64_t b_packed;   // 1: B is packed; b_row, b_col and b_batch are ignored
  int64_t c_half;     // 1: C is bf16; 0: f32
  int64_t m_blocks;   // groups of rows; bf16_m_blocks(m)
  int64_t m, n, k;
  int64_t batch[3];
  int64_t a_row, a_col, a_batch[3];  // strides in elements
  int64_t b_row, b_col, b_batch[3];
  int64_t c_row, c_batch[3];
  int64_t extras;  // operands of the epilogue
  EpilogueOperand extra[kMaxEpilogueOperands];
};
inline constexpr SizeField kGemmBf16Sizes[] = {
    INGOT_SIZE(GemmBf16Params, m_blocks),
    INGOT_SIZE(GemmBf16Params, m),
    INGOT_SIZE(GemmBf16Params, n),
    INGOT_SIZE(GemmBf16Params, k),
    INGOT_SIZE(GemmBf16Params, batch),
    INGOT_SIZE(GemmBf16Params, a_row),
    INGOT_SIZE_ABOVE(1, GemmBf16Params, a_col),
    INGOT_SIZE(GemmBf16Params, a_batch),
    INGOT_SIZE_ABOVE(1, GemmBf16Params, b_row),
    INGOT_SIZE_ABOVE(1, GemmBf16Params, b_col),
    INGOT_SIZE(GemmBf16Params, b_batch),
    INGOT_SIZE(GemmBf16Params, c_row),
    INGOT_SIZE(GemmBf16Params, c_batch),
    INGOT_SIZE_ABOVE(1, GemmBf16Params, extra),
};
static_assert(sizeof(GemmBf16Params) == (27 + 2 * kMaxEpilogueOperands) * 8);

INGOT_INLINE constexpr int64_t bf16_panel(int64_t form, int64_t lanes, int64_t n) {
  return form == kBf16Tiles ? kTilePanel : best_panel(lanes, n);
}
// K is padded with zeros to a multiple of so many elements.
INGOT_INLINE constexpr int64_t bf16_depth_unit(int64_t form) { return form == kBf16Tiles ? 32 : 2; }
INGOT_INLINE constexpr int64_t bf16_padded_depth(int64_t form, int64_t k) {
  return div_up(k, bf16_depth_unit(form)) * bf16_depth_unit(form);
}
INGOT_INLINE constexpr int64_t bf16_packed_elements(int64_t form, int64_t panel, int64_t k, int64_t n) {
  return div_up(n, panel) * panel * bf16_padded_depth(form, k);
}
INGOT_INLINE bool bf16_must_copy(const GemmBf16Params& p) { return p.a_col != 1 || p.k % bf16_depth_unit(p.form) != 0; }
// About 128 rows: with K of 768, 192 KB of A.
INGOT_INLINE constexpr int64_t bf16_m_blocks(int64_t m) { return max_of(1, div_up(m - 32, 128)); }

INGOT_INLINE int64_t bf16_units(const GemmBf16Params& p) {
  if (p.m == 0) return 0;
  return p.batch[0] * p.batch[1] * p.batch[2] * p.m_blocks * div_up(p.n, p.panel);
}

// Scratch, offsets in bytes.
struct Bf16Scratch {
  int64_t sums;   // f32: two tiles of up to 32 rows, [rows][columns of a panel]
  int64_t copy;   // copied rows of A
  int64_t panel;  // a panel of a B that was not packed ahead
  int64_t total;
};
INGOT_INLINE int64_t bf16_copy_stride(const GemmBf16Params& p) {
  return copy_stride(2 * bf16_padded_depth(p.form, p.k));
}
INGOT_INLINE Bf16Scratch bf16_scratch(const GemmBf16Params& p) {
  Bf16Scratch s;
  s.sums = 0;
  s.copy = 2 * 32 * p.panel * int64_t(sizeof(float));
  s.panel = s.copy + (p.a_packing ? group_rows(p.m, p.m_blocks) * bf16_copy_stride(p) : 0);
  s.total = s.panel + (p.b_packed ? 0 : 2 * p.panel * bf16_padded_depth(p.form, p.k));
  return s;
}

// A panel of the form: `columns` columns of a B[k][..] that begins at `from`; the panel has room for more of both.
//   to[pair][panel columns][2]
INGOT_INLINE void bf16_pack_panel(uint16_t* to, const uint16_t* from, int64_t form, int64_t panel, int64_t k,
                                  int64_t columns, int64_t row_stride, int64_t col_stride) {
  const int64_t depth = bf16_padded_depth(form, k);
  columns = min_of(columns, panel);
  for (int64_t i = 0; i < depth; i += 2, to += 2 * panel) {
    const uint16_t* pair = from + i * row_stride;
    int64_t j = 0;
    if (i + 1 < k && col_stride == 1)
      for (; j + kLanes <= columns; j += kLanes) {
        const VU low = __builtin_convertvector(load(pair + j), VU);
        const VU both = low | __builtin_convertvector(load(pair + row_stride + j), VU) << 16;
        __builtin_memcpy(to + 2 * j, &both, sizeof both);
      }
    if (i + 1 < k && row_stride == 1)
      for (; j < columns; j++) __builtin_memcpy(to + 2 * j, pair + j * col_stride, 4);
    for (; j < panel; j++)
      for (int64_t part = 0; part < 2; part++)
        to[2 * j + part] = j < columns && i + part < k ? pair[part * row_stride + j * col_stride] : uint16_t(0);
  }
}

INGOT_KERNEL(ingot_gemm_bf16_dot);
INGOT_KERNEL(ingot_gemm_bf16_tiles);

INGOT_INLINE const Kernel& bf16_kernel(int64_t form) {
  return form == kBf16Tiles ? ingot_gemm_bf16_tiles_kernel : ingot_gemm_bf16_dot_kernel;
}

}  // namespace ingot::kernel
