#include "planner/pack_i8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

namespace ingot {
namespace {

using namespace kernel;

constexpr int64_t kColumns = 2;  // of a chain
static_assert(kColumns == i8_tile_columns(kI8Chained, 4) && kColumns == i8_tile_columns(kI8Chained, 16));
constexpr int kLimit = 128;  // of the positive, and of the negative, weights that meet in a 16-bit lane
constexpr int kOrder[kI8Orders][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};

// Weights as 8-bit numbers: u8 less 128.
int8_t as_weight(const I8Matrix& b, uint8_t byte) { return static_cast<int8_t>(b.is_signed ? byte : byte ^ 0x80); }
int8_t weight(const I8Matrix& b, int64_t k, int64_t column) { return as_weight(b, b.at(k, column)); }

int64_t words_of(const I8Matrix& b, I8Form form) { return b.runs * i8_run_words(form, b.run_bytes); }

// The number of K in `part` of a word, or nothing where the run has ended.
std::optional<int64_t> k_of(const I8Matrix& b, I8Form form, int64_t word, int64_t part) {
  const int64_t run_words = i8_run_words(form, b.run_bytes);
  const int64_t in_run = word % run_words * i8_word_bytes(form) + part;
  if (in_run >= b.run_bytes) return std::nullopt;
  return word / run_words * b.run_bytes + in_run;
}

// What meets in the 16-bit lanes of a word: positive sums of [column][half], then negative ones, in the first order of
// bytes and then in the second; all 255 in an order in which the word is not safe by itself.
using Sums = uint8_t __attribute__((ext_vector_type(16)));
constexpr int kHalf = sizeof(Sums) / kI8Orders;

// Both halves as the one of this order.
Sums of_order(Sums s, int order) {
  return order == 0 ? __builtin_shufflevector(s, s, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)
                    : __builtin_shufflevector(s, s, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
}
// Of which orders, as bits, all sums are at most `most`.
unsigned orders_within(Sums s, Sums most) {
  const auto over = __builtin_bit_cast(std::array<uint64_t, kI8Orders>, __builtin_elementwise_sub_sat(s, most));
  return unsigned{over[0] == 0} | unsigned{over[1] == 0} << 1;
}

// A word of each of 2 columns: 4 neighbours along K.
struct Word {
  int32_t index;  // in the block
  int8_t w[kColumns][4];
  Sums sums;
  int weight;  // the largest sum in the better order

  bool safe() const { return weight <= kLimit; }
};

void measure(Word& word) {
  using Weights = int8_t __attribute__((ext_vector_type(kHalf)));
  using Parts = uint8_t __attribute__((ext_vector_type(kHalf)));
  const auto all = __builtin_bit_cast(Weights, word.w);
  const Weights zero = 0;
  // -128 has no positive counterpart in 8 bits: as an unsigned number it is right.
  const auto positive = __builtin_bit_cast(Parts, all > zero ? all : zero);
  const auto negative = __builtin_bit_cast(Parts, Weights(zero - (all < zero ? all : zero)));
  // 0+1 and 2+3 in one order, 0+2 and 1+3 in the other.
  word.sums = __builtin_elementwise_add_sat(
      __builtin_shufflevector(positive, negative, 0, 2, 4, 6, 8, 10, 12, 14, 0, 1, 4, 5, 8, 9, 12, 13),
      __builtin_shufflevector(positive, negative, 1, 3, 5, 7, 9, 11, 13, 15, 2, 3, 6, 7, 10, 11, 14, 15));
  word.weight = 255;
  for (int order = 0; order < kI8Orders; order++) {
    const int most = __builtin_reduce_max(of_order(word.sums, order));
    word.weight = std::min(word.weight, most);
    if (most > kLimit)
      for (int i = 0; i < kHalf; i++) word.sums[order * kHalf + i] = 255;
  }
}

// Where the numbers of a column's words lie, [word][4]; -1 where the run has ended.
std::vector<int64_t> word_offsets(const I8Matrix& b) {
  std::vector<int64_t> out;
  for (int64_t word = 0; word < words_of(b, kI8Chained); word++)
    for (int64_t part = 0; part < 4; part++) {
      const auto k = k_of(b, kI8Chained, word, part);
      out.push_back(k ? b.k_offset[static_cast<size_t>(*k)] : -1);
    }
  return out;
}

// Words of a group of columns in a block of K, each safe in at least one order.
void safe_words(const I8Matrix& b, int64_t column, std::span<const int64_t> offsets, std::vector<Word>& out) {
  out.clear();
  const int64_t columns = std::min(kColumns, b.n - column);
  for (size_t i = 0; i < offsets.size(); i += 4) {
    Word word{static_cast<int32_t>(i / 4), {}, {}, 0};
    for (int64_t j = 0; j < columns; j++)
      for (size_t part = 0; part < 4; part++)
        if (const int64_t at = offsets[i + part]; at >= 0)
          word.w[j][part] = as_weight(b, b.data[(column + j) * b.column_stride + at]);
    measure(word);
    if (word.safe()) {
      out.push_back(word);
      continue;
    }
    Word half = word;  // two halves of at most 64 each are always safe
    for (int64_t j = 0; j < kColumns; j++)
      for (int64_t part = 0; part < 4; part++) {
        half.w[j][part] = static_cast<int8_t>(word.w[j][part] / 2);
        word.w[j][part] = static_cast<int8_t>(word.w[j][part] - half.w[j][part]);
      }
    measure(half);
    measure(word);
    out.push_back(half);
    out.push_back(word);
  }
}

// Words, by number, whose products may be added in 16 bits, and their orders.
struct Chain {
  std::array<uint16_t, kI8MaxChain> words;
  std::array<uint8_t, kI8MaxChain> orders;
  int length;
};

// Heavy words first, each with the heaviest that fit it.
class Chains {
 public:
  const std::vector<Chain>& of(const std::vector<Word>& words) {
    sort(words);
    chains_.clear();
    while (!numbers_.empty()) chains_.push_back(next_chain());
    return chains_;
  }

 private:
  static constexpr int kMaxChoices = 2;

  // A way to order the bytes of the words chosen so far, and what it leaves in the lanes.
  struct Choice {
    Sums room;
    std::array<uint8_t, kI8MaxChain> orders;
  };

  void sort(const std::vector<Word>& words) {
    std::array<uint16_t, kLimit + 2> starts{};  // of the words of each weight, the heaviest first
    for (const Word& w : words) starts[static_cast<size_t>(kLimit - w.weight + 1)]++;
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    numbers_.resize(words.size());
    sums_.resize(words.size());
    for (size_t i = 0; i < words.size(); i++) {
      const size_t at = starts[static_cast<size_t>(kLimit - words[i].weight)]++;
      numbers_[at] = static_cast<uint16_t>(i);
      sums_[at] = words[i].sums;
    }
  }

  Chain next_chain() {
    Chain chain{};
    std::array<Choice, kMaxChoices> choices;
    choices[0] = {Sums(uint8_t{kLimit}), {}};
    int count = 1;
    for (size_t j = 0; j < sums_.size() && chain.length < kI8MaxChain; j++) {
      std::array<unsigned, kMaxChoices> fit;
      unsigned any = 0;
      for (int c = 0; c < count; c++) any |= fit[c] = orders_within(sums_[j], choices[c].room);
      if (!any) continue;
      const std::array<Choice, kMaxChoices> before = choices;
      const int tried = count;
      count = 0;
      for (int c = 0; c < tried; c++)
        for (int order = 0; order < kI8Orders && count < kMaxChoices; order++)
          if (fit[c] >> order & 1) {
            choices[count] = before[c];
            choices[count].room -= of_order(sums_[j], order);
            choices[count++].orders[chain.length] = static_cast<uint8_t>(order);
          }
      chain.words[chain.length++] = numbers_[j];
      numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(j));
      sums_.erase(sums_.begin() + static_cast<std::ptrdiff_t>(j));
      j--;
    }
    chain.orders = choices[0].orders;
    return chain;
  }

  std::vector<uint16_t> numbers_;  // of the words left, the heaviest first
  std::vector<Sums> sums_;         // of the same
  std::vector<Chain> chains_;
};

struct Program {
  int32_t group, triples, pairs;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;

