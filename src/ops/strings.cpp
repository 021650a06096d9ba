// Operators on strings. What only moves strings needs none of this: in a planned region they are numbers (StringPool).
#include "ops/strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <locale>
#include <map>
#include <unordered_map>

#include "base/utf8.h"
#include "kernels/number.h"
#include "ops/elementwise.h"
#include "ops/host.h"
#include "ops/host_tensors.h"
#include "ops/regex.h"

namespace ingot {
namespace {

std::vector<int64_t> broadcast_dims(HostContext& ctx, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); i++) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) ctx.fail("shapes {} and {} do not broadcast", str(to_shape(a)), str(to_shape(b)));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

// For each element of `dims`, the element of a tensor of dims `from` that is broadcast to it.
std::vector<int64_t> broadcast_index(const std::vector<int64_t>& from, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> strides = broadcast_strides(from, dims);
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    out[static_cast<size_t>(i)] = at;
  }
  return out;
}

void infer_concat(InferContext& ctx) {
  ctx.set_dtype(0, DType::String);
  for (size_t i : {0, 1}) ctx.require(ctx.dtype(i) == DType::String, "operand {} is {}", i, name(ctx.dtype(i)));
  ctx.set_shape(0, broadcast(ctx, ctx.shape(0), ctx.shape(1)));
}

void run_concat(HostContext& ctx) {
  const auto a = ctx.strings(0), b = ctx.strings(1);
  const auto dims = broadcast_dims(ctx, ctx.tensor(0)->dims, ctx.tensor(1)->dims);
  const auto from_a = broadcast_index(ctx.tensor(0)->dims, dims), from_b = broadcast_index(ctx.tensor(1)->dims, dims);
  std::vector<std::string> out;
  for (size_t i = 0; i < from_a.size(); i++)
    out.push_back(a[static_cast<size_t>(from_a[i])] + b[static_cast<size_t>(from_b[i])]);
  ctx.set_strings(0, dims, out);
}

void infer_split(InferContext& ctx) {
  ctx.set_dtype(0, DType::String);
  ctx.set_dtype(1, DType::I64);
  ctx.require(ctx.dtype(0) == DType::String, "the operand is {}", name(ctx.dtype(0)));
  Shape shape = ctx.shape(0);
  ctx.set_shape(1, shape);
  shape.push_back(Dim::unknown());
  ctx.set_shape(0, shape);
}

// At most `most` cuts. Without a delimiter: words between stretches of white space.
std::vector<std::string> split(const std::string& text, const std::string& delimiter, int64_t most) {
  std::vector<std::string> out;
  size_t at = 0;
  if (delimiter.empty()) {
    static constexpr const char* kSpace = " \t\n\r\v\f";
    for (;;) {
      at = text.find_first_not_of(kSpace, at);
      if (at == std::string::npos) return out;
      if (static_cast<int64_t>(out.size()) == most) {
        const size_t last = text.find_last_not_of(kSpace);
        out.push_back(text.substr(at, last - at + 1));
        return out;
      }
      const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
      out.push_back(text.substr(at, end - at));
      at = end;
    }
  }
  if (text.empty()) return out;
  for (;;) {
    const size_t end = static_cast<int64_t>(out.size()) == most ? std::string::npos : text.find(delimiter, at);
    if (end == std::string::npos) {
      out.push_back(text.substr(at));
      return out;
    }
    out.push_back(text.substr(at, end - at));
    at = end + delimiter.size();
  }
}

void run_split(HostContext& ctx) {
  const std::string delimiter = ctx.node.get_string("delimiter", "");
  const int64_t most = ctx.node.has("maxsplit") ? ctx.node.get_int("maxsplit", 0) : -1;
  std::vector<std::vector<std::string>> pieces;
  std::vector<int64_t> counts;
  size_t widest = 0;
  for (const std::string& s : ctx.strings(0)) {
    pieces.push_back(split(s, delimiter, most));
    counts.push_back(static_cast<int64_t>(pieces.back().size()));
    widest = std::max(widest, pieces.back().size());
  }
  std::vector<int64_t> dims = ctx.tensor(0)->dims;
  ctx.set(1, DType::I64, dims, counts);
  dims.push_back(static_cast<int64_t>(widest));
  std::vector<std::string> out;
  for (auto& p : pieces) {
    p.resize(widest);
    out.insert(out.end(), p.begin(), p.end());
  }
  ctx.set_strings(0, dims, out);
}

