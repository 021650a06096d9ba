#include "kernels/gemm_i8.h"

#include "kernels/integer.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {

INGOT_INLINE VI broadcast(const void* p) { return VI(word_at(p)); }  // a word in all lanes

inline constexpr int kRowVectors = 2;      // of a tile of kI8Pairs
inline constexpr int kChainedVectors = 3;  // at most, of what is computed together of a tile of kI8Chained

template <int64_t Form>
inline constexpr int64_t kTileHeight = i8_tile_rows(Form, kLanes);
template <int64_t Form>
inline constexpr int64_t kGroupColumns = i8_tile_columns(Form, kLanes);

// acc[columns][rows of a tile], of which V vectors of rows are computed.
template <int64_t Form, int V, int N>
INGOT_INLINE void load_tile(VI (&c)[V][N], const int32_t* acc, bool first) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < V; r++) c[r][j] =
      first ? VI(0) : load(acc + j * kTileHeight<Form> + r * kLanes);
}
template <int64_t Form, int V, int N>
INGOT_INLINE void store_tile(const VI (&c)[V][N], int32_t* acc) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < V; r++)
      store(acc + j * kTileHeight<Form> + r * kLanes, c[r][j]);
}

// Adds the products of a vector of rows and a chain of words of 2 columns: in 16 bits first. V is how many vectors of
// rows there are, the accumulators of all being in registers.
#if defined(INGOT_CHAIN_IN_ASSEMBLY)
template <int V, int Words>
INGOT_INLINE void add_chain(VI (&c)[2], const uint8_t* const (&a)[Words], const Bytes (&w)[Words][2], const Ones& one) {
  add_chain_in_assembly<V>(c, a, w, one);
}
#else
struct Ones {
  Shorts value = Shorts(int16_t(1));
};
template <int V, int Words>
INGOT_INLINE void add_chain(VI (&c)[2], const uint8_t* const (&a)[Words], const Bytes (&w)[Words][2], const Ones& one) {
  Shorts sum[2] = {Shorts(int16_t(0)), Shorts(int16_t(0))};
  INGOT_UNROLL for (int i = 0; i < Words; i++) INGOT_UNROLL for (int j = 0; j < 2; j++) sum[j] +=
      multiply_bytes(load_as<Bytes>(a[i]), w[i][j]);
  INGOT_UNROLL for (int j = 0; j < 2; j++) c[j] += multiply_shorts(sum[j], one.value);
}
#endif

// The same for all vectors of rows.
template <int Words, int V, int N>
INGOT_INLINE void add_chains(VI (&c)[V][N], const uint8_t* a, const uint16_t* at, const int8_t* w, const Ones& one) {
  Bytes weight[Words][N];
  INGOT_UNROLL for (int i = 0; i < Words; i++) INGOT_UNROLL for (int j = 0; j < N; j++) weight[i][j] =
      __builtin_bit_cast(Bytes, broadcast(w + (i * N + j) * 4));
  INGOT_UNROLL for (int r = 0; r < V; r++) {
    const uint8_t* words[Words];
    INGOT_UNROLL for (int i = 0; i < Words; i++) words[i] = a + at[i] * i8_twelfth(kLanes) + r * sizeof(Bytes);
    add_chain<V>(c[r], words, weight, one);
  }
}

template <int V>
INGOT_INLINE void chained_tile(const uint8_t* a, const uint16_t* at, const int8_t* w, const I8Program& program,
                               int32_t* acc, bool first) {
  constexpr int kColumns = kGroupColumns<kI8Chained>;
  const Ones one;
  VI c[V][kColumns];
  load_tile<kI8Chained>(c, acc, first);
#pragma clang loop unroll(disable)
  for (int64_t i = program.triples; i > 0; i--, at += 3, w += 3 * kColumns * 4) add_chains<3>(c, a, at, w, one);
#pragma clang loop unroll(disable)
  for (int64_t i = program.pairs; i > 0; i--, at += 2, w += 2 * kColumns * 4) add_chains<2>(c, a, at, w, one);
  store_tile<kI8Chained>(c, acc);
}

