// What flows between the parts of a graph at run time: a tensor, a sequence of tensors, or nothing.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// Strings as numbers: equal strings have equal numbers within one pool, so that a tensor of strings is one of 8-byte
// elements to everything that only moves or compares them, and memory filled with zeros is full of empty strings. A
// pool may stand on another, which it does not change.
class StringPool {
 public:
  explicit StringPool(const StringPool* base = nullptr) : base_(base) { add(""); }
  int64_t add(std::string_view);
  const std::string& get(int64_t) const;

 private:
  int64_t find(std::string_view) const;  // -1 when it is not there
  int64_t first() const { return base_ ? base_->first() + static_cast<int64_t>(base_->strings_.size()) : 0; }

  const StringPool* base_;
  std::vector<std::unique_ptr<const std::string>> strings_;
  std::unordered_map<std::string_view, int64_t> index_;
};

class Value {
 public:
  Value() = default;  // nothing: an optional without a value
  Value(ConstantPtr tensor) : tensor_(std::move(tensor)) {}
  explicit Value(std::vector<Value> items) : items_(std::make_shared<std::vector<Value>>(std::move(items))) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  bool is_sequence() const { return items_ != nullptr; }
  bool is_none() const { return !tensor_ && !items_; }
  const Constant& tensor() const { return *tensor_; }
  const ConstantPtr& tensor_ptr() const { return tensor_; }
  const std::vector<Value>& items() const { return *items_; }

  // The same with f(tensor) for every tensor in it.
  template <class F>
  Value map(const F& f) const {
    if (is_tensor()) return f(tensor_);
    if (is_none()) return {};
    std::vector<Value> mapped;
    for (const Value& item : items()) mapped.push_back(item.map(f));
    return Value(std::move(mapped));
  }

 private:
  ConstantPtr tensor_;
  std::shared_ptr<const std::vector<Value>> items_;
};

// A tensor of strings as it appears outside (Constant::strings) to and from the pool's numbers (Constant::bytes).
ConstantPtr intern_strings(const ConstantPtr&, StringPool&);
ConstantPtr spell_strings(const ConstantPtr&, const StringPool&);

}  // namespace ingot