void infer_normalizer(InferContext& ctx) {
  ctx.set_dtype(0, DType::String);
  ctx.require(ctx.dtype(0) == DType::String, "the operand is {}", name(ctx.dtype(0)));
  const Shape& in = ctx.shape(0);
  ctx.require(in.size() == 1 || (in.size() == 2 && (!in[0].is_const() || in[0].is(1))), "takes [C] or [1, C], got {}",
              str(in));
  Shape out = in;
  if (!ctx.node.get_strings("stopwords").empty()) out.back() = Dim::unknown();
  ctx.set_shape(0, out);
}

// Letters beyond ASCII: the Latin, Greek and Cyrillic alphabets, whose cases lie at a fixed distance.
void change_case(std::string& s, bool upper) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i]);
    if (b < 0x80) {
      out += static_cast<char>(upper ? std::toupper(b) : std::tolower(b));
      i++;
      continue;
    }
    const size_t length = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
    if (length != 2 || i + 1 >= s.size()) {
      out += s.substr(i, length);
      i += length;
      continue;
    }
    uint32_t c = (b & 0x1fu) << 6 | (static_cast<unsigned char>(s[i + 1]) & 0x3fu);
    auto within = [&](uint32_t low, uint32_t high) { return c >= low && c <= high; };
    if (upper) {
      if ((within(0xe0, 0xfe) && c != 0xf7) || (within(0x3b1, 0x3c9) && c != 0x3c2) || within(0x430, 0x44f))
        c -= 32;
      else if (within(0x450, 0x45f))
        c -= 80;
      else if (within(0x100, 0x17f) && c % 2 == 1 && c != 0x131)
        c -= 1;
    } else {
      if ((within(0xc0, 0xde) && c != 0xd7) || within(0x391, 0x3a9) || within(0x410, 0x42f))
        c += 32;
      else if (within(0x400, 0x40f))
        c += 80;
      else if (within(0x100, 0x17f) && c % 2 == 0 && c != 0x130)
        c += 1;
    }
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
    i += 2;
  }
  s = std::move(out);
}

void run_normalizer(HostContext& ctx) {
  const std::string change = ctx.node.get_string("case_change_action", "NONE");
  const bool exact = ctx.node.get_int("is_case_sensitive", 0) != 0;
  std::vector<std::string> stop = ctx.node.get_strings("stopwords");
  if (!exact)
    for (std::string& s : stop) change_case(s, false);
  std::vector<std::string> out;
  for (std::string s : ctx.strings(0)) {
    std::string key = s;
    if (!exact) change_case(key, false);
    if (std::find(stop.begin(), stop.end(), key) != stop.end()) continue;
    if (change == "UPPER") change_case(s, true);
    if (change == "LOWER") change_case(s, false);
    out.push_back(std::move(s));
  }
  if (out.empty() && ctx.tensor(0)->elements() > 0) out.emplace_back();  // as ONNX defines it
  std::vector<int64_t> dims = ctx.tensor(0)->dims;
  dims.back() = static_cast<int64_t>(out.size());
  ctx.set_strings(0, dims, out);
}

void infer_match(InferContext& ctx) {
  ctx.set_dtype(0, DType::Bool);
  ctx.require(ctx.dtype(0) == DType::String, "the operand is {}", name(ctx.dtype(0)));
  ctx.set_shape(0, ctx.shape(0));
  const Regex checked(ctx.node.get_string("pattern", ""));
}

void run_match(HostContext& ctx) {
  std::vector<uint8_t> out;
  const Regex expression(ctx.node.get_string("pattern", ""));
  for (const std::string& s : ctx.strings(0)) out.push_back(expression.matches(decode_utf8(s)));
  ctx.set(0, DType::Bool, ctx.tensor(0)->dims, out);
}

// Counts of n-grams in rows of words or numbers.
struct Vectorizer {
  int64_t least, most, skips, width = 0;
  std::string mode;
  std::vector<float> weights;
  std::map<std::vector<int64_t>, int64_t> place;  // n-gram of words (pool numbers or integers): column

