#include "matcher/cluster.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "matcher/fusion.h"
#include "ops/op.h"
#include "ops/via_f32.h"
#include "passes/constants.h"

namespace ingot {
namespace {

bool computes_with(DType t) {
  switch (t) {
    case DType::F16:
    case DType::BF16:
    case DType::F32:
    case DType::F64:
    case DType::Bool:
      return true;
    default:
      return is_integer(t) && bits(t) >= 8;
  }
}

std::vector<DType> operand_types(const Editor& e, const Node& n) {
  std::vector<DType> types;
  for (TensorId t : n.inputs) types.push_back(t == kNoTensor ? DType::Undefined : e.info(t).dtype);
  return types;
}

}  // namespace

bool is_expressible(const Editor& e, const Node& n) {
  if (n.inputs.size() > kMaxClusterInstructions) return false;  // a Sum of thousands
  const OpDef* def = OpRegistry::get().find(n.op, n.domain);
  if (!def || !def->expr || n.outputs.size() != 1 || n.inputs.empty()) return false;
  for (TensorId t : n.inputs)
    if (t != kNoTensor && !computes_with(e.info(t).dtype)) return false;
  const auto& shape = e.info(n.outputs[0]).shape;
  if (!shape || !computes_with(e.info(n.outputs[0]).dtype)) return false;
  // A bound of one element may have a higher rank than the result, to which a loop would broadcast.
  for (TensorId t : n.inputs)
    if (t != kNoTensor && (!e.info(t).shape || e.info(t).shape->size() > shape->size())) return false;
  return true;
}

int ClusterExpr::operand(TensorId t) {
  auto it = std::find(operands_.begin(), operands_.end(), t);
  const auto index = static_cast<int>(it - operands_.begin());
  if (it == operands_.end()) {
    operands_.push_back(t);
    expr_.input_types.push_back(e_.info(t).dtype);
  }
  return narrow(expr_.input(index), e_.info(t).dtype);
}

int ClusterExpr::narrow(int instruction, DType stored) {
  if (value_type(stored) != stored) narrow_[instruction] = stored;
  return instruction;
}

// Instruction `i`, of a node whose result is stored as `stored`, rounded as it would be in memory.
int ClusterExpr::rounded(int i, DType stored) {
  if (value_type(stored) == stored) return i;
  static const std::unordered_set<std::string> kSelect = {"relu", "neg", "abs", "min", "max", "clip", "where"};
  auto is_narrow = [&](int k) {
    const auto it = narrow_.find(k);
    return expr_.code[static_cast<size_t>(k)].dtype == DType::Bool || (it != narrow_.end() && it->second == stored);
  };
  const ExprInstr& made = expr_.code[static_cast<size_t>(i)];
  const bool exact = is_narrow(i) || (kSelect.contains(made.op) && std::ranges::all_of(made.args, is_narrow));
  return narrow(exact ? i : expr_.call(stored == DType::F16 ? "round_f16" : "round_bf16", {i}), stored);
}

// A constant with one element that does not raise the rank of the result.
bool ClusterExpr::is_literal(const Node& n, TensorId t) const {
  auto value = scalar_value(e_.info(t));
  if (!value || (is_integer(e_.info(t).dtype) && std::fabs(*value) > 0x1p53)) return false;  // literals are doubles
  const size_t rank = e_.info(t).shape->size();
  for (TensorId other : n.inputs)
    if (other != kNoTensor && other != t && e_.info(other).shape && e_.info(other).shape->size() >= rank &&
        (rank == 0 || !scalar_value(e_.info(other))))
      return true;
  return false;
}

std::vector<TensorId> ClusterExpr::new_operands(const Node& n) const {
  std::vector<TensorId> out;
  for (TensorId t : n.inputs) {
    if (t == kNoTensor || makes(t) || is_literal(n, t)) continue;
    if (std::find(operands_.begin(), operands_.end(), t) != operands_.end()) continue;
    if (std::find(out.begin(), out.end(), t) == out.end()) out.push_back(t);
  }
  return out;
}

void ClusterExpr::add(const Node& n) {
  std::vector<int> map;
  for (TensorId t : n.inputs) {
    if (t == kNoTensor)
      map.push_back(-1);
    else if (makes(t))
      map.push_back(made_.at(t));
    else if (is_literal(n, t))
      map.push_back(narrow(expr_.constant(*scalar_value(e_.info(t)), e_.info(t).dtype), e_.info(t).dtype));
    else
      map.push_back(operand(t));
  }
  const OpDef& def = OpRegistry::get().need(n);
  std::vector<int> results = expr_.inline_expr(def.expr(n, operand_types(e_, n)), map);
  define(n.outputs[0], rounded(results.at(0), e_.info(n.outputs[0]).dtype));
}

Expr ClusterExpr::finish(const std::vector<TensorId>& results) const {
  Expr out = expr_;
  out.results.clear();
  out.result_types.clear();
  for (TensorId t : results) {
    const DType stored = e_.info(t).dtype;
    const ExprInstr& last = out.code[static_cast<size_t>(made_.at(t))];
    const bool twice = last.op == "round_" + std::string(name(stored));  // storing rounds too
    out.results.push_back(twice ? last.args[0] : made_.at(t));
    out.result_types.push_back(stored);
  }
  // One order for operands that may stand in any: equal computations then have equal text, and share a kernel.
  for (ExprInstr& i : out.code)
    if ((i.op == "add" || i.op == "mul" || i.op == "and" || i.op == "or") && i.args[0] > i.args[1])
      std::swap(i.args[0], i.args[1]);
  out.remove_dead();
  return out;
}

namespace {

using Handle = Editor::Handle;

constexpr size_t kMaxEpilogueNodes = 32;

// Element-wise nodes of the same shape that depend on `value` through each other, nearest first.
std::vector<Handle> downstream(const Editor& e, TensorId value) {
  std::vector<Handle> found;
  std::vector<TensorId> frontier = {value};
  const TensorInfo& like = e.info(value);
  for (size_t i = 0; i < frontier.size() && found.size() < kMaxEpilogueNodes; i++)
    for (Handle h : e.consumers(frontier[i])) {
      if (std::find(found.begin(), found.end(), h) != found.end() || !is_expressible(e, e.node(h))) continue;
      if (!same_shape(e.info(e.node(h).outputs[0]), like)) continue;
      found.push_back(h);
      frontier.push_back(e.node(h).outputs[0]);
    }
  return found;
}

bool contains(const std::vector<Handle>& v, Handle h) { return std::find(v.begin(), v.end(), h) != v.end(); }

// The one value of the cluster that others read, or kNoTensor when there are more.
TensorId only_escaping(const Editor& e, TensorId value, const std::vector<Handle>& nodes) {
  TensorId found = kNoTensor;
  auto look = [&](TensorId t) {
    bool escapes = e.is_output(t);
    for (Handle h : e.consumers(t)) escapes |= !contains(nodes, h);
    if (!escapes) return true;
    if (found != kNoTensor) return false;
    found = t;
    return true;
  };
  if (!look(value)) return kNoTensor;
  for (Handle h : nodes)
    if (!look(e.node(h).outputs[0])) return kNoTensor;
  return found;
}

}  // namespace

namespace {

// Operand t of a cluster is made of an 8-bit tensor of the same shape by a cast, a subtraction and a multiplication:
// the cluster computes it from there.
void read_as_bytes(const Editor& e, TensorId t, const TensorInfo& like, ClusterExpr& cluster) {
  constexpr size_t kMost = 3;
  std::vector<const Node*> chain;
  for (TensorId at = t; chain.size() <= kMost;) {
    if (bits(e.info(at).dtype) == 8) break;
    const Node* n = e.maker(at);
    if (!n || !is_expressible(e, *n) || !same_shape(e.info(at), like)) return;
    if (n->op != "Cast" && n->op != "Sub" && n->op != "Mul") return;
    if (n->inputs.size() > 1 && !scalar_value(e.info(n->inputs[1]))) return;
    chain.push_back(n);
    at = n->inputs[0];
  }
  if (chain.size() > kMost) return;
  for (size_t i = chain.size(); i-- > 0;)
    if (!cluster.makes(chain[i]->outputs[0])) cluster.add(*chain[i]);
}

}  // namespace

EpilogueNodes grow_epilogue(const Editor& e, TensorId value, ClusterExpr cluster, EpilogueTypes types,
                            const std::function<bool(TensorId)>& allowed) {
  const std::vector<Handle> candidates = downstream(e, value);
  const TensorInfo like = e.info(value);
  std::vector<Handle> nodes;
  auto ready = [&](Handle h) {
    for (TensorId t : e.node(h).inputs) {
      Handle p = e.producer(t);
      if (p != Editor::kNone && contains(candidates, p) && !contains(nodes, p)) return false;
    }
    return true;
  };
  auto fits = [&](Handle h) {
    if (types == EpilogueTypes::kAny && cluster.operands().size() <= kMaxEpilogueOperands)
      for (TensorId t : cluster.new_operands(e.node(h))) read_as_bytes(e, t, like, cluster);
    std::vector<TensorId> more = cluster.new_operands(e.node(h));
    return cluster.operands().size() - 1 + more.size() <= kMaxEpilogueOperands &&
           cluster.size() < kMaxClusterInstructions && std::all_of(more.begin(), more.end(), allowed);
  };
  auto snapshot = [&](TensorId result) {
    EpilogueNodes out{nodes, result, {cluster.operands().begin() + 1, cluster.operands().end()}, ""};
    Expr expr = cluster.finish({result});
    const ExprInstr& last = expr.code[static_cast<size_t>(expr.results[0])];
    if (last.kind != ExprInstr::kInput) out.expr = expr.str();
    return out;
  };
  EpilogueNodes best = snapshot(value);
  for (bool progress = true; progress;) {
    progress = false;
    for (Handle h : candidates) {
      if (contains(nodes, h) || !ready(h) || !fits(h)) continue;
      cluster.add(e.node(h));
      nodes.push_back(h);
      progress = true;
      TensorId result = only_escaping(e, value, nodes);
      if (result == kNoTensor) continue;
      const DType type = e.info(result).dtype, before = e.info(value).dtype;
      // An epilogue that has come down to 8 bits is not widened again: whoever reads it can do that. Integer products
      // store no 16-bit floats.
      const bool can_be = type == before || (types == EpilogueTypes::kAny && !is_half(type));
      if (can_be && bits(type) <= bits(e.info(best.result).dtype)) best = snapshot(result);
    }
  }
  return best;
}

void replace_with_epilogue(Editor& e, Handle node, Node fused, const EpilogueNodes& epilogue) {
  std::vector<Handle> nodes = {node};
  nodes.insert(nodes.end(), epilogue.nodes.begin(), epilogue.nodes.end());
  fused.inputs.insert(fused.inputs.end(), epilogue.operands.begin(), epilogue.operands.end());
  fused.outputs = {epilogue.result};
  if (!epilogue.expr.empty()) fused.attrs["epilogue"] = epilogue.expr;
  fused.origins = joined_origins(e, nodes);
  for (Handle gone : nodes) e.erase(gone);
  e.add(std::move(fused));
}

bool row_column_operand(const Editor& e, TensorId t, const Shape& out, EpilogueTypes types) {
  const TensorInfo& info = e.info(t);
  if ((types == EpilogueTypes::kF32 && info.dtype != DType::F32) || !computes_with(info.dtype)) return false;
  if (!info.shape || info.shape->size() > out.size() || out.empty()) return false;
  if (product(*info.shape).is(1)) return true;
  const Shape s = padded_shape(*info.shape, out.size());
  if (same_shape(s, out)) return true;
  const bool vector = std::all_of(s.begin(), s.end() - 1, [](const Dim& d) { return d.is(1); });
  if (vector) return s.back() == out.back();
  return s.back().is(1) && std::equal(s.begin(), s.end() - 1, out.begin());
}

}  // namespace ingot