INGOT_INLINE void pairs_tile(const uint8_t* a, const int16_t* w, int64_t words, int32_t* acc, bool first) {
  constexpr int kColumns = kGroupColumns<kI8Pairs>;
  VI c[kRowVectors][kColumns];
  load_tile<kI8Pairs>(c, acc, first);
#pragma clang loop unroll(disable)
  for (; words > 0; words--, a += 4 * kTileHeight<kI8Pairs>, w += 8) {
    Shorts x[kRowVectors];
    INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) x[r] = load_as<Shorts>(a + r * sizeof(Shorts));
    INGOT_UNROLL for (int j = 0; j < kColumns; j++) {
      Shorts weight = __builtin_bit_cast(Shorts, broadcast(w + 2 * j));
      INGOT_UNROLL for (int r = 0; r < kRowVectors; r++) c[r][j] += multiply_shorts(x[r], weight);
    }
  }
  store_tile<kI8Pairs>(c, acc);
}

// The same for a single row: the columns lie in the lanes. A word of A is there twice, for the 2 columns of a program,
// of which as many words as a vector holds are taken together.
INGOT_INLINE void chained_row(const uint8_t* a, const uint16_t* at, const int8_t* w, const I8Program& program,
                              int32_t* acc, bool first) {
  using Doubles = int64_t __attribute__((ext_vector_type(kLanes / 2)));
  constexpr int kWords = kLanes / 2;
  const Shorts one = Shorts(int16_t(1));
  int64_t words = 3 * program.triples + 2 * program.pairs;
  VI c[2] = {VI(0), VI(0)};
  auto step = [&](VI& sum) INGOT_INLINED {
    Doubles x = Doubles(0);
    INGOT_UNROLL for (int i = 0; i < kWords; i++) x[i] = load_as<int64_t>(a + at[i]);
    sum += multiply_shorts(multiply_bytes(__builtin_bit_cast(Bytes, x), load_as<Bytes>(w)), one);
    at += kWords;
    w += kWords * 8;
  };
#pragma clang loop unroll(disable)
  for (; words >= 2 * kWords; words -= 2 * kWords) {
    step(c[0]);
    step(c[1]);
  }
  if (words >= kWords) {
    step(c[0]);
    words -= kWords;
  }
  c[0] += c[1];
  int32_t sum[2] = {first ? 0 : acc[0], first ? 0 : acc[1]};
  INGOT_UNROLL for (int i = 0; i < kLanes; i++) sum[i % 2] += c[0][i];
#pragma clang loop unroll(disable)
  for (; words > 0; words--, at++, w += 8)
    INGOT_UNROLL for (int j = 0; j < 2; j++) INGOT_UNROLL for (int i = 0; i < 4; i++) sum[j] +=
        int32_t(a[at[0] + i]) * w[4 * j + i];
  acc[0] = sum[0];
  acc[1] = sum[1];
}

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

