// Few rows of A and a narrow B (kernels/gemm.h: kGemmFew), whose panels are widened in registers.
#pragma once
#include "kernels/gemm_operands.h"

namespace ingot::kernel {

template <int Place, int MR, int NV>
INGOT_INLINE void nibble_step(VF (&acc)[MR][NV], const float* const (&a)[MR], int64_t k, const VU (&words)[NV]) {
  VF row[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) row[j] = numbers_at<Place>(words[j]);
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    VF x = VF(a[i][k + nibble_row(Place)]);
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x * row[j];
  }
}

// acc += a[:][0..len) * b[0..len)[:] for 4-bit numbers: rows of a are weighted (weigh_for_nibbles) and len counts whole
// words.
template <int Parts, int MR, int NV, class P>
INGOT_INLINE void accumulate_nibbles(VF (&acc)[MR][NV], const float* const (&a)[MR], const uint32_t* b, int64_t len,
                                     P& prefetch) {
  constexpr int parts = Parts >= 2 ? 2 : 1;
  VF part[parts][MR][NV];
  INGOT_UNROLL for (int p = 1; p < parts; p++) clear(part[p]);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) part[0][i][j] = acc[i][j];
#pragma clang loop unroll(disable)
  for (int64_t k = 0; k < len; k += kNibbles, b += NV * kLanes) {
    advance(prefetch);
    VU words[NV];
    INGOT_UNROLL for (int j = 0; j < NV; j++) words[j] = load(b + j * kLanes);
    nibble_step<0>(part[0], a, k, words);
    nibble_step<1>(part[1 % parts], a, k, words);
    nibble_step<2>(part[2 % parts], a, k, words);
    nibble_step<3>(part[3 % parts], a, k, words);
    nibble_step<4>(part[4 % parts], a, k, words);
    nibble_step<5>(part[5 % parts], a, k, words);
    nibble_step<6>(part[6 % parts], a, k, words);
    nibble_step<7>(part[7 % parts], a, k, words);
  }
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      parts == 1 ? part[0][i][j] : part[0][i][j] + part[1][i][j];
}

// Sums of one row of a in digits, a run of it. Sum: how the products of digits and 4-bit numbers are added up,
//   Shorts   pmaddubsw, in two lanes of 16 bits for each column, which a run just fits
//   VI       add_products, in 32 bits: one instruction instead of two where there is vpdpbusd
INGOT_INLINE Shorts add_digits(Shorts sum, Bytes low, Bytes with_low, Bytes high, Bytes with_high) {
  return sum + multiply_bytes(low, with_low) + multiply_bytes(high, with_high);
}
INGOT_INLINE VI add_digits(VI sum, Bytes low, Bytes with_low, Bytes high, Bytes with_high) {
  return add_products(add_products(sum, low, with_low), high, with_high);
}
INGOT_INLINE VI digit_total(Shorts sum) { return multiply_shorts(sum, Shorts(1)); }
INGOT_INLINE VI digit_total(VI sum) { return sum; }

template <class Sum, int Digits, int NV>
INGOT_INLINE void digit_step(Sum (&sum)[Digits][NV], const int8_t* digits, const uint32_t* b) {
  Bytes low[NV], high[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) {
    const VU words = load(b + j * kLanes);
    low[j] = __builtin_bit_cast(Bytes, words & 0x0f0f0f0fu);
    high[j] = __builtin_bit_cast(Bytes, words >> 4 & 0x0f0f0f0fu);
  }
  INGOT_UNROLL for (int d = 0; d < Digits; d++) {
    const Bytes with_low = __builtin_bit_cast(Bytes, VI(word_at(digits + d * kNibbles))),
                with_high = __builtin_bit_cast(Bytes, VI(word_at(digits + d * kNibbles + 4)));
    INGOT_UNROLL for (int j = 0; j < NV; j++) sum[d][j] = add_digits(sum[d][j], low[j], with_low, high[j], with_high);
  }
}

