// Products of 8-bit integers, exact in 32 bits, with a fused epilogue:
//   C[row][col] = epilogue( sum_k (A[row][k] - a_zero) * (B[k][col] - b_zero) )
// A and B are u8 or i8 each. The zero points are taken out of the finished sum:
//   sum (a - za)(b - zb)  =  sum a b  -  za sum b  -  zb (sum a - K za).
//
// Five forms. In the first three rows of A lie in the lanes of vectors: A is packed into words of 4 bytes per row,
// [word][rows of a tile], and a word of B, for one column, is broadcast.
//  - kI8Chained: a word is 4 bytes of K. pmaddubsw multiplies u8 by i8 and adds neighbours in 16 bits, where it would
//    saturate. It cannot if in every 16-bit lane the positive weights sum to at most 128, and the negative ones too:
//    255 * 128 < 2^15. Weights are known when they are packed (planner/pack_i8.h), so each group of 2 columns gets a
//    program in which that holds: words are chained so that even the products of three may be added in 16 bits before
//    one pmaddwd widens them, in one of two byte orders of A, and a word that is never safe is split into two.
//    A tile is 3 vectors of rows by 2 columns: the fewer columns share a chain, the longer it can be.
//  - kI8Pairs: a word is 2 numbers of K widened to 16 bits, multiplied by pmaddwd. For weights that chain badly and for
//    operands that are not known ahead. A tile is 16 rows (or 2 vectors) by 4 columns.
//  - kI8Rows: a word is 4 bytes of K, for A that is known to have no more than i8_few_rows. They are taken one by one,
//    with columns in the lanes, so that weights are read once, as they lie, at the speed of memory: pmaddubsw with
//    every other byte of A, then with the rest, has one product in a lane of 16 bits, which always fits.
// Where the target adds products of bytes in 32 bits, columns lie in the lanes (kernels/gemm_i8_panels.h), for any
// number of rows:
//  - kI8Dot: vpdpbusd on panels of columns, as wide as those of floats.
//  - kI8Tiles: AMX on panels of 32 columns.
//
// Operands: A, B, C, a_zero, b_zero, then the extra operands of the epilogue. The epilogue is a hook that also stores,
// as C may be of any type. Units: batch x groups of rows x chunks of columns, chunks fastest.
//
// A row of A is a number of runs of contiguous bytes: one for a matrix, one per row of taps for a convolution over an
// image with its padding in place.
#pragma once
#include "kernels/abi.h"
#include "kernels/hooks.h"
#include "kernels/integer.h"
#include "kernels/pack.h"

