#include "kernels/gemm_i8.h"

#include "kernels/integer.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {

// A word in all lanes. fresh_broadcast is never shared between two uses: the tile below has a register for one only.
INGOT_INLINE VI broadcast(const void* p) { return VI(word_at(p)); }
INGOT_INLINE VI fresh_broadcast(const void* p) {
#if defined(__AVX2__)
  VI v;
  asm volatile("vpbroadcastd %1, %0" : "=x"(v) : "m"(*static_cast<const int32_t*>(p)));
  return v;
#else
  return broadcast(p);
#endif
}

inline constexpr int kRowVectors = 2;  // of a tile

// acc[columns][16 rows], of which kRowVectors * kLanes rows are computed.
template <int N>
INGOT_INLINE void load_tile(VI (&c)[kRowVectors][N], const int32_t* acc, bool first) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) c[r][j] =
      first ? VI(0) : load(acc + j * kI8TileRows + r * kLanes);
}
template <int N>
INGOT_INLINE void store_tile(const VI (&c)[kRowVectors][N], int32_t* acc) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < kRowVectors; r++)
      store(acc + j * kI8TileRows + r * kLanes, c[r][j]);
}

INGOT_INLINE void chained_tile(const uint8_t* a, const uint16_t* at, const int8_t* w, int64_t pairs, int32_t* acc,
                               bool first) {
  Shorts one = Shorts(int16_t(1));
  asm volatile("" : "+x"(one));  // a constant would be loaded again and again
  constexpr int kColumns = i8_tile_columns(kI8Chained);
  VI c[kRowVectors][kColumns];
  load_tile(c, acc, first);
#pragma clang loop unroll(disable)
  for (; pairs > 0; pairs--, at += 2, w += 32) {
    Bytes x[kRowVectors], y[kRowVectors];
    INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) {
      x[r] = load_as<Bytes>(a + at[0] + r * sizeof(Bytes));
      y[r] = load_as<Bytes>(a + at[1] + r * sizeof(Bytes));
    }
    INGOT_UNROLL for (int j = 0; j < kColumns; j++) {
      Shorts t[kRowVectors];
      Bytes second = __builtin_bit_cast(Bytes, broadcast(w + 16 + 4 * j));
      INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) t[r] = multiply_bytes(y[r], second);
      INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) {
        Bytes weight = __builtin_bit_cast(Bytes, fresh_broadcast(w + 4 * j));
        c[r][j] += multiply_shorts(t[r] + multiply_bytes(x[r], weight), one);
      }
    }
  }
  store_tile(c, acc);
}

INGOT_INLINE void pairs_tile(const uint8_t* a, const int16_t* w, int64_t words, int32_t* acc, bool first) {
  constexpr int kColumns = i8_tile_columns(kI8Pairs);
  VI c[kRowVectors][kColumns];
  load_tile(c, acc, first);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 4 * kI8TileRows, w += 8) {
    Shorts x[kRowVectors];
    INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) x[r] = load_as<Shorts>(a + r * sizeof(Shorts));
    INGOT_UNROLL for (int j = 0; j < kColumns; j++) {
      Shorts weight = __builtin_bit_cast(Shorts, broadcast(w + 2 * j));
      INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) c[r][j] += multiply_shorts(x[r], weight);
    }
  }
  store_tile(c, acc);
}

INGOT_INLINE void dot_tile(const uint8_t* a, const int8_t* w, int64_t words, int32_t* acc, bool first) {
  constexpr int kColumns = i8_tile_columns(kI8Dot);
  VI c[kRowVectors][kColumns];
  load_tile(c, acc, first);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 4 * kI8TileRows, w += 4 * kColumns) {
    Bytes x[kRowVectors];
    INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) x[r] = load_as<Bytes>(a + r * sizeof(Bytes));
    INGOT_UNROLL for (int j = 0; j < kColumns; j++) {
      Bytes weight = __builtin_bit_cast(Bytes, broadcast(w + 4 * j));
      INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) c[r][j] = add_products(c[r][j], x[r], weight);
    }
  }
  store_tile(c, acc);
}

