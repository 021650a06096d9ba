// What the forms chained, pairs and rows share (kernels/gemm_i8.h): rows of A are packed into words, and finished sums
// go to the epilogue. gemm_i8_chained.cpp, gemm_i8_pairs.cpp and gemm_i8_rows.cpp have what differs.
//
// A row of A and a column of B are cut along K into words, each run by itself. Three runs of 10 bytes, in words of 4:
//
//   run 0              run 1              run 2
//   0123 4567 89..     0123 4567 89..     0123 4567 89..
//   word 0    1    2        3    4    5        6    7    8
//
// What is read of A past the end of a run meets weights of 0.
//
// The rows of A are cut into steps and tiles; few rows at the end stay single. M = 58, chained, vectors of 8 lanes:
//
//   row   0        8       16       24       32       40       48       56  57
//         |  step  |  step  |  step  |  step  |  step  |  step  |  step  |
//         |      tile 0     |      tile 1     |          tile 2          | two single rows
//
// A packed tile is [word][order][row of the tile][4 bytes]. Chained, which has two orders and room for 24 rows:
//
//   word 0, order 0                      word 0, order 1                      word 1, order 0
//   row 0     row 1     ...  row 23    | row 0     row 1     ...  row 23    | row 0
//   0 1 2 3   0 1 2 3        0 1 2 3   | 0 2 1 3   0 2 1 3        0 2 1 3   | 4 5 6 7  ...
//
// One load takes a word of as many rows as there are lanes; the word of B that it meets is broadcast. Pairs have one
// order, room for 16 rows (32 with 16 lanes), and two numbers of 16 bits in a word:
//
//   word 0                               word 1
//   row 0     row 1     ...  row 15    | row 0     row 1     ...
//   0   1     0   1          0   1     | 2   3     2   3
//
// A single row meets columns in the lanes, so its words lie one after the other (-- is a byte nobody reads):
//
//   chained   [word][order][12 bytes]   0 1 2 3 0 1 2 3 -- -- -- --  |  0 2 1 3 0 2 1 3 -- -- -- --  |  4 5 6 7 ...
//                                       once for each of 2 columns
//   pairs     [word][4 bytes]           0   1  |  2   3  |  ...
//   rows      [word][8 bytes]           0 . 2 . . 1 . 3  |  4 . 6 . . 5 . 7  |  ...      a dot is a byte of 0
//
// Words:
//   run      numbers of a row of A that lie next to each other in memory: the whole row of a matrix; of a convolution
//            the channels of one tap, or of a row of taps.
//   word     4 bytes of a packed row of A, or of a packed column of B: 4 neighbours along K, or 2 of 16 bits (pairs).
//   step     8 rows, or a vector of them if that is more; of pairs 16, or 2 vectors. Tiles are whole steps.
//   tile     rows whose sums are computed together: up to 3 steps (chained), or 1 (pairs).
//   block    neighbouring words, 64 to 127 of them (chained) or 128 to 255 (pairs): a tile's part of it stays in L1
//            while all columns of a chunk pass. Sums rest in memory (acc) between blocks.
//   chunk    128 columns of B, whose weights stay in L2 while the tiles pass. One chunk and one group of tiles
//            are a unit of work.
//   group    columns whose sums are computed together: 2 (chained), 4 (pairs), 8 or 16 (rows). A group of rows
//            is the tiles of a unit.
//   order    of the 4 bytes of a word, chained only: 0123 or 0213. It decides which two products share a 16-bit lane:
//            0 with 1 and 2 with 3, or 0 with 2 and 1 with 3.
//   chain    2 or 3 words, with an order for each, whose products for 2 columns are added in 16 bits before they are
//            widened. They need not be neighbours.
//   program  all chains of one block for one group of 2 columns: how often three words, how often two, then for each
//            word where it lies in A and its weights.
//   twelfth  the unit of "where it lies". In a tile a word in one order takes tile rows x 4 bytes, 96 or 192, of
//            which a twelfth is 8 or 16; in a single row it takes 12 bytes, of which a twelfth is 1. So
//              offset = 12 * (orders * word + order),   address = block + offset * (8, 16 or 1)
//            is right for both; the 8 is part of an x86 address.
#pragma once
#include "kernels/gemm_i8.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {

