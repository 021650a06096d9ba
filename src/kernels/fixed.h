// Rows of A in fixed point of 16 bits, and what they meet of a narrow B (kernels/gemm.h: kGemmFixed).
//
// A run is up to kRunRows neighbouring elements of a row of A that meet one group of B. It has a factor:
//   a[k] = factor * number[k]        |number| <= kMostFixed
// Groups are cut into runs: one of 80 rows into 32, 32 and 16. All runs take the same room, and what a run does not
// fill is 0. A packed row of A, and of a slice of a panel of B:
//
//   A    i16 [run][pair][2]                    run 0: pair 0, pair 1, ... pair 15 | run 1: ...
//   B    i16 [run][pair][NR columns][2]
//        float [run][NR]                       scales of the run's group
//        float [run][NR]                       its zero points, if groups have their own
//
// A pair is two elements of A, or the two numbers of a column that they meet: pmaddwd multiplies and adds both, and a
// sum over a run fits 32 bits. Of 8-bit numbers, pairs are neighbouring rows. Of 4-bit numbers they are those that lie
// 16 bits apart in a word (kernels/narrow.h), so that it costs one shift and one `and` to have them:
//
//   pair p of a word = word >> 4 p & 0x000f000f        p       0      1      2      3
//                                                      rows   0 2    4 6    1 3    5 7
//
// A zero point of the whole matrix is taken off the numbers of B. Those of groups, which may be fractions, are
// multiplied by the sum of the run of A.
#pragma once
#include "kernels/integer.h"
#include "kernels/narrow.h"

