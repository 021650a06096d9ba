#include "graph/value.h"

#include "base/error.h"

namespace ingot {

int64_t StringPool::find(std::string_view text) const {
  if (base_)
    if (const int64_t found = base_->find(text); found >= 0) return found;
  const auto it = index_.find(text);
  return it == index_.end() ? -1 : it->second;
}

int64_t StringPool::add(std::string_view text) {
  if (const int64_t found = find(text); found >= 0) return found;
  strings_.push_back(std::make_unique<const std::string>(text));
  const int64_t id = first() + static_cast<int64_t>(strings_.size()) - 1;
  index_.emplace(*strings_.back(), id);
  return id;
}

const std::string& StringPool::get(int64_t id) const {
  if (base_ && id < first()) return base_->get(id);
  const int64_t at = id - first();
  if (at < 0 || at >= static_cast<int64_t>(strings_.size())) fail(ErrorKind::Internal, "there is no string {}", id);
  return *strings_[static_cast<size_t>(at)];
}

ConstantPtr intern_strings(const ConstantPtr& c, StringPool& pool) {
  std::vector<int64_t> ids;
  for (const std::string& s : c->strings) ids.push_back(pool.add(s));
  return make_constant(DType::String, c->dims, ids);
}

ConstantPtr spell_strings(const ConstantPtr& c, const StringPool& pool) {
  auto out = std::make_shared<Constant>();
  out->dtype = DType::String;
  out->dims = c->dims;
  for (int64_t id : c->as<int64_t>()) out->strings.push_back(pool.get(id));
  return out;
}

}  // namespace ingot
