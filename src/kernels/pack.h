// Packing a matrix into panels, the layout in which the micro-kernel reads its right-hand side.
//
// B[K][N] becomes ceil(N / NR) panels of NR columns, each [K][NR] and contiguous, so a register tile streams one
// panel from start to end:
//   packed[(n / NR) * K * NR + k * NR + n % NR] = B[k][n],   zero for columns n >= N.
// Zero columns let every tile compute NR columns; only its store looks at N. The layout does not depend on the ISA
// level. Used at model-compile time for weights and inside kernels for operands that are only known at run time.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

INGOT_INLINE int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
INGOT_INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
INGOT_INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

// Floats of a packed K x N matrix.
INGOT_INLINE int64_t packed_floats(int64_t k, int64_t n, int64_t panel) { return div_up(n, panel) * panel * k; }

// r[i][j] <-> r[j][i] for a kLanes x kLanes block.
INGOT_INLINE void transpose(VF (&r)[kLanes]) {
#if defined(__AVX2__)
  VF t[8], u[8];
  INGOT_UNROLL for (int i = 0; i < 4; i++) {  // interleave neighbouring rows
    t[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  INGOT_UNROLL for (int i = 0; i < 2; i++) INGOT_UNROLL for (int j = 0; j < 2; j++) {  // then pairs of rows
    u[4 * i + 2 * j] = __builtin_shufflevector(t[4 * i + j], t[4 * i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
    u[4 * i + 2 * j + 1] = __builtin_shufflevector(t[4 * i + j], t[4 * i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  INGOT_UNROLL for (int i = 0; i < 4; i++) {  // then the 128-bit halves
    r[i] = __builtin_shufflevector(u[i], u[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    r[4 + i] = __builtin_shufflevector(u[i], u[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#else
  VF a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  VF c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
#endif
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
    if (panel == 24)
      pack_panel<24>(dst, src, k, n - i * panel, row_stride, col_stride);
    else
      pack_panel<16>(dst, src, k, n - i * panel, row_stride, col_stride);
  }
}

}  // namespace ingot::kernel
