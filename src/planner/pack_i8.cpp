#include "planner/pack_i8.h"

#include <cstring>

#include "planner/pack_i8_chained.h"

namespace ingot {
namespace {

using namespace kernel;

// The bytes of a packed B: its header, then sections, each at a multiple of 64 bytes.
//
//   I8Header | colsum | weights                              pairs, rows, dot, tiles
//   I8Header | colsum | programs | offsets | weights         chained
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

// colsum: the sum of each column's stored weights, for as many columns as whole chunks have.
std::vector<int32_t> column_sums(const I8Matrix& b, I8Form form) {
  std::vector<int32_t> out(static_cast<size_t>(i8_chunks(b.n) * kI8ChunkColumns));
  const bool as_weights = i8_of_bytes(form) || b.is_signed;
  auto add = [&](int64_t k, int64_t n) { out[static_cast<size_t>(n)] += as_weights ? b.weight_at(k, n) : b.at(k, n); };
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

// kI8Pairs and kI8Rows: [group][word][columns of the group][numbers of a word] of T.
//
//   pairs     word 0                            word 1
//   (i16)     col 0   col 1   col 2   col 3   | col 0 ...
//             k0 k1   k0 k1   k0 k1   k0 k1   | k2 k3
//
//   rows      word 0                                                       word 1
//   (i8)      col 0         col 1         ... col 7 (15 with 16 lanes)   | col 0 ...
//             k0 k1 k2 k3   k0 k1 k2 k3       k0 k1 k2 k3                | k4 k5 k6 k7
template <class T>
PackedI8 pack_words(const I8Matrix& b, I8Form form, int64_t lanes) {
  const int64_t words = b.words(form), columns = i8_tile_columns(form, lanes), parts = i8_word_bytes(form);
  std::vector<T> out(static_cast<size_t>(div_up(b.n, columns) * words * columns * parts));
  for (int64_t n = 0; n < b.n; n++)
    for (int64_t word = 0; word < words; word++)
      for (int64_t part = 0; part < parts; part++)
        if (auto k = b.k_of(form, word, part))
          out[static_cast<size_t>(((n / columns * words + word) * columns + n % columns) * parts + part)] =
              i8_of_bytes(form) || b.is_signed ? static_cast<T>(b.weight_at(*k, n)) : static_cast<T>(b.at(*k, n));
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(column_sums(b, form));
  header.weights = blob.add(out);
  return finish(form, std::move(blob), header);
}

// kI8Dot and kI8Tiles: [panel][word][columns of the panel][4 bytes] of i8, drawn in kernels/gemm_i8_panels.h. K is not
// cut into runs, and padded with zeros to 4 bytes (64 for tiles); a panel that n does not fill is padded as well.
PackedI8 pack_panels(const I8Matrix& b, I8Form form, int64_t lanes) {
  const int64_t depth = b.runs * b.run_bytes, padded = i8_padded_depth(form, depth);
  const int64_t width = i8_panel_columns(form, lanes, b.n), panels = div_up(b.n, width);
  std::vector<int8_t> out(static_cast<size_t>(panels * width * padded));
  std::vector<int32_t> sums(static_cast<size_t>(panels * width));
  auto add = [&](int64_t k, int64_t n) {
    const int8_t w = b.weight_at(k, n);
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

PackedI8 finish_chained(const I8Matrix& b, const Chained& c) {
  Blob blob;
  I8Header header{};
  header.colsum = blob.add(column_sums(b, kI8Chained));
  header.programs = blob.add(c.programs);
  header.offsets = blob.add(c.offsets);
  header.weights = blob.add(c.weights);
  return finish(kI8Chained, std::move(blob), header);
}

}  // namespace

int64_t I8Matrix::words(I8Form form) const { return runs * i8_run_words(form, run_bytes); }

std::optional<int64_t> I8Matrix::k_of(I8Form form, int64_t word, int64_t part) const {
  const int64_t run_words = i8_run_words(form, run_bytes);
  const int64_t in_run = word % run_words * i8_word_bytes(form) + part;
  if (in_run >= run_bytes) return std::nullopt;
  return word / run_words * run_bytes + in_run;
}

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
