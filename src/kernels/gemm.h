// Batched matrix product with a fused epilogue, fp32:
//   C[b][m][n] = epilogue( sum_k A[b][m][k] * B[b][k][n] ),   row = b * M + m, col = n.   K = 0 gives epilogue(0).
//
// Operands: A, B, C, then the extra operands of the epilogue.
//  - A: any strides. With a_col == 1 rows are read in place, otherwise a block is packed into scratch first.
//  - B: packed into panels (kernels/pack.h), or plain with any strides: then every unit packs its
//    own panel into scratch. Packed panels may be narrow (kernels/narrow.h), which have three forms:
//
//    form         kernel               rows          how A meets B
//    kGemmFew     gemm_few.cpp,        few           panels are widened in registers; one row of A meets 4-bit
//                 gemm_row_dot.cpp                   numbers in digits, with vpdpbusd if the target has it
//    kGemmFixed   gemm_fixed.cpp       more          A is rounded to 16 bits, where that is allowed, and multiplied by
//                                                    integers of 16 bits (kernels/fixed.h)
//    kGemmWide    gemm.cpp             many          a slice of a panel is expanded to floats in scratch and used for
//                                                    all tiles of a block; also every B that is not narrow
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
#include "kernels/fixed.h"
#include "kernels/hooks.h"
#include "kernels/sizes.h"

namespace ingot::kernel {

struct GemmParams {
  int64_t panel;            // columns (kernels/tile.h)
  int64_t b_packed;         // 1: B is packed, b_row and b_col are ignored, b_batch counts floats of packed matrices
  int64_t a_packing;        // 1: blocks of A are packed into scratch; required when a_col != 1
  int64_t b_type;           // PanelType of a packed B
  int64_t b_zeros, b_half;  // NarrowPanels::zeros, half
  int64_t a_digits;         // bytes of A's precision where it meets narrow integers: 3, or 2 if it may be rounded
  int64_t form;             // GemmForm
  int64_t tile_rows;        // rows of the tallest tiles, the others have one less
  int64_t k_slice;          // k-steps per pass over the panels
  int64_t m_blocks;         // blocks of rows
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

INGOT_INLINE NarrowPanels gemm_narrow(const GemmParams& p) {
  return {p.b_type, p.panel, p.k, p.b_block, p.b_zeros, p.b_half};
}

enum GemmForm : int64_t { kGemmWide = 0, kGemmFew = 1, kGemmFixed = 2 };
// Up to so many rows a narrow B is widened in registers: each element is used too rarely to be stored as a float, or,
// where A may be rounded, as an integer of 16 bits.
inline constexpr int64_t kGemmFewRows = 8, kGemmFewRoundedRows = 4;
INGOT_INLINE GemmForm gemm_form(const GemmParams& p) {
  if (p.b_type == kPanelF32) return kGemmWide;
  if (p.a_digits == 2 && p.m > kGemmFewRoundedRows && fits_fixed(gemm_narrow(p), p.b_zero)) return kGemmFixed;
  return p.m <= kGemmFewRows ? kGemmFew : kGemmWide;
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

// Fills in the form, and how the product is cut, of params that have everything else.
INGOT_INLINE void gemm_cut(GemmParams& p, int64_t lanes, GemmForm form) {
  p.form = form;
  const bool fixed = p.form == kGemmFixed;
  p.tile_rows = tallest_tile(p.m, fixed ? tile_rows_of_two_steps(lanes, p.panel) : tile_rows(lanes, p.panel));
  p.k_slice = fixed ? fixed_slice(gemm_narrow(p)) : gemm_k_slice(p.k);
  p.m_blocks = gemm_m_blocks(p.m);
}

INGOT_INLINE int64_t gemm_units(const GemmParams& p) {
  if (p.m == 0) return 0;
  return p.batch[0] * p.batch[1] * p.batch[2] * p.m_blocks * div_up(p.n, p.panel);
}

// Scratch: the packed block of A (none if its rows are contiguous), then the packed panel of B (none if packed before).
INGOT_INLINE int64_t gemm_most_block_rows(const GemmParams& p) { return p.m / p.m_blocks + 2 * kMostTileRows + 1; }
INGOT_INLINE int64_t gemm_a_scratch_floats(const GemmParams& p) {
  return p.a_packing ? gemm_most_block_rows(p) * div_up(p.k_slice, 16) * 16 : 0;
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
  if (p.form == kGemmFixed) return fixed_scratch(gemm_narrow(p), gemm_most_block_rows(p), p.k_slice).total;
  if (p.form == kGemmFew) {
    const int64_t groups = narrow_groups(gemm_narrow(p)), rows = gemm_few_row_floats(p);
    const int64_t floats = p.m * (rows + 2 * groups) + (gemm_in_digits(p) ? groups * gemm_digit_runs(p) : 0);
    return (kFewRowsHead + floats) * int64_t(sizeof(float)) + (gemm_in_digits(p) ? rows * p.a_digits : 0);
  }
  bool panel = !p.b_packed || p.b_type != kPanelF32;
  return (gemm_a_scratch_floats(p) + (panel ? p.k_slice * p.panel : 0)) * int64_t(sizeof(float));
}

INGOT_KERNEL(ingot_gemm_f32);
INGOT_KERNEL(ingot_gemm_few);
INGOT_KERNEL(ingot_gemm_row_dot);
INGOT_KERNEL(ingot_gemm_fixed);
// dot: the target has vpdpbusd.
INGOT_INLINE const Kernel& gemm_kernel(const GemmParams& p, bool dot) {
  return p.form == kGemmFixed       ? ingot_gemm_fixed_kernel
         : p.form == kGemmWide      ? ingot_gemm_f32_kernel
         : dot && gemm_in_digits(p) ? ingot_gemm_row_dot_kernel
                                    : ingot_gemm_few_kernel;
}

}  // namespace ingot::kernel