// The same for a single row, its words one after the other: the 4 columns lie in the lanes.
INGOT_INLINE void chained_row(const uint8_t* a, const uint16_t* at, const int8_t* w, int64_t pairs, int32_t* acc,
                              bool first) {
  Shorts8 one = Shorts8(int16_t(1));
  Ints4 c[2] = {first ? Ints4(0) : load_as<Ints4>(acc), Ints4(0)};
  auto step = [&](int64_t i, Ints4& sum) INGOT_INLINED {
    Bytes16 x = __builtin_bit_cast(Bytes16, Ints4(word_at(a + at[2 * i] / kI8TileRows)));
    Bytes16 y = __builtin_bit_cast(Bytes16, Ints4(word_at(a + at[2 * i + 1] / kI8TileRows)));
    Shorts8 t = multiply_bytes(x, load_as<Bytes16>(w + 32 * i)) + multiply_bytes(y, load_as<Bytes16>(w + 32 * i + 16));
    sum += multiply_shorts(t, one);
  };
#pragma clang loop unroll(disable)
  for (; pairs >= 2; pairs -= 2, at += 4, w += 64) {
    step(0, c[0]);
    step(1, c[1]);
  }
  if (pairs) step(0, c[0]);
  c[0] += c[1];
  __builtin_memcpy(acc, &c[0], sizeof c[0]);
}

INGOT_INLINE void pairs_row(const uint8_t* a, const int16_t* w, int64_t words, int32_t* acc, bool first) {
  Ints4 c[2] = {first ? Ints4(0) : load_as<Ints4>(acc), Ints4(0)};
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

// 6 columns in 8 lanes: the last two get numbers of the next word, which are dropped.
INGOT_INLINE void dot_row(const uint8_t* a, const int8_t* w, int64_t words, int32_t* acc, bool first) {
  constexpr int kColumns = i8_tile_columns(kI8Dot), kVectors = 8 / kLanes, kChains = 4;
  VI c[kChains][kVectors];
  INGOT_UNROLL for (int i = 0; i < kChains; i++) INGOT_UNROLL for (int v = 0; v < kVectors; v++) c[i][v] = VI(0);
  auto step = [&](int64_t i, VI(&sum)[kVectors]) INGOT_INLINED {
    Bytes x = __builtin_bit_cast(Bytes, broadcast(a + 4 * i));
    INGOT_UNROLL for (int v = 0; v < kVectors; v++) sum[v] =
        add_products(sum[v], x, load_as<Bytes>(w + (kColumns * i + v * kLanes) * 4));
  };
#pragma clang loop unroll(disable)
  for (; words >= kChains; words -= kChains, a += 4 * kChains, w += 4 * kColumns * kChains)
    INGOT_UNROLL for (int i = 0; i < kChains; i++) step(i, c[i]);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 4, w += 4 * kColumns) step(0, c[0]);
  int32_t sums[kVectors * kLanes];
  INGOT_UNROLL for (int v = 0; v < kVectors; v++) store(sums + v * kLanes, c[0][v] + c[1][v] + c[2][v] + c[3][v]);
  INGOT_UNROLL for (int j = 0; j < kColumns; j++) acc[j] = sums[j] + (first ? 0 : acc[j]);
}

// --- packing A ---

