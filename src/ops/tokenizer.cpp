// ingot.Tokenizer, which onnxruntime has as com.microsoft.Tokenizer: strings [C] or [N, C] -> their tokens [.., D],
// where D is the largest number of them. Tokens are what stands between matches of the expressions "separators", which
// are applied one after the other, or the matches of "tokenexp"; both find the longest match at the first place. A
// separator "" and the expression "." make a token of each character. Tokens of less than "mincharnum" characters are
// dropped, "pad_value" fills the rows up, and "mark" puts the rows between the characters 2 and 3.
#include <algorithm>

#include "base/utf8.h"
#include "ops/host.h"
#include "ops/regex.h"

namespace ingot {
namespace {

using Text = std::u32string;  // expressions and lengths count characters

// What stands between matches, as far as it has `least` characters.
void split(const Text& text, const Regex& separator, size_t least, std::vector<Text>& out) {
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
std::vector<Text> matches(const Text& text, const Regex& token, size_t least) {
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
  std::vector<Regex> expressions;  // separators, or that of a token

  explicit Tokenizer(const HostContext& ctx) {
    const Node& n = ctx.node;
    least = static_cast<size_t>(n.need_int("mincharnum"));
    std::vector<std::string> patterns = n.get_strings("separators");
    by_token = patterns.empty();
    if (by_token) patterns = {n.get_string("tokenexp", "")};
    by_character = patterns.size() == 1 && patterns[0] == (by_token ? "." : "");
    if (by_character) return;
    for (const std::string& pattern : patterns) expressions.emplace_back(pattern);
  }

  std::vector<Text> tokens(const Text& text) const {
    if (by_character) {
      std::vector<Text> out;
      for (const char32_t c : text) out.emplace_back(1, c);
      return out;
    }
    if (by_token) return matches(text, expressions[0], least);
    std::vector<Text> row = {text};
    for (const Regex& separator : expressions) {
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
    for (const Text& token : tokenizer.tokens(decode_utf8(s))) row.push_back(encode_utf8(token));
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
