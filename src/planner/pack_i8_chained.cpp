#include "planner/pack_i8_chained.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <tuple>

namespace ingot {
namespace {

using namespace kernel;

constexpr int64_t kColumns = 2;  // of a chain
static_assert(kColumns == i8_tile_columns(kI8Chained, 4) && kColumns == i8_tile_columns(kI8Chained, 16));
constexpr int kLimit = 128;  // of the positive, and of the negative, weights that meet in a 16-bit lane
constexpr int kOrder[kI8Orders][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};

// pmaddubsw adds the products of two bytes of a word in a 16-bit lane; which two, the order says:
//
//   order 0123:  lane 0 has bytes 0 and 1, lane 1 has 2 and 3
//   order 0213:  lane 0 has bytes 0 and 2, lane 1 has 1 and 3
//
// Sums of the weights of a word of 2 columns that meet in a lane, as far as they are positive, and minus those that are
// negative:
//
//   index     0    1    2    3    4    5    6    7   |  8  to  15
//   order    0123                                    |  0213, the same
//   sign      +    +    +    +    -    -    -    -   |
//   column    0    0    1    1    0    0    1    1   |
//   lane      0    1    0    1    0    1    0    1   |
//
// All 8 of an order are 255 if one of them is above kLimit: in this order the word is not safe by itself.
using Sums = uint8_t __attribute__((ext_vector_type(16)));
constexpr int kOrderSums = sizeof(Sums) / kI8Orders;

// The 8 sums of this order, twice.
Sums of_order(Sums s, int order) {
  return order == 0 ? __builtin_shufflevector(s, s, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)
                    : __builtin_shufflevector(s, s, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
}
// The orders in which a word with these sums fits into what room the lanes have: bit 0 for 0123, bit 1 for 0213.
unsigned orders_that_fit(Sums s, Sums room) {
  const auto over = __builtin_bit_cast(std::array<uint64_t, kI8Orders>, __builtin_elementwise_sub_sat(s, room));
  return unsigned{over[0] == 0} | unsigned{over[1] == 0} << 1;
}

// A word of each of 2 columns: 4 neighbours along K.
struct Word {
  int32_t index;          // in the block
  int8_t w[kColumns][4];  // in the order 0123
  Sums sums;
  int weight;  // the largest sum, in the order in which that is smaller

  bool safe() const { return weight <= kLimit; }
};

// Fills in sums and weight.
void measure(Word& word) {
  using Weights = int8_t __attribute__((ext_vector_type(kOrderSums)));
  using Parts = uint8_t __attribute__((ext_vector_type(kOrderSums)));
  const auto all = __builtin_bit_cast(Weights, word.w);
  const Weights zero = 0;
  // -128 has no positive counterpart in 8 bits: as an unsigned number it is right.
  const auto positive = __builtin_bit_cast(Parts, all > zero ? all : zero);
  const auto negative = __builtin_bit_cast(Parts, Weights(zero - (all < zero ? all : zero)));
  // Bytes 0+1 and 2+3 of each column, then 0+2 and 1+3.
  word.sums = __builtin_elementwise_add_sat(
      __builtin_shufflevector(positive, negative, 0, 2, 4, 6, 8, 10, 12, 14, 0, 1, 4, 5, 8, 9, 12, 13),
      __builtin_shufflevector(positive, negative, 1, 3, 5, 7, 9, 11, 13, 15, 2, 3, 6, 7, 10, 11, 14, 15));
  word.weight = 255;
  for (int order = 0; order < kI8Orders; order++) {
    const int most = __builtin_reduce_max(of_order(word.sums, order));
    word.weight = std::min(word.weight, most);
    if (most > kLimit)
      for (int i = 0; i < kOrderSums; i++) word.sums[order * kOrderSums + i] = 255;
  }
}

// Where the numbers of a column's words lie in b.data, [word][4]: bytes from the column's start; -1 past the end of a
// run.
std::vector<int64_t> word_offsets(const I8Matrix& b) {
  std::vector<int64_t> out;
  for (int64_t word = 0; word < b.words(kI8Chained); word++)
    for (int64_t part = 0; part < 4; part++) {
      const auto k = b.k_of(kI8Chained, word, part);
      out.push_back(k ? b.k_offset[static_cast<size_t>(*k)] : -1);
    }
  return out;
}

// The words of 2 columns in a block of K, each safe in at least one order: a word that is not is halved, into two words
// with the same index whose weights add up to its own. offsets: the block's part of word_offsets().
void safe_words(const I8Matrix& b, int64_t column, std::span<const int64_t> offsets, std::vector<Word>& out) {
  out.clear();
  const int64_t columns = std::min(kColumns, b.n - column);
  for (size_t i = 0; i < offsets.size(); i += 4) {
    Word word{static_cast<int32_t>(i / 4), {}, {}, 0};
    for (int64_t j = 0; j < columns; j++)
      for (size_t part = 0; part < 4; part++)
        if (const int64_t at = offsets[i + part]; at >= 0)
          word.w[j][part] = b.weight_of(b.data[(column + j) * b.column_stride + at]);
    measure(word);
    if (word.safe()) {
      out.push_back(word);
      continue;
    }
    Word half = word;  // weights of at most 64: two in a lane are safe
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

// One to three words whose products may be added in 16 bits.
struct Chain {
  std::array<uint16_t, kI8MaxChain> words;  // indices into the words of the block
  std::array<uint8_t, kI8MaxChain> orders;
  int length;
};

// Fills chains as bins are packed: each begins with the heaviest word left and takes the heaviest ones that still fit.
//
//   a chain and the room it leaves in one lane, of the positive weights     128
//     word of  70                                                             58
//     word of  40, the heaviest that is at most 58                            18
//     word of  15, the heaviest that is at most 18                             3
//
// and so in all 8 lanes and signs (Sums) at once.
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

  // One way to order the bytes of the words chosen so far. A few ways are kept, as a later word may fit only one.
  struct Choice {
    Sums room;  // what it leaves in the lanes
    std::array<uint8_t, kI8MaxChain> orders;
  };

  // By counting, the heaviest first; words of equal weight keep their order.
  void sort(const std::vector<Word>& words) {
    std::array<uint16_t, kLimit + 2> starts{};  // where the words of each weight begin, the heaviest first
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
      for (int c = 0; c < count; c++) any |= fit[c] = orders_that_fit(sums_[j], choices[c].room);
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

  std::vector<uint16_t> numbers_;  // the words not yet in a chain, the heaviest first
  std::vector<Sums> sums_;         // sums_[i] of the word numbers_[i]
  std::vector<Chain> chains_;
};

// The chains of one block for one group of 2 columns (planner/pack_i8_chained.h has the picture).
struct Program {
  int32_t group;           // of columns, within the chunk
  int32_t triples, pairs;  // chains of three words, and of two
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;

  // A word; zero: with weights of 0.
  void add(const Word& word, int order, bool zero = false) {
    offsets.push_back(static_cast<uint16_t>((word.index * kI8Orders + order) * kI8Twelfths));
    std::array<int8_t, sizeof word.w> ordered{};
    for (size_t i = 0; i < ordered.size() && !zero; i++) ordered[i] = word.w[i / 4][kOrder[order][i % 4]];
    weights.insert(weights.end(), ordered.begin(), ordered.end());
  }
  // A chain of one word becomes one of two, of which the second has weights of 0.
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

}  // namespace

Chained make_chained(const I8Matrix& b) {
  const int64_t words = b.words(kI8Chained), blocks = i8_blocks(kI8Chained, words);
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

// In time, a chain of two words is worth about 3.1 words of kI8Pairs, one of three 4.2 (measured on Zen 3).
bool worth_chaining(const I8Matrix& b, const Chained& c) {
  double chained = 0;
  for (const I8Program& p : c.programs) chained += kColumns * (4.2 * p.triples + 3.1 * p.pairs);
  return chained < static_cast<double>(b.n * b.words(kI8Pairs));
}

}  // namespace ingot
