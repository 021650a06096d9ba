#include "planner/cut.h"

#include <algorithm>

#include "ops/op.h"

namespace ingot {
namespace {

// Regions and single nodes alternate: region 0, the single nodes of level 0, region 1, ... Every node is at the first
// level that everything it reads allows; a single node's result can be read by later single nodes of its level, and by
// regions from the next level on.
std::vector<size_t> find_levels(const Graph& g, const std::vector<bool>& single) {
  std::vector<size_t> levels, for_region(g.tensors.size()), for_single(g.tensors.size());
  for (size_t i = 0; i < g.nodes.size(); i++) {
    size_t level = 0;
    for (TensorId t : g.nodes[i].inputs)
      if (t != kNoTensor) level = std::max(level, (single[i] ? for_single : for_region)[static_cast<size_t>(t)]);
    levels.push_back(level);
    for (TensorId t : g.nodes[i].outputs) {
      if (t == kNoTensor) continue;
      for_single[static_cast<size_t>(t)] = level;
      for_region[static_cast<size_t>(t)] = level + (single[i] ? 1 : 0);
    }
  }
  return levels;
}

// Some nodes of a graph as a graph: reads what they do not make, gives what others read.
class RegionBuilder {
 public:
  RegionBuilder(const Graph& whole, std::vector<size_t> nodes)
      : whole_(whole), nodes_(std::move(nodes)), id_(whole.tensors.size(), kNoTensor) {
    region_->target = whole.target;
  }

  Part build() {
    std::vector<bool> inside(whole_.nodes.size()), made(whole_.tensors.size());
    for (size_t n : nodes_) {
      inside[n] = true;
      for (TensorId t : whole_.nodes[n].outputs)
        if (t != kNoTensor) made[static_cast<size_t>(t)] = true;
    }
    for (size_t n : nodes_) {
      Node node = whole_.nodes[n];
      for (TensorId& t : node.inputs)
        if (t != kNoTensor) t = take(t, !made[static_cast<size_t>(t)]);
      for (TensorId& t : node.outputs)
        if (t != kNoTensor) t = take(t, false);
      region_->nodes.push_back(std::move(node));
    }
    std::vector<bool> read(whole_.tensors.size());
    for (TensorId t : whole_.outputs) read[static_cast<size_t>(t)] = true;
    for (size_t n = 0; n < whole_.nodes.size(); n++)
      if (!inside[n])
        for (TensorId t : whole_.nodes[n].inputs)
          if (t != kNoTensor) read[static_cast<size_t>(t)] = true;
    for (size_t t = 0; t < made.size(); t++)
      if (made[t] && read[t]) {
        part_.outputs.push_back(static_cast<TensorId>(t));
        region_->outputs.push_back(id_[t]);
      }
    part_.region = region_;
    return std::move(part_);
  }

 private:
  TensorId take(TensorId t, bool from_outside) {
    TensorId& id = id_[static_cast<size_t>(t)];
    if (id != kNoTensor) return id;
    id = static_cast<TensorId>(region_->tensors.size());
    region_->tensors.push_back(whole_.tensor(t));
    if (from_outside && !whole_.info(t).constant) {
      region_->inputs.push_back(id);
      part_.inputs.push_back(t);
    }
    return id;
  }

  const Graph& whole_;
  std::vector<size_t> nodes_;
  std::vector<TensorId> id_;
  std::shared_ptr<Graph> region_ = std::make_shared<Graph>();
  Part part_;
};

// Some output is an input, a constant or another output.
bool hands_on(const Graph& g) {
  return std::any_of(g.outputs.begin(), g.outputs.end(), [&](TensorId t) {
    return g.info(t).constant || std::find(g.inputs.begin(), g.inputs.end(), t) != g.inputs.end() ||
           std::count(g.outputs.begin(), g.outputs.end(), t) > 1;
  });
}

}  // namespace

bool is_numbers(const TensorInfo& info) { return info.form == Form::Tensor && info.dtype != DType::String; }

bool is_host(const Graph& g, const Node& node) {
  const OpDef& def = OpRegistry::get().need(node);
  if (!def.host) return false;
  if (!def.lower && !def.expr) return true;
  auto other = [&](TensorId t) { return t != kNoTensor && !is_numbers(g.info(t)); };
  return std::any_of(node.inputs.begin(), node.inputs.end(), other) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), other);
}

std::vector<Part> cut(const std::shared_ptr<const Graph>& graph, bool is_body) {
  const Graph& g = *graph;
  std::vector<bool> host, single;
  for (const Node& n : g.nodes) {
    host.push_back(is_host(g, n));
    single.push_back(host.back() || n.has("sized_by_data"));
  }
  const bool whole = std::find(single.begin(), single.end(), true) == single.end();
  if (whole && !(is_body && hands_on(g))) return {{graph, 0, g.inputs, g.outputs}};

  const std::vector<size_t> levels = find_levels(g, single);
  const size_t count = g.nodes.empty() ? 0 : 1 + *std::max_element(levels.begin(), levels.end());
  std::vector<std::vector<size_t>> planned(count), singles(count);
  for (size_t i = 0; i < g.nodes.size(); i++) (single[i] ? singles : planned)[levels[i]].push_back(i);
  std::vector<Part> parts;
  for (size_t level = 0; level < count; level++) {
    if (!planned[level].empty()) parts.push_back(RegionBuilder(g, planned[level]).build());
    for (size_t n : singles[level]) parts.push_back(host[n] ? Part{nullptr, n, {}, {}} : RegionBuilder(g, {n}).build());
  }
  return parts;
}

}  // namespace ingot
