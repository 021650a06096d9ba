// Products of bytes whose columns lie in the lanes of vectors, or in tiles (kernels/gemm_i8.h: kI8Dot and kI8Tiles).
//
// Packed B. A column's bytes along K, all runs one after the other, are cut into words of 4; K is padded with zeros to
// whole words, or to 16 words for tiles. B is i8; u8 less 128. kernels/word_panels.h draws a panel. The matrix:
//
//   I8Header | colsum: i32 of every column of every panel | panels
//
// A is u8; i8 plus 128, which whoever pads an image adds as well (a_flipped). Rows are read where they are if they are
// u8 and each run is whole words (or whole tiles), and are copied to scratch otherwise, their runs one after the other.
#pragma once
#include "kernels/gemm_i8.h"
#include "kernels/word_panels.h"

namespace ingot::kernel {

// One batch entry, its group of rows at hand, and what is the same for the whole call.
struct PanelCall {
  const GemmI8Params& p;
  const KernelCall* call;
  // Each batch entry and group of rows sets these anew (each_group).
  const uint8_t *a = nullptr, *b = nullptr;  // of the batch entry
  int64_t entry = 0;
  int64_t first_row = 0, rows = 0;  // of the group
  // Scratch (I8PanelScratch).
  const uint8_t** at = nullptr;   // each row of the group: where it is, or its copy
  int32_t* row_sums = nullptr;    // of the group, where they are needed
  int32_t* start = nullptr;       // of the panel at hand: what sums begin with
  int32_t* sums = nullptr;        // room for two tiles of sums, [rows][columns of a panel]
  uint8_t* copy = nullptr;        // of the rows of the group, i8_copy_stride bytes apart
  int8_t* own_panel = nullptr;    // a panel of B that was not packed ahead
  int32_t* own_colsum = nullptr;  // and the sums of its columns
  // What is added to A to make it u8, and taken off B to make it i8.
  int32_t a_shift = 0, b_shift = 0;
  // Zero points of A and B as shifted, where all rows or all columns have the same.
  int32_t a_zero = 0, b_zero = 0;
};

INGOT_INLINE bool panels_need_row_sums(const GemmI8Params& p) { return p.b_zero != kNoZero || !p.b_signed; }
INGOT_INLINE int64_t panel_runs(const GemmI8Params& p) { return p.runs[0] * p.runs[1] * p.runs[2]; }
// Copies a row, its runs one after the other, with zeros after the last. Where kI8Slack bytes after a run may be read
// they are copied too, and what follows is written over them.
INGOT_INLINE void copy_row(const GemmI8Params& p, const uint8_t* row, uint8_t* to) {
  using Piece = uint8_t __attribute__((ext_vector_type(kI8Slack)));
  const int64_t whole = p.a_slack ? p.run_bytes : p.run_bytes / kI8Slack * kI8Slack;
  const uint8_t flip = i8_must_flip(p) ? 0x80 : 0;
  each_run(p, [&](int64_t offset) INGOT_INLINED {
    const uint8_t* from = row + offset;
    int64_t i = 0;
    for (; i < whole; i += kI8Slack) {
      const Piece v = load_as<Piece>(from + i) ^ flip;
      __builtin_memcpy(to + i, &v, sizeof v);
    }
    for (; i < p.run_bytes; i++) to[i] = from[i] ^ flip;
    to += p.run_bytes;
  });
  const int64_t left = i8_padded_depth(p) - panel_runs(p) * p.run_bytes;
  for (int64_t i = 0; i < left; i++) to[i] = 0;
}

// Calls body(offset, bytes) for each run of a row in place; a copy is one run.
template <class Body>
INGOT_INLINE void each_run_at_hand(const GemmI8Params& p, const Body& body) {
  if (p.a_packing)
    body(0, i8_padded_depth(p));
  else
    each_run(p, [&](int64_t offset) INGOT_INLINED { body(offset, p.run_bytes); });
}

// The sum of a row's bytes as u8.
INGOT_INLINE int32_t row_sum(const GemmI8Params& p, const uint8_t* row) {
  constexpr int64_t kStep = sizeof(Bytes);
  VI sum = VI(0);
  each_run_at_hand(p, [&](int64_t offset, int64_t bytes) {
    const uint8_t* from = row + offset;
    int64_t i = 0;
    for (; i + kStep <= bytes; i += kStep)
      sum += multiply_shorts(multiply_bytes(load_as<Bytes>(from + i), Bytes(uint8_t(1))), Shorts(int16_t(1)));
    for (; i < bytes; i++) sum[0] += from[i];
  });
  return sum_lanes<int32_t>(sum);
}

INGOT_INLINE void take_group(PanelCall& x) {
  const GemmI8Params& p = x.p;
  find_rows(p, x.a, x.first_row, x.rows, x.at);
  for (int64_t i = 0; p.a_packing && i < x.rows; i++) {
    uint8_t* to = x.copy + i * i8_copy_stride(p);
    copy_row(p, x.at[i], to);
    x.at[i] = to;
  }
  for (int64_t i = 0; panels_need_row_sums(p) && i < x.rows; i++) x.row_sums[i] = row_sum(p, x.at[i]);
}

// Bytes [k, k + 4) of 16 neighbouring columns as 16 words; rows are b_row bytes apart, those from depth on are zero.
INGOT_INLINE void pack_words_of_rows(const GemmI8Params& p, const uint8_t* from, int64_t k, int64_t depth, uint8_t flip,
                                     int8_t* to) {
  Bytes16 r[4];
  INGOT_UNROLL for (int i = 0; i < 4; i++) r[i] =
      k + i < depth ? load_as<Bytes16>(from + (k + i) * p.b_row) ^ flip : Bytes16(uint8_t(0));
  using Bytes32Wide = uint8_t __attribute__((ext_vector_type(32)));
  const auto zip = [](Bytes16 a, Bytes16 b) INGOT_INLINED -> Bytes32Wide {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26,
                                   11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  };
  using Pairs = uint16_t __attribute__((ext_vector_type(16)));
  const auto low = __builtin_bit_cast(Pairs, zip(r[0], r[1])), high = __builtin_bit_cast(Pairs, zip(r[2], r[3]));
  const auto words = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                                             9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  __builtin_memcpy(to, &words, sizeof words);
}

// A panel of a B that was not known ahead, K x n with strides b_row and b_col.
INGOT_INLINE void pack_own_panel(const PanelCall& x, int64_t panel) {
  const GemmI8Params& p = x.p;
  const int64_t columns = min_of(p.panel, p.n - panel * p.panel), depth = panel_runs(p) * p.run_bytes;
  const int64_t words = i8_padded_depth(p) / 4;
  const uint8_t* from = x.b + panel * p.panel * p.b_col;
  const uint8_t flip = p.b_signed ? 0 : 0x80;
  for (int64_t word = 0; word < words; word++) {
    int8_t* to = x.own_panel + word * p.panel * 4;
    const int64_t k = 4 * word;
    int64_t j = 0;
    if (p.b_col == 1)
      for (; j + 16 <= columns; j += 16) pack_words_of_rows(p, from + j, k, depth, flip, to + 4 * j);
    else if (p.b_row == 1 && k + 4 <= depth)
      for (; j < columns; j++) {
        const int32_t v = word_at(from + j * p.b_col + k) ^ int32_t(flip * 0x01010101u);
        __builtin_memcpy(to + 4 * j, &v, 4);
      }
    for (; j < p.panel; j++)
      for (int64_t part = 0; part < 4; part++)
        to[4 * j + part] =
            int8_t(k + part < depth && j < columns ? from[(k + part) * p.b_row + j * p.b_col] ^ flip : 0);
  }
  for (int64_t j = 0; j < p.panel; j += kLanes) {
    VI sum = VI(0);
    for (int64_t word = 0; word < words; word++)
      sum = add_products(sum, Bytes(uint8_t(1)), load_as<Bytes>(x.own_panel + (word * p.panel + j) * 4));
    store(x.own_colsum + j, sum);
  }
}

struct PanelOfBytes {
  const int8_t* words;
  const int32_t* colsum;
};
INGOT_INLINE PanelOfBytes panel_of(const PanelCall& x, int64_t panel) {
  if (!x.p.b_packed) {
    pack_own_panel(x, panel);
    return {x.own_panel, x.own_colsum};
  }
  const I8Header h = load_as<I8Header>(x.b);
  return {reinterpret_cast<const int8_t*>(x.b + h.weights) + panel * i8_padded_depth(x.p) * x.p.panel,
          reinterpret_cast<const int32_t*>(x.b + h.colsum) + panel * x.p.panel};
}

// Sums begin with what A's zero point and shift take off them, where all rows have the same.
INGOT_INLINE void begin_panel(const PanelCall& x, const PanelOfBytes& b) {
  const int32_t off = x.p.a_zero == kZeroPerRow ? 0 : x.a_zero;
  for (int64_t j = 0; j < x.p.panel; j += kLanes) store(x.start + j, load(b.colsum + j) * -off);
}

// Where sums become results. Columns are those of C.
INGOT_INLINE int64_t row_of_c(const PanelCall& x, int64_t row) { return x.entry * x.p.entry_row + row; }
INGOT_INLINE int64_t column_of_c(const PanelCall& x, int64_t column) { return x.entry * x.p.entry_col + column; }

// The sums of `lanes` columns of a row, without what is left of the zero points. `column` is that of the panel.
INGOT_INLINE VI without_zeros(const PanelCall& x, VI sum, const PanelOfBytes& b, int64_t row, int64_t column,
                              int64_t first_column, int64_t lanes) {
  const GemmI8Params& p = x.p;
  const int64_t out_row = row_of_c(x, row), out_column = column_of_c(x, first_column + column);
  int32_t a_zero = x.a_zero;
  if (p.a_zero == kZeroPerRow) {
    a_zero = zero_at(x.call->operand[3], p.a_zero, out_row, p.a_signed) + x.a_shift;
    sum -= load(b.colsum + column) * a_zero;
  }
  if (panels_need_row_sums(p)) {
    VI b_zero = VI(x.b_zero);
    if (p.b_zero == kZeroPerColumn)
      for (int64_t l = 0; l < kLanes; l++)
        if (l < lanes) b_zero[l] = zero_at(x.call->operand[4], p.b_zero, out_column + l, p.b_signed) - x.b_shift;
    const auto depth = int32_t(panel_runs(p) * p.run_bytes);
    // A copy is padded with zeros, which are no numbers of A.
    sum -= b_zero * (x.row_sums[row - x.first_row] - depth * a_zero);
  }
  return sum;
}

// Rows whose sums are at `sums`: a loop over rows keeps the epilogue's constants in registers.
template <int NR>
INGOT_INLINE void finish_rows(const PanelCall& x, const PanelOfBytes& b, const int32_t* sums, int64_t row, int64_t rows,
                              int64_t column) {
  const int64_t columns = x.p.n - column, out_column = column_of_c(x, column);
  const SumsTarget target = sums_target(x.call, x.p);
#pragma clang loop unroll(disable)
  for (int64_t i = 0; i < rows; i++, sums += NR) {
    const int64_t out_row = row_of_c(x, row + i), at = out_row * x.p.c_row + out_column;
    if (columns >= NR) {
      VI whole[NR / kLanes];
      INGOT_UNROLL for (int j = 0; j < NR / kLanes; j++) whole[j] =
          without_zeros(x, load(sums + j * kLanes), b, row + i, j * kLanes, column, kLanes);
      store_sums(target, whole, at, out_row, out_column);
    } else {
#pragma clang loop unroll(disable)
      for (int64_t j = 0; j < columns; j += kLanes) {
        const int64_t lanes = min_of(kLanes, columns - j);
        const VI sum = without_zeros(x, load(sums + j), b, row + i, j, column, lanes);
        store_sums(target, sum, at + j, out_row, out_column + j, lanes);
      }
    }
  }
}

INGOT_INLINE PanelCall panel_call(const KernelCall* call, const GemmI8Params& p) {
  const I8PanelScratch at = i8_panel_scratch(p);
  auto* scratch = static_cast<uint8_t*>(call->scratch);
  PanelCall x{.p = p, .call = call};
  x.at = reinterpret_cast<const uint8_t**>(scratch + at.at);
  x.row_sums = reinterpret_cast<int32_t*>(scratch + at.row_sums);
  x.start = reinterpret_cast<int32_t*>(scratch + at.start);
  x.sums = reinterpret_cast<int32_t*>(scratch + at.sums);
  x.copy = scratch + at.copy;
  x.own_colsum = reinterpret_cast<int32_t*>(scratch + at.own_colsum);
  x.own_panel = reinterpret_cast<int8_t*>(scratch + at.own_panel);
  x.a_shift = p.a_signed ? 128 : 0;
  x.b_shift = p.b_signed ? 0 : 128;
  x.a_zero = zero_at(call->operand[3], p.a_zero == kOneZero ? kOneZero : kNoZero, 0, p.a_signed) + x.a_shift;
  x.b_zero = zero_at(call->operand[4], p.b_zero == kOneZero ? kOneZero : kNoZero, 0, p.b_signed) - x.b_shift;
  return x;
}

// Calls run(x, first panel, last panel) for each group of rows of the call's range, whose rows are then at hand.
template <class Run>
INGOT_INLINE void each_group(const KernelCall* call, const GemmI8Params& p, const Run& run) {
  PanelCall x = panel_call(call, p);
  for_groups(call, div_up(p.n, p.panel), p.row_groups,
             [&](int64_t entry, int64_t group, bool fresh, int64_t first, int64_t last) INGOT_INLINED {
               x.entry = entry;
               x.a = static_cast<const uint8_t*>(call->operand[0]) + batch_offset(p.batch, p.a_batch, entry);
               x.b = static_cast<const uint8_t*>(call->operand[1]) + batch_offset(p.batch, p.b_batch, entry);
               x.first_row = group * group_rows(p.m, p.row_groups);
               x.rows = group_rows(p.m, p.row_groups, group);
               if (fresh) take_group(x);
               run(x, first, last);
             });
}

}  // namespace ingot::kernel
