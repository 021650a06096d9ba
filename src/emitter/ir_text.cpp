#include "emitter/ir_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "ir/dim.h"

namespace ingot {
namespace {

constexpr int64_t kMaxInline = 16;  // elements

std::string in_quotes(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

// Words some yaml reader takes for something else than a string.
bool reserved(std::string_view s) {
  static constexpr std::array<std::string_view, 9> words = {"true", "false", "yes", "no", "on",
                                                            "off",  "null",  "y",   "n"};
  std::string lower;
  for (char c : s) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return std::find(words.begin(), words.end(), lower) != words.end();
}

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string out(buffer, end);
  if (out.find('.') != std::string::npos) return out;
  const size_t exponent = out.find('e');  // 1e+06 needs a point to be a float for every yaml reader
  return out.insert(exponent == std::string::npos ? out.size() : exponent, ".0");
}

std::string element(int64_t v) { return std::to_string(v); }
std::string element(float v) { return shortest(v); }
std::string element(double v) { return shortest(v); }

template <class T, class Shown = int64_t>
std::string elements(const Constant& c) {
  std::string out = "[";
  for (int64_t i = 0; i < c.elements(); i++) {
    T v;
    std::memcpy(&v, c.bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(v)) return "";  // keeps its bits only in the weights
    out += (i ? ", " : "") + element(static_cast<Shown>(v));
  }
  return out + "]";
}

std::string bools(const Constant& c) {
  std::string out = "[";
  for (size_t i = 0; i < c.bytes.size(); i++) {
    const auto v = static_cast<uint8_t>(c.bytes[i]);
    if (v > 1) return "";
    out += std::string(i ? ", " : "") + (v ? "true" : "false");
  }
  return out + "]";
}

}  // namespace

std::string name_text(std::string_view s) {
  auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == '-';
  };
  const bool simple = !s.empty() && std::all_of(s.begin(), s.end(), plain) && !(s[0] >= '0' && s[0] <= '9') &&
                      s[0] != '.' && s[0] != '-' && !reserved(s);
  return simple ? std::string(s) : in_quotes(s);
}

std::string string_text(std::string_view s) {
  if (is_utf8(s)) return in_quotes(s);
  std::string out = "{bytes: \"";
  for (char c : s) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out + "\"}";
}

std::string float_text(double value) { return shortest(value); }
std::string float_text(float value) { return shortest(value); }

std::string dim_text(const Dim& d) {
  const std::string text = d.str();
  if (d.is_const()) return text;
  if (d.is_unknown()) return in_quotes("?");
  if (auto back = parse_dim(text); text != "?" && back && *back == d) return name_text(text);
  return "{symbol: " + in_quotes(text) + "}";
}

std::string names_text(const std::vector<std::string>& names) {
  std::string out = "[";
  for (size_t i = 0; i < names.size(); i++) out += (i ? ", " : "") + name_text(names[i]);
  return out + "]";
}

std::string inline_text(const Constant& c) {
  if (c.dtype == DType::String) {
    std::string out = "[";
    for (size_t i = 0; i < c.strings.size(); i++) out += (i ? ", " : "") + string_text(c.strings[i]);
    return out + "]";
  }
  if (c.elements() > kMaxInline) return "";
  switch (c.dtype) {
    case DType::I64:
      return elements<int64_t>(c);
    case DType::I32:
      return elements<int32_t>(c);
    case DType::I16:
      return elements<int16_t>(c);
    case DType::I8:
      return elements<int8_t>(c);
    case DType::U8:
      return elements<uint8_t>(c);
    case DType::U16:
      return elements<uint16_t>(c);
    case DType::U32:
      return elements<uint32_t>(c);
    case DType::F32:
      return elements<float, float>(c);
    case DType::F64:
      return elements<double, double>(c);
    case DType::Bool:
      return bools(c);
    default:
      return "";
  }
}

}  // namespace ingot
