// ingot.Elementwise(x0, x1, ...) = f_0(x0, x1, ...), f_1(...), ...: groups of element-wise nodes as one loop.
//
// A group grows from its last node towards its operands. A maker of an operand joins when everything that reads it is
// in the group, or when its value has the shape of the result and can be a further result. Work is never done twice;
// a value smaller than the result joins only if it is cheap, since it would be computed for every element of the
// result.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "passes/constants.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr size_t kMaxOperands = 12, kMaxResults = 4;
constexpr size_t kMaxNodes = 48;
constexpr size_t kMaxSearch = 256;  // nodes looked at to rule out a cycle

// Fewer instructions than a load costs; everything else (exp, div, sqrt, ...) is worth keeping in memory.
bool is_cheap(const Node& n) {
  static const std::unordered_set<std::string> kCheap = {
      "Add", "Sub",  "Mul",   "Neg",     "Abs",  "Cast",           "Where",       "Not", "And", "Or",
      "Xor", "Less", "Equal", "Greater", "Relu", "GreaterOrEqual", "LessOrEqual", "Min", "Max", "Clip"};
  return n.domain.empty() && kCheap.contains(n.op);
}

bool joins(const Editor& e, const Node& n) {
  // What shapes already tell is never computed.
  return is_expressible(e, n) && !e.info(n.outputs[0]).values && !e.info(n.outputs[0]).constant;
}

struct Group {
  std::vector<Handle> nodes;  // a node stands before the makers of its operands
  std::set<TensorId> operands;
  std::vector<TensorId> results;
  bool has(Handle h) const { return std::find(nodes.begin(), nodes.end(), h) != nodes.end(); }
};

void add_operands(const Editor& e, Group& g, const Node& n) {
  for (TensorId t : n.inputs)
    if (t != kNoTensor && !scalar_value(e.info(t))) g.operands.insert(t);
}

// Would a result of p that others read come back into the group? Follows what reads it, outside of the group.
bool comes_back(const Editor& e, const Group& g, TensorId t) {
  std::vector<TensorId> todo = {t};
  std::unordered_set<Handle> seen;
  while (!todo.empty()) {
    TensorId at = todo.back();
    todo.pop_back();
    for (Handle h : e.consumers(at)) {
      if (at == t && g.has(h)) continue;
      if (g.has(h)) return true;
      if (!seen.insert(h).second) continue;
      if (seen.size() > kMaxSearch) return true;
      for (TensorId out : e.node(h).outputs)
        if (out != kNoTensor) todo.push_back(out);
    }
  }
  return false;
}

// May the maker p of operand t join? Sets `escapes` when t then is a further result.
bool may_join(const Editor& e, const Group& g, TensorId t, bool& escapes) {
  Handle h = e.producer(t);
  if (h == Editor::kNone || g.has(h) || g.nodes.size() >= kMaxNodes) return false;
  const Node& p = e.node(h);
  if (!joins(e, p)) return false;
  escapes = e.is_output(t);
  for (size_t i = 0; i < e.consumers(t).size() && !escapes; i++) escapes = !g.has(e.consumers(t)[i]);
  const bool same = same_shape(e.info(t), e.info(g.results[0]));
  if (!same && (escapes || !is_cheap(p))) return false;
  if (escapes && (g.results.size() >= kMaxResults || comes_back(e, g, t))) return false;
  size_t operands = g.operands.size() - 1;
  for (TensorId in : p.inputs)
    operands += in != kNoTensor && !g.operands.contains(in) && !scalar_value(e.info(in)) && !g.has(e.producer(in));
  return operands <= kMaxOperands;
}

Group grow(const Editor& e, Handle root) {
  Group g;
  g.nodes = {root};
  g.results = {e.node(root).outputs[0]};
  add_operands(e, g, e.node(root));
  if (g.operands.size() > kMaxOperands) return g;  // Sum of thousands: its own kernel takes them in groups
  for (bool progress = true; progress;) {
    progress = false;
    for (TensorId t : std::vector<TensorId>(g.operands.begin(), g.operands.end())) {
      bool escapes = false;
      if (!may_join(e, g, t, escapes)) continue;
      g.operands.erase(t);
      g.nodes.push_back(e.producer(t));
      if (escapes) g.results.push_back(t);
      add_operands(e, g, e.node(g.nodes.back()));
      for (Handle h : g.nodes) g.operands.erase(e.node(h).outputs[0]);
      progress = true;
    }
  }
  return g;
}

// Nodes in an order in which each finds its operands.
std::vector<Handle> in_order(const Editor& e, const Group& g) {
  std::vector<Handle> out;
  std::unordered_set<Handle> done;
  auto visit = [&](auto&& self, Handle h) -> void {
    if (!done.insert(h).second) return;
    for (TensorId t : e.node(h).inputs)
      if (e.producer(t) != Editor::kNone && g.has(e.producer(t))) self(self, e.producer(t));
    out.push_back(h);
  };
  for (Handle h : g.nodes) visit(visit, h);
  return out;
}

bool fuse(Editor& e, const Group& g) {
  ClusterExpr cluster(e);
  const std::vector<Handle> nodes = in_order(e, g);
  for (Handle h : nodes) cluster.add(e.node(h));
  if (cluster.size() > kMaxClusterInstructions + cluster.operands().size() || cluster.operands().size() > kMaxOperands)
    return false;
  Node fused{.op = "Elementwise", .domain = "ingot", .name = e.node(g.nodes[0]).name, .inputs = cluster.operands()};
  fused.outputs = g.results;
  std::vector<std::string> dtypes;
  for (TensorId t : g.results) dtypes.emplace_back(name(e.info(t).dtype));
  fused.attrs = {{"expr", cluster.finish(g.results).str()}, {"dtypes", dtypes}};
  fused.origins = joined_origins(e, nodes);
  for (Handle h : nodes) e.erase(h);
  e.add(std::move(fused));
  return true;
}

void run(Editor& e, const Explain& explain) {
  for (Handle h = e.size(); h-- > 0;) {
    if (!e.alive(h) || !joins(e, e.node(h))) continue;
    Group g = grow(e, h);
    if (g.nodes.size() < 2) continue;
    const std::string label = e.node(h).label();
    const bool done = fuse(e, g);
    if (explain) explain(label, done ? "matched" : "the group has too many operands or instructions");
  }
}

}  // namespace

void register_elementwise(FusionRegistry& registry) {
  registry.add({.name = "elementwise", .formula = "g(f(x), y) -> ingot.Elementwise(x, y)", .pass = run});
}

}  // namespace ingot