INGOT_INLINE void rows_row(const uint8_t* a, const int8_t* w, int64_t words, int32_t* acc) {
  constexpr int kVectors = kGroupColumns<kI8Rows> / kLanes, kChains = 4;
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
template <size_t... J>
INGOT_INLINE Bytes swap_middle_bytes(Bytes b, std::index_sequence<J...>) {
  return __builtin_shufflevector(b, b, int(J / 4 * 4 + J % 2 * 2 + J % 4 / 2)...);
}
INGOT_INLINE VI other_order(VI words) {
  const Bytes b = __builtin_bit_cast(Bytes, words);
  return __builtin_bit_cast(VI, swap_middle_bytes(b, std::make_index_sequence<sizeof(Bytes)>()));
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

// The rows of one tile, as pointers to their first bytes; rows past the end repeat the last.
template <int64_t Form>
struct I8Rows {
  const uint8_t* at[kTileHeight<Form>];
};
template <int64_t Form>
INGOT_INLINE I8Rows<Form> rows_of(const GemmI8Params& p, const uint8_t* a, int64_t row) {
  int64_t index[4], rest = row;
  INGOT_UNROLL for (int d = 3; d > 0; d--) {
    index[d] = rest % p.row_dims[d];
    rest /= p.row_dims[d];
  }
  index[0] = rest;
  INGOT_UNROLL for (int d = 0; d < 4; d++) a += index[d] * p.row_stride[d];
  I8Rows<Form> out;
  for (int64_t i = 0; i < kTileHeight<Form>; i++) {
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

// `row_count` rows of a tile to dst[word][order][rows of a tile][4 bytes]; sums gets the sums of the rows.
template <int64_t Form>
INGOT_INLINE void pack_tile(const GemmI8Params& p, const I8Rows<Form>& rows, int64_t row_count, uint8_t* dst,
                            int32_t* sums, bool want_sums) {
  constexpr int64_t kOrder = kTileHeight<Form> * 4, kStride = kOrder * i8_word_stride(Form);
  constexpr int64_t kWordBytes = i8_word_bytes(Form);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(Form, p.run_bytes);
  for (int64_t r0 = 0; r0 < row_count; r0 += kLanes) {
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
              store(reinterpret_cast<int32_t*>(to + i * kStride + kOrder), other_order(v[i]));
          }
        } else {
          INGOT_UNROLL for (int i = 0; i < kLanes; i++) {
            if (i >= count) continue;
            store(reinterpret_cast<int32_t*>(to + i * kStride), v[i]);
            if constexpr (Form == kI8Chained)
              store(reinterpret_cast<int32_t*>(to + i * kStride + kOrder), other_order(v[i]));
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

// One row to dst[word][4 bytes], [word][order][12 bytes], or for kI8Rows the even bytes and the odd ones.
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
        const int32_t word[kI8Orders] = {v[i], w[i]};
        if constexpr (Form == kI8Chained) INGOT_UNROLL for (const int32_t x : word) {
            __builtin_memcpy(dst, &x, 4);
            __builtin_memcpy(dst + 4, &x, 4);
            dst += kI8Twelfths;
          }
        else if constexpr (Form == kI8Rows) {
          const uint32_t halves[2] = {uint32_t(word[0]) & 0x00ff00ffu, uint32_t(word[0]) & 0xff00ff00u};
          __builtin_memcpy(dst, halves, 8), dst += 8;
        } else
          __builtin_memcpy(dst, word, 4), dst += 4;
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
  constexpr int64_t kColumns = kGroupColumns<kI8Pairs>;
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
  uint8_t *packed_a, *single_rows;
  int32_t* row_sums;
  int32_t* acc;
  // Of the batch entry and the chunk at hand:
  const uint8_t *a, *b;
  int64_t entry, first_tile, tiles;      // the group of rows,
  int64_t first_row;                     // which begins here
  int64_t chunk, first_column, columns;  // the chunk
  const int32_t* colsum;
};

template <int64_t Form>
INGOT_INLINE bool needs_row_sums(const GemmI8Params& p) {
  return p.b_zero != kNoZero || (i8_of_bytes(Form) && !p.b_signed);
}
// Calls run(tile of the group, first row, rows) for each tile of the group, and single(i, row) for the rows after the
// last tile, which are multiplied one by one.
template <class Run, class Single>
INGOT_INLINE void each_tile(const I8Call& x, Run run, Single single) {
  const int64_t end = x.first_tile + x.tiles;
  for (int64_t tile = x.first_tile; tile < end; tile++) {
    const int64_t first = i8_tile_start(x.p, tile), rows = i8_tile_start(x.p, tile + 1) - first;
    if (rows) run(tile - x.first_tile, first, rows);
  }
  if (end == i8_tiles(x.p))
    for (int64_t i = 0, count = i8_single_rows(x.p); i < count; i++) single(i, x.p.m - count + i);
}
template <int64_t Form>
INGOT_INLINE uint8_t* tile_at(const I8Call& x, int64_t tile) {
  return x.packed_a + tile * kTileHeight<Form> * i8_words(x.p) * 4 * i8_word_stride(Form);
}
template <int64_t Form>
INGOT_INLINE uint8_t* single_row_at(const I8Call& x, int64_t i) {
  return x.single_rows + i * i8_words(x.p) * i8_row_word(Form);
}
INGOT_INLINE int32_t* row_sum_of(const I8Call& x, int64_t row) { return x.row_sums + (row - x.first_row); }

template <int64_t Form>
INGOT_INLINE void pack_group(I8Call& x) {
  each_tile(
      x,
      [&](int64_t tile, int64_t first, int64_t rows) INGOT_INLINED {
        pack_tile<Form>(x.p, rows_of<Form>(x.p, x.a, first), rows, tile_at<Form>(x, tile), row_sum_of(x, first),
                        needs_row_sums<Form>(x.p));
      },
      [&](int64_t i, int64_t row) INGOT_INLINED {
        pack_row<Form>(x.p, rows_of<Form>(x.p, x.a, row).at[0], single_row_at<Form>(x, i), row_sum_of(x, row));
      });
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
  constexpr int64_t kGroups = kI8ChunkColumns / kGroupColumns<Form>;
  const auto* weights = reinterpret_cast<const int8_t*>(x.b + h.weights);
  if constexpr (Form != kI8Chained) return {nullptr, nullptr, weights + x.chunk * kI8ChunkColumns * i8_words(x.p) * 4};
  return {reinterpret_cast<const I8Program*>(x.b + h.programs) + x.chunk * kGroups * blocks,
          reinterpret_cast<const uint16_t*>(x.b + h.offsets), weights};
}

template <int V = kChainedVectors>
INGOT_INLINE void chained_vectors(int64_t vectors, const uint8_t* a, const uint16_t* at, const int8_t* w,
                                  const I8Program& program, int32_t* acc, bool first) {
  if (vectors == V) return chained_tile<V>(a, at, w, program, acc, first);
  if constexpr (V > 1) chained_vectors<V - 1>(vectors, a, at, w, program, acc, first);
}

// The sums of products of `rows` rows of a tile, or of one row (0), packed at `a`, with the chunk's columns.
template <int64_t Form>
INGOT_INLINE void accumulate(const I8Call& x, const I8Chunk& chunk, const uint8_t* a, int64_t rows) {
  // A single row is short; only programs are cut into blocks for it, too.
  const int64_t words = i8_words(x.p), blocks = rows || Form == kI8Chained ? i8_blocks(Form, words) : 1;
  constexpr int64_t kColumns = kGroupColumns<Form>, kTile = kTileHeight<Form>;
  const int64_t word_bytes = rows ? 4 * i8_word_stride(Form) * kTile : i8_row_word(Form);
  const int64_t column = rows ? kTile : 1;  // accumulators of a column
  const int64_t groups = div_up(x.columns, kColumns);
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t start = i8_block_start(words, blocks, block), end = i8_block_start(words, blocks, block + 1);
    const uint8_t* a_block = a + start * word_bytes;
    for (int64_t g = 0; g < groups; g++) {
      if constexpr (Form == kI8Chained) {
        const I8Program& program = chunk.programs[block * groups + g];
        int32_t* acc = x.acc + program.group * kColumns * column;
        const uint16_t* offsets = chunk.offsets + program.first_word;
        const int8_t* weights = chunk.weights + int64_t(program.first_word) * kColumns * 4;
        constexpr int64_t kPass = kChainedVectors * kLanes;
        if (!rows) chained_row(a_block, offsets, weights, program, acc, block == 0);
        for (int64_t r = 0; r < rows; r += kPass)
          chained_vectors(min_of(kPass, rows - r) / kLanes, a_block + r * 4, offsets, weights, program, acc + r,
                          block == 0);
      } else {
        int32_t* acc = x.acc + g * kColumns * column;
        const int8_t* weights = chunk.weights + (g * words + start) * kColumns * 4;
        const auto* shorts = reinterpret_cast<const int16_t*>(weights);
        if (!rows) Form == kI8Rows ? rows_row(a, weights, words, acc) : pairs_row(a, shorts, words, acc);
        for (int64_t r = 0; Form != kI8Rows && r < rows; r += kRowVectors * kLanes)
          pairs_tile(a_block + r * 4, shorts, end - start, acc + r, block == 0);
      }
    }
  }
}

// Takes the zero points out of sums of `lanes` columns of a row, from `column` (of the chunk) on, and hands them to the
// epilogue.
template <int64_t Form>
INGOT_INLINE void finish_row(const I8Call& x, VI sum, int64_t row, int64_t column, int64_t lanes) {
  const GemmI8Params& p = x.p;
  constexpr bool bytes = i8_of_bytes(Form);
  const int64_t out_row = x.entry * p.entry_row + row;
  const int64_t out_column = x.entry * p.entry_col + x.first_column + column;
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
    sum -= b_zero * (*row_sum_of(x, row) - depth * a_zero);
  }
  ingot_hook_store(sum, x.out, out_row * p.c_row + out_column, x.call->operand + 5, p.extra, out_row, out_column, lanes,
                   x.call->program);
}

// The sums of a tile's rows, a strip of columns at a time: from columns of rows to rows of columns, then to the
// epilogue, in a loop that keeps the epilogue's constants in registers.
template <int64_t Form>
INGOT_INLINE void finish_tile(const I8Call& x, int64_t row, int64_t in_tile) {
  constexpr int64_t kStrip = 32, kTile = kTileHeight<Form>;
  alignas(64) int32_t strip[kTile][kStrip];  // aligns what is spilled, too
  const int64_t rows = min_of(in_tile, x.p.m - row);
  for (int64_t first = 0; first < x.columns; first += kStrip) {
    const int64_t columns = min_of(kStrip, x.columns - first);
    for (int64_t c = 0; c < columns; c += kLanes)
      for (int64_t r = 0; r < in_tile; r += kLanes) {
        VI v[kLanes];
        INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] = load(x.acc + (first + c + i) * kTile + r);
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
  each_tile(
      x,
      [&](int64_t tile, int64_t first, int64_t rows) INGOT_INLINED {
        accumulate<Form>(x, chunk, tile_at<Form>(x, tile), rows);
        finish_tile<Form>(x, first, rows);
      },
      [&](int64_t i, int64_t row) INGOT_INLINED {
        accumulate<Form>(x, chunk, single_row_at<Form>(x, i), 0);
        for (int64_t c = 0; c < x.columns; c += kLanes)
          finish_row<Form>(x, load(x.acc + c), row, c, min_of(kLanes, x.columns - c));
      });
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
           scratch + at.single_rows,
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
           0,
           nullptr};
  const int64_t chunks = i8_chunks(p.n), blocks = i8_blocks(Form, i8_words(p));
  int64_t packed_group = call->done > 0 ? (call->done - 1) / chunks : -1;  // in scratch
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t group = unit / chunks, g = group % p.row_groups;
    x.chunk = unit % chunks;
    x.first_column = x.chunk * kI8ChunkColumns;
    x.columns = min_of(kI8ChunkColumns, p.n - x.first_column);
    x.entry = group / p.row_groups;
    x.first_tile = i8_group_start(p, g);
    x.tiles = i8_group_start(p, g + 1) - x.first_tile;
    x.first_row = i8_tile_start(p, x.first_tile);
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
      auto* words = reinterpret_cast<int16_t*>(colsum + kI8ChunkColumns);
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
ingot::KernelStatus ingot_gemm_i8_rows(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::kI8Rows>(call);
}
}