  explicit Vectorizer(HostContext& ctx) {
    const Node& n = ctx.node;
    least = n.need_int("min_gram_length");
    most = n.need_int("max_gram_length");
    skips = n.need_int("max_skip_count");
    mode = n.get_string("mode", "TF");
    weights = n.get_floats("weights");
    const auto starts = n.get_ints("ngram_counts"), columns = n.get_ints("ngram_indexes");
    std::vector<int64_t> words = n.get_ints("pool_int64s");
    for (const std::string& s : n.get_strings("pool_strings")) words.push_back(ctx.pool().add(s));
    for (int64_t c : columns) width = std::max(width, c + 1);
    size_t gram = 0;
    for (size_t length = 1; length <= starts.size(); length++) {
      const int64_t end = length < starts.size() ? starts[length] : static_cast<int64_t>(words.size());
      for (int64_t at = starts[length - 1]; at >= 0 && at + static_cast<int64_t>(length) <= end;
           at += static_cast<int64_t>(length)) {
        if (gram >= columns.size() || end > static_cast<int64_t>(words.size()) || columns[gram] < 0)
          ctx.fail("pool, ngram_counts and ngram_indexes do not fit");
        place[{words.begin() + at, words.begin() + at + static_cast<std::ptrdiff_t>(length)}] = columns[gram++];
      }
    }
    if (!weights.empty() && weights.size() != columns.size()) ctx.fail("weights and ngram_indexes differ in length");
    column_weights.assign(static_cast<size_t>(width), 1.f);
    for (size_t i = 0; i < weights.size(); i++) column_weights[static_cast<size_t>(columns[i])] = weights[i];
  }
  std::vector<float> column_weights;

  void count(std::span<const int64_t> row, float* out) const {
    const auto n = static_cast<int64_t>(row.size());
    for (int64_t length = std::max<int64_t>(least, 1); length <= std::min(most, n); length++)
      for (int64_t step = 1; step - 1 <= skips; step++) {
        if ((length == 1 && step > 1) || (length - 1) * step >= n) break;
        for (int64_t first = 0; first + (length - 1) * step < n; first++) {
          std::vector<int64_t> gram;
          for (int64_t i = 0; i < length; i++) gram.push_back(row[static_cast<size_t>(first + i * step)]);
          if (auto it = place.find(gram); it != place.end()) out[it->second] += 1;
        }
      }
    for (int64_t c = 0; c < width; c++) {
      const float weight = column_weights[static_cast<size_t>(c)];
      if (mode == "IDF") out[c] = out[c] > 0 ? weight : 0;
      if (mode == "TFIDF") out[c] *= weight;
    }
  }
};

void infer_vectorizer(InferContext& ctx) {
  ctx.set_dtype(0, DType::F32);
  int64_t width = 0;
  for (int64_t c : ctx.node.get_ints("ngram_indexes")) {
    ctx.require(c >= 0 && c < int64_t{1} << 28, "ngram_indexes has the column {}", c);
    width = std::max(width, c + 1);
  }
  Shape shape = ctx.shape(0);
  ctx.require(shape.size() == 1 || shape.size() == 2, "takes [C] or [N, C], got {}", str(shape));
  shape.back() = Dim(width);
  ctx.set_shape(0, shape);
}

void run_vectorizer(HostContext& ctx) {
  const Vectorizer v(ctx);
  const Constant& x = *ctx.tensor(0);
  std::vector<int64_t> words;
  if (x.dtype == DType::String)
    words.assign(x.as<int64_t>().begin(), x.as<int64_t>().end());
  else
    words = ctx.integers(0);
  const int64_t rows = x.dims.size() == 2 ? x.dims[0] : 1, length = x.dims.back();
  std::vector<float> out(static_cast<size_t>(rows * v.width));
  for (int64_t r = 0; r < rows; r++)
    v.count(std::span(words).subspan(static_cast<size_t>(r * length), static_cast<size_t>(length)),
            out.data() + r * v.width);
  std::vector<int64_t> dims = x.dims;
  dims.back() = v.width;
  ctx.set(0, DType::F32, dims, out);
}

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  return fmt::format("{}", value);
}

std::vector<std::string> spell_numbers(HostContext& ctx, const Constant& c) {
  std::vector<std::string> out;
  auto add = [&](auto elements) {
    for (auto v : elements) out.push_back(shortest(kernel::widen(v)));
  };
  switch (c.dtype) {
    case DType::F32:
      add(c.as<float>());
      break;
    case DType::F64:
      add(c.as<double>());
      break;
    case DType::F16:
      add(c.as<kernel::F16>());
      break;
    case DType::BF16:
      add(c.as<kernel::BF16>());
      break;
    case DType::U64:
      for (uint64_t v : c.as<uint64_t>()) out.push_back(fmt::format("{}", v));
      break;
    case DType::Bool:
      for (uint8_t v : c.as<uint8_t>()) out.emplace_back(v ? "True" : "False");
      break;
    default:
      for (int64_t v : integer_elements(c)) out.push_back(fmt::format("{}", v));
  }
  return out;
}

