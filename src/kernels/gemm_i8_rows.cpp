// kI8Rows: few rows of A, one by one, with columns in the lanes, so that weights are read once and as they lie. B is
// [group of columns][word][columns of the group][4] i8. Two pmaddubsw multiply a vector of it, with the even bytes of a
// word of A and with the odd ones, so that a 16-bit lane holds one product and cannot overflow:
//
//   weights        col 0: w0 w1 w2 w3   col 1: w0 w1 w2 w3   ...
//   even bytes            a0  0 a2  0          a0  0 a2  0          16-bit lanes: a0 w0, a2 w2
//   odd bytes              0 a1  0 a3           0 a1  0 a3                        a1 w1, a3 w3
#include "kernels/gemm_i8_words.h"

namespace ingot::kernel {

inline constexpr int kRowsColumns = i8_tile_columns(kI8Rows, kLanes);

// acc[column] of a group of columns: all words of a row. Four sums of each column, so that additions need not wait for
// each other.
INGOT_INLINE void rows_row(const uint8_t* a, const int8_t* w, int64_t words, int32_t* acc) {
  constexpr int kVectors = kRowsColumns / kLanes, kChains = 4;
  const Shorts one = Shorts(int16_t(1));
  VI c[kChains][kVectors];
  INGOT_UNROLL for (int i = 0; i < kChains; i++) INGOT_UNROLL for (int v = 0; v < kVectors; v++) c[i][v] = VI(0);
  auto step = [&](int64_t i, VI(&sum)[kVectors]) INGOT_INLINED {
    const Bytes even = __builtin_bit_cast(Bytes, broadcast(a + 8 * i)),
                odd = __builtin_bit_cast(Bytes, broadcast(a + 8 * i + 4));
    INGOT_UNROLL for (int v = 0; v < kVectors; v++) {
      const Bytes weights = load_as<Bytes>(w + (i * kVectors + v) * int64_t(sizeof(Bytes)));
      sum[v] +=
          multiply_shorts(multiply_bytes(even, weights), one) + multiply_shorts(multiply_bytes(odd, weights), one);
    }
  };
#pragma clang loop unroll(disable)
  for (; words >= kChains; words -= kChains, a += 8 * kChains, w += kVectors * int64_t(sizeof(Bytes)) * kChains)
    INGOT_UNROLL for (int i = 0; i < kChains; i++) step(i, c[i]);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 8, w += kVectors * int64_t(sizeof(Bytes))) step(0, c[0]);
  INGOT_UNROLL for (int v = 0; v < kVectors; v++) store(acc + v * kLanes, c[0][v] + c[1][v] + c[2][v] + c[3][v]);
}

struct RowsForm {
  static constexpr I8Form kForm = kI8Rows;
  static constexpr bool kHasTiles = false;

  INGOT_INLINE void put_word(uint8_t* to, int32_t word, int32_t) {
    const uint32_t even_odd[2] = {uint32_t(word) & 0x00ff00ffu, uint32_t(word) & 0xff00ff00u};
    __builtin_memcpy(to, even_odd, 8);
  }
  INGOT_INLINE const int8_t* chunk_of(I8Call& x) {
    x.colsum = section_of<int32_t>(x, &I8Header::colsum) + x.first_column;
    return section_of<int8_t>(x, &I8Header::weights) + x.first_column * i8_words(x.p) * 4;
  }
  INGOT_INLINE void add_row(const I8Call& x, const int8_t* chunk, const uint8_t* a) {
    const int64_t words = i8_words(x.p), groups = div_up(x.columns, kRowsColumns);
    for (int64_t g = 0; g < groups; g++)
      rows_row(a, chunk + g * words * kRowsColumns * 4, words, x.acc + g * kRowsColumns);
  }
};

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_i8_rows(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::RowsForm>(call);
}
