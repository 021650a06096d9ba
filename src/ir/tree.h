// The yaml of an Engine IR as a small tree that remembers its lines.
//
// Only what the IR needs: maps, lists and scalars. Aliases, anchors, tags, duplicate keys and second documents are
// refused: a hand-edited file must mean what it looks like, and a hostile one must not grow when read.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace ingot {

struct IrTree {
  enum Kind { Null, Scalar, List, Map };
  Kind kind = Null;
  int line = 0;
  bool quoted = false;            // a scalar in quotes is a string, whatever it looks like
  std::string text;               // of a scalar
  std::vector<std::string> keys;  // of a map, in the file's order
  std::vector<IrTree> items;      // of a list, or the values of a map

  const IrTree* find(std::string_view key) const;                  // nullptr when absent
  const IrTree& need(std::string_view key) const;                  // errors name the line
  void only(std::initializer_list<std::string_view> known) const;  // refuses other keys
  const IrTree& expect(Kind) const;                                // refuses other kinds

  const std::string& name() const;  // a scalar that is a name: any text
  int64_t integer() const;
  std::vector<std::string> names() const;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::InvalidModel,
                fmt::format("line {}: {}", line, fmt::format(format, std::forward<Args>(args)...)));
  }
};

// InvalidModel with a line number for text that is not such a yaml.
IrTree parse_ir_tree(std::string_view yaml);

}  // namespace ingot
