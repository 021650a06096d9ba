// What products of bytes and of bf16 share. Both walk K in words of 4 bytes, 4 bytes or 2 bf16, and have the columns of
// B in the lanes of vectors, or in tiles. A panel of NR columns of B:
//
//   [word][NR columns][4 bytes]        word 0                          word 1
//                               col 0      col 1  ...   col NR-1  | col 0 ...
//                 bytes         k0-k3      k0-k3        k0-k3     | k4-k7
//                 bf16          k0 k1      k0 k1        k0 k1     | k2 k3
//
// One instruction multiplies a word of a row of A with the same word of all the columns of a vector, and adds the
// products of the word to their sums (add_products).
//
// Units of a call: batch x groups of rows x panels, panels fastest. Its loops: group of rows, panel, tile of rows; the
// whole of K for each tile.
#pragma once
#include "kernels/isa/bf16.h"
#include "kernels/microkernel.h"
#include "kernels/word_rows.h"

namespace ingot::kernel {

// Where batch entry `entry` begins, in the unit of the strides.
INGOT_INLINE int64_t batch_offset(const int64_t (&batch)[3], const int64_t (&stride)[3], int64_t entry) {
  const int64_t i2 = entry % batch[2], i1 = entry / batch[2] % batch[1], i0 = entry / (batch[2] * batch[1]);
  return i0 * stride[0] + i1 * stride[1] + i2 * stride[2];
}

// One word of MR rows and of a panel. V: VI for bytes, VF for bf16.
template <class V, int MR, int NV>
INGOT_INLINE void dot_step(V (&acc)[MR][NV], const uint8_t* const (&a)[MR], int64_t at, const uint8_t* b) {
  Bytes row[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) row[j] = load_as<Bytes>(b + j * int64_t(sizeof(Bytes)));
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    const Bytes word = __builtin_bit_cast(Bytes, VI(word_at(a[i] + at)));
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] = add_products(acc[i][j], word, row[j]);
  }
  end_step(acc[MR - 1]);
}

// acc += a[:][0..bytes) * b; few accumulators are kept several times, to have enough independent chains.
template <class V, int MR, int NV, class P>
INGOT_INLINE void dot_run(V (&acc)[MR][NV], const uint8_t* const (&a)[MR], const uint8_t* b, int64_t bytes,
                          P& prefetch) {
  constexpr int chains = kAccumulators / (MR * NV), parts = chains >= 4 ? 4 : chains >= 2 ? 2 : 1, kWords = 4;
  constexpr int64_t kRow = NV * int64_t(sizeof(Bytes));
  V part[parts][MR][NV];
  INGOT_UNROLL for (int p = 0; p < parts; p++) INGOT_UNROLL for (int i = 0; i < MR; i++)
      INGOT_UNROLL for (int j = 0; j < NV; j++) part[p][i][j] = p == 0 ? acc[i][j] : V(0);
  int64_t at = 0;
  for (; at + 4 * kWords <= bytes; at += 4 * kWords, b += kWords * kRow) {
    advance(prefetch);
    INGOT_UNROLL for (int u = 0; u < kWords; u++) dot_step(part[u % parts], a, at + 4 * u, b + u * kRow);
  }
  for (; at < bytes; at += 4, b += kRow) dot_step(part[0], a, at, b);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) {
    acc[i][j] = part[0][i][j];
    INGOT_UNROLL for (int p = 1; p < parts; p++) acc[i][j] += part[p][i][j];
  }
}

}  // namespace ingot::kernel
