#include <algorithm>
#include <array>

#include "passes/constants.h"
#include "passes/passes.h"
#include "planner/evaluate.h"

namespace ingot {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;   // of one folded result
constexpr int64_t kSmallBytes = 1 << 20;  // results up to here are always worth it
constexpr int64_t kMaxGrowth = 8;         // above, a result may be this much larger than its operands

// Control flow is not a value. Quantized weights stay what they are: passes/expand_quantization.cpp says what becomes of
// them.
bool may_fold(const Node& n) {
  static constexpr std::array kNever = {"If", "Loop", "Scan", "SequenceMap", "DequantizeLinear"};
  return !is_random(n) && std::find(kNever.begin(), kNever.end(), n.op) == kNever.end();
}

template <class T>
ConstantPtr integers(const TensorInfo& info, const std::vector<int64_t>& values) {
  return make_constant(info.dtype, numbers(*info.shape), std::vector<T>(values.begin(), values.end()));
}

// The constant that the known values of an integer tensor are; nothing when one of them is a symbol.
ConstantPtr from_values(const TensorInfo& info) {
  if (!info.values || !info.shape || !is_const(*info.shape)) return nullptr;
  auto values = integer_values(info);
  if (!values || product(*info.shape).value() != static_cast<int64_t>(values->size())) return nullptr;
  switch (info.dtype) {
    case DType::I64:
      return integers<int64_t>(info, *values);
    case DType::I32:
      return integers<int32_t>(info, *values);
    case DType::Bool:
    case DType::U8:
      return integers<uint8_t>(info, *values);
    case DType::I8:
      return integers<int8_t>(info, *values);
    default:
      return nullptr;
  }
}

int64_t bytes_of(const TensorInfo& info) {
  return bits(info.dtype) == 0 ? 0 : byte_size(info.dtype, product(*info.shape).value());
}

// Constants must not make the model much larger: Expand, Tile and the like are cheap to run and dear to keep.
bool worth_evaluating(const Graph& g, const Node& n) {
  int64_t in = 0, out = 0;
  for (TensorId t : n.inputs) {
    if (t == kNoTensor) continue;
    if (!g.info(t).constant) return false;
    in += static_cast<int64_t>(g.info(t).constant->bytes.size());
  }
  for (TensorId t : n.outputs) {
    if (t == kNoTensor) continue;
    if (!g.info(t).shape || !is_const(*g.info(t).shape)) return in <= kSmallBytes;  // size told by execution only
    out += bytes_of(g.info(t));
  }
  return out <= kMaxBytes && (out <= kSmallBytes || out <= kMaxGrowth * in);
}

bool fold_node(Graph& g, const Node& n) {
  std::vector<ConstantPtr> out;
  for (TensorId t : n.outputs) out.push_back(t == kNoTensor ? nullptr : from_values(g.info(t)));
  bool all = true;
  for (size_t i = 0; i < out.size(); i++) all &= n.outputs[i] == kNoTensor || out[i] != nullptr;
  if (!all) {
    out.clear();
    if (!worth_evaluating(g, n) || !evaluate(g, n, out, kMaxBytes)) return false;
  }
  for (size_t i = 0; i < n.outputs.size() && i < out.size(); i++) {
    if (n.outputs[i] == kNoTensor) continue;
    if (!out[i]) return false;
    TensorInfo& info = g.info(n.outputs[i]);
    info = {out[i]->dtype, to_shape(out[i]->dims), std::nullopt, out[i]};
  }
  return true;
}

}  // namespace

bool fold_constants(Graph& graph) {
  size_t kept = 0, count = graph.nodes.size();
  for (size_t i = 0; i < count; i++) {
    Node& n = graph.nodes[i];
    if (may_fold(n) && fold_node(graph, n)) continue;
    if (kept != i) graph.nodes[kept] = std::move(n);
    kept++;
  }
  graph.nodes.resize(kept);
  if (kept != count) remove_dead(graph);
  return kept != count;
}

}  // namespace ingot
