#include "ops/regex.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/stop.h"
#include "base/utf8.h"

namespace ingot {
namespace {

constexpr char32_t kLastCharacter = 0x10ffff;
constexpr uint32_t kMostRepeats = 1000, kMostInstructions = 50000, kMostDepth = 500;

enum Assertion : uint32_t { kTextStart, kTextEnd, kLineStart, kLineEnd, kWordEdge, kNoWordEdge };

bool is_word(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

struct Flags {
  bool any_case = false, dot_newline = false, lines = false;
};

}  // namespace

// Recursive descent over the pattern to a tree, then instructions from the back of the tree to its front.
class RegexCompiler {
 public:
  RegexCompiler(const std::string& pattern, Regex& out) : pattern_(pattern), out_(out) {
    text_ = decode_utf8(pattern);
    const uint32_t root = alternatives();
    if (at_ < text_.size()) wrong("unexpected ')'");
    const uint32_t accept = add({Regex::Op::kAccept});
    out_.start_ = emit(root, accept);
  }

 private:
  using Class = Regex::Class;
  struct Node {
    enum Kind { kEmpty, kClass, kAssert, kSequence, kChoice, kRepeat } kind;
    uint32_t argument = 0;                // kClass, kAssert
    std::vector<uint32_t> children = {};  // nodes
    uint32_t least = 0, most = 0;         // kRepeat, most only if bounded
    bool bounded = false;
  };

  [[noreturn]] void wrong(const std::string& what) const {
    invalid_model("regular expression '{}': {} at character {}", pattern_, what, at_);
  }

  // --- reading ---