template <class Sum, int Digits, int NV>
INGOT_INLINE void accumulate_digits(VF (&acc)[NV], const DigitRun& a, const uint32_t* b, int64_t rows) {
  Sum sum[Digits][NV] = {};
  auto step = [&](int64_t word)
                  INGOT_INLINED { digit_step(sum, a.digits + word * Digits * kNibbles, b + word * NV * kLanes); };
  if (rows == kDigitRows)
    INGOT_UNROLL for (int word = 0; word < kDigitRows / kNibbles; word++) step(word);
  else
    for (int64_t word = 0; word < rows / kNibbles; word++) step(word);
  INGOT_UNROLL for (int j = 0; j < NV; j++) {
    const VI last = digit_total(sum[Digits - 1][j]), before = digit_total(sum[Digits - 2][j]);
    VF total = __builtin_convertvector((before << 8) + last, VF);
    if constexpr (Digits == 3) total += __builtin_convertvector(digit_total(sum[0][j]), VF) * 65536.f;
    acc[j] += VF(a.factor) * total;
  }
}

// A and the panels of B. A group g of B (kernels/narrow.h) adds to C[i][j]
//   scale[g][j] * ( sum_k a[i][k] q[k][j]  -  zero * sum_k a[i][k] )          k: the rows of the group
// whose second sum does not depend on the column. It is computed once, and the first one begins with it:
//   start[i][g] = -zero * sum_k a[i][k]      one zero point for all of B
//   sums[i][g]  = sum_k a[i][k]              zero points of each group and column, which are multiplied in begin_group
// start also has the 8 a[7] of each word that 4-bit numbers met as floats lack.
struct FewRows {
  NarrowPanels narrow;
  const float* a;  // rows a_row floats apart
  int64_t a_row;
  const float *start, *sums;  // [m][groups]; null where not needed
  int64_t groups;
  // The row in digits, with a factor for each run; null where it is met as floats.
  const int8_t* digits;
  const float* factors;
  Tiling tiling;
};

// False where the row cannot be written in digits.
template <int Digits>
INGOT_INLINE bool gemm_write_digits(const GemmParams& p, float* a, int64_t groups, int8_t* digits, float* factors) {
  const int64_t rows = narrow_group_rows(gemm_narrow(p));
  for (int64_t g = 0; g < groups; g++)
    for (int64_t k = 0; k < rows; k += kDigitRows, factors++) {
      const int64_t at = g * rows + k, count = min_of(min_of(kDigitRows, rows - k), gemm_few_row_floats(p) - at);
      *factors = 0;
      if (count > 0 && !write_digits<Digits>(a + at, count, digits + at * Digits, factors)) return false;
    }
  return true;
}

// Fills in f: A where it is, or copied to scratch and prepared. Not fresh: it is there (for_groups).
INGOT_INLINE void gemm_few_rows_of_a(const GemmParams& p, const GemmMatrices& x, FewRows& f, float* scratch,
                                     bool fresh) {
  const bool nibbles = p.b_type == kPanelU4, start = nibbles || (has_scales(p.b_type) && !p.b_zeros && p.b_zero != 0);
  f.a = x.a, f.a_row = p.a_row, f.start = f.sums = f.factors = nullptr, f.digits = nullptr;
  if (p.a_col == 1 && !p.b_zeros && !start) return;
  const int64_t length = gemm_few_row_floats(p);
  auto* in_digits = reinterpret_cast<int64_t*>(scratch);
  scratch += kFewRowsHead;
  float *starts = scratch + p.m * length, *sums = starts + p.m * f.groups, *factors = sums + p.m * f.groups;
  auto* digits = reinterpret_cast<int8_t*>(factors + f.groups * gemm_digit_runs(p));
  for (int64_t i = 0; fresh && i < p.m; i++) {
    const float* from = x.a + i * p.a_row;
    float* to = scratch + i * length;
    if (p.a_col == 1)
      __builtin_memcpy(to, from, size_t(p.k) * sizeof(float));
    else
      for (int64_t k = 0; k < p.k; k++) to[k] = from[k * p.a_col];
    for (int64_t k = p.k; k < length; k++) to[k] = 0;
    *in_digits = gemm_in_digits(p) && (p.a_digits == 2 ? gemm_write_digits<2>(p, to, f.groups, digits, factors)
                                                       : gemm_write_digits<3>(p, to, f.groups, digits, factors));
    const bool floats = nibbles && !*in_digits;
    // The factor of each element, by its row in a word: -zero, and 8 more for row 7, which is met as q - 8 among
    // floats.
    Octet begin = Octet(p.b_zeros ? 0.f : -float(p.b_zero));
    if (floats) begin[kNibbles - 1] += 8;
    for (int64_t g = 0; (start || p.b_zeros) && g < f.groups; g++) {
      const float* group = to + g * p.b_block;
      const int64_t count = min_of(p.b_block, p.k - g * p.b_block);
      if (start) starts[i * f.groups + g] = weighted_sum(group, count, begin);
      if (p.b_zeros) sums[i * f.groups + g] = weighted_sum(group, count, Octet(1.f));
    }
    if (floats) weigh_for_nibbles(to, length);
  }
  f.a = scratch, f.a_row = length;
  if (gemm_in_digits(p) && *in_digits) f.digits = digits, f.factors = factors;
  if (start) f.start = starts;
  if (p.b_zeros) f.sums = sums;
}