// Up to `bytes` bytes at p, as the numbers of kLanes words of 4 bytes: four u8 (i8 plus 128) or two 16-bit numbers.
template <int64_t Form>
INGOT_INLINE VI words_of(const uint8_t* p, int64_t bytes, bool is_signed, bool slack) {
  constexpr int64_t kTake = i8_word_bytes(Form) * kLanes;
  using Taken = uint8_t __attribute__((ext_vector_type(kTake)));
  Taken v;
  if (slack || bytes >= kTake) {
    v = load_as<Taken>(p);  // what lies behind meets weights of zero
  } else {
    uint8_t part[kTake] = {};
#pragma clang loop unroll(disable)
    for (int64_t i = 0; i < bytes; i++) part[i] = p[i];
    v = load_as<Taken>(part);
  }
  if constexpr (i8_of_bytes(Form)) {
    if (is_signed) v ^= uint8_t(0x80);
    return __builtin_bit_cast(VI, v);
  } else {
    using Signed = int8_t __attribute__((ext_vector_type(kTake)));
    Shorts s =
        is_signed ? __builtin_convertvector(__builtin_bit_cast(Signed, v), Shorts) : __builtin_convertvector(v, Shorts);
    return __builtin_bit_cast(VI, s);
  }
}
INGOT_INLINE VI other_order(VI words) {
  Bytes b = __builtin_bit_cast(Bytes, words);
#if defined(__AVX2__)
  b = __builtin_shufflevector(b, b, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 16, 18, 17, 19, 20, 22, 21,
                              23, 24, 26, 25, 27, 28, 30, 29, 31);
#else
  b = __builtin_shufflevector(b, b, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#endif
  return __builtin_bit_cast(VI, b);
}
// The sum of the numbers in each word.
template <int64_t Form>
INGOT_INLINE VI word_sums(VI words) {
  Shorts one = Shorts(int16_t(1));
  if constexpr (i8_of_bytes(Form)) {
    Bytes ones = Bytes(uint8_t(1));
    return multiply_shorts(multiply_bytes(__builtin_bit_cast(Bytes, words), ones), one);
  } else {
    return multiply_shorts(__builtin_bit_cast(Shorts, words), one);
  }
}
INGOT_INLINE void transpose_words(VI (&v)[kLanes]) {
  VF f[kLanes];
  INGOT_UNROLL for (int i = 0; i < kLanes; i++) f[i] = __builtin_bit_cast(VF, v[i]);
  transpose(f);
  INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] = __builtin_bit_cast(VI, f[i]);
}

// The rows of one block of 16, as pointers to their first bytes; rows past the end repeat the last.
struct I8Rows {
  const uint8_t* at[kI8TileRows];
};
INGOT_INLINE I8Rows rows_of(const GemmI8Params& p, const uint8_t* a, int64_t row) {
  int64_t index[4], rest = row;
  INGOT_UNROLL for (int d = 3; d > 0; d--) {
    index[d] = rest % p.row_dims[d];
    rest /= p.row_dims[d];
  }
  index[0] = rest;
  INGOT_UNROLL for (int d = 0; d < 4; d++) a += index[d] * p.row_stride[d];
  I8Rows out;
  for (int64_t i = 0; i < kI8TileRows; i++) {
    out.at[i] = a;
    if (row + i + 1 >= p.m) continue;
    a += p.row_stride[3];
    INGOT_UNROLL for (int d = 3; d > 0; d--) {  // carry
      if (++index[d] < p.row_dims[d]) break;
      index[d] = 0;
      a += p.row_stride[d - 1] - p.row_dims[d] * p.row_stride[d];
    }
  }
  return out;
}
INGOT_INLINE int64_t run_offset(const GemmI8Params& p, int64_t run) {
  return run / (p.runs[1] * p.runs[2]) * p.run_stride[0] + run / p.runs[2] % p.runs[1] * p.run_stride[1] +
         run % p.runs[2] * p.run_stride[2];
}

