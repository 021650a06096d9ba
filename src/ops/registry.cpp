#include "ops/op.h"

namespace ingot {

const OpRegistry& OpRegistry::get() {
  static const OpRegistry registry = [] {
    OpRegistry r;
    for (; ingot_ops_registrars[r.source_]; r.source_++) ingot_ops_registrars[r.source_](r);
    return r;
  }();
  return registry;
}

OpTraits& OpRegistry::add(OpDef def) {
  def.source = source_;
  std::string key = def.domain + ":" + def.name;
  const auto [it, added] = ops_.emplace(key, std::move(def));
  if (!added) fail(ErrorKind::Internal, "operator {} is registered twice", key);
  return it->second.traits;
}

const OpTraits& traits(const Node& node) {
  static const OpTraits none;
  const OpDef* def = OpRegistry::get().find(node.op, node.domain);
  return def ? def->traits : none;
}

const OpDef* OpRegistry::find(const std::string& op, const std::string& domain) const {
  auto it = ops_.find(domain + ":" + op);
  return it == ops_.end() ? nullptr : &it->second;
}

const OpDef& OpRegistry::need(const Node& node) const {
  const OpDef* def = find(node.op, node.domain);
  if (!def)
    throw Error(ErrorKind::Unsupported, node.label() + ": Ingot has no operator of this name",
                "`ingot version --operators` lists the operators there are");
  return *def;
}

std::vector<const OpDef*> OpRegistry::all() const {
  std::vector<const OpDef*> out;
  out.reserve(ops_.size());
  for (const auto& [key, def] : ops_) out.push_back(&def);
  return out;
}

}  // namespace ingot
