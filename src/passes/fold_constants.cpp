#include <algorithm>
#include <chrono>

#include "base/stop.h"
#include "ops/op.h"
#include "passes/constants.h"
#include "passes/passes.h"
#include "runtime/evaluate.h"

namespace ingot {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;   // of one folded result
constexpr int64_t kSmallBytes = 1 << 20;  // results up to here are always worth it
constexpr int64_t kMaxGrowth = 8;         // above, a result may be this much larger than its operands

constexpr int64_t kNarrowElements = 1024;  // weights from here on are kept narrow

// Control flow is not a value. Quantized weights are multiplied only once they are packed.
bool may_fold(const Node& n) { return !traits(n).random && !traits(n).control_flow && n.get_int("quantized", 0) == 0; }

// Does node n use operand t, widened from `filter`, in a way that lets it stay narrow? A convolution takes a
// BatchNormalization into its weights first.
bool takes_narrow(const Graph& g, const Uses& uses, const Node& n, TensorId t, const Constant& filter) {
  if (n.is("Transpose")) return true;
  if (n.is("Gather")) return n.inputs[0] == t;
  if (n.is("MatMul") || n.is("Gemm")) return n.inputs[1] == t && n.inputs[0] != t;
  if (n.op != "Conv" || n.inputs[1] != t || filter.elements() != filter.dims[0] * filter.dims[1]) return false;
  for (int c : uses.consumers[static_cast<size_t>(n.outputs[0])])
    if (g.nodes[static_cast<size_t>(c)].is("BatchNormalization")) return false;
  return true;
}

bool is_widened_half(const Graph& g, const Node& n) {
  if (!n.is("Cast") || !g.info(n.inputs[0]).constant || g.info(n.outputs[0]).dtype != DType::F32) return false;
  const Constant& c = *g.info(n.inputs[0]).constant;
  return (c.dtype == DType::F16 || c.dtype == DType::BF16) && c.dims.size() >= 2 && c.elements() >= kNarrowElements;
}

// Transpose(W) for products alone, which read W where it lies (fusions/matmul.cpp): torch keeps weights like that.
bool is_turned_matrix(const Graph& g, const Node& n) {
  if (!n.is("Transpose") || !g.info(n.inputs[0]).constant) return false;
  const Constant& c = *g.info(n.inputs[0]).constant;
  return c.dtype == DType::F32 && c.dims.size() == 2 && c.elements() >= kNarrowElements &&
         n.get_ints("perm", {1, 0}) == std::vector<int64_t>{1, 0};
}
bool is_product_with(const Node& n, TensorId t) {
  return (n.is("MatMul") || n.is("Gemm")) && n.inputs[1] == t && std::count(n.inputs.begin(), n.inputs.end(), t) == 1;
}

// Nodes that widen or turn weights for those that could do so themselves. Of quantized ones
// passes/expand_quantization.cpp says what becomes of the others.
std::vector<bool> nodes_on_weights(const Graph& g, FoldWeights fold) {
  std::vector<bool> out(g.nodes.size());
  if (fold == FoldWeights::kAll) return out;
  std::optional<Uses> uses;
  for (size_t i = 0; i < g.nodes.size(); i++) {
    const Node& n = g.nodes[i];
    out[i] = n.is("DequantizeLinear");
    const bool turned = fold == FoldWeights::kNone && is_turned_matrix(g, n);
    if (!turned && !is_widened_half(g, n)) continue;
    if (!uses) uses.emplace(g);
    const TensorId t = n.outputs[0];
    const Constant& weights = *g.info(n.inputs[0]).constant;
    const auto& consumers = uses->consumers[static_cast<size_t>(t)];
    out[i] = !uses->is_output[static_cast<size_t>(t)] && std::all_of(consumers.begin(), consumers.end(), [&](int c) {
      const Node& reader = g.nodes[static_cast<size_t>(c)];
      return turned ? is_product_with(reader, t) : takes_narrow(g, *uses, reader, t, weights);
    });
  }
  return out;
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

using Clock = std::chrono::steady_clock;

// evaluate() within a budget.
bool evaluate_within(const Graph& g, const Node& n, std::vector<ConstantPtr>& out, FoldBudget& budget) {
  if (budget.seconds <= 0) return false;
  const auto start = Clock::now();
  bool done = false;
  Stop stop("folding", "the limit fold_seconds");
  if (budget.seconds < std::numeric_limits<double>::infinity()) stop.after(budget.seconds);
  try {
    const StopScope scope(stop);
    done = evaluate(g, n, out, static_cast<int64_t>(std::min<double>(kMaxBytes, budget.bytes)));
  } catch (const Error& e) {
    if (!is_stop(e)) throw;
    check_stop();  // is it the compiler's own time that is over?
    budget.seconds = 0;
    return false;
  }
  budget.seconds -= std::chrono::duration<double>(Clock::now() - start).count();
  for (const ConstantPtr& c : out)
    if (done && c) budget.bytes -= static_cast<double>(c->bytes.size());
  return done;
}

bool fold_node(Graph& g, const Node& n, FoldBudget& budget) {
  std::vector<ConstantPtr> out;
  for (TensorId t : n.outputs) out.push_back(t == kNoTensor ? nullptr : from_values(g.info(t)));
  bool all = true;
  for (size_t i = 0; i < out.size(); i++) all &= n.outputs[i] == kNoTensor || out[i] != nullptr;
  if (!all) {
    out.clear();
    if (!worth_evaluating(g, n) || !evaluate_within(g, n, out, budget)) return false;
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

bool fold_constants(Graph& graph, FoldWeights fold, FoldBudget* budget) {
  FoldBudget any;
  size_t kept = 0, count = graph.nodes.size();
  const std::vector<bool> keep = nodes_on_weights(graph, fold);
  for (size_t i = 0; i < count; i++) {
    Node& n = graph.nodes[i];
    check_stop();
    if (!keep[i] && may_fold(n) && fold_node(graph, n, budget ? *budget : any)) continue;
    if (kept != i) graph.nodes[kept] = std::move(n);
    kept++;
  }
  graph.nodes.resize(kept);
  if (kept != count) remove_dead(graph);
  return kept != count;
}

}  // namespace ingot