// 16 rows to dst[word][order][16 rows][4 bytes]; sums[16] gets the sums of the rows.
template <int64_t Form>
INGOT_INLINE void pack_block(const GemmI8Params& p, const I8Rows& rows, uint8_t* dst, int32_t* sums, bool want_sums) {
  constexpr int64_t kStride = kI8TileRows * 4 * i8_word_stride(Form), kWordBytes = i8_word_bytes(Form);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(Form, p.run_bytes);
  for (int64_t r0 = 0; r0 < kI8TileRows; r0 += kLanes) {
    VI sum = VI(0);
    uint8_t* to = dst + r0 * 4;
    for (int64_t run = 0; run < runs; run++) {
      const int64_t offset = run_offset(p, run);
      for (int64_t word = 0; word < run_words; word += kLanes) {
        const int64_t first = word * kWordBytes, left = p.run_bytes - first;
        VI v[kLanes];
        INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] =
            words_of<Form>(rows.at[r0 + i] + offset + first, left, p.a_signed, p.a_slack);
        transpose_words(v);
        const int64_t count = min_of(kLanes, run_words - word);
        if (count == kLanes) {
          INGOT_UNROLL for (int i = 0; i < kLanes; i++) {
            store(reinterpret_cast<int32_t*>(to + i * kStride), v[i]);
            if constexpr (Form == kI8Chained)
              store(reinterpret_cast<int32_t*>(to + i * kStride + kI8TileRows * 4), other_order(v[i]));
          }
        } else {
          INGOT_UNROLL for (int i = 0; i < kLanes; i++) {
            if (i >= count) continue;
            store(reinterpret_cast<int32_t*>(to + i * kStride), v[i]);
            if constexpr (Form == kI8Chained)
              store(reinterpret_cast<int32_t*>(to + i * kStride + kI8TileRows * 4), other_order(v[i]));
          }
        }
        if (want_sums) INGOT_UNROLL for (int i = 0; i < kLanes; i++) sum += i < count ? word_sums<Form>(v[i]) : VI(0);
        to += count * kStride;
      }
    }
    // Bytes past the end of a run were read as 0, which stands for -128 where signs were flipped.
    if (i8_of_bytes(Form) && p.a_signed) sum -= int32_t(runs * (run_words * kWordBytes - p.run_bytes) * 128);
    if (want_sums) store(sums + r0, sum);
  }
}

// One row to dst[word][order][4 bytes].
template <int64_t Form>
INGOT_INLINE void pack_row(const GemmI8Params& p, const uint8_t* row, uint8_t* dst, int32_t* sum) {
  constexpr int64_t kWordBytes = i8_word_bytes(Form);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(Form, p.run_bytes);
  VI total = VI(0);
  for (int64_t run = 0; run < runs; run++) {
    const uint8_t* from = row + run_offset(p, run);
    for (int64_t word = 0; word < run_words; word += kLanes) {
      VI v = words_of<Form>(from + word * kWordBytes, p.run_bytes - word * kWordBytes, p.a_signed, false),
         w = other_order(v);
      const int64_t count = min_of(kLanes, run_words - word);
      for (int64_t i = 0; i < kLanes; i++) {
        if (i >= count) continue;
        __builtin_memcpy(dst, reinterpret_cast<const char*>(&v) + 4 * i, 4);
        dst += 4;
        if constexpr (Form == kI8Chained) {
          __builtin_memcpy(dst, reinterpret_cast<const char*>(&w) + 4 * i, 4);
          dst += 4;
        }
        total[0] += word_sums<Form>(v)[i];
      }
    }
  }
  if (i8_of_bytes(Form) && p.a_signed) total[0] -= int32_t(runs * (run_words * kWordBytes - p.run_bytes) * 128);
  *sum = total[0];
}

// --- packing B, where it is not known ahead: columns [first, first + columns) as kI8Pairs ---

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

// A column of K numbers, or what a strip of them leaves over: words [word, words) one by one.
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

// 4 columns, each contiguous along K: 4 words of each at a time are transposed. Returns the words done.
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

// 4 columns next to each other: pairs of rows are interleaved; reads 8 bytes of each row. Returns the words done.
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

INGOT_INLINE void pack_b_pairs(const GemmI8Params& p, const uint8_t* b, int64_t first, int64_t columns, int16_t* to,
                               int32_t* colsum) {
  constexpr int64_t kColumns = i8_tile_columns(kI8Pairs);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(kI8Pairs, p.run_bytes);
  for (int64_t n = 0; n < columns; n += kColumns) {
    int32_t total[kColumns] = {};
    for (int64_t run = 0; run < runs; run++, to += run_words * 8) {
      const uint8_t* src = b + (first + n) * p.b_col + run * p.run_bytes * p.b_row;
      Ints4 sums = Ints4(0);
      int64_t done = 0;
      if (p.b_row == 1 && n + 4 <= columns)
        done = pack_long_columns(p, src, to, sums);
      else if (p.b_col == 1 && first + n + 8 <= p.n)
        done = pack_close_columns(p, src, to, sums);
      for (int64_t j = 0; j < kColumns; j++) {
        if (n + j < columns) {
          total[j] += sums[j] + pack_column(p, src + j * p.b_col, done, run_words, to + 2 * j);
          continue;
        }
        for (int64_t word = 0; word < run_words; word++) to[word * 8 + 2 * j] = to[word * 8 + 2 * j + 1] = 0;
      }
    }
    INGOT_UNROLL for (int j = 0; j < kColumns; j++) colsum[n + j] = total[j];
  }
}