// What the sums of a group begin with: minus its zero points times the sums of a (FewRows).
template <int MR, int NV>
INGOT_INLINE void begin_group(VF (&part)[MR][NV], const FewRows& f, const NarrowGroup& group, int64_t index,
                              int64_t row) {
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    const int64_t at = (row + i) * f.groups + index;
    VF start = f.start ? VF(f.start[at]) : VF(0.f);
    INGOT_UNROLL for (int j = 0; j < NV; j++) part[i][j] =
        f.sums ? start - load(group.zero + j * kLanes) * VF(f.sums[at]) : start;
  }
}
template <int MR, int NV>
INGOT_INLINE void end_group(VF (&acc)[MR][NV], const VF (&part)[MR][NV], const FewRows& f, const NarrowGroup& group) {
  INGOT_UNROLL for (int j = 0; j < NV; j++) {
    VF scale = load_scale(f.narrow, group, j * kLanes);
    INGOT_UNROLL for (int i = 0; i < MR; i++) acc[i][j] += scale * part[i][j];
  }
}

template <class Sum, int Digits, int NV>
INGOT_INLINE void accumulate_group_digits(VF (&part)[NV], const GemmParams& p, const FewRows& f, const char* rows,
                                          int64_t group, int64_t len) {
  const int64_t runs = gemm_digit_runs(p), first = group * narrow_group_rows(f.narrow);
  for (int64_t r = 0, k = 0; k < len; r++, k += kDigitRows)
    accumulate_digits<Sum, Digits>(part, {f.digits + (first + k) * Digits, f.factors[group * runs + r]},
                                   reinterpret_cast<const uint32_t*>(rows) + k / kNibbles * NV * kLanes,
                                   min_of(kDigitRows, len - k));
}

