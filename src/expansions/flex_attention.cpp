// ai.onnx.preview.FlexAttention:  Y = prob_mod(softmax(score_mod(scale Q K^T))) V, where score_mod and prob_mod are
// graphs of the node, spliced in. From the scores on everything is of type softmax_precision.
#include "expansions/attention_parts.h"

namespace ingot {
namespace {

// The graph's result for x, or x where there is no such graph. Captured values follow Q, K and V.
TensorId modified(Expander& e, const char* attr, TensorId x) {
  const GraphPtr graph = e.node.get_graph(attr);
  if (!graph) return x;
  std::vector<TensorId> inputs = {x};
  inputs.insert(inputs.end(), e.node.inputs.begin() + 3, e.node.inputs.end());
  const std::vector<TensorId> results = e.inline_graph(*graph, inputs);
  e.require(results.size() == 1, "graph '{}' has {} results, expected 1", attr, results.size());
  return results[0];
}

void expand_flex_attention(Expander& e) {
  const TensorId q = e.in(0);
  for (size_t i = 0; i < 3; i++)
    e.require(e.rank(e.in(i)) == 4, "Q, K and V must be of rank 4, operand {} is of {}", i, e.rank(e.in(i)));
  const TensorId k = repeat_heads(e, e.in(1), q), v = repeat_heads(e, e.in(2), q);
  const DType type = e.dtype(q), precise = softmax_type(e, type == DType::F64 ? type : DType::F32);
  const TensorId scores = modified(e, "score_mod", e.cast(scaled_scores(e, q, k), precise));
  const TensorId p = modified(e, "prob_mod", e.emit("Softmax", {scores}, {{"axis", int64_t{-1}}}));
  e.result(0, e.cast(e.emit("MatMul", {p, e.cast(v, precise)}), type));
}

}  // namespace

void register_flex_attention(ExpansionRegistry& r) { r.add("FlexAttention", expand_flex_attention, "ai.onnx.preview"); }

}  // namespace ingot
