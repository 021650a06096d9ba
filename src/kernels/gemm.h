// Batched matrix product with a fused epilogue, fp32:
//   C[b][m][n] = epilogue( sum_k A[b][m][k] * B[b][k][n] ),   row = b * M + m, col = n.   K = 0 gives epilogue(0).
//
// Operands: A, B, C, then the extra operands of the epilogue.
//  - A: any strides. With a_col == 1 rows are read in place, otherwise a block is packed into scratch first.
//  - B: packed into panels (kernels/pack.h), or plain with any strides: then every unit packs its
//    own panel into scratch. Packed panels may be narrow (kernels/narrow.h): few rows widen them in registers, many
//    expand a slice of a panel into scratch and use it for all tiles of a block.
//  - C: contiguous columns, rows c_row apart.
//  - Up to three batch dims; a stride of 0 broadcasts. A batch dim over which B is broadcast and A and C are contiguous
//    is better made part of M.
// Units: batch x m_blocks x panels, panels fastest. A thread's contiguous range is thus a range of panels of one block
// of rows, or several blocks: for few rows the split is over N, for many over M.
//
// Loops of a call: block of rows, slice of K, panel, tile. A block of A and one panel of a slice lie in L2; the next
// panel is prefetched while this one is used, so packed weights are one sequential stream from memory.
#pragma once
#include "kernels/abi.h"
#include "kernels/hooks.h"
#include "kernels/narrow.h"
#include "kernels/sizes.h"