// --- the parts of a call ---

struct I8Call {
  const GemmI8Params& p;
  const KernelCall* call;
  void* out;
  int32_t a_zero, b_zero;  // where there is one
  uint8_t* packed_a;
  int32_t* row_sums;
  int32_t* acc;
  // Of the batch entry and the chunk at hand:
  const uint8_t *a, *b;
  int64_t entry, first_row, rows;        // the group of rows
  int64_t chunk, first_column, columns;  // the chunk
  const int32_t* colsum;
};

template <int64_t Form>
INGOT_INLINE bool needs_row_sums(const GemmI8Params& p) {
  return p.b_zero != kNoZero || (i8_of_bytes(Form) && !p.b_signed);
}
// Is the block of 16 rows from `row` of the group on the last one, with few rows in it?
INGOT_INLINE bool is_few_rows(const I8Call& x, int64_t row) {
  const int64_t rest = x.p.m % kI8TileRows;
  return rest != 0 && rest <= kI8FewRows && x.first_row + row + rest == x.p.m;
}

template <int64_t Form>
INGOT_INLINE void pack_group(I8Call& x) {
  const int64_t bytes = i8_words(x.p) * 4 * i8_word_stride(Form);
  for (int64_t r = 0; r < x.rows; r += kI8TileRows) {
    const I8Rows rows = rows_of(x.p, x.a, x.first_row + r);
    if (!is_few_rows(x, r)) {
      pack_block<Form>(x.p, rows, x.packed_a + r * bytes, x.row_sums + r, needs_row_sums<Form>(x.p));
      continue;
    }
    for (int64_t i = r; i < x.rows; i++) pack_row<Form>(x.p, rows.at[i - r], x.packed_a + i * bytes, x.row_sums + i);
  }
}

// Where the chunk at hand of a packed B begins.
struct I8Chunk {
  const I8Program* programs;
  const uint16_t* offsets;
  const int8_t* weights;
};
template <int64_t Form>
INGOT_INLINE I8Chunk chunk_of(const I8Call& x, int64_t blocks) {
  I8Header h = load_as<I8Header>(x.b);
  constexpr int64_t kGroups = i8_chunk_columns(Form) / i8_tile_columns(Form);
  const auto* weights = reinterpret_cast<const int8_t*>(x.b + h.weights);
  if constexpr (Form != kI8Chained)
    return {nullptr, nullptr, weights + x.chunk * i8_chunk_columns(Form) * i8_words(x.p) * 4};
  return {reinterpret_cast<const I8Program*>(x.b + h.programs) + x.chunk * kGroups * blocks,
          reinterpret_cast<const uint16_t*>(x.b + h.offsets), weights};
}

