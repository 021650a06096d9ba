#include "planner/pack_i8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace ingot {
namespace {

using namespace kernel;

constexpr int64_t kColumns = kI8TileColumns;
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
using Sums = uint8_t __attribute__((ext_vector_type(16)));

bool fit(Sums a, Sums b) {
  const Sums over = __builtin_elementwise_sub_sat(__builtin_elementwise_add_sat(a, b), Sums(uint8_t(kLimit)));
  uint64_t halves[2];
  std::memcpy(halves, &over, sizeof halves);
  return (halves[0] | halves[1]) == 0;
}

struct Word {
  int32_t index = 0;  // in the block
  std::array<std::array<int8_t, 4>, kColumns> w{};
  std::array<Sums, kI8Orders> sums{};
  std::array<bool, kI8Orders> safe{};
  int weight = 0;  // the largest sum in the better order
  int order = 0;   // chosen
};

void measure(Word& word) {
  word.weight = 255;
  for (int v = 0; v < kI8Orders; v++) {
    int most = 0;
    for (int64_t j = 0; j < kColumns; j++)
      for (int64_t h = 0; h < 2; h++) {
        const int a = word.w[j][kOrder[v][2 * h]], b = word.w[j][kOrder[v][2 * h + 1]];
        const int positive = std::max(a, 0) + std::max(b, 0), negative = std::max(-a, 0) + std::max(-b, 0);
        word.sums[v][2 * j + h] = static_cast<uint8_t>(std::min(positive, 255));
        word.sums[v][8 + 2 * j + h] = static_cast<uint8_t>(std::min(negative, 255));
        most = std::max({most, positive, negative});
      }
    word.safe[v] = most <= kLimit;
    word.weight = std::min(word.weight, most);
  }
}

// Words of 4 columns in a block of K, each safe in at least one order.
std::vector<Word> safe_words(const I8Matrix& b, int64_t column, int64_t start, int64_t end) {
  std::vector<Word> out;
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
    for (auto& row : half.w)
      for (int8_t& x : row) x = static_cast<int8_t>(x / 2);
    for (int64_t j = 0; j < kColumns; j++)
      for (int64_t part = 0; part < 4; part++) word.w[j][part] = static_cast<int8_t>(word.w[j][part] - half.w[j][part]);
    measure(half);
    measure(word);
    out.push_back(half);
    out.push_back(word);
  }
  return out;
}

// Two words whose products may be added in 16 bits; second < 0: the word stands alone.
struct Pair {
  int first, second;
};

bool choose_orders(Word& a, Word& b) {
  for (int v = 0; v < kI8Orders; v++)
    for (int u = 0; u < kI8Orders; u++)
      if (a.safe[v] && b.safe[u] && fit(a.sums[v], b.sums[u])) {
        a.order = v;
        b.order = u;
        return true;
      }
  return false;
}

// Heavy words first, each with the heaviest that fits it.
std::vector<Pair> pair_up(std::vector<Word>& words) {
  std::sort(words.begin(), words.end(), [](const Word& a, const Word& b) {
    return std::pair(-a.weight, a.index) < std::pair(-b.weight, b.index);
  });
  std::vector<Pair> out;
  std::vector<bool> used(words.size());
  for (size_t i = 0; i < words.size(); i++) {
    if (used[i]) continue;
    int found = -1;
    for (size_t j = i + 1; j < words.size() && found < 0; j++)
      if (!used[j] && choose_orders(words[i], words[j])) found = static_cast<int>(j);
    if (found < 0)
      words[i].order = words[i].safe[0] ? 0 : 1;
    else
      used[static_cast<size_t>(found)] = true;
    out.push_back({static_cast<int>(i), found});
  }
  std::sort(out.begin(), out.end(), [&](const Pair& a, const Pair& b) {
    return words[static_cast<size_t>(a.first)].index < words[static_cast<size_t>(b.first)].index;
  });
  return out;
}

struct Program {
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
  int64_t pairs() const { return static_cast<int64_t>(offsets.size()) / 2; }
  void add(const Word& word, bool zero) {
    offsets.push_back(static_cast<uint16_t>((word.index * kI8Orders + word.order) * 4 * kI8TileRows));
    for (const auto& row : word.w)
      for (int part : kOrder[word.order]) weights.push_back(zero ? int8_t(0) : row[static_cast<size_t>(part)]);
  }
};

