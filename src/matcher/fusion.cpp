#include "matcher/fusion.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "passes/constants.h"

namespace ingot {
namespace {

bool try_pattern(Editor& e, const Fusion& fusion, const match::Pattern& pattern, Editor::Handle h,
                 const Explain& explain) {
  auto m = match::find(e, pattern, h);
  if (!m) return false;
  const std::string label = e.node(h).label();
  std::string why = match::used_elsewhere(e, *m);
  if (why.empty()) why = fusion.rewrite(e, *m);
  if (explain) explain(label, why.empty() ? "matched" : why);
  return why.empty();
}

void run_patterns(Editor& e, const Fusion& fusion, const Explain& explain) {
  std::unordered_map<std::string, std::vector<const match::Pattern*>> by_root;
  for (const match::Pattern& p : fusion.patterns) {
    std::unordered_set<std::string> seen;
    for (const std::string& op : match::root_operators(p))
      if (seen.insert(op).second) by_root[op].push_back(&p);
  }
  for (Editor::Handle h = e.size(); h-- > 0;) {
    if (!e.alive(h) || !e.node(h).domain.empty()) continue;
    auto it = by_root.find(e.node(h).op);
    if (it == by_root.end()) continue;
    for (const match::Pattern* p : it->second)
      if (try_pattern(e, fusion, *p, h, explain)) break;
  }
}

}  // namespace

const FusionRegistry& FusionRegistry::get() {
  static const FusionRegistry registry = [] {
    FusionRegistry r;
    for (auto* add = ingot_fusions_registrars; *add; add++) (*add)(r);
    return r;
  }();
  return registry;
}

const Fusion* FusionRegistry::find(std::string_view name) const {
  auto it = std::find_if(fusions_.begin(), fusions_.end(), [&](const Fusion& f) { return f.name == name; });
  return it == fusions_.end() ? nullptr : &*it;
}

void run_fusion(Graph& graph, const Fusion& fusion, const Explain& explain) {
  Editor e(graph);
  if (fusion.pass)
    fusion.pass(e, explain);
  else
    run_patterns(e, fusion, explain);
  e.finish();
}

std::vector<std::string> joined_origins(const Editor& e, const std::vector<Editor::Handle>& nodes) {
  std::vector<std::string> out;
  std::unordered_set<std::string> seen;
  for (Editor::Handle h : nodes)
    for (const std::string& name : e.node(h).origins)
      if (seen.insert(name).second) out.push_back(name);
  return out;
}

Editor::Handle replace_match(Editor& e, const match::Match& m, Node with) {
  with.origins = joined_origins(e, m.nodes);
  Editor::Handle h = e.replace(m.root, std::move(with));
  // From the last to the first, each has lost its readers.
  for (size_t i = m.nodes.size(); i-- > 0;)
    if (m.nodes[i] != m.root) e.erase(m.nodes[i]);
  return h;
}

std::string replace_function(Editor& e, const match::Match& m, Node with) {
  const TensorId x = m.value("x");
  if (!same_shape(e.info(x), e.info(e.node(m.root).outputs[0]))) return "a constant in it broadcasts x";
  with.inputs = {x};
  replace_match(e, m, std::move(with));
  return "";
}

void fuse_each(Editor& e, const Explain& explain, bool (*wanted)(const Node&),
               std::string (*fuse)(Editor&, Editor::Handle)) {
  for (Editor::Handle h = e.size(); h-- > 0;) {
    if (!e.alive(h) || !wanted(e.node(h))) continue;
    const std::string label = e.node(h).label(), why = fuse(e, h);
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace ingot
