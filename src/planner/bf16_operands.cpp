#include "planner/bf16_operands.h"

#include "ops/elementwise.h"
#include "ops/op.h"
#include "ops/product.h"

namespace ingot {
namespace {

// The bf16 tensor whose elements t has: t itself, or what was widened to it. kNoTensor: there is none.
TensorId as_bf16(const Graph& g, const Uses& uses, TensorId t) {
  if (g.info(t).dtype == DType::BF16) return t;
  const int maker = uses.producer[static_cast<size_t>(t)];
  if (maker < 0 || g.info(t).dtype != DType::F32) return kNoTensor;
  const Node& n = g.nodes[static_cast<size_t>(maker)];
  const OpDef* def = OpRegistry::get().find(n.op, n.domain);
  if (!def || !def->expr) return kNoTensor;
  std::vector<DType> types;
  for (TensorId in : n.inputs) types.push_back(in == kNoTensor ? DType::Undefined : g.info(in).dtype);
  const Expr expr = elementwise_expr(n, types);
  for (size_t r = 0; r < expr.results.size() && r < n.outputs.size(); r++) {
    const ExprInstr& i = expr.code[static_cast<size_t>(expr.results[r])];
    if (n.outputs[r] != t || i.kind != ExprInstr::kInput) continue;
    const TensorId from = n.inputs[static_cast<size_t>(i.input)];
    const bool same = g.info(from).shape && g.info(t).shape && *g.info(from).shape == *g.info(t).shape;
    return same && g.info(from).dtype == DType::BF16 ? from : kNoTensor;
  }
  return kNoTensor;
}

}  // namespace

bool read_bf16_operands(Graph& g, const Target& target) {
  if (!bf16_form(target)) return false;
  const Uses uses(g);
  bool found = false;
  for (Node& n : g.nodes) {
    if (!(n.is("MatMul") || n.is("MatMul", "ingot")) || n.has("packed") || n.get_int("quantized", 0)) continue;
    if (g.info(n.inputs[0]).dtype != DType::F32) continue;
    const TensorId a = as_bf16(g, uses, n.inputs[0]), b = as_bf16(g, uses, n.inputs[1]);
    if (a == kNoTensor || b == kNoTensor) continue;
    n.inputs[0] = a;
    n.inputs[1] = b;
    n.domain = "ingot";
    n.attrs["f32_result"] = int64_t{1};
    found = true;
  }
  return found;
}

}  // namespace ingot