  bool more() const { return at_ < text_.size(); }
  bool accept(std::u32string_view word) {
    if (std::u32string_view(text_).substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  char32_t take(const char* what) {
    if (!more()) wrong(std::string("the end where ") + what + " is expected");
    return text_[at_++];
  }

  uint32_t node(Node n) {
    nodes_.push_back(std::move(n));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t class_node(Class c) {
    out_.classes_.push_back(normal(std::move(c)));
    return node({Node::kClass, static_cast<uint32_t>(out_.classes_.size() - 1)});
  }
  uint32_t assertion(Assertion a) { return node({Node::kAssert, a}); }

  uint32_t alternatives() {
    if (++depth_ > kMostDepth) wrong("nested too deeply");
    Node choice{Node::kChoice};
    do choice.children.push_back(sequence());
    while (accept(U"|"));
    depth_--;
    return choice.children.size() == 1 ? choice.children[0] : node(std::move(choice));
  }

  uint32_t sequence() {
    Node all{Node::kSequence};
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      if (accept(U"\\Q")) {  // up to \E all stands for itself; what follows \E repeats the last character
        for (bool open = !accept(U"\\E"); open && more();) {
          const uint32_t one = literal(text_[at_++]);
          open = !accept(U"\\E");
          all.children.push_back(open ? one : repeated(one));
        }
        continue;
      }
      all.children.push_back(repeated(atom()));
    }
    return node(std::move(all));
  }

  // The bounds of {n}, {n,} or {n,m}; anything else after a brace stands for itself.
  bool counted(Node& n) {
    const size_t start = at_;
    auto number = [&](uint32_t& value) {
      const size_t first = at_;
      for (; more() && text_[at_] >= '0' && text_[at_] <= '9'; at_++)
        value = std::min<uint32_t>(value * 10 + (text_[at_] - '0'), kMostRepeats + 1);
      return at_ > first;
    };
    n.least = n.most = 0;
    n.bounded = true;
    bool good = accept(U"{") && number(n.least);
    if (good && accept(U","))
      n.bounded = number(n.most);
    else
      n.most = n.least;
    good = good && accept(U"}");
    if (!good) at_ = start;
    if (good && (n.least > kMostRepeats || n.most > kMostRepeats || (n.bounded && n.most < n.least)))
      wrong("bad bounds of a repetition");
    return good;
  }

  uint32_t repeated(uint32_t what) {
    Node n{Node::kRepeat, 0, {what}};
    if (accept(U"*")) {
    } else if (accept(U"+")) {
      n.least = 1;
    } else if (accept(U"?")) {
      n.most = 1;
      n.bounded = true;
    } else if (!counted(n)) {
      return what;
    }
    accept(U"?");  // the shortest first: of no concern to what matches, or to the longest
    if (more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) wrong("a repetition of a repetition");
    return node(std::move(n));
  }

  uint32_t literal(char32_t c) { return class_node(with_cases({{c, c}})); }

  uint32_t atom() {
    const char32_t c = take("an expression");
    switch (c) {
      case '(':
        return group();
      case '[':
        return class_node(with_cases(bracket()));
      case '.':
        return class_node(flags_.dot_newline ? Class{{0, kLastCharacter}} : negated({{'\n', '\n'}}));
      case '^':
        return assertion(flags_.lines ? kLineStart : kTextStart);
      case '$':
        return assertion(flags_.lines ? kLineEnd : kTextEnd);
      case '*':
      case '+':
      case '?':
        at_--;
        wrong("nothing to repeat");
      case '\\':
        return escape();
      default:
        return literal(c);
    }
  }

  uint32_t group() {
    const Flags outside = flags_;
    if (accept(U"?")) {
      if (accept(U"P<") || accept(U"<")) {
        if (more() && (text_[at_] == '=' || text_[at_] == '!')) wrong("looking around is not supported");
        while (take("the name of a group") != '>') {
        }
      } else if (!accept(U":") && !read_flags()) {
        return node({Node::kEmpty});  // flags for the rest of the group around them
      }
    }
    const uint32_t inside = alternatives();
    if (!accept(U")")) wrong("a group that does not end");
    flags_ = outside;
    return inside;
  }

  // "i-s:" or "i-s)"; false when the flags stand alone.
  bool read_flags() {
    bool on = true;
    while (true) {
      switch (take("a flag")) {
        case 'i':
          flags_.any_case = on;
          break;
        case 's':
          flags_.dot_newline = on;
          break;
        case 'm':
          flags_.lines = on;
          break;
        case 'U':
          break;  // which is preferred: see repeated
        case '-':
          on = false;
          break;
        case ':':
          return true;
        case ')':
          return false;
        default:
          at_--;
          wrong("an unknown kind of group");
      }
    }
  }

  uint32_t escape() {
    const char32_t c = take("an escaped character");
    switch (c) {
      case 'A':
        return assertion(kTextStart);
      case 'z':
        return assertion(kTextEnd);
      case 'b':
        return assertion(kWordEdge);
      case 'B':
        return assertion(kNoWordEdge);
      default:
        if (auto known = perl_class(c)) return class_node(std::move(*known));
        at_--;
        return literal(escaped_character());
    }
  }

  char32_t escaped_character() {
    static const std::map<char32_t, char32_t> kSimple = {{'a', 7},    {'f', '\f'}, {'n', '\n'},
                                                         {'r', '\r'}, {'t', '\t'}, {'v', '\v'}};
    const char32_t c = take("an escaped character");
    if (auto it = kSimple.find(c); it != kSimple.end()) return it->second;
    if (c == 'x') return hexadecimal();
    const bool octal_follows = more() && text_[at_] >= '0' && text_[at_] <= '7';
    if (c == '0' || (c >= '1' && c <= '7' && octal_follows)) return octal(c);  // else a back-reference
    if (is_word(c)) {
      at_--;
      wrong(c >= '1' && c <= '9' ? "back-references are not supported" : "an unknown escape");
    }
    return c;
  }
  char32_t octal(char32_t first) {
    char32_t value = first - '0';
    for (int i = 0; i < 2 && more() && text_[at_] >= '0' && text_[at_] <= '7'; i++)
      value = value * 8 + (text_[at_++] - '0');
    return value;
  }
  char32_t hexadecimal() {
    const bool braces = accept(U"{");
    char32_t value = 0;
    size_t digits = 0;
    for (; more() && (braces || digits < 2); digits++) {
      const char32_t c = text_[at_];
      const int digit = c >= '0' && c <= '9'   ? static_cast<int>(c - '0')
                        : c >= 'a' && c <= 'f' ? static_cast<int>(c - 'a') + 10
                        : c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A') + 10
                                               : -1;
      if (digit < 0) break;
      value = std::min<char32_t>(value * 16 + static_cast<char32_t>(digit), kLastCharacter + 1);
      at_++;
    }
    if (digits == 0 || (!braces && digits != 2) || (braces && !accept(U"}")) || value > kLastCharacter)
      wrong("a bad hexadecimal number");
    return value;
  }

  // --- classes ---

  static Class normal(Class c) {
    std::sort(c.begin(), c.end(), [](auto a, auto b) { return a.first < b.first; });
    Class out;
    for (const auto& r : c) {
      if (!out.empty() && r.first <= out.back().last + 1)
        out.back().last = std::max(out.back().last, r.last);
      else
        out.push_back(r);
    }
    return out;
  }
  static Class negated(const Class& c) {
    Class out;
    char32_t next = 0;
    for (const auto& r : normal(c)) {
      if (r.first > next) out.push_back({next, r.first - 1});
      next = r.last + 1;
    }
    if (next <= kLastCharacter) out.push_back({next, kLastCharacter});
    return out;
  }
  Class with_cases(Class c) const {
    if (!flags_.any_case) return c;
    Class more;
    for (const auto& r : c)
      for (char32_t letter = 'a'; letter <= 'z'; letter++) {
        const char32_t capital = letter - 'a' + 'A';
        if (r.first <= letter && letter <= r.last) more.push_back({capital, capital});
        if (r.first <= capital && capital <= r.last) more.push_back({letter, letter});
      }
    c.insert(c.end(), more.begin(), more.end());
    return c;
  }
  static std::optional<Class> perl_class(char32_t c) {
    switch (c) {
      case 'd':
        return Class{{'0', '9'}};
      case 'D':
        return negated({{'0', '9'}});
      case 's':
        return Class{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
      case 'S':
        return negated({{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}});
      case 'w':
        return Class{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
      case 'W':
        return negated({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
      default:
        return std::nullopt;
    }
  }
  // After "[:".
  Class posix_class() {
    static const std::map<std::u32string, Class> kClasses = {
        {U"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
        {U"alpha", {{'A', 'Z'}, {'a', 'z'}}},
        {U"ascii", {{0, 127}}},
        {U"blank", {{'\t', '\t'}, {' ', ' '}}},
        {U"cntrl", {{0, 31}, {127, 127}}},
        {U"digit", {{'0', '9'}}},
        {U"graph", {{'!', '~'}}},
        {U"lower", {{'a', 'z'}}},
        {U"print", {{' ', '~'}}},
        {U"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
        {U"space", {{'\t', '\r'}, {' ', ' '}}},
        {U"upper", {{'A', 'Z'}}},
        {U"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
        {U"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
    };
    const bool negative = accept(U"^");
    for (const auto& [name, members] : kClasses)
      if (accept(name + U":]")) return negative ? negated(members) : members;
    wrong("an unknown class of characters");
  }

  // After "[", up to and with "]".
  Class bracket() {
    const bool negative = accept(U"^");
    Class out;
    auto add_all = [&](const Class& c) { out.insert(out.end(), c.begin(), c.end()); };
    for (bool first = true; first || !accept(U"]"); first = false) {
      if (accept(U"[:")) {
        add_all(posix_class());
        continue;
      }
      char32_t low = take("the end of a class");
      if (low == '\\') {
        if (auto known = more() ? perl_class(text_[at_]) : std::nullopt) {
          at_++;
          add_all(*known);
          continue;
        }
        low = escaped_character();
      }
      char32_t high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        at_++;
        high = take("the end of a range");
        if (high == '\\') high = escaped_character();
        if (high < low) wrong("a range that ends before it begins");
      }
      out.push_back({low, high});
    }
    return negative ? negated(with_cases(out)) : out;
  }

  // --- instructions ---

  uint32_t add(Regex::Instruction i) {
    if (out_.program_.size() >= kMostInstructions) wrong("it is too large");
    out_.program_.push_back(i);
    return static_cast<uint32_t>(out_.program_.size() - 1);
  }

  // Where to begin, so that what matches the node goes on at `next`.
  uint32_t emit(uint32_t which, uint32_t next) {
    const Node& n = nodes_[which];
    if (++emitted_ > 4 * kMostInstructions) wrong("it is too large");  // repetitions of nothing make no instructions
    switch (n.kind) {
      case Node::kEmpty:
        return next;
      case Node::kClass:
        return add({Regex::Op::kClass, n.argument, next});
      case Node::kAssert:
        return add({Regex::Op::kAssert, n.argument, next});
      case Node::kSequence:
        for (size_t i = n.children.size(); i-- > 0;) next = emit(n.children[i], next);
        return next;
      case Node::kChoice: {
        uint32_t begin = emit(n.children.back(), next);
        for (size_t i = n.children.size() - 1; i-- > 0;)
          begin = add({Regex::Op::kFork, begin, emit(n.children[i], next)});
        return begin;
      }
      case Node::kRepeat:
        return emit_repeat(n, next);
    }
    return next;
  }

  uint32_t emit_repeat(const Node& n, uint32_t next) {
    uint32_t begin = next;
    if (n.bounded) {
      for (uint32_t i = n.least; i < n.most; i++) begin = add({Regex::Op::kFork, next, emit(n.children[0], begin)});
    } else {
      begin = add({Regex::Op::kFork, next, 0});
      const uint32_t once = emit(n.children[0], begin);
      out_.program_[begin].next = once;
    }
    for (uint32_t i = 0; i < n.least; i++) begin = emit(n.children[0], begin);
    return begin;
  }

  const std::string& pattern_;
  Regex& out_;
  std::u32string text_;
  size_t at_ = 0;
  uint32_t depth_ = 0, emitted_ = 0;
  Flags flags_;
  std::vector<Node> nodes_;
};

Regex::Regex(const std::string& pattern) { RegexCompiler(pattern, *this); }

// The ways to match that are alive before a character, each with the place where it began. Those that began first come
// first, and of several at one instruction only the first goes on.
struct Regex::Threads {
  explicit Threads(size_t instructions) : seen(instructions, 0) {}
  void clear() {
    alive.clear();
    generation++;
  }
  struct Thread {
    uint32_t at;
    size_t begin;
  };
  std::vector<Thread> alive;
  std::vector<uint32_t> seen, todo;
  uint32_t generation = 1;
};

bool Regex::contains(const Class& c, char32_t character) {
  auto it = std::upper_bound(c.begin(), c.end(), character, [](char32_t x, const Range& r) { return x < r.first; });
  return it != c.begin() && character <= std::prev(it)->last;
}

bool Regex::holds(uint32_t assertion, std::u32string_view text, size_t at) const {
  const bool first = at == 0, last = at == text.size();
  switch (assertion) {
    case kTextStart:
      return first;
    case kTextEnd:
      return last;
    case kLineStart:
      return first || text[at - 1] == '\n';
    case kLineEnd:
      return last || text[at] == '\n';
    default: {
      const bool edge = (!first && is_word(text[at - 1])) != (!last && is_word(text[at]));
      return edge == (assertion == kWordEdge);
    }
  }
}

// Adds instruction `start` and all that is reached from it without a character.
void Regex::follow(Threads& threads, uint32_t start, std::u32string_view text, size_t at, size_t begin) const {
  threads.todo.push_back(start);
  while (!threads.todo.empty()) {
    const uint32_t i = threads.todo.back();
    threads.todo.pop_back();
    if (threads.seen[i] == threads.generation) continue;
    threads.seen[i] = threads.generation;
    const Instruction& in = program_[i];
    if (in.op == Op::kFork) {
      threads.todo.push_back(in.argument);
      threads.todo.push_back(in.next);
    } else if (in.op == Op::kAssert) {
      if (holds(in.argument, text, at)) threads.todo.push_back(in.next);
    } else {
      threads.alive.push_back({i, begin});
    }
  }
}

std::optional<Regex::Match> Regex::run(std::u32string_view text, size_t from, bool whole) const {
  Threads now(program_.size()), next(program_.size());
  std::optional<Match> best;
  constexpr size_t kBetweenChecks = 1024;  // characters
  for (size_t at = from;; at++) {
    if (at % kBetweenChecks == 0) check_stop();
    if (!best && (!whole || at == from)) follow(now, start_, text, at, at);
    next.clear();
    for (const auto& thread : now.alive) {
      if (best && thread.begin > best->begin) break;
      const Instruction& in = program_[thread.at];
      if (in.op == Op::kAccept) {
        if (!whole || at == text.size()) best = Match{thread.begin, at - thread.begin};
      } else if (at < text.size() && contains(classes_[in.argument], text[at])) {
        follow(next, in.next, text, at + 1, thread.begin);
      }
    }
    std::swap(now, next);
    if (at >= text.size() || (now.alive.empty() && (best || whole))) return best;
  }
}

bool Regex::matches(std::u32string_view text) const { return run(text, 0, true).has_value(); }

std::optional<Regex::Match> Regex::find(std::u32string_view text, size_t from) const {
  if (from > text.size()) return std::nullopt;
  return run(text, from, false);
}

}  // namespace ingot