namespace ingot::kernel {

enum I8Form : int64_t { kI8Chained = 1, kI8Pairs = 2, kI8Dot = 3, kI8Rows = 4, kI8Tiles = 6 };
INGOT_INLINE constexpr bool i8_in_panels(int64_t form) { return form == kI8Dot || form == kI8Tiles; }

struct GemmI8Params {
  int64_t form;            // I8Form, which each kernel has one of
  int64_t lanes;           // of the target
  int64_t panel;           // columns of a panel, of forms in panels
  int64_t a_packing;       // of forms in panels: rows of A are copied to scratch (i8_must_copy)
  int64_t b_packed;        // 1: as of planner/pack_i8.h; 0: plain, K one run after the other; kI8Pairs and panels only
  int64_t a_signed;        // A is i8
  int64_t b_signed;        // B is i8
  int64_t a_zero, b_zero;  // I8Zero
  int64_t a_slack;         // kI8Slack bytes after any run may be read
  int64_t row_groups;      // i8_row_groups(form, m)
  int64_t m, n;
  int64_t row_dims[4], row_stride[4];         // rows count through these dims; strides in bytes
  int64_t runs[3], run_stride[3], run_bytes;  // runs count through these dims
  int64_t batch[3], a_batch[3], b_batch[3];   // strides in bytes
  int64_t b_row, b_col;                       // unless packed
  int64_t entry_row, entry_col;               // where a batch entry begins in the result
  int64_t c_row;                              // elements between rows of C
  int64_t extras;
  EpilogueOperand extra[kMaxEpilogueOperands];
};

// Tiles of the forms with rows in the lanes.
INGOT_INLINE constexpr int64_t i8_step_rows(int64_t form, int64_t lanes) {
  return form == kI8Chained ? max_of(8, lanes) : max_of(16, 2 * lanes);
}
INGOT_INLINE constexpr int64_t i8_tile_rows(int64_t form, int64_t lanes) {  // at most
  return form == kI8Chained ? max_of(24, 3 * lanes) : max_of(16, 2 * lanes);
}
INGOT_INLINE constexpr int64_t i8_tile_columns(int64_t form, int64_t lanes) {
  return form == kI8Chained ? 2 : form == kI8Pairs ? 4 : max_of(8, lanes);
}
// Packed weights of a chunk stay in L2 while the rows pass.
inline constexpr int64_t kI8ChunkColumns = 128, kI8GroupRows = 64, kI8PanelGroupRows = 128;
// So few rows at the end are multiplied one by one: the lanes of a tile would be empty.
INGOT_INLINE constexpr int64_t i8_few_rows(int64_t form) { return form == kI8Chained ? 2 : 4; }
inline constexpr int64_t kI8Slack = 32;
inline constexpr int64_t kI8Orders = 2;    // byte orders of A in kI8Chained: 0123 and 0213
inline constexpr int64_t kI8MaxChain = 3;  // words: a chain has 2 or 3
// Where a word of A lies, in one order of its bytes, is told in twelfths of the word's place:
//
//   a tile            [word][order][rows of a tile][4 bytes]:  a twelfth is rows * 4 / 12 = 8 or 16 bytes
//   a row by itself   [word][order][12 bytes], the word twice and 4 bytes of nothing:  a twelfth is one byte
//
// so that one offset serves both, and an address in a tile is one instruction.
inline constexpr int64_t kI8Twelfths = 12;
INGOT_INLINE constexpr int64_t i8_twelfth(int64_t lanes) { return i8_tile_rows(kI8Chained, lanes) * 4 / kI8Twelfths; }

// Are words bytes, those of A unsigned and those of B signed? Others are 128 too high or too low, which is put right in
// the finished sum.
INGOT_INLINE constexpr bool i8_of_bytes(int64_t form) { return form != kI8Pairs; }
INGOT_INLINE constexpr int64_t i8_word_bytes(int64_t form) { return i8_of_bytes(form) ? 4 : 2; }  // of K
INGOT_INLINE int64_t i8_run_words(int64_t form, int64_t run_bytes) { return div_up(run_bytes, i8_word_bytes(form)); }
INGOT_INLINE int64_t i8_words(const GemmI8Params& p) {
  return p.runs[0] * p.runs[1] * p.runs[2] * i8_run_words(p.form, p.run_bytes);
}
INGOT_INLINE constexpr int64_t i8_word_stride(int64_t form) { return form == kI8Chained ? kI8Orders : 1; }

// Bytes of a packed row that is multiplied by itself, for each word.
INGOT_INLINE constexpr int64_t i8_row_word(int64_t form) {
  return form == kI8Chained ? kI8Orders * kI8Twelfths : form == kI8Rows ? 8 : 4;
}

// K is cut into blocks of words, of which a tile's rows of A stay in L1.
INGOT_INLINE int64_t i8_blocks(int64_t form, int64_t words) {
  return max_of(1, words / (form == kI8Chained ? 64 : 128));
}
INGOT_INLINE int64_t i8_block_start(int64_t words, int64_t blocks, int64_t block) { return words * block / blocks; }

INGOT_INLINE int64_t i8_chunks(int64_t n) { return div_up(n, kI8ChunkColumns); }
INGOT_INLINE int64_t i8_row_groups(int64_t form, int64_t m) {
  return max_of(1, div_up(m, i8_in_panels(form) ? kI8PanelGroupRows : kI8GroupRows));
}
// Rows are cut into steps, and steps into tiles of which the tallest has one step more than the lowest. Up to
// i8_few_rows rows that would begin a step of their own are single rows after the last tile.
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
INGOT_INLINE int64_t i8_group_start(const GemmI8Params& p, int64_t group) {  // a tile
  return i8_tiles(p) * group / p.row_groups;
}
INGOT_INLINE int64_t i8_units(const GemmI8Params& p) {
  if (p.m == 0) return 0;
  const int64_t parts = i8_in_panels(p.form) ? div_up(p.n, p.panel) : i8_chunks(p.n);
  return p.batch[0] * p.batch[1] * p.batch[2] * p.row_groups * parts;
}

// Packed B: this header, then at the offsets (bytes) it names:
//  - colsum: i32 for each column, the sum of its stored weights
//  - kI8Chained: a program for each chunk of columns, block of K and group of 2 columns, in this order but for the
//    groups, which are sorted by length. Its words follow each other, those of chains of three first, then those of
//    chains of two; offsets: u16, where a word of A lies in the block, in twelfths;
//    weights: [word][2 columns][4] i8
//  - kI8Pairs: weights: [group of 4 columns][word][4 columns][2] i16
//  - kI8Rows: weights: [group of columns][word][columns of a group][4] i8
//  - kI8Dot, kI8Tiles: weights: panels (kernels/gemm_i8_panels.h)
struct I8Header {
  int64_t colsum, programs, offsets, weights;
};
struct I8Program {
  int32_t first_word, triples, pairs;
  int32_t group;  // of columns, within the chunk
};

// Scratch: packed tiles of A, rows that are packed by themselves, the sums of all, the accumulators of a chunk, and B's
// chunk unless it is packed ahead.
struct I8Scratch {
  int64_t a, single_rows, row_sums, acc, b, total;
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

// --- forms in panels ---

inline constexpr int64_t kI8TilePanel = 32;  // columns of a panel of kI8Tiles
INGOT_INLINE constexpr int64_t i8_depth_unit(int64_t form) { return form == kI8Tiles ? 64 : 4; }  // bytes of K
INGOT_INLINE constexpr int64_t i8_panel_columns(int64_t form, int64_t lanes, int64_t n) {
  return form == kI8Tiles ? kI8TilePanel : best_panel(lanes, n);
}
INGOT_INLINE constexpr int64_t i8_padded_depth(int64_t form, int64_t depth) {
  return div_up(depth, i8_depth_unit(form)) * i8_depth_unit(form);
}
INGOT_INLINE int64_t i8_padded_depth(const GemmI8Params& p) {
  return i8_padded_depth(p.form, p.runs[0] * p.runs[1] * p.runs[2] * p.run_bytes);
}
// Rows of A are read where they are only if they are u8 and their runs fill whole words, or whole tiles.
INGOT_INLINE bool i8_must_copy(const GemmI8Params& p) { return p.a_signed || p.run_bytes % i8_depth_unit(p.form) != 0; }
// Bytes between copies of rows: not a multiple of 256, or they would share few cache sets.
INGOT_INLINE int64_t i8_copy_stride(const GemmI8Params& p) {
  const int64_t bytes = div_up(i8_padded_depth(p), 64) * 64;
  return bytes % 256 == 0 ? bytes + 64 : bytes;
}
// Rows of a group: whole tiles of 16 but for the last one. Of equal groups a constant, where sizes are.
INGOT_INLINE int64_t i8_group_rows(const GemmI8Params& p) { return div_up(div_up(p.m, p.row_groups), 16) * 16; }
INGOT_INLINE int64_t i8_group_rows(const GemmI8Params& p, int64_t group) {
  const int64_t rows = i8_group_rows(p);
  if (p.row_groups == 1) return p.m;
  return p.m % rows == 0 && p.m / rows == p.row_groups ? rows : max_of(0, min_of(rows, p.m - group * rows));
}
struct I8PanelScratch {
  int64_t at, row_sums, start, sums, copy, own_colsum, own_panel, total;
};
INGOT_INLINE I8PanelScratch i8_panel_scratch(const GemmI8Params& p) {
  const int64_t rows = i8_group_rows(p);
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
