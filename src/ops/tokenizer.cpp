// ingot.Tokenizer, which onnxruntime has as com.microsoft.Tokenizer: strings [C] or [N, C] -> their tokens [.., D],
// where D is the largest number of them. Tokens are what stands between matches of the expressions "separators", which
// are applied one after the other, or the matches of "tokenexp"; both find the longest match at the first place. A
// separator "" and the expression "." make a token of each character. Tokens of less than "mincharnum" characters are
// dropped, "pad_value" fills the rows up, and "mark" puts the rows between the characters 2 and 3.
#include <algorithm>
#include <optional>
#include <regex>

#include "base/utf8.h"
#include "ops/host.h"

namespace ingot {
namespace {

using Text = std::wstring;  // one element for each character: expressions and lengths count characters
static_assert(sizeof(wchar_t) == 4);

Text decoded(const std::string& s) {
  Text out;
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    const size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t character = n == 1 ? c : c & (0xffu >> (n + 1));
    for (size_t k = 1; k < n; k++) character = character << 6 | (static_cast<unsigned char>(s[i + k]) & 0x3fu);
    out += static_cast<wchar_t>(character);
    i += n;
  }
  return out;
}

std::string encoded(const Text& text) {
  std::string out;
  for (const wchar_t w : text) {
    const auto c = static_cast<uint32_t>(w);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // bytes after the first
    out += static_cast<char>((0xff00u >> (more + 1) & 0xffu) | c >> (6 * more));
    for (int k = more - 1; k >= 0; k--) out += static_cast<char>(0x80u | (c >> (6 * k) & 0x3fu));
  }
  return out;
}

struct Match {
  size_t begin, length;
};

// The longest one at the first place from `from` on. The search in breadth (__polynomial) finds it, and needs neither
// exponential time nor a stack as deep as the text is long.
class Expression {
 public:
  explicit Expression(const std::string& pattern)
      : regex_(decoded(pattern), std::regex::ECMAScript | std::regex_constants::__polynomial) {}

  std::optional<Match> find(const Text& text, size_t from) const {
    if (from > text.size()) return std::nullopt;
    const auto flags = from == 0 ? std::regex_constants::match_default : std::regex_constants::match_prev_avail;
    std::wsmatch m;
    if (!std::regex_search(text.begin() + static_cast<ptrdiff_t>(from), text.end(), m, regex_, flags))
      return std::nullopt;
    return Match{static_cast<size_t>(m[0].first - text.begin()), static_cast<size_t>(m.length())};
  }

 private:
  std::wregex regex_;
};

// What stands between matches, as far as it has `least` characters.
void split(const Text& text, const Expression& separator, size_t least, std::vector<Text>& out) {
  auto keep = [&](size_t begin, size_t end) {
    if (end >= begin + least) out.push_back(text.substr(begin, end - begin));
  };
  size_t at = 0;
  while (const auto m = separator.find(text, at)) {
    keep(at, m->begin);
    at = m->begin + std::max<size_t>(m->length, 1);
  }
  keep(at, text.size());
}

// The matches of at least `least` characters.
std::vector<Text> matches(const Text& text, const Expression& token, size_t least) {
  std::vector<Text> out;
  size_t at = 0;
  while (const auto m = token.find(text, at)) {
    if (m->length >= least) out.push_back(text.substr(m->begin, m->length));
    at = m->begin + (m->length >= least ? m->length : 1);
  }
  return out;
}

struct Tokenizer {
  size_t least = 1;
  bool by_character = false, by_token = false;
  std::vector<Expression> expressions;  // separators, or that of a token

  explicit Tokenizer(const HostContext& ctx) {
    const Node& n = ctx.node;
    least = static_cast<size_t>(n.need_int("mincharnum"));
    std::vector<std::string> patterns = n.get_strings("separators");
    by_token = patterns.empty();
    if (by_token) patterns = {n.get_string("tokenexp", "")};
    by_character = patterns.size() == 1 && patterns[0] == (by_token ? "." : "");
    if (by_character) return;
    for (const std::string& pattern : patterns) try {
        expressions.emplace_back(pattern);
      } catch (const std::regex_error& e) {
        ctx.fail("expression '{}': {}", pattern, e.what());
      }
  }

  std::vector<Text> tokens(const Text& text) const {
    if (by_character) {
      std::vector<Text> out;
      for (const wchar_t c : text) out.emplace_back(1, c);
      return out;
    }
    if (by_token) return matches(text, expressions[0], least);
    std::vector<Text> row = {text};
    for (const Expression& separator : expressions) {
      std::vector<Text> finer;
      for (const Text& part : row) split(part, separator, least, finer);
      row = std::move(finer);
    }
    return row;
  }
};

void infer(InferContext& ctx) {
  ctx.set_dtype(0, DType::String);
  ctx.require(ctx.dtype(0) == DType::String, "the operand is {}, expected strings", name(ctx.dtype(0)));
  const Node& n = ctx.node;
  const auto separators = n.get_strings("separators");
  const std::string token = n.get_string("tokenexp", "");
  ctx.require(n.get_int("mincharnum", 0) > 0, "mincharnum is {}, expected a positive number",
              n.get_int("mincharnum", 0));
  ctx.require(separators.empty() != token.empty(), "needs either separators or a tokenexp");
  for (const std::string& s : separators) ctx.require(is_utf8(s), "a separator is not valid UTF-8");
  ctx.require(is_utf8(token), "tokenexp is not valid UTF-8");
  Shape shape = ctx.shape(0);
  ctx.require(shape.size() == 1 || shape.size() == 2, "takes [C] or [N, C], got {}", str(shape));
  shape.push_back(Dim::unknown());
  ctx.set_shape(0, std::move(shape));
}

void run(HostContext& ctx) {
  const Tokenizer tokenizer(ctx);
  const bool mark = ctx.node.get_int("mark", 0) != 0;
  const std::string pad = ctx.node.get_string("pad_value", "");
  std::vector<std::vector<std::string>> rows;
  size_t widest = 0;
  for (const std::string& s : ctx.strings(0)) {
    if (!is_utf8(s)) ctx.fail("string {} is not valid UTF-8", rows.size());
    std::vector<std::string>& row = rows.emplace_back();
    for (const Text& token : tokenizer.tokens(decoded(s))) row.push_back(encoded(token));
    widest = std::max(widest, row.size());
  }
  const size_t width = widest == 0 ? 0 : widest + (mark ? 2 : 0);
  std::vector<std::string> out;
  for (auto& row : rows) {
    if (mark) {
      row.insert(row.begin(), "\x02");
      row.emplace_back("\x03");
    }
    row.resize(width, pad);
    out.insert(out.end(), row.begin(), row.end());
  }
  std::vector<int64_t> dims = ctx.tensor(0)->dims;
  dims.push_back(static_cast<int64_t>(width));
  ctx.set_strings(0, dims, out);
}

}  // namespace

void register_tokenizer(OpRegistry& r) {
  OpDef def = host_op("Tokenizer", 1, 1, 1, infer, run);
  def.domain = "ingot";
  r.add(std::move(def));
}

}  // namespace ingot