// The sums of products of rows [row, row + 16) of the group, or of one row, with the chunk's columns.
template <int64_t Form, bool OneRow>
INGOT_INLINE void accumulate_rows(const I8Call& x, const I8Chunk& chunk, int64_t row) {
  const int64_t words = i8_words(x.p), blocks = i8_blocks(Form, words);
  constexpr int64_t kColumns = i8_tile_columns(Form), kWord = 4 * i8_word_stride(Form) * (OneRow ? 1 : kI8TileRows);
  const int64_t groups = div_up(x.columns, kColumns);
  constexpr int64_t kColumn = OneRow ? 1 : kI8TileRows;  // accumulators of a column
  const uint8_t* a = x.packed_a + row * words * 4 * i8_word_stride(Form);
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t start = i8_block_start(words, blocks, block), end = i8_block_start(words, blocks, block + 1);
    const uint8_t* a_block = a + start * kWord;
    for (int64_t g = 0; g < groups; g++) {
      if constexpr (Form == kI8Chained) {
        const I8Program& program = chunk.programs[block * groups + g];
        int32_t* acc = x.acc + program.group * kColumns * kColumn;
        const uint16_t* offsets = chunk.offsets + int64_t(program.first_pair) * 2;
        const int8_t* weights = chunk.weights + int64_t(program.first_pair) * 32;
        if constexpr (OneRow)
          chained_row(a_block, offsets, weights, program.pairs, acc, block == 0);
        else
          for (int64_t r = 0; r < kI8TileRows; r += kRowVectors * kLanes)
            chained_tile(a_block + r * 4, offsets, weights, program.pairs, acc + r, block == 0);
      } else {
        int32_t* acc = x.acc + g * kColumns * kColumn;
        const int8_t* weights = chunk.weights + (g * words + start) * kColumns * 4;
        const auto* shorts = reinterpret_cast<const int16_t*>(weights);
        if constexpr (OneRow)
          Form == kI8Dot ? dot_row(a_block, weights, end - start, acc, block == 0)
                         : pairs_row(a_block, shorts, end - start, acc, block == 0);
        else
          for (int64_t r = 0; r < kI8TileRows; r += kRowVectors * kLanes)
            Form == kI8Dot ? dot_tile(a_block + r * 4, weights, end - start, acc + r, block == 0)
                           : pairs_tile(a_block + r * 4, shorts, end - start, acc + r, block == 0);
      }
    }
  }
}

// Takes the zero points out of sums of `lanes` columns from `column` (of the chunk) on, and hands them to the epilogue.
template <int64_t Form>
INGOT_INLINE void finish_row(const I8Call& x, VI sum, int64_t row, int64_t column, int64_t lanes) {
  const GemmI8Params& p = x.p;
  constexpr bool bytes = i8_of_bytes(Form);
  const int64_t in_matrix = x.first_row + row, in_b = x.first_column + column;
  const int64_t out_row = x.entry * p.entry_row + in_matrix, out_column = x.entry * p.entry_col + in_b;
  const int32_t a_zero =
      (p.a_zero == kZeroPerRow ? zero_at(x.call->operand[3], p.a_zero, out_row, p.a_signed) : x.a_zero) +
      (bytes && p.a_signed ? 128 : 0);
  if (p.a_zero != kNoZero || (bytes && p.a_signed)) sum -= load(x.colsum + column) * a_zero;
  if (needs_row_sums<Form>(p)) {
    const auto depth = int32_t(p.runs[0] * p.runs[1] * p.runs[2] * p.run_bytes);
    const int32_t shift = bytes && !p.b_signed ? 128 : 0;
    VI b_zero = VI(x.b_zero - shift);
    if (p.b_zero == kZeroPerColumn)
      for (int64_t l = 0; l < kLanes; l++)
        if (l < lanes) b_zero[l] = zero_at(x.call->operand[4], p.b_zero, out_column + l, p.b_signed) - shift;
    sum -= b_zero * (x.row_sums[row] - depth * a_zero);
  }
  ingot_hook_store(sum, x.out, out_row * p.c_row + out_column, x.call->operand + 5, p.extra, out_row, out_column, lanes,
                   x.call->program);
}

// The sums of 16 rows, a strip of columns at a time: from columns of rows to rows of columns, then to the epilogue, in
// a loop that keeps the epilogue's constants in registers.
template <int64_t Form>
INGOT_INLINE void finish_block(const I8Call& x, int64_t row) {
  constexpr int64_t kStrip = 32;
  int32_t strip[kI8TileRows][kStrip];
  const int64_t rows = min_of(kI8TileRows, x.rows - row);
  for (int64_t first = 0; first < x.columns; first += kStrip) {
    const int64_t columns = min_of(kStrip, x.columns - first);
    for (int64_t c = 0; c < columns; c += kLanes)
      for (int64_t r = 0; r < kI8TileRows; r += kLanes) {
        VI v[kLanes];
        INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] = load(x.acc + (first + c + i) * kI8TileRows + r);
        transpose_words(v);
        INGOT_UNROLL for (int i = 0; i < kLanes; i++) store(strip[r + i] + c, v[i]);
      }
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c += kLanes)
        finish_row<Form>(x, load(strip[r] + c), row + r, first + c, min_of(kLanes, columns - c));
  }
}

