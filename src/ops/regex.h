// Regular expressions in time linear in the text, whatever the pattern: all ways to match go forward together, one
// character at a time (Thompson's construction), with no stack as deep as the text is long.
//
// The syntax is RE2's, which ONNX asks for: literals, . [a-z] [^a-z] [[:alpha:]] \d \w \s and their negations, groups
// (?:x) (x) (?P<name>x), flags (?i) (?s) (?m) (?U), | * + ? {n,m} with and without a ? behind, ^ $ \A \z \b \B, \Q..\E,
// \n \t \x41 \x{1F600} and the other escapes of C. No back-references and no looking around, which have no such bound;
// Unicode classes (\pL) are not known either, and (?i) knows the letters of ASCII.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class Regex {
 public:
  struct Match {
    size_t begin, length;
  };

  // UTF-8. InvalidModel, with the place, for a pattern that is wrong or too large.
  explicit Regex(const std::string& pattern);

  // All of the text, as characters (base/utf8.h).
  bool matches(std::u32string_view text) const;
  // The longest match at the first place from `from` on.
  std::optional<Match> find(std::u32string_view text, size_t from) const;

 private:
  friend class RegexCompiler;
  enum class Op : uint8_t { kClass, kFork, kAssert, kAccept };
  struct Instruction {
    Op op;
    uint32_t argument = 0;  // kClass: index in classes_; kAssert: an Assertion; kFork: where else to go on
    uint32_t next = 0;
  };
  struct Range {
    char32_t first, last;
  };
  using Class = std::vector<Range>;  // in order, not touching
  struct Threads;

  std::optional<Match> run(std::u32string_view text, size_t from, bool whole) const;
  void follow(Threads&, uint32_t start, std::u32string_view text, size_t at, size_t begin) const;
  bool holds(uint32_t assertion, std::u32string_view text, size_t at) const;
  static bool contains(const Class&, char32_t);

  std::vector<Instruction> program_;
  std::vector<Class> classes_;
  uint32_t start_ = 0;
};

}  // namespace ingot