// A form F of the three is a struct:
//   kForm                                its I8Form
//   kHasTiles                            false: rows are single rows only, and the functions of tiles are not there
//   put_words(to, VI words)              stores a word of each of kLanes rows in a tile, in all orders
//   put_word(to, int32_t, int32_t)       stores a word of a single row, given in both orders
//   chunk_of(call)                       the weights of the chunk at hand; sets call.colsum
//   add_tile(call, chunk, a, rows)       call.acc[column][row] = sums of products of a packed tile
//   add_row(call, chunk, a)              call.acc[column] = those of a packed single row

INGOT_INLINE VI broadcast(const void* p) { return VI(word_at(p)); }  // a word in all lanes

template <class Form>
inline constexpr int64_t kTileHeight = i8_tile_rows(Form::kForm, kLanes);

// Sums of N columns of a tile between blocks, acc[column][row of the tile]: V vectors of rows of them. In the first
// block they begin with 0.
template <int64_t Height, int V, int N>
INGOT_INLINE void load_tile(VI (&c)[V][N], const int32_t* acc, bool first) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < V; r++) c[r][j] =
      first ? VI(0) : load(acc + j * Height + r * kLanes);
}
template <int64_t Height, int V, int N>
INGOT_INLINE void store_tile(const VI (&c)[V][N], int32_t* acc) {
  INGOT_UNROLL for (int j = 0; j < N; j++) INGOT_UNROLL for (int r = 0; r < V; r++)
      store(acc + j * Height + r * kLanes, c[r][j]);
}

// --- packing A ---

