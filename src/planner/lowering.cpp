#include "planner/lowering.h"

#include <algorithm>
#include <cstring>

#include "base/stop.h"

namespace ingot {
namespace {

bool is_known(const TensorInfo& info) { return info.values || info.constant; }

bool outputs_known(const Node& node, const std::vector<TensorInfo>& infos) {
  return std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](TensorId t) { return t == kNoTensor || is_known(infos[static_cast<size_t>(t)]); });
}

bool same_constant(const ConstantPtr& a, const ConstantPtr& b) {
  constexpr size_t kMostCompared = kMaxValues * sizeof(int64_t);
  if (a == b) return true;
  return a && b && a->dtype == b->dtype && a->dims == b->dims && a->bytes.size() == b->bytes.size() &&
         a->bytes.size() <= kMostCompared && std::memcmp(a->bytes.data(), b->bytes.data(), a->bytes.size()) == 0;
}

bool same_info(const TensorInfo& a, const TensorInfo& b) {
  return a.dtype == b.dtype && a.form == b.form && a.shape == b.shape && a.values == b.values &&
         same_constant(a.constant, b.constant);
}

std::vector<bool> ancestor_nodes(const Graph& g, const std::vector<TensorId>& targets) {
  std::vector<bool> tensor(g.tensors.size()), node(g.nodes.size());
  for (TensorId t : targets) tensor[static_cast<size_t>(t)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    for (TensorId t : g.nodes[i].outputs)
      if (t != kNoTensor && tensor[static_cast<size_t>(t)]) node[i] = true;
    if (!node[i]) continue;
    for (TensorId t : g.nodes[i].inputs)
      if (t != kNoTensor) tensor[static_cast<size_t>(t)] = true;
  }
  return node;
}

}  // namespace

Lowering::Lowering(const Graph& g, std::vector<TensorId> targets)
    : graph_(g),
      targets_(std::move(targets)),
      uses_(g),
      infos_(g.tensors.size()),
      ancestors_(ancestor_nodes(g, targets_)),
      to_infer_(ancestors_),
      to_lower_(g.nodes.size(), true),
      needed_(g.nodes.size()),
      nodes_(g.nodes.size()) {
  for (size_t i = 0; i < g.tensors.size(); i++)
    if (g.tensors[i].info.constant) infos_[i] = g.tensors[i].info;
}

void Lowering::set_info(TensorId t, TensorInfo info) {
  TensorInfo& known = infos_[static_cast<size_t>(t)];
  if (same_info(known, info)) return;
  for (int consumer : uses_.consumers[static_cast<size_t>(t)])
    to_infer_[static_cast<size_t>(consumer)] = to_lower_[static_cast<size_t>(consumer)] = true;
  if (const int producer = uses_.producer[static_cast<size_t>(t)]; producer >= 0)
    to_lower_[static_cast<size_t>(producer)] = true;
  find_needed_ |= is_known(known) != is_known(info);
  known = std::move(info);
}

void Lowering::set_input(size_t index, const PlanInput& input, const KnownValues& known) {
  const TensorId t = graph_.inputs[index];
  TensorInfo info;
  info.dtype = graph_.info(t).dtype;
  info.shape = to_shape(input.dims);
  if (!input.elements.empty())
    info.constant = make_constant(info.dtype, input.dims, std::as_bytes(std::span(input.elements)));
  if (auto it = known.find(t); it != known.end()) info.constant = it->second;
  set_info(t, std::move(info));
}

void Lowering::infer(size_t index) {
  const Node& node = graph_.nodes[index];
  std::vector<TensorInfo> outs;
  try {
    outs = infer_node(graph_, node, infos_, true);
  } catch (const ValuesNeeded& needed) {
    const TensorId t = node.inputs[needed.input];
    if (known_.contains(t))
      fail(ErrorKind::Unsupported, "{}: tensor '{}' decides a shape, which its {} elements cannot", node.label(),
           graph_.tensor(t).name, name(infos_[static_cast<size_t>(t)].dtype));
    throw DataNeeded{t};
  }
  for (size_t i = 0; i < outs.size(); i++) {
    const TensorId t = node.outputs[i];
    if (t == kNoTensor) continue;
    if (!outs[i].shape || !is_const(*outs[i].shape))
      fail(ErrorKind::Unsupported, "{}: the size of result '{}' depends on data", node.label(), graph_.tensor(t).name);
    if (auto it = known_.find(t); it != known_.end()) outs[i].constant = it->second;
    set_info(t, std::move(outs[i]));
  }
  to_infer_[index] = false;
}

void Lowering::lower(size_t index) {
  const Node& node = graph_.nodes[index];
  auto infos_of = [&](const std::vector<TensorId>& ids) {
    std::vector<const TensorInfo*> out;
    out.reserve(ids.size());
    for (TensorId t : ids) out.push_back(t == kNoTensor ? nullptr : &infos_[static_cast<size_t>(t)]);
    return out;
  };
  const OpDef& def = OpRegistry::get().need(node);
  if (!def.lower) fail(ErrorKind::Unsupported, "{}: there is no kernel for this operator yet", node.label());
  LowerContext ctx(node, target_of(graph_), infos_of(node.inputs), infos_of(node.outputs));
  def.lower(ctx);
  auto lowered = std::make_shared<LoweredNode>();
  lowered->views = std::move(ctx.views);
  for (Step& s : ctx.steps)
    if (s.units > 0)  // otherwise nothing to compute: an empty tensor
      lowered->steps.push_back({.step = std::move(s)});
  nodes_[index] = std::move(lowered);
  to_lower_[index] = false;
}

// Nodes needed for the targets, not counting those whose results are known from shapes.
void Lowering::find_needed() {
  std::vector<bool> tensor(graph_.tensors.size());
  for (TensorId t : targets_) tensor[static_cast<size_t>(t)] = true;
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    const Node& n = graph_.nodes[i];
    needed_[i] = ancestors_[i] &&
                 std::any_of(n.outputs.begin(), n.outputs.end(),
                             [&](TensorId t) { return t != kNoTensor && tensor[static_cast<size_t>(t)]; }) &&
                 !outputs_known(n, infos_);
    if (!needed_[i]) continue;
    for (TensorId t : n.inputs)
      if (t != kNoTensor) tensor[static_cast<size_t>(t)] = true;
  }
  find_needed_ = false;
}

void Lowering::update(const PlanInputs& inputs, const KnownValues& known) {
  auto infer_maker = [&](TensorId t) {
    if (const int maker = uses_.producer[static_cast<size_t>(t)]; maker >= 0)
      to_infer_[static_cast<size_t>(maker)] = ancestors_[static_cast<size_t>(maker)];
  };
  for (const auto& [t, value] : known_)
    if (!known.contains(t)) infer_maker(t);
  for (const auto& [t, value] : known)
    if (auto before = known_.find(t); before == known_.end() || !same_constant(before->second, value)) infer_maker(t);
  known_ = known;
  for (size_t i = 0; i < inputs.size(); i++) set_input(i, inputs[i], known);
  for (size_t i = 0; i < graph_.nodes.size(); i++)
    if (ancestors_[i] && to_infer_[i]) {
      check_stop();
      infer(i);
    }
  if (find_needed_) find_needed();
  for (size_t i = 0; i < graph_.nodes.size(); i++)
    if (needed_[i] && to_lower_[i]) {
      check_stop();
      lower(i);
    }
}

std::vector<std::shared_ptr<LoweredNode>> Lowering::nodes() const {
  std::vector<std::shared_ptr<LoweredNode>> out(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); i++)
    if (needed_[i]) out[i] = nodes_[i];
  return out;
}

}  // namespace ingot
