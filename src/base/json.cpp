#include "base/json.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    Json out = value(0);
    skip_space();
    if (at_ != text_.size()) bad("more follows");
    return out;
  }

 private:
  static constexpr int kMostDepth = 64;

  [[noreturn]] void bad(const char* why) const { invalid_input("not JSON, byte {}: {}", at_, why); }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kMostDepth) bad("nested too deeply");
    skip_space();
    if (take("{")) return object(depth);
    if (take("[")) return array(depth);
    if (take("\"")) return string();
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("null")) return {};
    return number();
  }

  // Calls item() until the closing bracket.
  void items(char end, auto item) {
    skip_space();
    if (take({&end, 1})) return;
    while (true) {
      item();
      skip_space();
      if (take({&end, 1})) return;
      if (!take(",")) bad("a comma or a closing bracket is missing");
    }
  }
  Json array(int depth) {
    Json::Array out;
    items(']', [&] { out.push_back(value(depth + 1)); });
    return out;
  }
  Json object(int depth) {
    Json::Object out;
    items('}', [&] {
      skip_space();
      if (!take("\"")) bad("a key is missing");
      std::string key = string();
      skip_space();
      if (!take(":")) bad("a colon is missing");
      out.emplace_back(std::move(key), value(depth + 1));
    });
    return out;
  }

  char32_t hex4() {
    uint32_t v = 0;
    const char* from = text_.data() + at_;
    if (at_ + 4 > text_.size() || std::from_chars(from, from + 4, v, 16).ptr != from + 4) bad("four hex digits follow");
    at_ += 4;
    return v;
  }
  std::string string() {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    std::string out;
    while (true) {
      if (at_ >= text_.size()) bad("a string does not end");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) bad("a control character in a string");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) bad("a string does not end");
      const char name = text_[at_++];
      if (const size_t i = kNames.find(name); i != std::string_view::npos) {
        out += kMeant[i];
        continue;
      }
      if (name != 'u') bad("an unknown escape");
      char32_t character = hex4();
      if (character >= 0xd800 && character < 0xdc00 && take("\\u")) {
        const char32_t low = hex4();
        if (low < 0xdc00 || low >= 0xe000) bad("half a character");
        character = 0x10000 + ((character - 0xd800) << 10) + (low - 0xdc00);
      }
      if (character >= 0xd800 && character < 0xe000) bad("half a character");
      out += encode_utf8(std::u32string_view(&character, 1));
    }
  }

  Json number() {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const char *from = text_.data() + at_, *to = text_.data() + end;
    if (from == to || *from == '+') bad("a value is missing");
    at_ = end;
    int64_t whole = 0;
    if (std::from_chars(from, to, whole).ptr == to) return whole;
    double v = 0;
    const auto read = std::from_chars(from, to, v);
    if (read.ptr != to || read.ec == std::errc::invalid_argument) bad("not a number");
    return v;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void write_string(std::string& out, std::string_view s) {
  out += '"';
  for (size_t i = 0, n; i < s.size(); i += n) {
    n = utf8_length(s.substr(i));
    const char c = s[i];
    if (n == 0) {
      out += "\xef\xbf\xbd";
      n = 1;
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += s.substr(i, n);
    }
  }
  out += '"';
}

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

const Json* Json::find(std::string_view key) const {
  if (const Object* o = object())
    for (const auto& [k, v] : *o)
      if (k == key) return &v;
  return nullptr;
}

Json& Json::set(std::string key, Json value) {
  if (!object()) value_ = Object();
  return std::get<Object>(value_).emplace_back(std::move(key), std::move(value)).second;
}

Json& Json::add(Json value) {
  if (!array()) value_ = Array();
  return std::get<Array>(value_).emplace_back(std::move(value));
}

void Json::write(std::string& out, int indent, int depth) const {
  auto all = [&](const auto& items, char open, char close, auto item) {
    out += open;
    bool first = true;
    for (const auto& i : items) {
      if (!std::exchange(first, false)) out += ',';
      out += '\n';
      out.append(static_cast<size_t>(indent * (depth + 1)), ' ');
      item(i);
    }
    if (!first) {
      out += '\n';
      out.append(static_cast<size_t>(indent * depth), ' ');
    }
    out += close;
  };
  if (const Object* o = object())
    return all(*o, '{', '}', [&](const auto& entry) {
      write_string(out, entry.first);
      out += ": ";
      entry.second.write(out, indent, depth + 1);
    });
  if (const Array* a = array()) return all(*a, '[', ']', [&](const Json& v) { v.write(out, indent, depth + 1); });
  if (const std::string* s = text()) return write_string(out, *s);
  if (const bool* b = boolean())
    out += *b ? "true" : "false";
  else if (integer())
    out += std::to_string(*integer());
  else if (!is_number() || !std::isfinite(number()))
    out += "null";
  else
    out += fmt::format("{}", number());
}

std::string Json::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
}

}  // namespace ingot
