#include "ops/op.h"
#include "passes/passes.h"

namespace ingot {

void infer_shapes(Graph& graph) {
  std::vector<TensorInfo> known;
  known.reserve(graph.tensors.size());
  for (Tensor& t : graph.tensors) known.push_back(std::move(t.info));
  auto give_back = [&] {
    for (size_t i = 0; i < known.size(); i++) graph.tensors[i].info = std::move(known[i]);
  };
  try {
    for (const Node& node : graph.nodes) {
      std::vector<TensorInfo> out = infer_node(graph, node, known, false);
      for (size_t i = 0; i < node.outputs.size(); i++)
        if (node.outputs[i] != kNoTensor) known[static_cast<size_t>(node.outputs[i])] = std::move(out[i]);
    }
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

}  // namespace ingot
