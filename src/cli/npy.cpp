#include "cli/npy.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 64;

struct Descr {
  std::string_view text;  // without the byte order
  DType dtype;
};
// V2 is how numpy writes ml_dtypes' bfloat16: two bytes without a meaning.
constexpr Descr descrs[] = {{"f4", DType::F32}, {"f8", DType::F64},   {"f2", DType::F16}, {"i1", DType::I8},
                            {"i2", DType::I16}, {"i4", DType::I32},   {"i8", DType::I64}, {"u1", DType::U8},
                            {"u2", DType::U16}, {"u4", DType::U32},   {"u8", DType::U64}, {"b1", DType::Bool},
                            {"c8", DType::C64}, {"c16", DType::C128}, {"V2", DType::BF16}};

// The header: a Python dict literal with exactly three keys.
class Header {
 public:
  Header(std::string_view text, const std::string& place) : text_(text), place_(place) {
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr")
        descr = string();
      else if (key == "fortran_order")
        fortran = boolean();
      else if (key == "shape")
        shape = tuple(), has_shape_ = true;
      else
        bad(fmt::format("unknown header key '{}'", key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (descr.empty() || !has_shape_) bad("the header lacks 'descr' or 'shape'");
  }

  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;

 private:
  [[noreturn]] void bad(const std::string& why) const {
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: not a valid .npy file: {}", place_, why));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) at_++;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad(fmt::format("expected '{}' at character {} of the header", c, at_));
  }
  std::string string() {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      bad("the header is not a dict of plain types (structured arrays are not read)");
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) bad("a string in the header does not end");
    std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    bad("'fortran_order' is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!accept(')')) {
      skip();
      int64_t n = 0;
      const size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; at_++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text_[at_] - '0', &n))
          bad("a dim in 'shape' overflows");
      }
      if (at_ == start) bad("'shape' is not a tuple of numbers");
      if (at_ < text_.size() && text_[at_] == 'L') at_++;  // Python 2 wrote 3L
      out.push_back(n);
      if (out.size() > kMaxRank) bad("more than 64 dims");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
  bool has_shape_ = false;
};

uint32_t little(std::span<const std::byte> bytes) {
  uint32_t n = 0;
  for (size_t i = bytes.size(); i-- > 0;) n = n << 8 | static_cast<uint32_t>(bytes[i]);
  return n;
}

void swap_bytes(std::vector<std::byte>& data, size_t size) {
  for (size_t i = 0; i + size <= data.size(); i += size)
    std::reverse(data.begin() + static_cast<ptrdiff_t>(i), data.begin() + static_cast<ptrdiff_t>(i + size));
}

// Column-major to row-major.
std::vector<std::byte> to_row_major(const std::vector<std::byte>& from, const std::vector<int64_t>& dims, size_t size) {
  std::vector<std::byte> out(from.size());
  std::vector<int64_t> index(dims.size(), 0);
  std::vector<size_t> stride(dims.size(), size);
  for (size_t d = 1; d < dims.size(); d++) stride[d] = stride[d - 1] * static_cast<size_t>(dims[d - 1]);
  for (size_t at = 0; at < out.size(); at += size) {
    size_t source = 0;
    for (size_t d = 0; d < dims.size(); d++) source += static_cast<size_t>(index[d]) * stride[d];
    std::memcpy(out.data() + at, from.data() + source, size);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

DType parse_descr(const std::string& descr, const std::string& place) {
  const std::string_view type = std::string_view(descr).substr(descr.find_first_not_of("<>|=") == 1 ? 1 : 0);
  for (const Descr& d : descrs)
    if (d.text == type) return d.dtype;
  throw Error(ErrorKind::InvalidInput, fmt::format("{}: arrays of type '{}' are not read", place, descr),
              "save the array as a plain numeric or bool type");
}

}  // namespace

Array parse_npy(std::span<const std::byte> file, const std::string& place) {
  auto bad = [&](const std::string& why) {
    return Error(ErrorKind::InvalidInput, fmt::format("{}: not a valid .npy file: {}", place, why));
  };
  if (file.size() < 10 || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0)
    throw bad("no numpy magic at its start");
  const int major = static_cast<int>(file[6]);
  if (major < 1 || major > 3) throw bad(fmt::format("format version {}", major));
  const size_t length_bytes = major == 1 ? 2 : 4, start = 8 + length_bytes;
  if (file.size() < start) throw bad("cut off inside its header");
  const size_t length = little(file.subspan(8, length_bytes));
  if (length > file.size() - start) throw bad("its header is longer than the file");
  const Header header({reinterpret_cast<const char*>(file.data()) + start, length}, place);

  Array array{parse_descr(header.descr, place), header.shape, {}};
  const size_t size = static_cast<size_t>(bits(array.dtype)) / 8;
  int64_t bytes = static_cast<int64_t>(size);
  for (int64_t d : array.dims)
    if (__builtin_mul_overflow(bytes, d, &bytes)) throw bad("its shape overflows 64 bits");
  const auto body = file.subspan(start + length);
  if (body.size() != static_cast<size_t>(bytes))
    throw bad(fmt::format("its shape asks for {} bytes of data, the file holds {}", bytes, body.size()));
  array.data.assign(body.begin(), body.end());
  if (header.descr.starts_with('>')) {
    const bool complex = array.dtype == DType::C64 || array.dtype == DType::C128;
    swap_bytes(array.data, complex ? size / 2 : size);
  }
  if (header.fortran && array.dims.size() > 1) array.data = to_row_major(array.data, array.dims, size);
  return array;
}

std::vector<std::byte> format_npy(const Array& array) {
  std::string_view type;
  for (const Descr& d : descrs)
    if (d.dtype == array.dtype) type = d.text;
  if (type.empty()) unsupported("numpy files cannot hold {}", name(array.dtype));
  std::string shape;
  for (int64_t d : array.dims) shape += std::to_string(d) + ",";
  if (array.dims.size() > 1) shape.pop_back();
  const char order = bits(array.dtype) == 8 || array.dtype == DType::BF16 ? '|' : '<';
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, type, shape);
  // The data starts at a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::vector<std::byte> out;
  auto put = [&out](const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    out.insert(out.end(), p, p + size);
  };
  out.reserve(10 + header.size() + array.data.size());
  put(kMagic.data(), kMagic.size());
  const uint8_t rest[4] = {1, 0, static_cast<uint8_t>(header.size() & 0xff), static_cast<uint8_t>(header.size() >> 8)};
  put(rest, sizeof rest);
  put(header.data(), header.size());
  put(array.data.data(), array.data.size());
  return out;
}

}  // namespace ingot
