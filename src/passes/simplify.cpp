#include "passes/simplify.h"

#include <unordered_map>

#include "ops/op.h"
#include "passes/passes.h"

namespace ingot {
namespace {

// Rules shrink the graph, so these are never reached; they bound a mistake, such as two rules that undo each other.
constexpr int kMaxSweeps = 16, kMaxGrowth = 32;

using RuleTable = std::unordered_map<std::string, std::vector<bool (*)(Editor&, Editor::Handle)>>;

const RuleTable& rule_table() {
  static const RuleTable table = [] {
    RuleTable t;
    for (auto rules : {simplify_elementwise_rules(), simplify_narrow_rules(), simplify_quantize_rules(),
                       simplify_shape_rules(), simplify_transpose_rules()})
      for (const SimplifyRule& r : rules) t[r.op].push_back(r.apply);
    return t;
  }();
  return table;
}

bool apply_rules(Editor& e, Editor::Handle h) {
  if (!e.node(h).domain.empty()) return false;
  auto it = rule_table().find(e.node(h).op);
  if (it == rule_table().end()) return false;
  for (auto rule : it->second)
    if (rule(e, h)) return true;
  return false;
}

bool wanted(const Editor& e, const Node& n) {
  for (TensorId t : n.outputs)
    if (t != kNoTensor && (e.is_output(t) || !e.consumers(t).empty())) return true;
  return false;
}

}  // namespace

bool is_elementwise(const Node& n) {
  const OpDef* def = OpRegistry::get().find(n.op, n.domain);
  return def && def->expr;
}

bool broadcasts_all(const Node& n) { return is_elementwise(n) && !traits(n).like_first; }

void simplify(Graph& graph) {
  Editor e(graph);
  bool again = true;
  const Editor::Handle most = (e.size() + kMaxGrowth) * kMaxGrowth;
  for (int sweep = 0; again && sweep < kMaxSweeps; sweep++) {
    again = false;
    for (Editor::Handle h = 0; h < e.size() && e.size() < most; h++) {
      if (!e.alive(h)) continue;
      if (!wanted(e, e.node(h)))
        e.erase(h);  // so that what it read may become single-use
      else
        again |= apply_rules(e, h);
    }
  }
  e.finish();
}

}  // namespace ingot