namespace ingot::kernel {

struct GemmParams {
  int64_t panel;            // columns (kernels/tile.h)
  int64_t b_packed;         // 1: B is packed, b_row and b_col are ignored, b_batch counts floats of packed matrices
  int64_t a_packing;        // 1: blocks of A are packed into scratch; required when a_col != 1
  int64_t b_type;           // PanelType of a packed B
  int64_t b_zeros, b_half;  // NarrowPanels::zeros, half
  int64_t a_digits;         // of a single row that meets 4-bit numbers: 2 or 3 (narrow.h)
  int64_t few_rows;         // 1: a narrow B is widened in registers; gemm_few_rows(b_type, m)
  int64_t tile_rows;        // rows of the tallest tiles, the others have one less; tallest_tile(m, ...)
  int64_t k_slice;          // k-steps per pass over the panels; gemm_k_slice(k)
  int64_t m_blocks;         // blocks of rows; gemm_m_blocks(m)
  int64_t m, n, k;
  int64_t batch[3];
  int64_t a_row, a_col, a_batch[3];
  int64_t b_row, b_col, b_batch[3];
  int64_t b_block, b_zero;  // of a narrow B: NarrowPanels::block, and the zero point of all where groups have none
  int64_t c_row, c_batch[3];
  int64_t extras;  // operands of the epilogue
  EpilogueOperand extra[kMaxEpilogueOperands];
};
inline constexpr SizeField kGemmSizes[] = {
    INGOT_SIZE(GemmParams, k_slice),
    INGOT_SIZE(GemmParams, m_blocks),
    INGOT_SIZE(GemmParams, m),
    INGOT_SIZE(GemmParams, n),
    INGOT_SIZE(GemmParams, k),
    INGOT_SIZE(GemmParams, batch),
    INGOT_SIZE(GemmParams, a_row),
    INGOT_SIZE(GemmParams, a_batch),
    INGOT_SIZE_ABOVE(1, GemmParams, a_col),
    INGOT_SIZE(GemmParams, b_batch),
    INGOT_SIZE(GemmParams, c_row),
    INGOT_SIZE_ABOVE(1, GemmParams, b_row),
    INGOT_SIZE(GemmParams, c_batch),
    INGOT_SIZE_ABOVE(1, GemmParams, b_col),
    INGOT_SIZE_ABOVE(1, GemmParams, extra),
};
static_assert(sizeof(GemmParams) == (34 + 2 * kMaxEpilogueOperands) * 8);

// Up to so many rows a narrow B is widened in registers: each element is used too rarely to be stored as a float.
inline constexpr int64_t kGemmFewRows = 8;
INGOT_INLINE bool gemm_few_rows(int64_t b_type, int64_t m) { return b_type != kPanelF32 && m <= kGemmFewRows; }
INGOT_INLINE NarrowPanels gemm_narrow(const GemmParams& p) {
  return {p.b_type, p.panel, p.k, p.b_block, p.b_zeros, p.b_half};
}

// Tuned on Zen 3 (512 KB of L2): 128 rows x 768 floats of A are 384 KB, a panel slice 48-72 KB.
inline constexpr int64_t kGemmBlockRows = 128, kGemmSlice = 768;

// Slices of equal length where possible: a constant length makes better code.
INGOT_INLINE int64_t gemm_k_slice(int64_t k) {
  if (k <= kGemmSlice + kGemmSlice / 3) return max_of(1, k);
  for (int64_t slice = kGemmSlice; slice >= kGemmSlice / 2; slice -= 8)
    if (k % slice == 0) return slice;
  int64_t slices = div_up(k, kGemmSlice);
  return div_up(div_up(k, slices), 8) * 8;
}
INGOT_INLINE int64_t gemm_m_blocks(int64_t m) { return max_of(1, div_up(m - kGemmBlockRows / 4, kGemmBlockRows)); }

INGOT_INLINE int64_t gemm_units(const GemmParams& p) {
  if (p.m == 0) return 0;
  return p.batch[0] * p.batch[1] * p.batch[2] * p.m_blocks * div_up(p.n, p.panel);
}

// Scratch: the packed block of A (none if its rows are contiguous), then the packed panel of B (none if packed before).
INGOT_INLINE int64_t gemm_a_scratch_floats(const GemmParams& p) {
  return p.a_packing ? (p.m / p.m_blocks + 2 * kMostTileRows + 1) * div_up(p.k_slice, 16) * 16 : 0;
}
// Scratch of few rows and a narrow B. "row" is gemm_few_row_floats floats; groups are those of B (kernels/narrow.h):
//
//   int64, padded to 64 bytes   1: the one row was written in digits; what was packed in one range of units is found
//                               here by the next
//   float [m][row]              rows of A: as they are, prepared for 4-bit numbers, or rounded to their digits
//   float [m][groups]           what the sum of each group begins with (FewRows::start)
//   float [m][groups]           the sum of the elements of A in each group (FewRows::sums)
//   float [groups][digit runs]  the factor of each run of digits; only if m = 1 and B has 4 bits,
//   int8  [row][a_digits]       and the digits
inline constexpr int64_t kFewRowsHead = 64 / sizeof(float);
INGOT_INLINE int64_t gemm_few_row_floats(const GemmParams& p) { return div_up(p.k, kNibbles) * kNibbles; }
INGOT_INLINE bool gemm_in_digits(const GemmParams& p) { return p.b_type == kPanelU4 && p.m == 1; }
INGOT_INLINE int64_t gemm_digit_runs(const GemmParams& p) {  // of a group
  return div_up(narrow_group_rows(gemm_narrow(p)), kDigitRows);
}
INGOT_INLINE int64_t gemm_scratch_bytes(const GemmParams& p) {
  if (p.few_rows) {
    const int64_t groups = narrow_groups(gemm_narrow(p)), rows = gemm_few_row_floats(p);
    const int64_t floats = p.m * (rows + 2 * groups) + (gemm_in_digits(p) ? groups * gemm_digit_runs(p) : 0);
    return (kFewRowsHead + floats) * int64_t(sizeof(float)) + (gemm_in_digits(p) ? rows * p.a_digits : 0);
  }
  bool panel = !p.b_packed || p.b_type != kPanelF32;
  return (gemm_a_scratch_floats(p) + (panel ? p.k_slice * p.panel : 0)) * int64_t(sizeof(float));
}

INGOT_KERNEL(ingot_gemm_f32);

}  // namespace ingot::kernel
