#include "planner/shared_weights.h"

#include <fmt/ranges.h>

#include <mutex>
#include <unordered_map>

#include "base/hash.h"

namespace ingot {
namespace {

struct Known {
  std::weak_ptr<const Constant> packed;
  int64_t form = 0;
};

struct Store {
  std::mutex mutex;
  std::unordered_map<std::string, Known> weights;
  size_t clean_at = 64;  // entries of freed weights are removed when there are so many
};

// Never destroyed: sessions may live as long as the process.
Store& store() {
  static Store* s = new Store;
  return *s;
}

std::optional<SharedWeight> find(const Store& s, const std::string& key) {
  const auto it = s.weights.find(key);
  if (it == s.weights.end()) return std::nullopt;
  if (ConstantPtr packed = it->second.packed.lock()) return SharedWeight{packed, it->second.form};
  return std::nullopt;
}

}  // namespace

std::string content_key(const Constant& c) {
  return fmt::format("{} {} {}", hash128_hex(c.bytes), name(c.dtype), fmt::join(c.dims, "x"));
}

std::optional<SharedWeight> find_shared_weight(const std::string& key) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  return find(s, key);
}

SharedWeight share_weight(const std::string& key, const SharedWeight& weight) {
  Store& s = store();
  const std::lock_guard lock(s.mutex);
  if (auto other = find(s, key)) return *other;
  if (s.weights.size() >= s.clean_at) {
    std::erase_if(s.weights, [](const auto& entry) { return entry.second.packed.expired(); });
    s.clean_at = 2 * s.weights.size() + 64;
  }
  s.weights[key] = {weight.packed, weight.form};
  return weight;
}

}  // namespace ingot
