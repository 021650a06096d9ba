// Packing a matrix into panels, the layout in which the micro-kernel reads its right-hand side.
//
// B[K][N] becomes ceil(N / NR) panels of NR columns, each [K][NR] and contiguous, so a register tile streams one
// panel from start to end:
//   packed[(n / NR) * K * NR + k * NR + n % NR] = B[k][n],   zero for columns n >= N.
//
//   N = 40, NR = 16:   panel 0                           panel 1                          panel 2
//                      k = 0          k = 1              k = 0                            k = 0
//            columns   0 1 ... 15   | 0 1 ... 15 | ...   16 17 ... 31 | 16 17 ... | ...   32 ... 39, 8 zeros | ...
//
// Zero columns let every tile compute NR columns; only its store looks at N. Weights are packed when a model is
// compiled, operands that are not known before a run inside the kernels.
#pragma once
#include <utility>

#include "kernels/tile.h"
#include "kernels/vec.h"

namespace ingot::kernel {

// Floats of a packed K x N matrix.
INGOT_INLINE int64_t packed_floats(int64_t k, int64_t n, int64_t panel) { return div_up(n, panel) * panel * k; }

// Lane j of the result is element index(j) of a and b, laid end to end.
template <class Index, size_t... J>
INGOT_INLINE VF shuffle(VF a, VF b, Index, std::index_sequence<J...>) {
  return __builtin_shufflevector(a, b, Index()(int(J))...);
}
template <class Index>
INGOT_INLINE VF shuffle(VF a, VF b, Index index) {
  return shuffle(a, b, index, std::make_index_sequence<kLanes>());
}

// r[i][j] <-> r[j][i] for a kLanes x kLanes block: neighbouring rows are interleaved, then pairs of rows, each within
// quarters of 128 bits, and then the quarters change places.
INGOT_INLINE void transpose(VF (&r)[kLanes]) {
  constexpr int L = kLanes;
  VF t[L], u[L];
  INGOT_UNROLL for (int i = 0; i < L; i += 2) {
    t[i] = shuffle(r[i], r[i + 1], [](int j) { return j / 4 * 4 + j % 4 / 2 + j % 2 * L; });
    t[i + 1] = shuffle(r[i], r[i + 1], [](int j) { return j / 4 * 4 + 2 + j % 4 / 2 + j % 2 * L; });
  }
  INGOT_UNROLL for (int i = 0; i < L; i += 4) INGOT_UNROLL for (int c = 0; c < 2; c++) {
    VF a = t[i + c], b = t[i + 2 + c];
    u[i + 2 * c] = shuffle(a, b, [](int j) { return j / 4 * 4 + j % 2 + j % 4 / 2 * L; });
    u[i + 2 * c + 1] = shuffle(a, b, [](int j) { return j / 4 * 4 + 2 + j % 2 + j % 4 / 2 * L; });
  }
  // Now quarter q of u[4 i + c] is column 4 q + c of rows 4 i to 4 i + 3.
  INGOT_UNROLL for (int c = 0; c < 4; c++) {
    if constexpr (L == 4) r[c] = u[c];
    if constexpr (L == 8) {
      r[c] = shuffle(u[c], u[4 + c], [](int j) { return j % 4 + j / 4 * L; });
      r[4 + c] = shuffle(u[c], u[4 + c], [](int j) { return 4 + j % 4 + j / 4 * L; });
    }
    if constexpr (L == 16) {
      auto even = [](int j) { return j % 4 + j / 4 % 2 * 8 + j / 8 * L; };     // quarters 0 and 2 of each
      auto odd = [](int j) { return 4 + j % 4 + j / 4 % 2 * 8 + j / 8 * L; };  // quarters 1 and 3
      VF low0 = shuffle(u[c], u[4 + c], even), low1 = shuffle(u[c], u[4 + c], odd);
      VF high0 = shuffle(u[8 + c], u[12 + c], even), high1 = shuffle(u[8 + c], u[12 + c], odd);
      r[c] = shuffle(low0, high0, even);
      r[4 + c] = shuffle(low1, high1, even);
      r[8 + c] = shuffle(low0, high0, odd);
      r[12 + c] = shuffle(low1, high1, odd);
    }
  }
}

// dst[k][0..width) = src[k * row_stride + j * col_stride] for j < cols, zero for the rest; dst rows are ld floats.
INGOT_INLINE void pack_general(float* dst, int64_t ld, const float* src, int64_t rows, int64_t cols, int64_t width,
                               int64_t row_stride, int64_t col_stride) {
  for (int64_t k = 0; k < rows; k++)
    for (int64_t j = 0; j < width; j++) dst[k * ld + j] = j < cols ? src[k * row_stride + j * col_stride] : 0.f;
}

// As above when the source is contiguous along k: kLanes x kLanes blocks are transposed in registers.
INGOT_INLINE void pack_transposed(float* dst, int64_t ld, const float* src, int64_t rows, int64_t cols, int64_t width,
                                  int64_t col_stride) {
  int64_t full_rows = rows / kLanes * kLanes, full_cols = cols / kLanes * kLanes;
  for (int64_t j = 0; j < full_cols; j += kLanes)
    for (int64_t k = 0; k < full_rows; k += kLanes) {
      VF block[kLanes];
      INGOT_UNROLL for (int i = 0; i < kLanes; i++) block[i] = load(src + (j + i) * col_stride + k);
      transpose(block);
      INGOT_UNROLL for (int i = 0; i < kLanes; i++) store(dst + (k + i) * ld + j, block[i]);
    }
  pack_general(dst + full_rows * ld, ld, src + full_rows, rows - full_rows, full_cols, full_cols, 1, col_stride);
  pack_general(dst + full_cols, ld, src + full_cols * col_stride, rows, cols - full_cols, width - full_cols, 1,
               col_stride);
}

// One panel, or a slice of its rows: dst[rows][NR].
template <int NR>
INGOT_INLINE void pack_panel(float* dst, const float* src, int64_t rows, int64_t cols, int64_t row_stride,
                             int64_t col_stride) {
  if (col_stride == 1 && cols >= NR) {
    for (int64_t k = 0; k < rows; k++)
      INGOT_UNROLL for (int j = 0; j < NR; j += kLanes) store(dst + k * NR + j, load(src + k * row_stride + j));
  } else if (row_stride == 1) {
    pack_transposed(dst, NR, src, rows, min_of(cols, NR), NR, col_stride);
  } else {
    pack_general(dst, NR, src, rows, min_of(cols, NR), NR, row_stride, col_stride);
  }
}

// Panels [first, last) of B[k][n] (strides in floats; row_stride 1 means B is stored transposed) to their places in
// `packed`. Panels are independent: threads may share the work.
INGOT_INLINE void pack_b(float* packed, const float* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                         int64_t panel, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++) {
    float* dst = packed + i * panel * k;
    const float* src = b + i * panel * col_stride;
    with_panel<kEveryPanel>(panel, [&](auto width) {
      pack_panel<decltype(width)::value>(dst, src, k, n - i * panel, row_stride, col_stride);
    });
  }
}

}  // namespace ingot::kernel
