// kI8Pairs: pmaddwd multiplies 16-bit numbers and adds neighbours in 32 bits, where nothing overflows. A word of A is
// two of them; B is [group of 4 columns][word][4 columns][2] i16, packed ahead (planner/pack_i8.cpp) or, a chunk at a
// time, here. Group 0:
//
//   word 0                                   word 1
//   col 0   col 1   col 2   col 3          | col 0  ...
//   k0 k1   k0 k1   k0 k1   k0 k1          | k2 k3
#include "kernels/gemm_i8_words.h"

namespace ingot::kernel {

inline constexpr int64_t kPairsTile = i8_tile_rows(kI8Pairs, kLanes);
inline constexpr int kPairsColumns = i8_tile_columns(kI8Pairs, kLanes);
inline constexpr int kPairsVectors = 2;  // of rows: their sums of 4 columns stay in registers

// acc[column][row] of 4 columns and 2 vectors of rows: `words` words of a tile at a, and of the columns at w.
INGOT_INLINE void pairs_tile(const uint8_t* a, const int16_t* w, int64_t words, int32_t* acc, bool first) {
  VI c[kPairsVectors][kPairsColumns];
  load_tile<kPairsTile>(c, acc, first);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 4 * kPairsTile, w += 8) {
    Shorts x[kPairsVectors];
    INGOT_UNROLL for (int r = 0; r < kPairsVectors; r++) x[r] = load_as<Shorts>(a + r * sizeof(Shorts));
    INGOT_UNROLL for (int j = 0; j < kPairsColumns; j++) {
      Shorts weight = __builtin_bit_cast(Shorts, broadcast(w + 2 * j));
      INGOT_UNROLL for (int r = 0; r < kPairsVectors; r++) c[r][j] += multiply_shorts(x[r], weight);
    }
  }
  store_tile<kPairsTile>(c, acc);
}

// The same for a single row, whose word is broadcast to 4 columns.
INGOT_INLINE void pairs_row(const uint8_t* a, const int16_t* w, int64_t words, int32_t* acc) {
  Ints4 c[2] = {Ints4(0), Ints4(0)};
  auto step = [&](int64_t i, Ints4& sum) INGOT_INLINED {
    Shorts8 x = __builtin_bit_cast(Shorts8, Ints4(word_at(a + 4 * i)));
    sum += multiply_shorts(x, load_as<Shorts8>(w + 8 * i));
  };
#pragma clang loop unroll(disable)
  for (; words >= 2; words -= 2, a += 8, w += 16) {
    step(0, c[0]);
    step(1, c[1]);
  }
  if (words) step(0, c[0]);
  c[0] += c[1];
  __builtin_memcpy(acc, &c[0], sizeof c[0]);
}

// --- packing a B that is not known ahead ---

INGOT_INLINE Shorts8 widened(const uint8_t* p, bool is_signed) {
  using Bytes8 = uint8_t __attribute__((ext_vector_type(8)));
  using Signed8 = int8_t __attribute__((ext_vector_type(8)));
  Bytes8 v = load_as<Bytes8>(p);
  return is_signed ? __builtin_convertvector(__builtin_bit_cast(Signed8, v), Shorts8)
                   : __builtin_convertvector(v, Shorts8);
}
INGOT_INLINE Ints4 pair_sums(Ints4 words) {
  return multiply_shorts(__builtin_bit_cast(Shorts8, words), Shorts8(int16_t(1)));
}

// Words [word, words) of one column, one by one; returns their sum. dst: where the column's word 0 goes.
INGOT_INLINE int32_t pack_column(const GemmI8Params& p, const uint8_t* src, int64_t word, int64_t words, int16_t* dst) {
  int32_t sum = 0;
  auto at = [&](int64_t k) INGOT_INLINED -> int16_t {
    if (k >= p.run_bytes) return 0;
    return p.b_signed ? int16_t(int8_t(src[k * p.b_row])) : int16_t(src[k * p.b_row]);
  };
#pragma clang loop unroll(disable)
  for (; word < words; word++) {
    dst[word * 8] = at(2 * word);
    dst[word * 8 + 1] = at(2 * word + 1);
    sum += dst[word * 8] + dst[word * 8 + 1];
  }
  return sum;
}

// 4 columns, each contiguous along K: 4 words of each at a time are transposed. Returns how many words are done: the
// last few are left.
INGOT_INLINE int64_t pack_long_columns(const GemmI8Params& p, const uint8_t* src, int16_t* dst, Ints4& sums) {
  int64_t k = 0;
  for (; k + 8 <= p.run_bytes; k += 8) {
    Ints4 c[4];
    INGOT_UNROLL for (int j = 0; j < 4; j++) c[j] =
        __builtin_bit_cast(Ints4, widened(src + j * p.b_col + k, p.b_signed));
    Ints4 a = __builtin_shufflevector(c[0], c[1], 0, 4, 1, 5), b = __builtin_shufflevector(c[2], c[3], 0, 4, 1, 5);
    Ints4 d = __builtin_shufflevector(c[0], c[1], 2, 6, 3, 7), e = __builtin_shufflevector(c[2], c[3], 2, 6, 3, 7);
    Ints4 words[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                      __builtin_shufflevector(d, e, 0, 1, 4, 5), __builtin_shufflevector(d, e, 2, 3, 6, 7)};
    INGOT_UNROLL for (int i = 0; i < 4; i++) {
      __builtin_memcpy(dst + (k / 2 + i) * 8, &words[i], 16);
      sums += pair_sums(words[i]);
    }
  }
  return k / 2;
}

