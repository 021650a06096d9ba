#include "planner/pack_i8.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

namespace ingot {
namespace {

using namespace kernel;

constexpr int64_t kColumns = i8_tile_columns(kI8Chained);
constexpr int kLimit = 128;  // of the positive, and of the negative, weights that meet in a 16-bit lane
constexpr int kOrder[kI8Orders][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};

// Weights as 8-bit numbers: u8 less 128.
int8_t weight(const I8Matrix& b, int64_t k, int64_t column) {
  const uint8_t byte = b.at(k, column);
  return static_cast<int8_t>(b.is_signed ? byte : byte ^ 0x80);
}

int64_t words_of(const I8Matrix& b, I8Form form) { return b.runs * i8_run_words(form, b.run_bytes); }

// The number of K in `part` of a word, or nothing where the run has ended.
std::optional<int64_t> k_of(const I8Matrix& b, I8Form form, int64_t word, int64_t part) {
  const int64_t run_words = i8_run_words(form, b.run_bytes);
  const int64_t in_run = word % run_words * i8_word_bytes(form) + part;
  if (in_run >= b.run_bytes) return std::nullopt;
  return word / run_words * b.run_bytes + in_run;
}

// What meets in the 16-bit lanes of a word: positive sums of [column][half], then negative ones.
using Sums = uint8_t __attribute__((ext_vector_type(8)));

bool fit(Sums a, Sums b) {
  const Sums over = __builtin_elementwise_sub_sat(__builtin_elementwise_add_sat(a, b), Sums(uint8_t(kLimit)));
  return __builtin_bit_cast(uint64_t, over) == 0;
}

// A word of each of 2 columns: 4 neighbours along K.
struct Word {
  int32_t index = 0;  // in the block
  int8_t w[kColumns][4] = {};
  Sums sums[kI8Orders] = {};
  bool safe[kI8Orders] = {};
  int weight = 0;  // the largest sum in the better order
  int order = 0;   // chosen
};

void measure(Word& word) {
  using Weights = int8_t __attribute__((ext_vector_type(8)));
  using Bytes8 = uint8_t __attribute__((ext_vector_type(8)));
  Weights all;
  std::memcpy(&all, word.w, sizeof all);
  const Weights zero = 0;
  // -128 has no positive counterpart in 8 bits: as an unsigned number it is right.
  const auto positive = __builtin_bit_cast(Bytes8, all > zero ? all : zero);
  const auto negative = __builtin_bit_cast(Bytes8, Weights(zero - (all < zero ? all : zero)));
  // What is added to what in the two orders, 0+1 2+3 and 0+2 1+3, of the positive parts and then of the negative ones.
  const Sums parts[kI8Orders][2] = {{__builtin_shufflevector(positive, negative, 0, 2, 4, 6, 8, 10, 12, 14),
                                     __builtin_shufflevector(positive, negative, 1, 3, 5, 7, 9, 11, 13, 15)},
                                    {__builtin_shufflevector(positive, negative, 0, 1, 4, 5, 8, 9, 12, 13),
                                     __builtin_shufflevector(positive, negative, 2, 3, 6, 7, 10, 11, 14, 15)}};
  word.weight = 255;
  for (int v = 0; v < kI8Orders; v++) {
    word.sums[v] = __builtin_elementwise_add_sat(parts[v][0], parts[v][1]);
    const int most = __builtin_reduce_max(word.sums[v]);
    word.safe[v] = most <= kLimit;
    word.weight = std::min(word.weight, most);
  }
}

// Words of a group of columns in a block of K, each safe in at least one order.
std::vector<Word> safe_words(const I8Matrix& b, int64_t column, int64_t start, int64_t end) {
  std::vector<Word> out;
  out.reserve(static_cast<size_t>(end - start) * 2);
  for (int64_t i = start; i < end; i++) {
    Word word;
    word.index = static_cast<int32_t>(i - start);
    for (int64_t part = 0; part < 4; part++)
      if (auto k = k_of(b, kI8Chained, i, part))
        for (int64_t j = 0; j < kColumns && column + j < b.n; j++) word.w[j][part] = weight(b, *k, column + j);
    measure(word);
    if (word.safe[0] || word.safe[1]) {
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
  return out;
}

// Words whose products may be added in 16 bits. The sums of all choices of their orders that are safe: bit i of
// `orders` is the order of word i.
struct Chain {
  struct Choice {
    Sums sums;
    unsigned orders;
  };
  Word* words[kI8MaxChain];
  int length = 0;
  Choice choices[1 << kI8MaxChain];
  int count = 0;

  explicit Chain(Word* first) : words{first}, length(1) {
    for (unsigned v = 0; v < kI8Orders; v++)
      if (first->safe[v]) choices[count++] = {first->sums[v], v};
  }
  bool add(Word* word) {
    Choice next[1 << kI8MaxChain];
    int found = 0;
    for (int i = 0; i < count; i++)
      for (unsigned v = 0; v < kI8Orders; v++)
        if (word->safe[v] && fit(choices[i].sums, word->sums[v]))
          next[found++] = {choices[i].sums + word->sums[v], choices[i].orders | v << length};
    if (!found) return false;
    std::copy_n(next, found, choices);
    count = found;
    words[length++] = word;
    return true;
  }
  void choose() const {
    for (int i = 0; i < length; i++) words[i]->order = static_cast<int>(choices[0].orders >> i & 1);
  }
};

// Heavy words first, each with the heaviest that fit it.
std::vector<Chain> chain_up(std::vector<Word>& words) {
  std::vector<Word*> left;
  left.reserve(words.size());
  for (Word& w : words) left.push_back(&w);
  std::sort(left.begin(), left.end(),
            [](const Word* a, const Word* b) { return std::pair(-a->weight, a) < std::pair(-b->weight, b); });
  std::vector<Chain> out;
  for (size_t i = 0; i < left.size(); i++) {
    if (!left[i]) continue;
    Chain chain(left[i]);
    for (size_t j = i + 1; j < left.size() && chain.length < kI8MaxChain; j++)
      if (left[j] && chain.add(left[j])) left[j] = nullptr;
    chain.choose();
    out.push_back(chain);
  }
  // The longest first, in the order of memory.
  std::sort(out.begin(), out.end(), [](const Chain& a, const Chain& b) {
    return std::pair(-a.length, a.words[0]) < std::pair(-b.length, b.words[0]);
  });
  return out;
}

struct Program {
  int32_t triples = 0, pairs = 0;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
  void add(const Word& word, bool zero) {
    offsets.push_back(static_cast<uint16_t>((word.index * kI8Orders + word.order) * kI8RowEntry));
    for (const auto& row : word.w)
      for (int part : kOrder[word.order]) weights.push_back(zero ? int8_t(0) : row[part]);
  }
};

Program make_program(const I8Matrix& b, int64_t column, int64_t start, int64_t end) {
  std::vector<Word> words = safe_words(b, column, start, end);
  Program p;
  p.offsets.reserve(words.size() * 2);
  p.weights.reserve(words.size() * 2 * sizeof(Word::w));
  for (const Chain& chain : chain_up(words)) {
    (chain.length == 3 ? p.triples : p.pairs)++;
    for (int i = 0; i < chain.length; i++) p.add(*chain.words[i], false);
    if (chain.length == 1) p.add(*chain.words[0], true);
  }
  return p;
}

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
  std::vector<int32_t> out(static_cast<size_t>(i8_chunks(form, b.n) * i8_chunk_columns(form)));
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

// kI8Pairs and kI8Dot, whose numbers are T: words of a group of columns one after the other.
template <class T>
PackedI8 pack_words(const I8Matrix& b, I8Form form) {
  const int64_t words = words_of(b, form), columns = i8_tile_columns(form), parts = i8_word_bytes(form);
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

struct Chained {
  std::vector<I8Program> programs;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
};

Chained make_chained(const I8Matrix& b) {
  const int64_t words = words_of(b, kI8Chained), blocks = i8_blocks(kI8Chained, words);
  Chained out;
  for (int64_t chunk = 0; chunk < i8_chunks(kI8Chained, b.n); chunk++) {
    constexpr int64_t kChunk = i8_chunk_columns(kI8Chained);
    const int64_t first = chunk * kChunk, columns = std::min(kChunk, b.n - first);
    for (int64_t block = 0; block < blocks; block++) {
      std::vector<std::pair<int32_t, Program>> programs;
      for (int64_t g = 0; g < div_up(columns, kColumns); g++)
        programs.emplace_back(static_cast<int32_t>(g),
                              make_program(b, first + g * kColumns, i8_block_start(words, blocks, block),
                                           i8_block_start(words, blocks, block + 1)));
      // Loops of equal length in a row: their ends are predicted.
      std::sort(programs.begin(), programs.end(), [](const auto& x, const auto& y) {
        return std::tuple(x.second.triples, x.second.pairs, x.first) <
               std::tuple(y.second.triples, y.second.pairs, y.first);
      });
      for (const auto& [group, p] : programs) {
        out.programs.push_back({static_cast<int32_t>(out.offsets.size()), p.triples, p.pairs, group});
        out.offsets.insert(out.offsets.end(), p.offsets.begin(), p.offsets.end());
        out.weights.insert(out.weights.end(), p.weights.begin(), p.weights.end());
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

PackedI8 pack_i8(const I8Matrix& b, I8Form form) {
  if (form == kI8Dot) return pack_words<int8_t>(b, form);
  return form == kI8Chained ? finish_chained(b, make_chained(b)) : pack_words<int16_t>(b, form);
}

PackedI8 pack_i8(const I8Matrix& b) {
  const Chained c = make_chained(b);
  return worth_chaining(b, c) ? finish_chained(b, c) : pack_words<int16_t>(b, kI8Pairs);
}

}  // namespace ingot
