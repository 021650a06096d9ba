// Discrete Fourier transforms of many lines:  y[k] = scale * sum_j x[j] w^(jk),  w = exp(-+ 2 pi i / n),  in double.
//
// Lengths whose prime factors are small are split factor by factor (Stockham's order, no bit reversal). Others go
// through a convolution of a power-of-two length m >= 2n - 1 (Bluestein):
//   jk = (j^2 + k^2 - (k - j)^2) / 2:   y[k] = c[k] sum_j (x[j] c[j]) conj(c[k - j]),   c[j] = exp(-+ pi i j^2 / n)
//
// ingot_dft_table fills what depends on the length only. Operands: table (dft_table_doubles). One unit.
// ingot_dft: operands: x, window (null: ones), table, y. A unit is one line. Scratch: dft_scratch_doubles.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct DftParams {
  int64_t dtype;                        // of x, window and y
  int64_t n;                            // length of the transform
  int64_t padded;                       // m where n goes through Bluestein, else 0
  int64_t inverse;                      // the sign, and scale 1 / n
  int64_t in, out;                      // elements of a line that are read (at most n), and written
  int64_t in_parts;                     // 1: x is real; 2: complex
  int64_t out_parts;                    // 1: only the real part of y is written
  int64_t hermitian;                    // x has the first half of a spectrum: x[n - k] = conj(x[k])
  int64_t minor;                        // lines are counted (major, minor)
  int64_t in_step, in_major, in_minor;  // strides in scalars
  int64_t out_step, out_major, out_minor;
};

inline constexpr int64_t kDftLargestFactor = 61;

// The power of two for Bluestein, or 0 where n has only small factors.
inline int64_t dft_padded(int64_t n) {
  int64_t rest = n;
  for (int64_t f = 2; f <= kDftLargestFactor; f++)
    while (rest % f == 0) rest /= f;
  if (rest == 1) return 0;
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  return m;
}
// Powers of w; for Bluestein those of length m, then c, then the transform of conj(c). Each: real parts, then
// imaginary.
inline int64_t dft_table_doubles(int64_t n, int64_t padded) { return padded ? 4 * padded + 2 * n : 2 * n; }
inline int64_t dft_scratch_doubles(int64_t n, int64_t padded) { return 4 * (padded ? padded : n); }

INGOT_KERNEL(ingot_dft);
INGOT_KERNEL(ingot_dft_table);

}  // namespace ingot
