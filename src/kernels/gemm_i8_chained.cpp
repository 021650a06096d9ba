// kI8Chained: pmaddubsw multiplies u8 by i8 and adds neighbours in 16 bits; chains of words are safe from saturation
// there (planner/pack_i8_chained.cpp makes them, kernels/gemm_i8_words.h has the glossary).
//
// One chain of three words and 2 columns, for a vector of rows:
//
//   rows of A (loaded)           weights (broadcast)     16-bit lanes          32-bit lanes
//   word x  in its order    *    x of column 0      ->   +
//   word y  in its order    *    y of column 0      ->   +
//   word z  in its order    *    z of column 0      ->   = two sums      ->    their sum is added to c[row][column 0]
//
// and the same for column 1. A program is a loop over its chains of three, then one over its chains of two.
#include "kernels/gemm_i8_words.h"

namespace ingot::kernel {

inline constexpr int64_t kChainTile = i8_tile_rows(kI8Chained, kLanes);
inline constexpr int kChainColumns = i8_tile_columns(kI8Chained, kLanes);
inline constexpr int kChainedVectors = 3;  // of rows, at most: their sums of 2 columns stay in registers

// c[column] += the products of a vector of rows with a chain of words of 2 columns, added in 16 bits first. V: how many
// vectors of rows the tile has, whose sums all take registers.
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

// The same for V vectors of rows. at: where the words of the chain lie in `a`, in twelfths.
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

// Runs a program for V vectors of rows.
template <int V>
INGOT_INLINE void chained_tile(const uint8_t* a, const uint16_t* at, const int8_t* w, const I8Program& program,
                               int32_t* acc, bool first) {
  const Ones one;
  VI c[V][kChainColumns];
  load_tile<kChainTile>(c, acc, first);
#pragma clang loop unroll(disable)
  for (int64_t i = program.triples; i > 0; i--, at += 3, w += 3 * kChainColumns * 4) add_chains<3>(c, a, at, w, one);
#pragma clang loop unroll(disable)
  for (int64_t i = program.pairs; i > 0; i--, at += 2, w += 2 * kChainColumns * 4) add_chains<2>(c, a, at, w, one);
  store_tile<kChainTile>(c, acc);
}

// The same for a number of vectors that is not a constant.
template <int V = kChainedVectors>
INGOT_INLINE void chained_vectors(int64_t vectors, const uint8_t* a, const uint16_t* at, const int8_t* w,
                                  const I8Program& program, int32_t* acc, bool first) {
  if (vectors == V) return chained_tile<V>(a, at, w, program, acc, first);
  if constexpr (V > 1) chained_vectors<V - 1>(vectors, a, at, w, program, acc, first);
}

// A program for a single row. Its words and their weights, each for 2 columns, fill a vector without regard to chains:
// each lane has one word, which is safe by itself.
//
//   lanes of 4 bytes   word 0   word 0   word 1   word 1   ...     8 bytes of A, loaded at once
//   weights            col 0    col 1    col 0    col 1    ...     as they lie in the program
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

// The chunk at hand of a packed B.
struct ProgramChunk {
  const I8Program* programs;  // [block][group of columns]
  const uint16_t* offsets;    // of all chunks: programs say where theirs begin
  const int8_t* weights;
};

// A program and what it works on.
struct BlockProgram {
  const I8Program& program;
  const uint8_t* a;  // the block's words of the packed rows
  const uint16_t* at;
  const int8_t* weights;
  bool first;  // block: sums begin with 0
};

// Calls run(BlockProgram) for each program of the chunk. a: packed rows, word_bytes for each word.
template <class Run>
INGOT_INLINE void each_program(const I8Call& x, const ProgramChunk& chunk, const uint8_t* a, int64_t word_bytes,
                               Run run) {
  const int64_t words = i8_words(x.p), blocks = i8_blocks(kI8Chained, words), groups = div_up(x.columns, kChainColumns);
  for (int64_t block = 0; block < blocks; block++) {
    const uint8_t* a_block = a + i8_block_start(words, blocks, block) * word_bytes;
    for (int64_t g = 0; g < groups; g++) {
      const I8Program& program = chunk.programs[block * groups + g];
      run({program, a_block, chunk.offsets + program.first_word,
           chunk.weights + int64_t(program.first_word) * kChainColumns * 4, block == 0});
    }
  }
}

struct ChainedForm {
  static constexpr I8Form kForm = kI8Chained;
  static constexpr bool kHasTiles = true;

  INGOT_INLINE void put_words(uint8_t* to, VI words) {
    auto* orders = reinterpret_cast<int32_t*>(to);
    store(orders, words);
    store(orders + kChainTile, other_order(words));
  }
  INGOT_INLINE void put_word(uint8_t* to, int32_t word, int32_t in_other_order) {
    const int32_t orders[kI8Orders] = {word, in_other_order};
    INGOT_UNROLL for (int i = 0; i < kI8Orders; i++) INGOT_UNROLL for (int column = 0; column < kChainColumns; column++)
        __builtin_memcpy(to + i * kI8Twelfths + column * 4, &orders[i], 4);
  }
  INGOT_INLINE ProgramChunk chunk_of(I8Call& x) {
    const int64_t programs = kI8ChunkColumns / kChainColumns * i8_blocks(kI8Chained, i8_words(x.p));
    x.colsum = section_of<int32_t>(x, &I8Header::colsum) + x.first_column;
    return {section_of<I8Program>(x, &I8Header::programs) + x.chunk * programs,
            section_of<uint16_t>(x, &I8Header::offsets), section_of<int8_t>(x, &I8Header::weights)};
  }
  INGOT_INLINE void add_tile(const I8Call& x, const ProgramChunk& chunk, const uint8_t* a, int64_t rows) {
    constexpr int64_t kPass = kChainedVectors * kLanes;
    each_program(x, chunk, a, kChainTile * 4 * kI8Orders, [&](const BlockProgram& b) INGOT_INLINED {
      int32_t* acc = x.acc + b.program.group * kChainColumns * kChainTile;
      for (int64_t r = 0; r < rows; r += kPass)
        chained_vectors(min_of(kPass, rows - r) / kLanes, b.a + r * 4, b.at, b.weights, b.program, acc + r, b.first);
    });
  }
  INGOT_INLINE void add_row(const I8Call& x, const ProgramChunk& chunk, const uint8_t* a) {
    each_program(x, chunk, a, i8_row_word(kI8Chained), [&](const BlockProgram& b) INGOT_INLINED {
      chained_row(b.a, b.at, b.weights, b.program, x.acc + b.program.group * kChainColumns, b.first);
    });
  }
};

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_i8_chained(const ingot::KernelCall* call) {
  return ingot::kernel::gemm_i8<ingot::kernel::ChainedForm>(call);
}
