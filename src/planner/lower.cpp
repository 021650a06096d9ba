#include <algorithm>

#include "planner/plan.h"

namespace ingot {
namespace {

bool outputs_known(const Graph& g, const Node& node, const std::vector<TensorInfo>& infos) {
  return std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](TensorId t) {
                       const TensorInfo* info = t == kNoTensor ? nullptr : &infos[static_cast<size_t>(t)];
                       return !info || info->values || info->constant;
                     }) &&
         !g.nodes.empty();
}

void infer_into(const Graph& g, const Node& node, std::vector<TensorInfo>& infos, const KnownValues& known) {
  std::vector<TensorInfo> outs;
  try {
    outs = infer_node(g, node, infos, true);
  } catch (const ValuesNeeded& needed) {
    const TensorId t = node.inputs[needed.input];
    if (known.contains(t))
      fail(ErrorKind::Unsupported, "{}: tensor '{}' decides a shape, which its {} elements cannot", node.label(),
           g.tensor(t).name, name(infos[static_cast<size_t>(t)].dtype));
    throw DataNeeded{t};
  }
  for (size_t i = 0; i < outs.size(); i++) {
    const TensorId t = node.outputs[i];
    if (t == kNoTensor) continue;
    if (!outs[i].shape || !is_const(*outs[i].shape))
      fail(ErrorKind::Unsupported, "{}: the size of result '{}' depends on data", node.label(), g.tensor(t).name);
    if (auto it = known.find(t); it != known.end()) outs[i].constant = it->second;
    infos[static_cast<size_t>(t)] = std::move(outs[i]);
  }
}

void lower_node(const Graph& g, size_t index, Lowered& out) {
  const Node& node = g.nodes[index];
  std::vector<const TensorInfo*> ins, outs;
  for (TensorId t : node.inputs) ins.push_back(t == kNoTensor ? nullptr : &out.infos[static_cast<size_t>(t)]);
  for (TensorId t : node.outputs) outs.push_back(t == kNoTensor ? nullptr : &out.infos[static_cast<size_t>(t)]);
  const OpDef& def = OpRegistry::get().need(node);
  if (!def.lower) fail(ErrorKind::Unsupported, "{}: there is no kernel for this operator yet", node.label());
  LowerContext ctx(node, target_of(g), std::move(ins), std::move(outs));
  def.lower(ctx);
  for (const auto& v : ctx.views) {
    const auto& from = out.alias[static_cast<size_t>(node.inputs[v.in])];
    out.alias[static_cast<size_t>(node.outputs[v.out])] = {from.root, from.offset + v.byte_offset};
  }
  for (Step& s : ctx.steps) {
    if (s.units <= 0) continue;  // nothing to compute: an empty tensor
    out.steps.push_back(std::move(s));
    out.step_node.push_back(static_cast<int>(index));
  }
}

// Nodes needed for the targets, not counting those whose results are known from shapes.
std::vector<bool> needed_nodes(const Graph& g, const std::vector<TensorInfo>& infos,
                               const std::vector<TensorId>& targets) {
  std::vector<bool> tensor(g.tensors.size()), node(g.nodes.size());
  for (TensorId t : targets) tensor[static_cast<size_t>(t)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    for (TensorId t : n.outputs)
      if (t != kNoTensor && tensor[static_cast<size_t>(t)]) node[i] = true;
    if (!node[i]) continue;
    if (outputs_known(g, n, infos)) {
      node[i] = false;
      continue;
    }
    for (TensorId t : n.inputs)
      if (t != kNoTensor) tensor[static_cast<size_t>(t)] = true;
  }
  return node;
}

// Every node that shapes or values of the targets may depend on.
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

Lowered lower_graph(const Graph& g, const std::vector<std::vector<int64_t>>& input_dims,
                    const std::vector<TensorId>& targets, const KnownValues& known) {
  Lowered out;
  out.infos.resize(g.tensors.size());
  out.alias.resize(g.tensors.size());
  for (size_t i = 0; i < g.tensors.size(); i++) {
    out.alias[i] = {static_cast<TensorId>(i), 0};
    if (g.tensors[i].info.constant) out.infos[i] = g.tensors[i].info;
  }
  for (size_t i = 0; i < g.inputs.size(); i++) {
    TensorInfo& info = out.infos[static_cast<size_t>(g.inputs[i])];
    info.dtype = g.info(g.inputs[i]).dtype;
    info.shape = to_shape(input_dims[i]);
    if (auto it = known.find(g.inputs[i]); it != known.end()) info.constant = it->second;
  }
  const std::vector<bool> ancestors = ancestor_nodes(g, targets);
  for (size_t i = 0; i < g.nodes.size(); i++)
    if (ancestors[i]) infer_into(g, g.nodes[i], out.infos, known);
  const std::vector<bool> needed = needed_nodes(g, out.infos, targets);
  for (size_t i = 0; i < g.nodes.size(); i++)
    if (needed[i]) lower_node(g, i, out);
  return out;
}

}  // namespace ingot