  void add(const Word& word, int order, bool zero = false) {
    offsets.push_back(static_cast<uint16_t>((word.index * kI8Orders + order) * kI8Twelfths));
    std::array<int8_t, sizeof word.w> ordered{};
    for (size_t i = 0; i < ordered.size() && !zero; i++) ordered[i] = word.w[i / 4][kOrder[order][i % 4]];
    weights.insert(weights.end(), ordered.begin(), ordered.end());
  }
  void add(const std::vector<Word>& words, const Chain& chain) {
    (chain.length == 3 ? triples : pairs)++;
    for (int i = 0; i < chain.length; i++) add(words[chain.words[i]], chain.orders[i]);
    if (chain.length == 1) add(words[chain.words[0]], chain.orders[0], true);
  }
};

// Makes programs, in memory that is used again.
class ProgramMaker {
 public:
  void make(const I8Matrix& b, int64_t column, std::span<const int64_t> offsets, Program& out) {
    safe_words(b, column, offsets, words_);
    out.triples = out.pairs = 0;
    out.offsets.clear();
    out.weights.clear();
    const std::vector<Chain>& chains = chains_.of(words_);
    for (const Chain& c : chains)
      if (c.length == 3) out.add(words_, c);
    for (const Chain& c : chains)
      if (c.length != 3) out.add(words_, c);
  }