template <int64_t Form>
INGOT_INLINE void chunk_product(const I8Call& x, const I8Chunk& chunk) {
  for (int64_t row = 0; row < x.rows; row += kI8TileRows) {
    if (!is_few_rows(x, row)) {
      accumulate_rows<Form, false>(x, chunk, row);
      finish_block<Form>(x, row);
      continue;
    }
    for (int64_t r = row; r < x.rows; r++) {
      accumulate_rows<Form, true>(x, chunk, r);
      for (int64_t c = 0; c < x.columns; c += kLanes)
        finish_row<Form>(x, load(x.acc + c), r, c, min_of(kLanes, x.columns - c));
    }
  }
}

template <int64_t Form>
INGOT_INLINE KernelStatus gemm_i8(const KernelCall* call) {
  const GemmI8Params& p = *reinterpret_cast<const GemmI8Params*>(call->param);
  const I8Scratch at = i8_scratch(p);
  auto* scratch = static_cast<uint8_t*>(call->scratch);
  I8Call x{p,
           call,
           call->operand[2],
           zero_at(call->operand[3], p.a_zero == kOneZero ? kOneZero : kNoZero, 0, p.a_signed),
           zero_at(call->operand[4], p.b_zero == kOneZero ? kOneZero : kNoZero, 0, p.b_signed),
           scratch + at.a,
           reinterpret_cast<int32_t*>(scratch + at.row_sums),
           reinterpret_cast<int32_t*>(scratch + at.acc),
           nullptr,
           nullptr,
           0,
           0,
           0,
           0,
           0,
           0,
           nullptr};
  const int64_t chunks = i8_chunks(Form, p.n), blocks = i8_blocks(Form, i8_words(p));
  int64_t packed_group = -1;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t group = unit / chunks, g = group % p.row_groups;
    x.chunk = unit % chunks;
    x.first_column = x.chunk * i8_chunk_columns(Form);
    x.columns = min_of(i8_chunk_columns(Form), p.n - x.first_column);
    x.entry = group / p.row_groups;
    x.first_row = i8_group_start(p, g);
    x.rows = i8_group_start(p, g + 1) - x.first_row;
    const int64_t i2 = x.entry % p.batch[2], i1 = x.entry / p.batch[2] % p.batch[1],
                  i0 = x.entry / (p.batch[2] * p.batch[1]);
    x.a = static_cast<const uint8_t*>(call->operand[0]) + i0 * p.a_batch[0] + i1 * p.a_batch[1] + i2 * p.a_batch[2];
    x.b = static_cast<const uint8_t*>(call->operand[1]) + i0 * p.b_batch[0] + i1 * p.b_batch[1] + i2 * p.b_batch[2];
    if (group != packed_group) pack_group<Form>(x);
    packed_group = group;
    if (p.b_packed) {
      x.colsum = reinterpret_cast<const int32_t*>(x.b + load_as<I8Header>(x.b).colsum) + x.first_column;
      chunk_product<Form>(x, chunk_of<Form>(x, blocks));
    } else if constexpr (Form == kI8Pairs) {
      auto* colsum = reinterpret_cast<int32_t*>(scratch + at.b);
      auto* words = reinterpret_cast<int16_t*>(colsum + i8_chunk_columns(Form));
      pack_b_pairs(p, x.b, x.first_column, x.columns, words, colsum);
      x.colsum = colsum;
      chunk_product<Form>(x, {nullptr, nullptr, reinterpret_cast<const int8_t*>(words)});
    }
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" {
ingot::KernelStatus ingot_gemm_i8_chained(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::kI8Chained>(call);
}
ingot::KernelStatus ingot_gemm_i8_pairs(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::kI8Pairs>(call);
}
ingot::KernelStatus ingot_gemm_i8_dot(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::kI8Dot>(call);
}
}