// The next kLanes words of a run that has `bytes` left at p. Bytes are u8, i8 plus 128. slack: what follows the run may
// be read as well.
template <class Form>
INGOT_INLINE VI words_of(const uint8_t* p, int64_t bytes, bool is_signed, bool slack) {
  constexpr int64_t kTake = i8_word_bytes(Form::kForm) * kLanes;
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
  if constexpr (i8_of_bytes(Form::kForm)) {
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
template <class Form>
INGOT_INLINE VI word_sums(VI words) {
  Shorts one = Shorts(int16_t(1));
  if constexpr (i8_of_bytes(Form::kForm)) {
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
template <class Form>
struct I8Rows {
  const uint8_t* at[kTileHeight<Form>];
};
template <class Form>
INGOT_INLINE I8Rows<Form> rows_of(const GemmI8Params& p, const uint8_t* a, int64_t row) {
  I8Rows<Form> out;
  const int64_t count = min_of(kTileHeight<Form>, p.m - row);
  find_rows(p, a, row, count, out.at);
  for (int64_t i = count; i < kTileHeight<Form>; i++) out.at[i] = out.at[count - 1];
  return out;
}

// The first `row_count` rows of a tile to dst; sums[row] gets the sum of the row's numbers.
template <class Form>
INGOT_INLINE void pack_tile(const GemmI8Params& p, const I8Rows<Form>& rows, int64_t row_count, uint8_t* dst,
                            int32_t* sums, bool want_sums) {
  constexpr int64_t kStride = kTileHeight<Form> * 4 * i8_word_stride(Form::kForm);
  constexpr int64_t kWordBytes = i8_word_bytes(Form::kForm);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(Form::kForm, p.run_bytes);
  for (int64_t r0 = 0; r0 < row_count; r0 += kLanes) {
    VI sum = VI(0);
    uint8_t* to = dst + r0 * 4;
    each_run(p, [&](int64_t offset) INGOT_INLINED {
      for (int64_t word = 0; word < run_words; word += kLanes) {
        const int64_t first = word * kWordBytes, left = p.run_bytes - first;
        VI v[kLanes];
        INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] =
            words_of<Form>(rows.at[r0 + i] + offset + first, left, p.a_signed, p.a_slack);
        transpose_words(v);
        const int64_t count = min_of(kLanes, run_words - word);
        if (count == kLanes) {
          INGOT_UNROLL for (int i = 0; i < kLanes; i++) Form::put_words(to + i * kStride, v[i]);
        } else {
          INGOT_UNROLL for (int i = 0; i < kLanes; i++) {
            if (i >= count) continue;
            Form::put_words(to + i * kStride, v[i]);
          }
        }
        if (want_sums) INGOT_UNROLL for (int i = 0; i < kLanes; i++) sum += i < count ? word_sums<Form>(v[i]) : VI(0);
        to += count * kStride;
      }
    });
    // Bytes past the end of a run were read as 0, which stands for -128 where signs were flipped.
    if (i8_of_bytes(Form::kForm) && p.a_signed) sum -= int32_t(runs * (run_words * kWordBytes - p.run_bytes) * 128);
    if (want_sums) store(sums + r0, sum);
  }
}

// A single row to dst, and the sum of its numbers.
template <class Form>
INGOT_INLINE void pack_row(const GemmI8Params& p, const uint8_t* row, uint8_t* dst, int32_t* sum) {
  constexpr int64_t kWordBytes = i8_word_bytes(Form::kForm);
  const int64_t runs = p.runs[0] * p.runs[1] * p.runs[2], run_words = i8_run_words(Form::kForm, p.run_bytes);
  VI total = VI(0);
  each_run(p, [&](int64_t offset) INGOT_INLINED {
    const uint8_t* from = row + offset;
    for (int64_t word = 0; word < run_words; word += kLanes) {
      VI v = words_of<Form>(from + word * kWordBytes, p.run_bytes - word * kWordBytes, p.a_signed, false),
         w = other_order(v);
      const int64_t count = min_of(kLanes, run_words - word);
      for (int64_t i = 0; i < kLanes; i++) {
        if (i >= count) continue;
        Form::put_word(dst, v[i], w[i]);
        dst += i8_row_word(Form::kForm);
        total[0] += word_sums<Form>(v)[i];
      }
    }
  });
  if (i8_of_bytes(Form::kForm) && p.a_signed) total[0] -= int32_t(runs * (run_words * kWordBytes - p.run_bytes) * 128);
  *sum = total[0];
}

// --- the parts of a call ---

// What a call works on, and the unit at hand.
struct I8Call {
  const GemmI8Params& p;
  const KernelCall* call;
  int32_t a_zero, b_zero;  // the one zero point of all rows, or columns; else 0
  uint8_t *packed_a, *single_rows;
  int32_t* row_sums;
  int32_t* acc;
  uint8_t* own_b;  // room for a chunk of B that was not packed ahead
  // The batch entry at hand:
  int64_t entry;
  const uint8_t *a, *b;
  // Its group of rows:
  int64_t first_tile, tiles, first_row;
  // The chunk of columns:
  int64_t chunk, first_column, columns;
  const int32_t* colsum;  // sum of the weights of each column
};

template <class Form>
INGOT_INLINE bool needs_row_sums(const GemmI8Params& p) {
  return p.b_zero != kNoZero || (i8_of_bytes(Form::kForm) && !p.b_signed);
}
// Calls run(tile of the group, first row, rows) for each tile of the group of rows at hand.
template <class Run>
INGOT_INLINE void each_tile(const I8Call& x, Run run) {
  for (int64_t tile = x.first_tile; tile < x.first_tile + x.tiles; tile++) {
    const int64_t first = i8_tile_start(x.p, tile), rows = i8_tile_start(x.p, tile + 1) - first;
    if (rows) run(tile - x.first_tile, first, rows);
  }
}
// Calls run(i, row) for each single row, which are part of the last group.
template <class Run>
INGOT_INLINE void each_single_row(const I8Call& x, Run run) {
  if (x.first_tile + x.tiles != i8_tiles(x.p)) return;
  for (int64_t i = 0, count = i8_single_rows(x.p); i < count; i++) run(i, x.p.m - count + i);
}
template <class Form>
INGOT_INLINE uint8_t* tile_at(const I8Call& x, int64_t tile) {
  return x.packed_a + tile * kTileHeight<Form> * i8_words(x.p) * 4 * i8_word_stride(Form::kForm);
}
template <class Form>
INGOT_INLINE uint8_t* single_row_at(const I8Call& x, int64_t i) {
  return x.single_rows + i * i8_words(x.p) * i8_row_word(Form::kForm);
}
INGOT_INLINE int32_t* row_sum_of(const I8Call& x, int64_t row) { return x.row_sums + (row - x.first_row); }

// A section of a packed B; `offset` of its header says where it begins.
template <class T>
INGOT_INLINE const T* section_of(const I8Call& x, int64_t I8Header::* offset) {
  return reinterpret_cast<const T*>(x.b + load_as<I8Header>(x.b).*offset);
}

template <class Form>
INGOT_INLINE void pack_group(I8Call& x) {
  if constexpr (Form::kHasTiles)
    each_tile(x, [&](int64_t tile, int64_t first, int64_t rows) INGOT_INLINED {
      pack_tile<Form>(x.p, rows_of<Form>(x.p, x.a, first), rows, tile_at<Form>(x, tile), row_sum_of(x, first),
                      needs_row_sums<Form>(x.p));
    });
  each_single_row(x, [&](int64_t i, int64_t row) INGOT_INLINED {
    pack_row<Form>(x.p, rows_of<Form>(x.p, x.a, row).at[0], single_row_at<Form>(x, i), row_sum_of(x, row));
  });
}

// The sums of `lanes` columns of a row, from `column` (of the chunk) on, without the zero points and the 128 by which
// bytes were shifted.
template <class Form>
INGOT_INLINE VI without_zeros(const I8Call& x, VI sum, int64_t row, int64_t column, int64_t lanes) {
  const GemmI8Params& p = x.p;
  constexpr bool bytes = i8_of_bytes(Form::kForm);
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
  return sum;
}

// Hands `columns` sums of a row, from `column` (of the chunk) on, to the epilogue: NV vectors at a time while there are
// so many.
template <class Form, int NV>
INGOT_INLINE void finish_row(const I8Call& x, const SumsTarget& target, const int32_t* sums, int64_t row,
                             int64_t column, int64_t columns) {
  const int64_t out_row = x.entry * x.p.entry_row + row;
  const int64_t out_column = x.entry * x.p.entry_col + x.first_column + column, at = out_row * x.p.c_row + out_column;
  int64_t c = 0;
#pragma clang loop unroll(disable)
  for (; c + NV * kLanes <= columns; c += NV * kLanes) {
    VI whole[NV];
    INGOT_UNROLL for (int j = 0; j < NV; j++) whole[j] =
        without_zeros<Form>(x, load(sums + c + j * kLanes), row, column + c + j * kLanes, kLanes);
    store_sums(target, whole, at + c, out_row, out_column + c);
  }
#pragma clang loop unroll(disable)
  for (; c < columns; c += kLanes) {
    const int64_t lanes = min_of(kLanes, columns - c);
    store_sums(target, without_zeros<Form>(x, load(sums + c), row, column + c, lanes), at + c, out_row, out_column + c,
               lanes);
  }
}

// Finishes the sums of a tile, 32 columns at a time: acc[column][row] is transposed to strip[row][column], whose rows
// go to the epilogue, in a loop that keeps the epilogue's constants in registers.
template <class Form>
INGOT_INLINE void finish_tile(const I8Call& x, int64_t row, int64_t in_tile) {
  constexpr int64_t kStrip = 32, kTile = kTileHeight<Form>;
  constexpr int kVectors = int(min_of(4, kStrip / kLanes));
  const SumsTarget target = sums_target(x.call, x.p);
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
    for (int64_t r = 0; r < rows; r++) finish_row<Form, kVectors>(x, target, strip[r], row + r, first, columns);
  }
}

// The product of the group of rows and the chunk at hand.
template <class Form>
INGOT_INLINE void chunk_product(I8Call& x) {
  const auto chunk = Form::chunk_of(x);
  if constexpr (Form::kHasTiles)
    each_tile(x, [&](int64_t tile, int64_t first, int64_t rows) INGOT_INLINED {
      Form::add_tile(x, chunk, tile_at<Form>(x, tile), rows);
      finish_tile<Form>(x, first, rows);
    });
  each_single_row(x, [&](int64_t i, int64_t row) INGOT_INLINED {
    Form::add_row(x, chunk, single_row_at<Form>(x, i));
    finish_row<Form, 4>(x, sums_target(x.call, x.p), x.acc, row, 0, x.columns);
  });
}

template <class Form>
INGOT_INLINE KernelStatus gemm_i8(const KernelCall* call) {
  const GemmI8Params& p = *reinterpret_cast<const GemmI8Params*>(call->param);
  const I8Scratch at = i8_scratch(p);
  auto* scratch = static_cast<uint8_t*>(call->scratch);
  I8Call x{.p = p,
           .call = call,
           .a_zero = zero_at(call->operand[3], p.a_zero == kOneZero ? kOneZero : kNoZero, 0, p.a_signed),
           .b_zero = zero_at(call->operand[4], p.b_zero == kOneZero ? kOneZero : kNoZero, 0, p.b_signed),
           .packed_a = scratch + at.a,
           .single_rows = scratch + at.single_rows,
           .row_sums = reinterpret_cast<int32_t*>(scratch + at.row_sums),
           .acc = reinterpret_cast<int32_t*>(scratch + at.acc),
           .own_b = scratch + at.b};
  const int64_t chunks = i8_chunks(p.n);
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
    chunk_product<Form>(x);
  }
  return kOk;
}

}  // namespace ingot::kernel
