// ingot.Reduce(x0, x1, ...) = post(reduce over axes of pre(x0, x1, ...)): element-wise nodes before and after a
// reduction are computed while it runs.
//   ReduceSum(Mul(a, b)) -> pre "mul(x0, x1)";  Sqrt(ReduceSum(x)) -> post "sqrt(x0)"
// kinds: sum, mean, prod, max, min. ReduceL2, ReduceSumSquare, ReduceL1 and ReduceLogSum are written with them.
#include <algorithm>
#include <map>

#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/reduction.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr size_t kMaxOperands = 6;

struct Kind {
  const char* kind;
  const char* pre;   // over the data, "" for none
  const char* post;  // over the reduced value, "" for none
};
const std::map<std::string, Kind> kKinds = {
    {"ReduceSum", {"sum", "", ""}},       {"ReduceMean", {"mean", "", ""}},        {"ReduceProd", {"prod", "", ""}},
    {"ReduceMax", {"max", "", ""}},       {"ReduceMin", {"min", "", ""}},          {"ReduceL1", {"sum", "abs", ""}},
    {"ReduceL2", {"sum", "mul", "sqrt"}}, {"ReduceSumSquare", {"sum", "mul", ""}}, {"ReduceLogSum", {"sum", "", "log"}},
};

// The nodes that make x and nothing else, with values of the same shape as x; each before the makers of its operands.
std::vector<Handle> makers(const Editor& e, TensorId x) {
  std::vector<Handle> nodes;
  std::vector<TensorId> todo = {x};
  size_t operands = 1;
  while (!todo.empty()) {
    TensorId t = todo.back();
    todo.pop_back();
    Handle h = e.producer(t);
    if (h == Editor::kNone || nodes.size() >= 16 || !is_expressible(e, e.node(h)) || !same_shape(e.info(t), e.info(x)))
      continue;
    if (e.is_output(t) || e.info(t).dtype != DType::F32) continue;
    const auto& users = e.consumers(t);
    // All readers are inside; the reduction itself is the only reader of x.
    const bool inside = t == x ? users.size() == 1 : std::all_of(users.begin(), users.end(), [&](Handle u) {
      return std::find(nodes.begin(), nodes.end(), u) != nodes.end();
    });
    if (!inside || std::find(nodes.begin(), nodes.end(), h) != nodes.end()) continue;
    size_t more = 0;
    for (TensorId in : e.node(h).inputs) more += in != kNoTensor && !scalar_value(e.info(in));
    if (operands - 1 + more > kMaxOperands) continue;
    operands += more - 1;
    nodes.push_back(h);
    for (TensorId in : e.node(h).inputs)
      if (in != kNoTensor) todo.push_back(in);
  }
  return nodes;
}

bool all_f32(const Editor& e, const ClusterExpr& r) {
  return std::all_of(r.operands().begin(), r.operands().end(),
                     [&](TensorId t) { return e.info(t).dtype == DType::F32; });
}

// The expression before the reduction and its operands; false when the plain operand is as good.
bool read_pre(const Editor& e, const Node& n, const Kind& kind, std::vector<Handle>& nodes, ClusterExpr& cluster) {
  const TensorId x = n.inputs[0];
  nodes = makers(e, x);
  for (size_t i = nodes.size(); i-- > 0;) cluster.add(e.node(nodes[i]));
  if (nodes.empty()) cluster.define(x, cluster.operand(x));
  if (!all_f32(e, cluster) || cluster.operands().size() > kMaxOperands) return false;
  const int v = cluster.instruction(x);
  if (kind.pre[0])
    cluster.define(x,
                   cluster.expr().call(kind.pre, kind.pre == std::string("mul") ? std::vector{v, v} : std::vector{v}));
  return true;
}

std::string fuse(Editor& e, Handle h, const Kind& kind) {
  const Node n = e.node(h);
  const TensorId x = n.inputs[0], y = n.outputs[0];
  auto axes = known_axes(e, n);
  if (!axes || !e.info(y).shape) return "the axes are not known";
  if (!is_f32(e.info(x)) || !is_f32(e.info(y))) return "not f32";
  ClusterExpr cluster(e);
  std::vector<Handle> nodes;
  if (!read_pre(e, n, kind, nodes, cluster)) return "its operands are not f32, or too many";
  Expr pre = cluster.finish({x});

  ClusterExpr after(e);
  after.define(y, after.operand(y));
  if (kind.post[0]) after.define(y, after.expr().call(kind.post, {after.instruction(y)}));
  EpilogueNodes post = grow_epilogue(e, y, after, EpilogueTypes::kF32, [](TensorId) { return false; });
  const bool plain = nodes.empty() && post.nodes.empty();
  if (plain) return "nothing element-wise stands before or after it alone";

  Node fused{.op = "Reduce", .domain = "ingot", .name = n.name, .inputs = cluster.operands()};
  fused.outputs = {post.result};
  fused.attrs = {{"kind", std::string(kind.kind)},
                 {"axes", *axes},
                 {"keepdims", n.get_int("keepdims", 1)},
                 {"dtypes", std::vector<std::string>{std::string(name(e.info(post.result).dtype))}}};
  if (pre.code[static_cast<size_t>(pre.results[0])].kind != ExprInstr::kInput) fused.attrs["pre"] = pre.str();
  if (!post.expr.empty()) fused.attrs["post"] = post.expr;
  nodes.push_back(h);
  nodes.insert(nodes.end(), post.nodes.begin(), post.nodes.end());
  fused.origins = joined_origins(e, nodes);
  for (Handle gone : nodes) e.erase(gone);
  e.add(std::move(fused));
  return "";
}

void run(Editor& e, const Explain& explain) {
  for (Handle h = e.size(); h-- > 0;) {
    if (!e.alive(h) || !e.node(h).domain.empty()) continue;
    auto it = kKinds.find(e.node(h).op);
    if (it == kKinds.end()) continue;
    const std::string label = e.node(h).label();
    std::string why = fuse(e, h, it->second);
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace

void register_reduce(FusionRegistry& registry) {
  registry.add({.name = "reduce", .formula = "post(Reduce(pre(x, ...))) -> ingot.Reduce(x, ...)", .pass = run});
}

}  // namespace ingot
