// If(known condition) -> the nodes of the branch it takes.
#include <algorithm>

#include "base/unique_names.h"
#include "ops/host.h"
#include "passes/constants.h"
#include "passes/passes.h"

namespace ingot {
namespace {

class Inliner {
 public:
  Inliner(Graph& g, const std::vector<Node>& nodes) : g_(g) {
    for (const Tensor& t : g.tensors) tensor_names_.take(t.name);
    for (const Node& n : nodes) node_names_.take(n.name);
  }

  void inline_branch(const Node& node, const Graph& branch, std::vector<Node>& out) {
    std::vector<TensorId> id(branch.tensors.size(), kNoTensor);
    for (size_t i = 0; i < branch.inputs.size(); i++)
      id[static_cast<size_t>(branch.inputs[i])] = node.inputs[own_inputs(node) + i];
    auto mapped = [&](TensorId t) {
      if (t == kNoTensor) return t;
      TensorId& to = id[static_cast<size_t>(t)];
      if (to == kNoTensor) to = g_.add_tensor(tensor_names_.make(branch.tensor(t).name), branch.info(t));
      return to;
    };
    for (Node n : branch.nodes) {
      n.name = node_names_.make(n.name);
      for (TensorId& t : n.inputs) t = mapped(t);
      for (TensorId& t : n.outputs) t = mapped(t);
      out.push_back(std::move(n));
    }
    for (size_t i = 0; i < node.outputs.size(); i++) {
      if (node.outputs[i] == kNoTensor) continue;
      Node identity;
      identity.op = "Identity";
      identity.name = node_names_.make(node.name + "/result");
      identity.origins = node.origins;
      identity.inputs = {mapped(branch.outputs[i])};
      identity.outputs = {node.outputs[i]};
      out.push_back(std::move(identity));
    }
  }

 private:
  Graph& g_;
  UniqueNames tensor_names_, node_names_;
};

}  // namespace

bool inline_if(Graph& graph) {
  auto taken = [&](const Node& n) -> GraphPtr {
    if (!n.is("If")) return nullptr;
    const auto condition = integer_values(graph.info(n.inputs[0]));
    if (!condition || condition->size() != 1) return nullptr;
    const GraphPtr branch = n.get_graph((*condition)[0] ? "then_branch" : "else_branch");
    return branch && branch->outputs.size() == n.outputs.size() ? branch : nullptr;
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return taken(n) != nullptr; }))
    return false;
  const std::vector<Node> nodes = std::move(graph.nodes);
  Inliner inliner(graph, nodes);
  graph.nodes.clear();
  for (const Node& n : nodes) {
    const GraphPtr branch = taken(n);
    if (branch)
      inliner.inline_branch(n, *branch, graph.nodes);
    else
      graph.nodes.push_back(n);
  }
  return true;
}

}  // namespace ingot
