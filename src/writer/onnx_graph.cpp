#include "writer/onnx_graph.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "expansions/expand.h"
#include "passes/passes.h"

namespace ingot {
namespace {

bool has_quantization(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const Node& n) { return n.op.find("Quantize") != std::string::npos; });
}

}  // namespace

Graph deep_copy(const Graph& graph) {
  Graph copy = graph;
  for (Node& n : copy.nodes)
    for (auto& [key, value] : n.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) *body = std::make_shared<Graph>(deep_copy(**body));
  return copy;
}

void infer_types(Graph& graph) {
  Graph copy = deep_copy(graph);
  expand(copy);
  std::unordered_map<std::string, TensorInfo*> known;
  for (Tensor& t : copy.tensors) known.emplace(t.name, &t.info);
  for (Tensor& t : graph.tensors)
    if (auto it = known.find(t.name); it != known.end() && !t.info.constant) {
      if (!it->second->shape) it->second->shape = t.info.shape;  // what an output promises
      t.info = *it->second;
    }
}

void clean_up(Graph& graph) {
  infer_types(graph);
  if (has_quantization(graph)) return;
  std::unordered_map<std::string, std::optional<Shape>> promised;
  for (TensorId t : graph.outputs) promised.emplace(graph.tensor(t).name, graph.info(t).shape);
  Graph clean = deep_copy(graph);
  try {
    fold_constants(clean, FoldWeights::kTransposed);
    fold_batch_norm(clean);
    fold_pad(clean);
    simplify(clean);
    merge_common(clean);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Unsupported) throw;
    return;  // a constant that only an expansion can compute
  }
  for (TensorId t : clean.outputs)
    if (!clean.info(t).shape) clean.info(t).shape = promised[clean.tensor(t).name];
  graph = std::move(clean);
}

}  // namespace ingot