 private:
  std::vector<Word> words_;
  Chains chains_;
};

// Sections one after the other, each at a multiple of 64 bytes.
class Blob {
 public:
  template <class T>
  int64_t add(const std::vector<T>& data) {
    bytes.resize((bytes.size() + 63) / 64 * 64);
    const auto at = static_cast<int64_t>(bytes.size());
    bytes.resize(bytes.size() + data.size() * sizeof(T));
    if (!data.empty()) std::memcpy(bytes.data() + at, data.data(), data.size() * sizeof(T));
    return at;
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(sizeof(I8Header));
};

std::vector<int32_t> column_sums(const I8Matrix& b, I8Form form) {
  std::vector<int32_t> out(static_cast<size_t>(i8_chunks(b.n) * kI8ChunkColumns));
  const bool as_weights = i8_of_bytes(form) || b.is_signed;
  auto add = [&](int64_t k, int64_t n) { out[static_cast<size_t>(n)] += as_weights ? weight(b, k, n) : b.at(k, n); };
  const int64_t depth = b.runs * b.run_bytes;
  if (b.column_stride == 1)  // in the order of memory
    for (int64_t k = 0; k < depth; k++)
      for (int64_t n = 0; n < b.n; n++) add(k, n);
  else
    for (int64_t n = 0; n < b.n; n++)
      for (int64_t k = 0; k < depth; k++) add(k, n);
  return out;
}

PackedI8 finish(I8Form form, Blob blob, const I8Header& header) {
  std::memcpy(blob.bytes.data(), &header, sizeof header);
  blob.bytes.resize((blob.bytes.size() + 63) / 64 * 64 + 64);  // vectors may be loaded whole
  return {form, std::move(blob.bytes)};
}

// kI8Pairs and kI8Rows, whose numbers are T: words of a group of columns one after the other.
template <class T>
PackedI8 pack_words(const I8Matrix& b, I8Form form, int64_t lanes) {
  const int64_t words = words_of(b, form), columns = i8_tile_columns(form, lanes), parts = i8_word_bytes(form);
  std::vector<T> out(static_cast<size_t>(div_up(b.n, columns) * words * columns * parts));
  for (int64_t n = 0; n < b.n; n++)
    for (int64_t word = 0; word < words; word++)
      for (int64_t part = 0; part < parts; part++)
        if (auto k = k_of(b, form, word, part))
          out[static_cast<size_t>(((n / columns * words + word) * columns + n % columns) * parts + part)] =
              i8_of_bytes(form) || b.is_signed ? static_cast<T>(weight(b, *k, n)) : static_cast<T>(b.at(*k, n));
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(column_sums(b, form));
  header.weights = blob.add(out);
  return finish(form, std::move(blob), header);
}

// kI8Dot and kI8Tiles (kernels/gemm_i8_panels.h).
PackedI8 pack_panels(const I8Matrix& b, I8Form form, int64_t lanes) {
  const int64_t depth = b.runs * b.run_bytes, padded = i8_padded_depth(form, depth);
  const int64_t width = i8_panel_columns(form, lanes, b.n), panels = div_up(b.n, width);
  std::vector<int8_t> out(static_cast<size_t>(panels * width * padded));
  std::vector<int32_t> sums(static_cast<size_t>(panels * width));
  auto add = [&](int64_t k, int64_t n) {
    const int8_t w = as_weight(b, b.data[n * b.column_stride + b.k_offset[static_cast<size_t>(k)]]);
    out[static_cast<size_t>(n / width * width * padded + (k / 4 * width + n % width) * 4 + k % 4)] = w;
    sums[static_cast<size_t>(n)] += w;
  };
  if (b.column_stride == 1)  // in the order of memory
    for (int64_t k = 0; k < depth; k++)
      for (int64_t n = 0; n < b.n; n++) add(k, n);
  else
    for (int64_t n = 0; n < b.n; n++)
      for (int64_t k = 0; k < depth; k++) add(k, n);
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(sums);
  header.weights = blob.add(out);
  return finish(form, std::move(blob), header);
}

struct Chained {
  std::vector<I8Program> programs;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
};

Chained make_chained(const I8Matrix& b) {
  const int64_t words = words_of(b, kI8Chained), blocks = i8_blocks(kI8Chained, words);
  Chained out;
  const std::vector<int64_t> offsets = word_offsets(b);
  ProgramMaker maker;
  std::vector<Program> programs;
  std::vector<const Program*> sorted;
  for (int64_t chunk = 0; chunk < i8_chunks(b.n); chunk++) {
    constexpr int64_t kChunk = kI8ChunkColumns;
    const int64_t first = chunk * kChunk, groups = div_up(std::min(kChunk, b.n - first), kColumns);
    programs.resize(static_cast<size_t>(groups));
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t start = i8_block_start(words, blocks, block), end = i8_block_start(words, blocks, block + 1);
      const auto block_offsets =
          std::span(offsets).subspan(static_cast<size_t>(start * 4), static_cast<size_t>((end - start) * 4));
      sorted.clear();
      for (int64_t g = 0; g < groups; g++) {
        Program& p = programs[static_cast<size_t>(g)];
        p.group = static_cast<int32_t>(g);
        maker.make(b, first + g * kColumns, block_offsets, p);
        sorted.push_back(&p);
      }
      // Loops of equal length in a row: their ends are predicted.
      std::sort(sorted.begin(), sorted.end(), [](const Program* x, const Program* y) {
        return std::tuple(x->triples, x->pairs, x->group) < std::tuple(y->triples, y->pairs, y->group);
      });
      for (const Program* p : sorted) {
        out.programs.push_back({static_cast<int32_t>(out.offsets.size()), p->triples, p->pairs, p->group});
        out.offsets.insert(out.offsets.end(), p->offsets.begin(), p->offsets.end());
        out.weights.insert(out.weights.end(), p->weights.begin(), p->weights.end());
      }
    }
  }
  return out;
}

PackedI8 finish_chained(const I8Matrix& b, const Chained& c) {
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(column_sums(b, kI8Chained));
  header.programs = blob.add(c.programs);
  header.offsets = blob.add(c.offsets);
  header.weights = blob.add(c.weights);
  return finish(kI8Chained, std::move(blob), header);
}

// A chain of two words takes about as long as 3.1 words of kI8Pairs, one of three as 4.2 (measured on Zen 3).
bool worth_chaining(const I8Matrix& b, const Chained& c) {
  double chained = 0;
  for (const I8Program& p : c.programs) chained += kColumns * (4.2 * p.triples + 3.1 * p.pairs);
  return chained < static_cast<double>(b.n * words_of(b, kI8Pairs));
}

}  // namespace

I8Matrix i8_matrix(const uint8_t* data, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                   bool is_signed) {
  I8Matrix m{n, 1, k, is_signed, data, {}, column_stride};
  for (int64_t i = 0; i < k; i++) m.k_offset.push_back(i * row_stride);
  return m;
}

PackedI8 pack_i8(const I8Matrix& b, I8Form form, int64_t lanes) {
  if (i8_in_panels(form)) return pack_panels(b, form, lanes);
  if (form == kI8Chained) return finish_chained(b, make_chained(b));
  return form == kI8Pairs ? pack_words<int16_t>(b, form, lanes) : pack_words<int8_t>(b, form, lanes);
}

PackedI8 pack_i8(const I8Matrix& b, int64_t lanes) {
  const Chained c = make_chained(b);
  return worth_chaining(b, c) ? finish_chained(b, c) : pack_words<int16_t>(b, kI8Pairs, lanes);
}

}  // namespace ingot
