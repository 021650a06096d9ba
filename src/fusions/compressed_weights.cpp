// Products with weights that are stored in fewer bits than they are used:
//   MatMul(A, Cast(B)), B bf16 or f16                 -> ingot.MatMul(A, B)
//   MatMul(A, DequantizeLinear(B, scale, zero))       -> ingot.MatMul(A, B, scale, zero)
// and Gemm likewise, alpha and C as nodes after it. B is a constant matrix, perhaps transposed. Where A is dequantized
// too, fusions/quantized_product.cpp has been there before.
#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "ops/via_f32.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// B as it is stored.
struct Weights {
  TensorId values = kNoTensor, scale = kNoTensor, zero = kNoTensor;
  int64_t axis = 1, block = 0;
  bool transposed = false;
};

bool is_4_or_8_bit(DType t) { return is_integer(t) && (bits(t) == 4 || bits(t) == 8); }

// "" and the weights, or why t is none.
std::string read_weights(const Editor& e, TensorId t, Weights& w) {
  if (const Node* swap = e.maker(t, "Transpose")) {
    if (transpose_perm(e, *swap) != std::vector<int64_t>{1, 0}) return "B is not a constant matrix";
    w.transposed = true;
    t = swap->inputs[0];
  }
  const Node* n = e.maker(t);
  if (!n || !e.is_constant(n->inputs[0]) || e.info(n->inputs[0]).constant->dims.size() != 2)
    return "B is not a constant matrix";
  w.values = n->inputs[0];
  if (n->is("Cast")) return is_half(e.info(w.values).dtype) ? "" : "B is neither bf16 nor f16";
  w.scale = n->inputs[1];
  w.zero = operand_or_none(*n, 2);
  w.axis = n->get_int("axis", 1);
  if (w.axis < 0) w.axis += 2;
  w.block = n->get_int("block_size", 0);
  if (product(*e.info(w.values).shape).is(0)) return "B is empty";
  if (!is_4_or_8_bit(e.info(w.values).dtype)) return "B has neither 8 nor 4 bits";
  if (!e.is_constant(w.scale) || e.info(w.scale).dtype != DType::F32 || (w.zero != kNoTensor && !e.is_constant(w.zero)))
    return "the scale of B is not f32, or not a constant";
  return "";
}

std::string fuse(Editor& e, Handle h) {
  const Node n = e.node(h);
  const auto out = e.info(n.outputs[0]).shape;
  if (e.info(n.inputs[0]).dtype != DType::F32 || e.info(n.inputs[1]).dtype != DType::F32) return "operands are not f32";
  if (e.is_constant(n.inputs[0])) return "A is a constant";
  Weights w;
  if (std::string why = read_weights(e, n.inputs[1], w); !why.empty()) return why;
  const bool transposed = (n.get_int("transB", 0) != 0) != w.transposed, along_k = (w.axis == 0) != transposed;
  if (w.block != 0 && !along_k) return "the scale of B has blocks of columns";
  std::map<std::string, Attribute> attrs = {{"transA", n.get_int("transA", 0)}, {"transB", int64_t{transposed}}};
  std::vector<TensorId> inputs = {n.inputs[0], w.values};
  if (w.scale != kNoTensor) {
    inputs.insert(inputs.end(), {w.scale, w.zero});
    attrs["quantized"] = int64_t{1};
    attrs["b_axis"] = w.axis;
    attrs["b_block"] = w.block;
  }
  TensorId y = e.emit(n, "MatMul", inputs, attrs, DType::F32, out, "ingot");
  auto scaled = [&](TensorId t, float by) {
    if (by == 1.f) return t;
    return e.emit(n, "Mul", {t, e.add_constant("factor", filled(by))}, {}, DType::F32, e.info(t).shape);
  };
  if (n.is("Gemm")) {
    y = scaled(y, n.get_float("alpha", 1.f));
    const float beta = n.get_float("beta", 1.f);
    if (n.has_input(2) && beta != 0) y = e.emit(n, "Add", {y, scaled(n.inputs[2], beta)}, {}, DType::F32, out);
  }
  e.replace_uses(n.outputs[0], y);
  return "";
}

bool widens(const Editor& e, TensorId t) {
  if (const Node* swap = e.maker(t, "Transpose")) t = swap->inputs[0];
  return e.maker(t, "Cast") || e.maker(t, "DequantizeLinear");
}

void run(Editor& e, const Explain& explain) {
  const Handle count = e.size();
  for (Handle h = 0; h < count; h++) {
    if (!e.alive(h)) continue;
    const Node& n = e.node(h);
    if (!(n.is("MatMul") || n.is("Gemm")) || !widens(e, n.inputs[1])) continue;
    const std::string label = n.label(), why = fuse(e, h);
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace

void register_compressed_weights(FusionRegistry& registry) {
  registry.add({.name = "compressed_weights",
                .formula = "A widen(B) -> ingot.MatMul(A, B) with B as it is stored",
                .pass = run});
}

}  // namespace ingot
