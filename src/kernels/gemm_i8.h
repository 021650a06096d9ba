// Products of 8-bit integers, exact in 32 bits, with a fused epilogue:
//   C[row][col] = epilogue( sum_k (A[row][k] - a_zero) * (B[k][col] - b_zero) )
// A and B are u8 or i8 each. The zero points are taken out of the finished sum:
//   sum (a - za)(b - zb)  =  sum a b  -  za sum b  -  zb (sum a - K za).
//
// Five forms, one file each: a way to pack B, and a kernel for it.
//
//                 in the lanes   instruction   adds in    for
//   kI8Chained    rows of A      pmaddubsw     16 bits    constant B; gemm_i8_chained.cpp
//   kI8Pairs      rows of A      pmaddwd       32 bits    B that chains badly or is not constant; gemm_i8_pairs.cpp
//   kI8Rows       columns of B   pmaddubsw     16 bits    constant B and at most i8_few_rows rows; gemm_i8_rows.cpp
//   kI8Dot        columns of B   vpdpbusd      32 bits    any B, if the target has it; gemm_i8_dot.cpp
//   kI8Tiles      columns of B   AMX           32 bits    any B, if the target has it; gemm_i8_tiles.cpp
//
// pmaddubsw adds two products of u8 and i8 in 16 bits, where 255 * 128 * 2 would saturate:
//  - Chained. It cannot saturate if in every 16-bit lane the positive weights sum to at most 128, and the negative ones
//    too: 255 * 128 < 2^15. B is known when it is packed, so the packer (planner/pack_i8_chained.h) finds words of
//    weights whose products may even be added three at a time before pmaddwd widens them.
//  - Rows. One factor of each two is 0, so a lane has one product.
//
// kernels/gemm_i8_words.h draws how the first three pack A and has a glossary: word, tile, step, run, chunk, block,
// program, chain, order, twelfth. kernels/gemm_i8_panels.h draws the panels of the other two.
//
// Operands: A, B, C, a_zero, b_zero, then the extra operands of the epilogue. C may be of any type: the epilogue is a
// hook that also stores (kernels/store_sums.h).
//
// A row of A is a number of runs of contiguous bytes: one for a matrix, one per row of taps for a convolution over an
// image with its padding in place.
#pragma once
#include "kernels/abi.h"
#include "kernels/pack.h"
#include "kernels/sizes.h"
#include "kernels/store_sums.h"
#include "kernels/word_rows.h"

