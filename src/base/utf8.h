// Names are UTF-8: they become keys of a yaml file, Python strings and parts of messages.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

// The bytes of the character at the front of s, which is not empty; 0 where it is not well-formed: a stray or overlong
// byte, a surrogate, or past U+10FFFF.
inline size_t utf8_length(std::string_view s) {
  const auto c = static_cast<unsigned char>(s[0]);
  const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  if (n == 0 || n > s.size()) return 0;
  for (size_t k = 1; k < n; k++)
    if ((static_cast<unsigned char>(s[k]) & 0xc0) != 0x80) return 0;
  const auto second = n > 1 ? static_cast<unsigned char>(s[1]) : 0;
  const bool wrong = (c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) || (c == 0xf0 && second < 0x90) ||
                     (c == 0xf4 && second > 0x8f);
  return wrong ? 0 : n;
}

inline bool is_utf8(std::string_view s) {
  for (size_t i = 0, n; i < s.size(); i += n)
    if ((n = utf8_length(s.substr(i))) == 0) return false;
  return true;
}

// Characters; a byte that is part of none becomes a number that no character has.
inline std::u32string decode_utf8(std::string_view s) {
  constexpr char32_t kNoCharacter = 0x110000;
  std::u32string out;
  for (size_t i = 0; i < s.size();) {
    const size_t n = utf8_length(s.substr(i));
    const auto c = static_cast<unsigned char>(s[i]);
    char32_t character = n == 0 ? kNoCharacter + c : n == 1 ? c : c & (0xffu >> (n + 1));
    for (size_t k = 1; k < n; k++) character = character << 6 | (static_cast<unsigned char>(s[i + k]) & 0x3fu);
    out += character;
    i += n == 0 ? 1 : n;
  }
  return out;
}

inline std::string encode_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
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

}  // namespace ingot