// 4 columns next to each other: pairs of rows are interleaved; reads 8 bytes of each row. Returns how many words are
// done.
INGOT_INLINE int64_t pack_close_columns(const GemmI8Params& p, const uint8_t* src, int16_t* dst, Ints4& sums) {
  int64_t k = 0;
  for (; k + 2 <= p.run_bytes; k += 2) {
    Shorts8 x = widened(src + k * p.b_row, p.b_signed), y = widened(src + (k + 1) * p.b_row, p.b_signed);
    Ints4 words = __builtin_bit_cast(Ints4, __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11));
    __builtin_memcpy(dst + k / 2 * 8, &words, 16);
    sums += pair_sums(words);
  }
  return k / 2;
}

// Columns [first, first + columns), and the sum of each.
INGOT_INLINE void pack_b_pairs(const GemmI8Params& p, const uint8_t* b, int64_t first, int64_t columns, int16_t* to,
                               int32_t* colsum) {
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(kI8Pairs, p.run_bytes);
  for (int64_t n = 0; n < columns; n += kPairsColumns) {
    int32_t total[kPairsColumns] = {};
    for (int64_t run = 0; run < runs; run++, to += run_words * 8) {
      const uint8_t* src = b + (first + n) * p.b_col + run * p.run_bytes * p.b_row;
      Ints4 sums = Ints4(0);
      int64_t done = 0;
      if (p.b_row == 1 && n + 4 <= columns)
        done = pack_long_columns(p, src, to, sums);
      else if (p.b_col == 1 && first + n + 8 <= p.n)
        done = pack_close_columns(p, src, to, sums);
      for (int64_t j = 0; j < kPairsColumns; j++) {
        if (n + j < columns) {
          total[j] += sums[j] + pack_column(p, src + j * p.b_col, done, run_words, to + 2 * j);
          continue;
        }
        for (int64_t word = 0; word < run_words; word++) to[word * 8 + 2 * j] = to[word * 8 + 2 * j + 1] = 0;
      }
    }
    INGOT_UNROLL for (int j = 0; j < kPairsColumns; j++) colsum[n + j] = total[j];
  }
}

struct PairsForm {
  static constexpr I8Form kForm = kI8Pairs;
  static constexpr bool kHasTiles = true;

  INGOT_INLINE void put_words(uint8_t* to, VI words) { store(reinterpret_cast<int32_t*>(to), words); }
  INGOT_INLINE void put_word(uint8_t* to, int32_t word, int32_t) { __builtin_memcpy(to, &word, 4); }

  INGOT_INLINE const int16_t* chunk_of(I8Call& x) {
    if (x.p.b_packed) {
      x.colsum = section_of<int32_t>(x, &I8Header::colsum) + x.first_column;
      return section_of<int16_t>(x, &I8Header::weights) + x.first_column * i8_words(x.p) * 2;
    }
    auto* colsum = reinterpret_cast<int32_t*>(x.own_b);
    auto* words = reinterpret_cast<int16_t*>(colsum + kI8ChunkColumns);
    pack_b_pairs(x.p, x.b, x.first_column, x.columns, words, colsum);
    x.colsum = colsum;
    return words;
  }
  INGOT_INLINE void add_tile(const I8Call& x, const int16_t* chunk, const uint8_t* a, int64_t rows) {
    const int64_t words = i8_words(x.p), blocks = i8_blocks(kI8Pairs, words), groups = div_up(x.columns, kPairsColumns);
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t start = i8_block_start(words, blocks, block), end = i8_block_start(words, blocks, block + 1);
      for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < rows; r += kPairsVectors * kLanes)
          pairs_tile(a + (start * kPairsTile + r) * 4, chunk + (g * words + start) * kPairsColumns * 2, end - start,
                     x.acc + g * kPairsColumns * kPairsTile + r, block == 0);
    }
  }
  INGOT_INLINE void add_row(const I8Call& x, const int16_t* chunk, const uint8_t* a) {
    const int64_t words = i8_words(x.p), groups = div_up(x.columns, kPairsColumns);
    for (int64_t g = 0; g < groups; g++)
      pairs_row(a, chunk + g * words * kPairsColumns * 2, words, x.acc + g * kPairsColumns);
  }
};

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_i8_pairs(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::PairsForm>(call);
}