double parse_number(HostContext& ctx, const std::string& text) {
  size_t first = text.find_first_not_of(" \t\n\r");
  const size_t last = text.find_last_not_of(" \t\n\r");
  if (first != std::string::npos && text[first] == '+') first++;
  double value = 0;
  const char* end = text.data() + (last == std::string::npos ? 0 : last + 1);
  if (first == std::string::npos) ctx.fail("'{}' is not a number", text);
  const auto result = std::from_chars(text.data() + first, end, value);
  if (result.ec == std::errc::result_out_of_range) return text[first] == '-' ? -HUGE_VAL : HUGE_VAL;
  if (result.ec != std::errc{} || result.ptr != end) ctx.fail("'{}' is not a number", text);
  return value;
}

template <class T>
void set_parsed(HostContext& ctx, DType to) {
  std::vector<T> out;
  for (const std::string& s : ctx.strings(0)) {
    if constexpr (std::is_integral_v<T>) {
      T exact = 0;
      const auto r = std::from_chars(s.data(), s.data() + s.size(), exact);
      if (r.ec == std::errc{} && r.ptr == s.data() + s.size()) {
        out.push_back(exact);
        continue;
      }
      const double value = parse_number(ctx, s);
      if (!(value > -9.3e18 && value < 1.9e19)) ctx.fail("'{}' is outside {}", s, name(to));
      out.push_back(value < 0 ? static_cast<T>(static_cast<int64_t>(value))
                              : static_cast<T>(static_cast<uint64_t>(value)));
    } else if constexpr (std::is_floating_point_v<T>) {
      out.push_back(static_cast<T>(parse_number(ctx, s)));
    } else {
      out.push_back(kernel::Narrow<T>::from(static_cast<float>(parse_number(ctx, s))));
    }
  }
  ctx.set(0, to, ctx.tensor(0)->dims, out);
}

}  // namespace

void cast_strings(HostContext& ctx, DType to) {
  const Constant& x = *ctx.tensor(0);
  if (to == DType::String)
    return x.dtype == DType::String ? ctx.set(0, ctx.tensor(0)) : ctx.set_strings(0, x.dims, spell_numbers(ctx, x));
  switch (to) {
    case DType::F32:
      return set_parsed<float>(ctx, to);
    case DType::F64:
      return set_parsed<double>(ctx, to);
    case DType::F16:
      return set_parsed<kernel::F16>(ctx, to);
    case DType::BF16:
      return set_parsed<kernel::BF16>(ctx, to);
    case DType::I64:
      return set_parsed<int64_t>(ctx, to);
    case DType::I32:
      return set_parsed<int32_t>(ctx, to);
    case DType::I16:
      return set_parsed<int16_t>(ctx, to);
    case DType::I8:
      return set_parsed<int8_t>(ctx, to);
    case DType::U64:
      return set_parsed<uint64_t>(ctx, to);
    case DType::U32:
      return set_parsed<uint32_t>(ctx, to);
    case DType::U16:
      return set_parsed<uint16_t>(ctx, to);
    case DType::U8:
      return set_parsed<uint8_t>(ctx, to);
    case DType::Bool: {
      std::vector<uint8_t> out;
      for (const std::string& s : ctx.strings(0)) out.push_back(s == "True" || s == "true" || s == "1");
      return ctx.set(0, to, x.dims, out);
    }
    default:
      fail(ErrorKind::Unsupported, "{}: strings are not cast to {}", ctx.node.label(), name(to));
  }
}

void equal_strings(HostContext& ctx) {
  const Constant &a = *ctx.tensor(0), &b = *ctx.tensor(1);
  const auto dims = broadcast_dims(ctx, a.dims, b.dims);
  const auto from_a = broadcast_index(a.dims, dims), from_b = broadcast_index(b.dims, dims);
  std::vector<uint8_t> out;
  for (size_t i = 0; i < from_a.size(); i++)
    out.push_back(a.as<int64_t>()[static_cast<size_t>(from_a[i])] == b.as<int64_t>()[static_cast<size_t>(from_b[i])]);
  ctx.set(0, DType::Bool, dims, out);
}

void register_strings(OpRegistry& r) {
  r.add(host_op("StringConcat", 2, 2, 1, infer_concat, run_concat));
  r.add(host_op("StringSplit", 1, 1, 2, infer_split, run_split));
  r.add(host_op("StringNormalizer", 1, 1, 1, infer_normalizer, run_normalizer));
  r.add(host_op("RegexFullMatch", 1, 1, 1, infer_match, run_match));
  r.add(host_op("TfIdfVectorizer", 1, 1, 1, infer_vectorizer, run_vectorizer));
}

}  // namespace ingot
