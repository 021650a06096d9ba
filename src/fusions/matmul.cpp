// ingot.MatMul(A, B, extra...) = epilogue(op(A) op(B), extra...), op transposing the last two axes or not.
//   MatMul(A, Transpose(B)) -> transB;  Gemm(A, B, C) = alpha op(A) op(B) + beta C;  bias, activation, residual after
//   it.
// MatMulInteger(A, B, a_zero, b_zero) likewise, with transB only: ingot.MatMulInteger(A, B, a_zero, b_zero, extra...).
// The epilogue is an expression over x0, the sum of products, and the extra operands x1, x2, ..., each of which is one
// element, a vector over the columns, one value per row, or of the shape of the result.
#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Transpose(x) that swaps the last two axes: x. Otherwise kNoTensor.
TensorId before_swap(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "Transpose");
  if (!n) return kNoTensor;
  std::vector<int64_t> perm = transpose_perm(e, *n);
  if (perm.size() < 2) return kNoTensor;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return is_identity(perm) ? n->inputs[0] : kNoTensor;
}

ConstantPtr times(const Constant& c, float alpha) {
  std::vector<float> out(c.as<float>().begin(), c.as<float>().end());
  for (float& v : out) v *= alpha;
  return make_constant(DType::F32, c.dims, out);
}

struct Operands {
  TensorId a, b;
  bool trans_a, trans_b;
};

Operands read_operands(const Editor& e, const Node& n, bool integer) {
  Operands o{n.inputs[0], n.inputs[1], n.get_int("transA", 0) != 0, n.get_int("transB", 0) != 0};
  if (TensorId a = before_swap(e, o.a); a != kNoTensor && !integer) o.a = a, o.trans_a = !o.trans_a;
  if (TensorId b = before_swap(e, o.b); b != kNoTensor) o.b = b, o.trans_b = !o.trans_b;
  return o;
}

// alpha x0 + beta C, for Gemm. False when C does not fit an epilogue.
bool add_gemm_terms(Editor& e, const Node& n, Operands& o, ClusterExpr& cluster) {
  Expr& expr = cluster.expr();
  TensorId y = n.outputs[0];
  int value = cluster.instruction(y);
  const float alpha = n.get_float("alpha", 1.f), beta = n.get_float("beta", 1.f);
  const bool has_c = n.has_input(2) && beta != 0;
  if (has_c && !row_column_operand(e, n.inputs[2], *e.info(y).shape, EpilogueTypes::kF32)) return false;
  if (alpha != 1 && e.is_constant(o.b))
    o.b = e.add_constant(e.graph.tensor(o.b).name + "/scaled", times(*e.info(o.b).constant, alpha));
  else if (alpha != 1)
    value = expr.call("mul", {value, expr.constant(alpha, DType::F32)});
  if (has_c) {
    int c = cluster.operand(n.inputs[2]);
    if (beta != 1) c = expr.call("mul", {c, expr.constant(beta, DType::F32)});
    value = expr.call("add", {value, c});
  }
  cluster.define(y, value);
  return true;
}

std::string fuse(Editor& e, Handle h) {
  const Node n = e.node(h);
  const TensorId y = n.outputs[0];
  const bool integer = n.is("MatMulInteger"), ours = n.domain == "ingot";
  for (size_t i = 0; i < 2; i++) {
    const TensorInfo& info = e.info(n.inputs[i]);
    if (!integer && !ours && info.dtype != DType::F32) return "operands are not f32";
    if (!info.shape || info.shape->size() < 2) return "an operand has rank below 2, or an unknown one";
  }
  if (!e.info(y).shape) return "the shape of the result is not known";
  const Shape out = *e.info(y).shape;
  Operands o = read_operands(e, n, integer);
  ClusterExpr cluster(e);
  cluster.define(y, cluster.operand(y));  // x0
  if (n.is("Gemm") && !add_gemm_terms(e, n, o, cluster))
    return "C is not a scalar, row, column or matrix of the result";
  const EpilogueTypes types = integer ? EpilogueTypes::kAny : EpilogueTypes::kF32;
  EpilogueNodes epilogue =
      grow_epilogue(e, y, std::move(cluster), types, [&](TensorId t) { return row_column_operand(e, t, out, types); });

  Node fused{.op = integer ? n.op : "MatMul", .domain = "ingot", .name = n.name, .inputs = {o.a, o.b}};
  if (ours) fused.attrs = n.attrs;
  if (integer || n.get_int("quantized", 0)) fused.inputs = {o.a, o.b, operand_or_none(n, 2), operand_or_none(n, 3)};
  fused.attrs["transB"] = int64_t{o.trans_b};
  if (!integer) fused.attrs["transA"] = int64_t{o.trans_a};
  replace_with_epilogue(e, h, std::move(fused), epilogue);
  return "";
}

// Those that have no epilogue yet; fusions/compressed_weights.cpp has made some.
bool is_product(const Node& n) {
  return n.is("MatMul") || n.is("Gemm") || n.is("MatMulInteger") || (n.is("MatMul", "ingot") && !n.has("epilogue"));
}

void run(Editor& e, const Explain& explain) { fuse_each(e, explain, is_product, fuse); }

}  // namespace

void register_matmul(FusionRegistry& registry) {
  registry.add({.name = "matmul",
                .formula = "f(alpha A B + beta C, ...) -> ingot.MatMul(A, B, ...) with epilogue f",
                .pass = run});
}

}  // namespace ingot
