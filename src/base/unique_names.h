// Names that do not collide: the wished one, or it with a number after it. Constant time, also when thousands wish for
// the same name.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace ingot {

class UniqueNames {
 public:
  // False if the name was taken already.
  bool take(const std::string& name) { return taken_.insert(name).second; }

  std::string make(const std::string& wish) {
    if (take(wish)) return wish;
    for (int& next = next_[wish];;) {
      std::string name = wish + "_" + std::to_string(++next);
      if (take(name)) return name;
    }
  }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_;
};

}  // namespace ingot