Program make_program(const I8Matrix& b, int64_t column, int64_t start, int64_t end) {
  std::vector<Word> words = safe_words(b, column, start, end);
  Program p;
  for (const Pair& pair : pair_up(words)) {
    const Word& first = words[static_cast<size_t>(pair.first)];
    p.add(first, false);
    p.add(pair.second < 0 ? first : words[static_cast<size_t>(pair.second)], pair.second < 0);
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
  std::vector<int32_t> out(static_cast<size_t>(div_up(b.n, kI8ChunkColumns) * kI8ChunkColumns));
  for (int64_t n = 0; n < b.n; n++)
    for (int64_t k = 0; k < b.runs * b.run_bytes; k++)
      out[static_cast<size_t>(n)] += form == kI8Chained || b.is_signed ? weight(b, k, n) : b.at(k, n);
  return out;
}

PackedI8 finish(I8Form form, Blob blob, const I8Header& header) {
  std::memcpy(blob.bytes.data(), &header, sizeof header);
  blob.bytes.resize((blob.bytes.size() + 63) / 64 * 64 + 64);  // vectors may be loaded whole
  return {form, std::move(blob.bytes)};
}

PackedI8 pack_pairs(const I8Matrix& b) {
  const int64_t words = words_of(b, kI8Pairs), groups = div_up(b.n, kColumns);
  std::vector<int16_t> out(static_cast<size_t>(groups * words * 8));
  for (int64_t n = 0; n < b.n; n++)
    for (int64_t word = 0; word < words; word++)
      for (int64_t part = 0; part < 2; part++)
        if (auto k = k_of(b, kI8Pairs, word, part)) {
          const uint8_t byte = b.at(*k, n);
          out[static_cast<size_t>(((n / kColumns * words + word) * kColumns + n % kColumns) * 2 + part)] =
              b.is_signed ? static_cast<int16_t>(static_cast<int8_t>(byte)) : static_cast<int16_t>(byte);
        }
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(column_sums(b, kI8Pairs));
  header.weights = blob.add(out);
  return finish(kI8Pairs, std::move(blob), header);
}

struct Chained {
  std::vector<I8Program> programs;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
};

Chained make_chained(const I8Matrix& b) {
  const int64_t words = words_of(b, kI8Chained), blocks = i8_blocks(kI8Chained, words);
  Chained out;
  for (int64_t chunk = 0; chunk < i8_chunks(b.n); chunk++) {
    const int64_t first = chunk * kI8ChunkColumns, columns = std::min(kI8ChunkColumns, b.n - first);
    for (int64_t block = 0; block < blocks; block++) {
      std::vector<std::pair<int32_t, Program>> programs;
      for (int64_t g = 0; g < div_up(columns, kColumns); g++)
        programs.emplace_back(static_cast<int32_t>(g),
                              make_program(b, first + g * kColumns, i8_block_start(words, blocks, block),
                                           i8_block_start(words, blocks, block + 1)));
      // Loops of equal length in a row: their ends are predicted.
      std::stable_sort(programs.begin(), programs.end(),
                       [](const auto& x, const auto& y) { return x.second.pairs() < y.second.pairs(); });
      for (const auto& [group, p] : programs) {
        out.programs.push_back(
            {static_cast<int32_t>(out.offsets.size() / 2), static_cast<int32_t>(p.pairs()), group});
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

// A chained pair takes about as long as 3.1 words of kI8Pairs (measured on Zen 3).
bool worth_chaining(const I8Matrix& b, const Chained& c) {
  const int64_t groups = div_up(b.n, kColumns);
  return static_cast<double>(c.offsets.size()) / 2 * 3.1 < static_cast<double>(groups * words_of(b, kI8Pairs));
}

}  // namespace

PackedI8 pack_i8(const I8Matrix& b, I8Form form) {
  return form == kI8Chained ? finish_chained(b, make_chained(b)) : pack_pairs(b);
}

PackedI8 pack_i8(const I8Matrix& b) {
  const Chained c = make_chained(b);
  return worth_chaining(b, c) ? finish_chained(b, c) : pack_pairs(b);
}

}  // namespace ingot
