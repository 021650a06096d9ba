#include "ops/op.h"
#include "passes/passes.h"

namespace ingot {
namespace {

// Its infer would have to wait for the elements of an operand, even if all dims were numbers.
bool is_sized_by_data(const Graph& g, const Node& n, const std::vector<TensorInfo>& known) {
  if (OpRegistry::get().need(n).host) return false;
  try {
    infer_node(g, n, known, true);
  } catch (const ValuesNeeded&) {
    return true;
  } catch (const Error&) {
    // a rank that is not known, or a branch that makes no sense
  }
  return false;
}

}  // namespace

void mark_sized_by_data(Graph& graph) {
  std::vector<TensorInfo> known;
  for (const Tensor& t : graph.tensors) known.push_back(t.info);
  for (Node& n : graph.nodes)
    if (is_sized_by_data(graph, n, known)) n.attrs["sized_by_data"] = int64_t{1};
}

}  // namespace ingot