namespace ingot::kernel {

enum I8Form : int64_t { kI8Chained = 1, kI8Pairs = 2, kI8Dot = 3, kI8Rows = 4, kI8Tiles = 6 };
// B lies in panels of columns, and columns in the lanes.
INGOT_INLINE constexpr bool i8_in_panels(int64_t form) { return form == kI8Dot || form == kI8Tiles; }

struct GemmI8Params {
  int64_t form;            // I8Form: that of the kernel
  int64_t lanes;           // floats in a vector of the target
  int64_t panel;           // forms in panels: columns of a panel
  int64_t a_packing;       // forms in panels: rows of A are copied to scratch (i8_must_copy)
  int64_t b_packed;        // 1: by planner/pack_i8.h; 0: not (kI8Pairs and panels), the runs one after the other
  int64_t a_signed;        // A is i8
  int64_t a_flipped;       // forms in panels: that i8 A lies in memory as u8, 128 more
  int64_t b_signed;        // B is i8
  int64_t a_zero, b_zero;  // I8Zero
  int64_t a_slack;         // 1: kI8Slack bytes after any run of A may be read
  int64_t row_groups;      // i8_row_groups(form, m)
  int64_t m, n;
  int64_t row_dims[4], row_stride[4];         // rows count through these dims; strides in bytes
  int64_t runs[3], run_stride[3], run_bytes;  // runs of a row count through these dims; strides in bytes
  int64_t batch[3], a_batch[3], b_batch[3];   // strides in bytes
  int64_t b_row, b_col;                       // strides of a B that is not packed, in bytes
  int64_t entry_row, entry_col;               // batch entry i begins at row i * entry_row, column i * entry_col of C
  int64_t c_row;                              // elements between rows of C
  int64_t c_bytes;                            // ResultBytes
  int64_t extras;
  EpilogueOperand extra[kMaxEpilogueOperands];
};

INGOT_INLINE SumsTarget sums_target(const KernelCall* call, const GemmI8Params& p) {
  return {call->operand[2], call->operand + 5, p.extra, call->program, p.c_bytes};
}

inline constexpr SizeField kGemmI8Sizes[] = {INGOT_SIZE(GemmI8Params, row_groups),
                                             INGOT_SIZE(GemmI8Params, m),
                                             INGOT_SIZE(GemmI8Params, n),
                                             INGOT_SIZE(GemmI8Params, row_dims),
                                             INGOT_SIZE(GemmI8Params, row_stride),
                                             INGOT_SIZE_ABOVE(1, GemmI8Params, runs),
                                             INGOT_SIZE(GemmI8Params, run_stride),
                                             INGOT_SIZE(GemmI8Params, run_bytes),
                                             INGOT_SIZE(GemmI8Params, batch),
                                             INGOT_SIZE(GemmI8Params, a_batch),
                                             INGOT_SIZE(GemmI8Params, b_batch),
                                             INGOT_SIZE(GemmI8Params, entry_row),
                                             INGOT_SIZE(GemmI8Params, entry_col),
                                             INGOT_SIZE(GemmI8Params, c_row),
                                             INGOT_SIZE_ABOVE(1, GemmI8Params, b_row),
                                             INGOT_SIZE_ABOVE(1, GemmI8Params, b_col),
                                             INGOT_SIZE_ABOVE(1, GemmI8Params, extra)};

// --- words: the forms chained, pairs and rows (kernels/gemm_i8_words.h draws all of this) ---

// Rows of a step; rows that a tile has room for; columns of a group.
INGOT_INLINE constexpr int64_t i8_step_rows(int64_t form, int64_t lanes) {
  return form == kI8Chained ? max_of(8, lanes) : max_of(16, 2 * lanes);
}
INGOT_INLINE constexpr int64_t i8_tile_rows(int64_t form, int64_t lanes) {
  return form == kI8Chained ? max_of(24, 3 * lanes) : max_of(16, 2 * lanes);
}
INGOT_INLINE constexpr int64_t i8_tile_columns(int64_t form, int64_t lanes) {
  return form == kI8Chained ? 2 : form == kI8Pairs ? 4 : max_of(8, lanes);
}
// Columns of a chunk, whose packed weights stay in L2 while the rows pass; rows of a group, about, without and with
// panels.
inline constexpr int64_t kI8ChunkColumns = 128, kI8GroupRows = 64, kI8PanelGroupRows = 128;
// Up to so many rows that would begin a step of their own are single rows: most lanes of a tile would be empty.
INGOT_INLINE constexpr int64_t i8_few_rows(int64_t form) { return form == kI8Chained ? 2 : 4; }
inline constexpr int64_t kI8Slack = 32;     // bytes
inline constexpr int64_t kI8Orders = 2;     // of the bytes of a word of A in kI8Chained: 0123 and 0213
inline constexpr int64_t kI8MaxChain = 3;   // words of a chain, which has 2 or 3
inline constexpr int64_t kI8Twelfths = 12;  // the units in which the place of a word is counted; bytes, in a single row
// Bytes of a twelfth in a packed tile.
INGOT_INLINE constexpr int64_t i8_twelfth(int64_t lanes) { return i8_tile_rows(kI8Chained, lanes) * 4 / kI8Twelfths; }

// Does the kernel multiply bytes, u8 of A by i8 of B? Then an A of i8 is packed plus 128 and a B of u8 less 128, which
// the finished sum makes up for as it does for zero points. (kI8Pairs multiplies 16-bit numbers, which hold either.)
INGOT_INLINE constexpr bool i8_of_bytes(int64_t form) { return form != kI8Pairs; }
// Numbers of K in a word; words of a run, and of a row; orders in which a tile has each word.
INGOT_INLINE constexpr int64_t i8_word_bytes(int64_t form) { return i8_of_bytes(form) ? 4 : 2; }
INGOT_INLINE int64_t i8_run_words(int64_t form, int64_t run_bytes) { return div_up(run_bytes, i8_word_bytes(form)); }
INGOT_INLINE int64_t i8_words(const GemmI8Params& p) {
  return p.runs[0] * p.runs[1] * p.runs[2] * i8_run_words(p.form, p.run_bytes);
}
INGOT_INLINE constexpr int64_t i8_word_stride(int64_t form) { return form == kI8Chained ? kI8Orders : 1; }

// Bytes that a single row takes for each word.
INGOT_INLINE constexpr int64_t i8_row_word(int64_t form) {
  return form == kI8Chained ? kI8Orders * kI8Twelfths : form == kI8Rows ? 8 : 4;
}

// Blocks that the words of a row are cut into: block i has the words [start(i), start(i + 1)).
INGOT_INLINE int64_t i8_blocks(int64_t form, int64_t words) {
  return max_of(1, words / (form == kI8Chained ? 64 : 128));
}
INGOT_INLINE int64_t i8_block_start(int64_t words, int64_t blocks, int64_t block) { return words * block / blocks; }

INGOT_INLINE int64_t i8_chunks(int64_t n) { return div_up(n, kI8ChunkColumns); }
INGOT_INLINE int64_t i8_row_groups(int64_t form, int64_t m) {
  return max_of(1, div_up(m, i8_in_panels(form) ? kI8PanelGroupRows : kI8GroupRows));
}
// Rows are cut into steps, and steps evenly into tiles: the tallest has at most one step more than the lowest. Single
// rows come after the last tile.
INGOT_INLINE int64_t i8_single_rows(const GemmI8Params& p) {
  const int64_t rest = p.m % i8_step_rows(p.form, p.lanes);
  return rest <= i8_few_rows(p.form) ? rest : 0;
}
INGOT_INLINE int64_t i8_steps(const GemmI8Params& p) {
  return div_up(p.m - i8_single_rows(p), i8_step_rows(p.form, p.lanes));
}
INGOT_INLINE int64_t i8_tiles(const GemmI8Params& p) {
  return max_of(1, div_up(i8_steps(p), i8_tile_rows(p.form, p.lanes) / i8_step_rows(p.form, p.lanes)));
}
INGOT_INLINE int64_t i8_tile_start(const GemmI8Params& p, int64_t tile) {
  return i8_steps(p) * tile / i8_tiles(p) * i8_step_rows(p.form, p.lanes);
}
// The first tile of a group of rows.
INGOT_INLINE int64_t i8_group_start(const GemmI8Params& p, int64_t group) { return i8_tiles(p) * group / p.row_groups; }
// Units: batch x groups of rows x chunks of columns (or panels), the last fastest.
INGOT_INLINE int64_t i8_units(const GemmI8Params& p) {
  if (p.m == 0) return 0;
  const int64_t parts = i8_in_panels(p.form) ? div_up(p.n, p.panel) : i8_chunks(p.n);
  return p.batch[0] * p.batch[1] * p.batch[2] * p.row_groups * parts;
}

// Packed B is this header, then the sections whose offsets, in bytes, it has:
//   colsum    i32 for each column: the sum of its stored weights
//   programs  I8Program, kI8Chained only (planner/pack_i8_chained.h draws these three)
//   offsets   u16, kI8Chained only
//   weights   in the format of the form
struct I8Header {
  int64_t colsum, programs, offsets, weights;
};
struct I8Program {
  int32_t first_word;      // its first one in the sections offsets and weights
  int32_t triples, pairs;  // chains of three words, which come first, and of two
  int32_t group;           // of 2 columns, within the chunk
};

// Scratch, offsets in bytes.
struct I8Scratch {
  int64_t a;            // the packed tiles of a group of rows
  int64_t single_rows;  // the packed single rows
  int64_t row_sums;     // i32: the sum of each row of both
  int64_t acc;          // i32: the sums of a tile and a chunk
  int64_t b;            // i32 colsum, then the words of a chunk of a B that is not packed
  int64_t total;
};
INGOT_INLINE I8Scratch i8_scratch(const GemmI8Params& p) {
  I8Scratch s;
  const int64_t tile = i8_tile_rows(p.form, p.lanes), words = i8_words(p);
  const int64_t rows = div_up(i8_tiles(p), p.row_groups) * tile;
  s.a = 0;
  s.single_rows = rows * words * 4 * i8_word_stride(p.form);
  s.row_sums = s.single_rows + div_up(i8_few_rows(p.form) * words * i8_row_word(p.form), 64) * 64;
  s.acc = s.row_sums + div_up((rows + i8_few_rows(p.form)) * 4, 64) * 64;
  s.b = s.acc + kI8ChunkColumns * tile * 4;
  s.total = s.b + (p.b_packed ? 0 : kI8ChunkColumns * (words + 1) * 4);
  return s;
}

// --- panels: the forms dot and tiles (kernels/gemm_i8_panels.h draws them) ---

// K is padded with zeros to a multiple of so many bytes.
INGOT_INLINE constexpr int64_t i8_depth_unit(int64_t form) { return form == kI8Tiles ? 64 : 4; }
INGOT_INLINE constexpr int64_t i8_panel_columns(int64_t form, int64_t lanes, int64_t n) {
  return form == kI8Tiles ? kTilePanel : best_panel(lanes, n);
}
INGOT_INLINE constexpr int64_t i8_padded_depth(int64_t form, int64_t depth) {
  return div_up(depth, i8_depth_unit(form)) * i8_depth_unit(form);
}
INGOT_INLINE int64_t i8_padded_depth(const GemmI8Params& p) {
  return i8_padded_depth(p.form, p.runs[0] * p.runs[1] * p.runs[2] * p.run_bytes);
}
// Rows of A are read where they are only if they are u8 and each run is a multiple of i8_depth_unit.
INGOT_INLINE bool i8_must_flip(const GemmI8Params& p) { return p.a_signed && !p.a_flipped; }
INGOT_INLINE bool i8_must_copy(const GemmI8Params& p) {
  return i8_must_flip(p) || p.run_bytes % i8_depth_unit(p.form) != 0;
}
INGOT_INLINE int64_t i8_copy_stride(const GemmI8Params& p) { return copy_stride(i8_padded_depth(p)); }
// Scratch, offsets in bytes: members of PanelCall (kernels/gemm_i8_panels.h).
struct I8PanelScratch {
  int64_t at, row_sums, start, sums, copy, own_colsum, own_panel, total;
};
INGOT_INLINE I8PanelScratch i8_panel_scratch(const GemmI8Params& p) {
  const int64_t rows = group_rows(p.m, p.row_groups);
  I8PanelScratch s;
  s.at = 0;
  s.row_sums = s.at + rows * int64_t(sizeof(void*));
  s.start = s.row_sums + div_up(rows * 4, 64) * 64;
  s.sums = s.start + div_up(p.panel * 4, 64) * 64;
  s.copy = s.sums + 2 * 32 * p.panel * 4;
  s.own_colsum = s.copy + (p.a_packing ? rows * i8_copy_stride(p) + 64 : 0);
  s.own_panel = s.own_colsum + (p.b_packed ? 0 : div_up(p.panel * 4, 64) * 64);
  s.total = s.own_panel + (p.b_packed ? 0 : p.panel * i8_padded_depth(p));
  return s;
}
INGOT_INLINE int64_t i8_scratch_bytes(const GemmI8Params& p) {
  return i8_in_panels(p.form) ? i8_panel_scratch(p).total : i8_scratch(p).total;
}

// Calls body(offset) for each run of a row: how far it is from the row's beginning, in bytes. Loops instead of
// divisions, which would take as long as copying a short run.
template <class Body>
INGOT_INLINE void each_run(const GemmI8Params& p, const Body& body) {
  int64_t at0 = 0;
  for (int64_t i = 0; i < p.runs[0]; i++, at0 += p.run_stride[0]) {
    int64_t at1 = at0;
    for (int64_t j = 0; j < p.runs[1]; j++, at1 += p.run_stride[1]) {
      int64_t at2 = at1;
      for (int64_t k = 0; k < p.runs[2]; k++, at2 += p.run_stride[2]) body(at2);
    }
  }
}

// Where the rows [first, first + count) begin in memory.
INGOT_INLINE void find_rows(const GemmI8Params& p, const uint8_t* a, int64_t first, int64_t count, const uint8_t** at) {
  int64_t index[4], rest = first;
  INGOT_UNROLL for (int d = 3; d > 0; d--) {
    index[d] = rest % p.row_dims[d];
    rest /= p.row_dims[d];
  }
  index[0] = rest;
  INGOT_UNROLL for (int d = 0; d < 4; d++) a += index[d] * p.row_stride[d];
  for (int64_t i = 0; i < count; i++) {
    at[i] = a;
    a += p.row_stride[3];
    INGOT_UNROLL for (int d = 3; d > 0; d--) {  // carry
      if (++index[d] < p.row_dims[d]) break;
      index[d] = 0;
      a += p.row_stride[d - 1] - p.row_dims[d] * p.row_stride[d];
    }
  }
}

INGOT_KERNEL(ingot_gemm_i8_chained);
INGOT_KERNEL(ingot_gemm_i8_pairs);
INGOT_KERNEL(ingot_gemm_i8_dot);
INGOT_KERNEL(ingot_gemm_i8_rows);
INGOT_KERNEL(ingot_gemm_i8_tiles);

INGOT_INLINE const Kernel& i8_kernel(int64_t form) {
  return form == kI8Chained ? ingot_gemm_i8_chained_kernel
         : form == kI8Dot   ? ingot_gemm_i8_dot_kernel
         : form == kI8Rows  ? ingot_gemm_i8_rows_kernel
         : form == kI8Tiles ? ingot_gemm_i8_tiles_kernel
                            : ingot_gemm_i8_pairs_kernel;
}

}  // namespace ingot::kernel