namespace ingot::kernel {

inline constexpr int kRunRows = kDigitRows, kRunPairs = kRunRows / 2;
inline constexpr int kMostFixed = 127 << 8, kMostFixedZero = 1024;
static_assert(int64_t(kRunRows) * kMostFixed * (kMostFixedZero + 128) < int64_t(1) << 31);
static_assert(kRunRows % kNibbles == 0);

INGOT_INLINE bool fits_fixed(const NarrowPanels& n, int64_t zero_of_all) {
  return n.k > 0 && has_scales(n.type) &&
         (n.zeros || (zero_of_all >= -kMostFixedZero && zero_of_all <= kMostFixedZero));
}
INGOT_INLINE int64_t runs_of_group(const NarrowPanels& n) { return div_up(narrow_group_rows(n), kRunRows); }
INGOT_INLINE int64_t fixed_runs(const NarrowPanels& n) {
  const int64_t before = narrow_groups(n) - 1;
  return before * runs_of_group(n) + div_up(n.k - before * n.block, kRunRows);
}
// k-steps, of whole runs, per pass over the panels: slices of about equal length.
inline constexpr int64_t kFixedSliceRuns = 32;
INGOT_INLINE int64_t fixed_slice(const NarrowPanels& n) {
  const int64_t runs = fixed_runs(n), slices = div_up(runs - kFixedSliceRuns / 4, kFixedSliceRuns);
  return div_up(runs, max_of(1, slices)) * kRunRows;
}

// The rows of B that one run meets: [from, from + count) of a group.
INGOT_INLINE NarrowRun fixed_run(const NarrowPanels& n, int64_t run) {
  const int64_t runs = runs_of_group(n), group = run / runs, from = (run - group * runs) * kRunRows;
  return {group, from, min_of(kRunRows, narrow_group_rows(n) - from)};
}
// The row of a run that is element i of the packed run.
INGOT_INLINE int fixed_row(int64_t type, int i) {
  const int pair = i % kNibbles / 2;
  return type == kPanelU4 ? i / kNibbles * kNibbles + nibble_row(pair + i % 2 * 4) : i;
}

// Scratch of a call, in bytes; all begin at multiples of 64. A block of rows of A, then a slice of a panel of B:
struct FixedScratch {
  int64_t numbers;  // i16 [rows][runs][kRunRows]
  int64_t factors;  // f32 [rows][runs]; 0 also where a run has none
  int64_t sums;     // f32 [rows][runs]: the sum of the run, where groups of B have zero points
  int64_t loose;    // i64: 1 if there is a run without a factor: it is met as floats
  int64_t words;    // i16 [runs of a slice][pairs][panel][2]
  int64_t scales;   // f32 [runs of a slice][panel]
  int64_t zeros;    // f32 [runs of a slice][panel]
  int64_t tile;     // f32 [rows of a tile][panel]: its sums over the runs so far
  int64_t total;
};
INGOT_INLINE FixedScratch fixed_scratch(const NarrowPanels& n, int64_t rows, int64_t k_slice) {
  const auto after = [](int64_t at, int64_t bytes) { return at + div_up(bytes, 64) * 64; };
  const int64_t runs = fixed_runs(n), in_slice = k_slice / kRunRows;
  FixedScratch s;
  s.numbers = 0;
  s.factors = after(s.numbers, rows * runs * kRunRows * 2);
  s.sums = after(s.factors, rows * runs * 4);
  s.loose = after(s.sums, n.zeros ? rows * runs * 4 : 0);
  s.words = after(s.loose, 8);
  s.scales = after(s.words, in_slice * kRunRows * n.panel * 2);
  s.zeros = after(s.scales, in_slice * n.panel * 4);
  s.tile = after(s.zeros, n.zeros ? in_slice * n.panel * 4 : 0);
  s.total = after(s.tile, kMostTileRows * n.panel * 4);
  return s;
}

// Writes a run of A: kRunRows elements. False where it has no factor: it is then all 0.
INGOT_INLINE bool write_run(const float* a, int64_t type, int16_t* numbers, float* factor, float* sum) {
  using Ints = int32_t __attribute__((ext_vector_type(kNibbles)));
  using Small = int16_t __attribute__((ext_vector_type(kNibbles)));
  const RunFactor run = run_factor(a, kRunRows, kMostFixed);
  Ints total = Ints(0);
  INGOT_UNROLL for (int k = 0; k < kRunRows; k += kNibbles) {
    Octet x;
    __builtin_memcpy(&x, a + k, sizeof x);
    const Octet rounded = run.fits ? __builtin_elementwise_rint(x * run.inverse) : Octet(0.f);
    const Ints number = __builtin_convertvector(rounded, Ints);
    total += number;
    Small small = __builtin_convertvector(number, Small);
    if (type == kPanelU4) small = __builtin_shufflevector(small, small, 0, 2, 4, 6, 1, 3, 5, 7);
    __builtin_memcpy(numbers + k, &small, sizeof small);
  }
  *factor = run.factor;
  if (sum) *sum = run.factor * float(__builtin_reduce_add(total));
  return run.fits;
}

// The pairs of a run of B, less `zero`.
template <int NR>
INGOT_INLINE void expand_nibble_pairs(int16_t* dst, const uint32_t* words, int64_t rows, Shorts zero) {
  for (int64_t k = 0; k < rows; k += kNibbles, words += NR, dst += kNibbles * NR)
    INGOT_UNROLL for (int j = 0; j < NR; j += kLanes) {
      const VU word = load(words + j);
      INGOT_UNROLL for (int p = 0; p < kNibbles / 2; p++) {
        const Shorts pair = __builtin_bit_cast(Shorts, word >> uint32_t(4 * p) & 0x000f000fu) - zero;
        __builtin_memcpy(dst + (p * NR + j) * 2, &pair, sizeof pair);
      }
    }
}
// An odd last row has a partner that is not of the group, but in the panel; it meets a 0 of A.
template <int NR>
INGOT_INLINE void expand_byte_pairs(int16_t* dst, const int8_t* rows, int64_t count, Shorts zero) {
  using Words = Vec<int32_t>;
  for (int64_t k = 0; k < count; k += 2, rows += 2 * NR, dst += 2 * NR)
    INGOT_UNROLL for (int j = 0; j < NR; j += kLanes) {
      const Words first = __builtin_convertvector(load(rows + j), Words),
                  second = __builtin_convertvector(load(rows + NR + j), Words);
      const Shorts pair = __builtin_bit_cast(Shorts, (first & 0xffff) | second << 16) - zero;
      __builtin_memcpy(dst + j * 2, &pair, sizeof pair);
    }
}

}  // namespace ingot::kernel