// Parts: the partial sums of the tile that this one is, or is a row of.
template <int NR, int MR, int Type, class Sum, int Parts>
INGOT_LATE void gemm_few_tile(const GemmParams& p, const GemmMatrices& x, const FewRows& f, const char* bytes,
                              int64_t panel, int64_t row, const Epilogue& epilogue) {
  int64_t col = panel * NR;
  PrefetchOnce prefetch{bytes + kPrefetchAhead, row == 0 ? prefetch_lines(narrow_row_bytes(f.narrow), 1) : 0};
  Destination d{x.c + row * p.c_row + col, p.c_row, x.first_row + row, col, p.n - col, true, true};
  VF acc[MR][NR / kLanes];
  clear(acc);
  const float* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = f.a + (row + i) * f.a_row;
  if constexpr (Type == kPanelBF16) {
    accumulate<Parts>(acc, rows, kUnroll, reinterpret_cast<const BF16*>(bytes), NR, p.k, prefetch);
  } else if constexpr (Type == kPanelF16) {
    accumulate<Parts>(acc, rows, kUnroll, reinterpret_cast<const F16*>(bytes), NR, p.k, prefetch);
  } else {
    for (int64_t g = 0; g < f.groups; g++) {
      NarrowGroup group = narrow_group(f.narrow, bytes, g);
      int64_t len = min_of(p.b_block, p.k - g * p.b_block);
      prefetch.at = group.rows + kPrefetchAhead;
      VF part[MR][NR / kLanes];
      begin_group(part, f, group, g, row);
      if (Type == kPanelU4 && MR == 1 && f.digits) {
        // A group at once, and further ahead: 4-bit numbers are used up no faster than memory brings them.
        PrefetchOnce ahead{group.rows + 2 * kPrefetchAhead, div_up(narrow_group_bytes(f.narrow), kCacheLine)};
        advance(ahead);
        const int64_t rounded = div_up(len, kNibbles) * kNibbles;
        if (p.a_digits == 2)
          accumulate_group_digits<Sum, 2>(part[0], p, f, group.rows, g, rounded);
        else
          accumulate_group_digits<Sum, 3>(part[0], p, f, group.rows, g, rounded);
      } else if constexpr (Type == kPanelU4)
        accumulate_nibbles<Parts>(part, rows, reinterpret_cast<const uint32_t*>(group.rows),
                                  div_up(len, kNibbles) * kNibbles, prefetch);
      else
        accumulate<Parts>(part, rows, kUnroll, reinterpret_cast<const int8_t*>(group.rows), NR, len, prefetch);
      end_group(acc, part, f, group);
      INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] += p.b_block;
    }
  }
  finish(acc, d, epilogue);
}

template <class Body>
INGOT_INLINE void with_parts(int parts, const Body& body) {
  if (parts == 4)
    body(Height<4>());
  else if (parts == 2)
    body(Height<2>());
  else
    body(Height<1>());
}

// Panels [first_panel, last_panel), all rows. RowByRow: code for one row, which is summed as the tile it is in would
// be.
template <int NR, int Type, class Sum, bool RowByRow>
INGOT_LATE void gemm_few(const KernelCall* call, const GemmParams& p, int64_t entry, bool fresh, int64_t first_panel,
                         int64_t last_panel) {
  const Epilogue epilogue = gemm_epilogue(call, p);
  GemmMatrices x = gemm_matrices(call, p, entry);
  FewRows f;
  f.narrow = gemm_narrow(p);
  f.narrow.type = Type, f.narrow.panel = NR;
  f.groups = narrow_groups(f.narrow);
  constexpr int Rows = kTileRows<NR>, kVectors = NR / kLanes;
  f.tiling = cut_rows(p.m, Rows, min_of(p.tile_rows, Rows));
  gemm_few_rows_of_a(p, x, f, static_cast<float*>(call->scratch), fresh);
  int64_t bytes = narrow_panel_bytes(f.narrow);
  const char* at = reinterpret_cast<const char*>(x.b) + first_panel * bytes;
  for (int64_t panel = first_panel; panel < last_panel; panel++, at += bytes) {
    if constexpr (RowByRow) {
      for (int64_t tile = 0; tile < f.tiling.count; tile++) {
        const int64_t first = tile_start(f.tiling, tile), end = tile_start(f.tiling, tile + 1);
        if (first < end)
          with_parts(partial_sums(end - first, kVectors), [&](auto parts) INGOT_INLINED {
            for (int64_t row = first; row < end; row++)
              gemm_few_tile<NR, 1, Type, Sum, decltype(parts)::value>(p, x, f, at, panel, row, epilogue);
          });
      }
    } else {
      for_tiles<Rows>(f.tiling, 0, f.tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
        constexpr int height = decltype(h)::value;
        gemm_few_tile<NR, height, Type, Sum, partial_sums(height, kVectors)>(p, x, f, at, panel,
                                                                             tile_start(f.tiling, tile), epilogue);
      });
    }
  }
}

}  // namespace ingot::kernel
