// Panels (kernels/pack.h) of weights that are stored in fewer bits than a float and widened where they are used:
//   b[k][n] = narrow[k][n]                                                  bf16, f16
//   b[k][n] = scale[k / block][n] * (narrow[k][n] - zero[k / block][n])     8- and 4-bit integers
// A panel is a sequence of groups of `block` rows, each followed by its scales and, where they differ, its zero points:
//
//   group 0                                                    group 1
//   rows [block][panel] | scale [panel] | zero [panel]       | rows ...
//                         f32 or f16      f32, if zeros = 1
//
// so a product streams it from start to end. bf16 and f16 are one group without scales; a scale per column is one group
// of K rows. All groups of a panel take the same number of bytes.
//
// 4-bit numbers are unsigned. A 32-bit word has 8 of them: 8 neighbouring rows of one column. Lower halves of its bytes
// are rows 0 to 3, upper halves rows 4 to 7:
//
//   bits    31-28  27-24  23-20  19-16  15-12  11-8   7-4    3-0
//   place     7      6      5      4      3      2      1      0
//   row       7      3      6      2      5      1      4      0
//
//   words of a group: [rows / 8][panel]. A group has a multiple of 8 rows; rows past its end are 0.
//
// They meet A in one of two ways:
//  - as floats, for several rows of A. Let q[p] be the number in place p. It is not shifted down, so that it costs one
//    `and` and one conversion to a float:
//      f[p] = word & (15 << 4 p) = 16^p q[p]                 for p < 7
//      f[7] = word = 16^7 q[7] + f[6] + ... + f[0]           not masked: one instruction less
//    and the row of A is prepared (weigh_for_nibbles): a[p] is divided by 16^p, and what f[7] has too much of each q[p]
//    is taken off a[p]. Words are converted as signed numbers with the top bit flipped, so f[7] counts q[7] - 8; the 8
//    times a[7] is added to the sum (kernels/gemm.cpp).
//  - in integers, for one row of A, which is written in digits (Digits below), and for several rows in fixed point
//    (kernels/fixed.h).
#pragma once
#include "kernels/half.h"
#include "kernels/pack.h"

