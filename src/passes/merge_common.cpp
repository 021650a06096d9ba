// Common subexpressions. A node's key spells its operator, attributes and operands; equal keys compute equal values.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "ops/op.h"
#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr size_t kSmallBytes = 4096;  // constants up to here are compared by content

std::string bytes_text(std::span<const std::byte> b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

std::string constant_key(const Constant& c) {
  std::string key = fmt::format("{}[{}]", name(c.dtype), fmt::join(c.dims, ","));
  for (const std::string& s : c.strings) key += fmt::format("{}:{}", s.size(), s);
  if (c.bytes.size() <= kSmallBytes) return key + bytes_text(c.bytes);
  return key + fmt::format("@{}", static_cast<const void*>(c.bytes.data()));
}

std::string text(const Attribute& a) {
  struct Spell {
    std::string operator()(int64_t v) const { return fmt::format("i{}", v); }
    std::string operator()(float v) const { return fmt::format("f{}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("s{}:{}", v.size(), v); }
    std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("I{}", fmt::join(v, ",")); }
    std::string operator()(const std::vector<float>& v) const { return fmt::format("F{}", fmt::join(v, ",")); }
    std::string operator()(const std::vector<std::string>& v) const {
      std::string out = "S";
      for (const auto& s : v) out += fmt::format("{}:{},", s.size(), s);
      return out;
    }
    std::string operator()(const ConstantPtr& v) const { return "c" + constant_key(*v); }
    std::string operator()(const GraphPtr& v) const { return fmt::format("g{}", static_cast<const void*>(v.get())); }
  };
  return std::visit(Spell{}, a);
}

std::string node_key(const Node& n) {
  std::string key = n.domain + "." + n.op + fmt::format("/{}(", n.outputs.size());
  for (size_t i = 0; i < n.outputs.size(); i++) key += n.outputs[i] == kNoTensor ? '-' : '+';
  key += fmt::format(";{})", fmt::join(n.inputs, ","));
  for (const auto& [k, v] : n.attrs) key += k + "=" + text(v) + ";";
  return key;
}

void merge_constants(Editor& e) {
  std::unordered_map<std::string, TensorId> seen;
  for (TensorId t = 0; t < static_cast<TensorId>(e.graph.tensors.size()); t++) {
    if (!e.is_constant(t) || e.consumers(t).empty()) continue;
    auto [it, fresh] = seen.emplace(constant_key(*e.info(t).constant), t);
    if (!fresh && !e.is_output(t)) e.replace_uses(t, it->second);
  }
}

}  // namespace

void merge_common(Graph& graph) {
  Editor e(graph);
  merge_constants(e);
  std::unordered_map<std::string, Editor::Handle> seen;
  for (Editor::Handle h = 0, end = e.size(); h < end; h++) {
    const Node& n = e.node(h);
    if (traits(n).random) continue;
    auto [it, fresh] = seen.emplace(node_key(n), h);
    if (fresh) continue;
    const Node& first = e.node(it->second);
    // Two graph outputs stay two tensors.
    if (std::any_of(n.outputs.begin(), n.outputs.end(), [&](TensorId t) { return t != kNoTensor && e.is_output(t); }))
      continue;
    for (size_t i = 0; i < n.outputs.size(); i++)
      if (n.outputs[i] != kNoTensor) e.replace_uses(n.outputs[i], first.outputs[i]);
    e.erase(h);
  }
  e.finish();
}

}  // namespace ingot
