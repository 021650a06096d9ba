#include "ir/dim.h"

#include <charconv>
#include <vector>

namespace ingot {
namespace {

// Cuts at the separators outside parentheses; nothing when parentheses do not match.
std::optional<std::vector<std::string_view>> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '(') depth++;
    if (text[i] == ')' && --depth < 0) return std::nullopt;
    if (text[i] == separator && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  if (depth != 0) return std::nullopt;
  parts.push_back(text.substr(start));
  return parts;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Dim> parse_term(std::string_view text) {
  auto factors = split(text, '*');
  if (!factors || factors->size() > 16) return std::nullopt;
  Dim product = 1;
  for (std::string_view f : *factors) {
    if (auto n = number(f)) {
      product = product * Dim(*n);
    } else {
      if (f.empty() || f[0] == '-' || f[0] == '+' || (f[0] >= '0' && f[0] <= '9')) return std::nullopt;
      product = product * Dim::symbol(std::string(f));
    }
  }
  return product;
}

}  // namespace

std::optional<Dim> parse_dim(std::string_view text) {
  // Spaces only stand around + and -, or inside parentheses: term, sign, term, sign, term.
  auto words = split(text, ' ');
  if (!words || words->size() % 2 == 0 || words->size() > 63) return std::nullopt;
  Dim sum = 0;
  for (size_t i = 0; i < words->size(); i += 2) {
    auto term = parse_term((*words)[i]);
    if (!term) return std::nullopt;
    const std::string_view sign = i == 0 ? "+" : (*words)[i - 1];
    if (sign != "+" && sign != "-") return std::nullopt;
    sum = sign == "+" ? sum + *term : sum - *term;
  }
  return sum;
}

}  // namespace ingot