namespace ingot::kernel {

enum PanelType : int64_t { kPanelF32 = 0, kPanelBF16 = 1, kPanelF16 = 2, kPanelI8 = 3, kPanelU4 = 4 };

// kLanes neighbouring elements of a panel, as the register tile multiplies them.
INGOT_INLINE VF widen(const float* p) { return load(p); }
INGOT_INLINE VF widen(const BF16* p) { return bf16_to_f32(load(reinterpret_cast<const uint16_t*>(p))); }
INGOT_INLINE VF widen(const F16* p) { return f16_to_f32(load(reinterpret_cast<const uint16_t*>(p))); }
INGOT_INLINE VF widen(const int8_t* p) { return __builtin_convertvector(__builtin_convertvector(load(p), VI), VF); }

inline constexpr int kNibbles = 8;                       // in a word
inline constexpr uint32_t kTopSign = uint32_t(1) << 31;  // flipped, q[7] becomes the signed number q[7] - 8
INGOT_INLINE constexpr int nibble_place(int row) { return row % 4 * 2 + row / 4; }
INGOT_INLINE constexpr int nibble_row(int place) { return place / 2 + place % 2 * 4; }

struct NarrowPanels {
  int64_t type, panel, k;
  int64_t block;  // rows of a group; at least k: there is one
  int64_t zeros;  // 1: each group has zero points of its own
  int64_t half;   // 1: scales are f16
};
INGOT_INLINE bool has_scales(int64_t type) { return type == kPanelI8 || type == kPanelU4; }
INGOT_INLINE int64_t narrow_groups(const NarrowPanels& n) { return max_of(1, div_up(n.k, n.block)); }
// Rows that a group has room for.
INGOT_INLINE int64_t narrow_group_rows(const NarrowPanels& n) {
  int64_t rows = min_of(n.block, n.k);
  return n.type == kPanelU4 ? div_up(rows, kNibbles) * kNibbles : rows;
}
INGOT_INLINE int64_t narrow_row_bytes(const NarrowPanels& n) {
  return n.type == kPanelU4 ? n.panel / 2 : n.type == kPanelI8 ? n.panel : 2 * n.panel;
}
INGOT_INLINE int64_t narrow_group_bytes(const NarrowPanels& n) {
  int64_t of_column = (n.half ? 2 : 4) + (n.zeros ? 4 : 0);
  return narrow_group_rows(n) * narrow_row_bytes(n) + (has_scales(n.type) ? n.panel * of_column : 0);
}
INGOT_INLINE int64_t narrow_panel_bytes(const NarrowPanels& n) { return narrow_groups(n) * narrow_group_bytes(n); }
INGOT_INLINE int64_t narrow_bytes(const NarrowPanels& n, int64_t columns) {
  return div_up(columns, n.panel) * narrow_panel_bytes(n);
}

// One group of a panel.
struct NarrowGroup {
  const char *rows, *scale;
  const float* zero;  // null: that of the whole matrix
};
INGOT_INLINE NarrowGroup narrow_group(const NarrowPanels& n, const char* panel, int64_t group) {
  const char* rows = panel + group * narrow_group_bytes(n);
  const char* scale = rows + narrow_group_rows(n) * narrow_row_bytes(n);
  const char* zero = scale + n.panel * (n.half ? 2 : 4);
  return {rows, scale, n.zeros ? reinterpret_cast<const float*>(zero) : nullptr};
}
INGOT_INLINE VF load_scale(const NarrowPanels& n, const NarrowGroup& g, int column) {
  return n.half ? f16_to_f32(load(reinterpret_cast<const uint16_t*>(g.scale) + column))
                : load(reinterpret_cast<const float*>(g.scale) + column);
}

// The rows of a slice that lie in one group: [from, from + count) of the group.
struct NarrowRun {
  int64_t group, from, count;
};
INGOT_INLINE NarrowRun narrow_run(const NarrowPanels& n, int64_t k, int64_t end) {
  int64_t group = k / n.block, from = k - group * n.block;
  return {group, from, min_of(n.block - from, end - k)};
}

template <int NR, class T>
INGOT_INLINE void expand_rows(float* dst, const T* src, int64_t rows, const VF* scale, const VF* zero) {
  for (int64_t k = 0; k < rows; k++) INGOT_UNROLL for (int j = 0; j < NR / kLanes; j++) {
      VF v = widen(src + k * NR + j * kLanes);
      store(dst + k * NR + j * kLanes, scale ? (v - zero[j]) * scale[j] : v);
    }
}

// Rows [from, from + rows) of a group of 4-bit numbers.
template <int NR>
INGOT_INLINE void expand_nibbles(float* dst, const uint32_t* words, int64_t from, int64_t rows, const VF* scale,
                                 const VF* zero) {
  const auto put = [&](int64_t k, int j, VU word, int row) __attribute__((always_inline)) {
    const VI number = __builtin_bit_cast(VI, word >> uint32_t(4 * nibble_place(row)) & 15u);
    store(dst + (k - from) * NR + j * kLanes, (__builtin_convertvector(number, VF) - zero[j]) * scale[j]);
  };
  const auto word_of = [&](int64_t k, int j)
                           __attribute__((always_inline)) { return load(words + k / kNibbles * NR + j * kLanes); };
  for (int64_t k = from; k < from + rows;) {
    if (k % kNibbles == 0 && k + kNibbles <= from + rows) {
      INGOT_UNROLL for (int j = 0; j < NR / kLanes; j++) {
        const VU word = word_of(k, j);
        INGOT_UNROLL for (int row = 0; row < kNibbles; row++) put(k + row, j, word, row);
      }
      k += kNibbles;
    } else {
      INGOT_UNROLL for (int j = 0; j < NR / kLanes; j++) put(k, j, word_of(k, j), int(k % kNibbles));
      k++;
    }
  }
}

// Rows [k0, k0 + len) of a panel as floats, [len][NR]. zero_of_all: the zero point where groups have none.
template <int NR>
INGOT_INLINE void expand_panel(float* dst, const NarrowPanels& n, const char* panel, int64_t k0, int64_t len,
                               float zero_of_all) {
  if (n.type == kPanelBF16)
    return expand_rows<NR>(dst, reinterpret_cast<const BF16*>(panel) + k0 * NR, len, nullptr, nullptr);
  if (n.type == kPanelF16)
    return expand_rows<NR>(dst, reinterpret_cast<const F16*>(panel) + k0 * NR, len, nullptr, nullptr);
  for (int64_t k = k0; k < k0 + len;) {
    NarrowRun run = narrow_run(n, k, k0 + len);
    NarrowGroup group = narrow_group(n, panel, run.group);
    VF scale[NR / kLanes], zero[NR / kLanes];
    INGOT_UNROLL for (int j = 0; j < NR / kLanes; j++) {
      scale[j] = load_scale(n, group, j * kLanes);
      zero[j] = group.zero ? load(group.zero + j * kLanes) : VF(zero_of_all);
    }
    float* to = dst + (k - k0) * NR;
    if (n.type == kPanelI8)
      expand_rows<NR>(to, reinterpret_cast<const int8_t*>(group.rows) + run.from * NR, run.count, scale, zero);
    else
      expand_nibbles<NR>(to, reinterpret_cast<const uint32_t*>(group.rows), run.from, run.count, scale, zero);
    k += run.count;
  }
}

// Prepares a row of A for 4-bit numbers, in place; k is a multiple of 8. Of each 8 elements, a[i] is the one that meets
// place i of a word. With f[i] = 16^i q[i] for i < 7, and f[7] = the sum of all 16^i q[i]:
//   sum a[i] q[i] = a[7] 16^-7 f[7] + sum_{i < 7} (a[i] - a[7] 16^(i-7)) 16^-i f[i]
using Octet = float __attribute__((ext_vector_type(kNibbles)));
INGOT_INLINE void weigh_for_nibbles(float* a, int64_t k) {
  Octet own, of_top;  // by row
  INGOT_UNROLL for (int row = 0; row < kNibbles; row++) {
    own[row] = 1.f / float(1u << 4 * nibble_place(row));
    of_top[row] = row == kNibbles - 1 ? 0.f : float(1u << 4 * nibble_place(row)) / float(1u << 28);
  }
  for (int64_t i = 0; i < k; i += kNibbles) {
    Octet x;
    __builtin_memcpy(&x, a + i, sizeof x);
    x = (x - Octet(x[kNibbles - 1]) * of_top) * own;
    __builtin_memcpy(a + i, &x, sizeof x);
  }
}
// The sum of factor[i % 8] * a[i].
INGOT_INLINE float weighted_sum(const float* a, int64_t n, Octet factor) {
  Octet sum = Octet(0.f);
  int64_t i = 0;
  for (; i + kNibbles <= n; i += kNibbles) {
    Octet x;
    __builtin_memcpy(&x, a + i, sizeof x);
    sum += x * factor;
  }
  for (int j = 0; i + j < n; j++) sum[j] += a[i + j] * factor[j];
  float total = 0;
  INGOT_UNROLL for (int j = 0; j < kNibbles; j++) total += sum[j];
  return total;
}
// f[Place], as above, of each word.
template <int Place>
INGOT_INLINE VF numbers_at(VU words) {
  VU numbers = Place == kNibbles - 1 ? words ^ kTopSign : words & (15u << 4 * Place);
  return __builtin_convertvector(__builtin_bit_cast(VI, numbers), VF);
}

// Digits: a row of A in fixed point. Each run of up to kDigitRows elements has a factor, each element two or three
// signed digits of 8 bits:
//   a[k] = factor * (256 d0 + d1)    or    factor * (65536 d0 + 256 d1 + d2)
// Two digits are numbers of 16 bits; three are as precise as floats for the largest element of a run. Stored, with
// three:
//
//   elements 0 to 7                       elements 8 to 15
//   8 x d0 | 8 x d1 | 8 x d2            | 8 x d0 | ...          bytes; 8 elements meet one word
//
// Sums of digits times 4-bit numbers over a run fit 16 bits.
inline constexpr int kDigitRows = 32;
static_assert(kDigitRows / 2 * 15 * 128 < 1 << 15);  // two sums of 16 bits for each column

struct DigitRun {
  const int8_t* digits;
  float factor;
};
// The factor of a run whose largest number is `most`: rows, a multiple of 8, of a. 0 where all of them are 0, and where
// fits is false: an element is not finite, or the largest is too large or too small for a factor.
struct RunFactor {
  float factor, inverse;
  bool fits;
};
INGOT_INLINE RunFactor run_factor(const float* a, int64_t rows, float most) {
  constexpr float kLarge = 1e30f, kSmall = 1e-30f;
  using Ints = int32_t __attribute__((ext_vector_type(kNibbles)));
  Octet sizes = Octet(0.f);
  Ints bad = Ints(0);
  for (int64_t k = 0; k < rows; k += kNibbles) {
    Octet x;
    __builtin_memcpy(&x, a + k, sizeof x);
    x = __builtin_elementwise_abs(x);
    bad |= !(x <= kLarge);
    sizes = x > sizes ? x : sizes;
  }
  const float largest = __builtin_reduce_max(sizes);
  const bool fits = __builtin_reduce_or(bad) == 0 && (largest >= kSmall || largest == 0);
  if (!fits || largest == 0) return {0, 0, fits};
  return {largest / most, most / largest, true};
}

// Writes one run: `rows` elements, a multiple of 8. They are rounded in `a` as well, to what the digits stand for.
// False where the run has no factor.
template <int Digits>
INGOT_INLINE bool write_digits(float* a, int64_t rows, int8_t* digits, float* factor) {
  using Ints = int32_t __attribute__((ext_vector_type(kNibbles)));
  using Small = int8_t __attribute__((ext_vector_type(kNibbles)));
  const RunFactor run = run_factor(a, rows, 127 << 8 * (Digits - 1));
  if (!run.fits) return false;
  *factor = run.factor;
  for (int64_t k = 0; k < rows; k += kNibbles, digits += Digits * kNibbles) {
    Octet x;
    __builtin_memcpy(&x, a + k, sizeof x);
    const Octet rounded = __builtin_elementwise_rint(x * run.inverse);
    x = rounded * *factor;
    __builtin_memcpy(a + k, &x, sizeof x);
    Ints number = __builtin_convertvector(rounded, Ints);
    INGOT_UNROLL for (int d = Digits - 1; d >= 0; d--) {
      Small digit = __builtin_convertvector(number, Small);
      __builtin_memcpy(digits + d * kNibbles, &digit, sizeof digit);
      number = (number - __builtin_convertvector(digit, Ints)) >> 8;
    }
  }
  return true;
}

}  // namespace ingot::kernel
