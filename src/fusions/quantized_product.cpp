// Products of dequantized operands, in integers:
//   op( s_a (A - z_a), s_b (B - z_b) ) -> f32( opInteger(A, B, z_a, z_b) ) * (s_a s_b)      op: MatMul, Gemm, Conv,
//   ConvTranspose
// A bias that is an integer in units of s_a s_b is added to the integers, another after scaling. s_b may differ from
// column to column, or from channel to channel.
#include <cmath>
#include <numeric>

#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/qdq.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr int64_t kF32 = static_cast<int64_t>(DType::F32);

// What is to be rewritten: the operands, the axis of B along which its results lie, and how many axes of one stand
// behind a number per column where it meets the result.
struct Product {
  QdqNode a, b;
  int64_t b_axis = 0;
  size_t behind = 0;
  TensorId bias = kNoTensor;
  bool transpose_b = false;
};

// Is there one zero point, or are all 0?
bool one_zero(const Editor& e, const QdqNode& q) {
  const auto& shape = e.info(q.zero).shape;
  return known_zero_point(e, q) == 0 || (shape && product(*shape).is(1));
}

std::string read_product(const Editor& e, const Node& n, Product& p) {
  const auto a = read_dequantized(e, n.inputs[0]), b = read_dequantized(e, n.inputs[1]);
  if (!a || !b) return "an operand is not dequantized";
  p.a = *a;
  p.b = *b;
  if (!is_byte(e.info(a->x).dtype) || !is_byte(e.info(b->x).dtype)) return "an operand has more than 8 bits";
  if (p.a.axis != QdqNode::kPerTensor) return "the scale of the first operand differs along an axis";
  if (!e.info(n.outputs[0]).shape) return "the shape of the result is not known";
  const size_t b_rank = e.info(b->x).shape->size(), rank = e.info(n.outputs[0]).shape->size();
  if (n.is("Conv") || n.is("ConvTranspose")) {
    p.b_axis = n.is("Conv") ? 0 : 1;
    p.behind = rank - 2;
  } else {
    if (e.info(a->x).shape->size() < 2 || b_rank < 2) return "an operand has rank below 2";
    p.transpose_b = n.get_int("transB", 0) != 0;
    p.b_axis = static_cast<int64_t>(b_rank) - (p.transpose_b ? 2 : 1);
  }
  if (p.b.axis != QdqNode::kPerTensor && p.b.axis != p.b_axis)
    return "the scale of the second operand differs along the sum";
  if (p.b.axis != QdqNode::kPerTensor && b_rank != 2 && p.behind == 0) return "scales differ in a stack of matrices";
  if (n.is("ConvTranspose")) {
    if (p.b.axis != QdqNode::kPerTensor && n.get_int("group", 1) != 1) return "scales differ in groups";
    if (p.b.zero != kNoTensor && !one_zero(e, p.b)) return "zero points of the second operand differ";
  }
  if (n.is("Gemm")) {
    if (n.get_int("transA", 0) != 0) return "the first operand is transposed";
    if (n.get_float("alpha", 1.f) != 1.f || (n.has_input(2) && n.get_float("beta", 1.f) != 1.f))
      return "alpha or beta is not 1";
  }
  if (n.inputs.size() > 2) p.bias = n.inputs[2];
  return "";
}

class Rewrite {
 public:
  Rewrite(Editor& e, const Node& n, const Product& p) : e_(e), node_(n), p_(p) {}

  void run() {
    const Shape out = *e_.info(node_.outputs[0]).shape;
    const bool conv = node_.is("Conv"), up = node_.is("ConvTranspose");
    TensorId b = p_.b.x, b_zero = p_.b.zero;
    if (p_.transpose_b) {
      const Shape& s = *e_.info(b).shape;
      b = e_.emit(node_, "Transpose", {b}, {{"perm", std::vector<int64_t>{1, 0}}}, e_.info(b).dtype, Shape{s[1], s[0]});
    }
    if (up) {
      std::vector<int64_t> perm(e_.info(b).shape->size());
      std::iota(perm.begin(), perm.end(), 1);
      perm.back() = 0;
      b = e_.emit(node_, "Transpose", {b}, {{"perm", perm}}, e_.info(b).dtype, permuted(*e_.info(b).shape, perm));
      if (b_zero != kNoTensor && known_zero_point(e_, p_.b) == 0) b_zero = kNoTensor;
    }
    TensorId y = emit(conv ? "ConvInteger"
                      : up ? "ConvTransposeInteger"
                           : "MatMulInteger",
                      {p_.a.x, b, p_.a.zero, b_zero}, DType::I32, out, up ? "ingot" : "");
    if (conv || up) e_.edit(e_.producer(y)).attrs = node_.attrs;
    const TensorId scale = product_scale();
    const TensorId units = integer_bias(scale);
    if (units != kNoTensor) y = emit("Add", {y, per_column(units)}, DType::I32, out);
    y = e_.emit(node_, "Cast", {y}, {{"to", kF32}}, DType::F32, out);
    y = emit("Mul", {y, per_column(scale)}, DType::F32, out);
    if (p_.bias != kNoTensor && units == kNoTensor) y = emit("Add", {y, per_column(p_.bias)}, DType::F32, out);
    e_.replace_uses(node_.outputs[0], y);
  }

 private:
  TensorId emit(const std::string& op, std::vector<TensorId> inputs, DType dtype, const Shape& shape,
                const std::string& domain = "") {
    while (!inputs.empty() && inputs.back() == kNoTensor) inputs.pop_back();
    return e_.emit(node_, op, std::move(inputs), {}, dtype, shape, domain);
  }

  TensorId product_scale() {
    const TensorInfo &a = e_.info(p_.a.scale), &b = e_.info(p_.b.scale);
    if (!a.constant || !b.constant) {
      const Shape shape = p_.b.axis == QdqNode::kPerTensor ? *a.shape : *b.shape;
      return emit("Mul", {p_.a.scale, p_.b.scale}, DType::F32, shape);
    }
    std::vector<float> out;
    for (float s : b.constant->as<float>()) out.push_back(s * a.constant->as<float>()[0]);
    std::vector<int64_t> dims;
    if (p_.b.axis != QdqNode::kPerTensor) dims = {std::ssize(out)};
    return e_.add_constant(node_.name + "/scale", make_constant(DType::F32, dims, out));
  }

  // The bias as integers in units of the scale of the product, if that is how it is given.
  TensorId integer_bias(TensorId scale) {
    const auto q = read_dequantized(e_, p_.bias);
    if (!q || !e_.is_constant(q->x) || !e_.is_constant(scale) || !e_.is_constant(q->scale)) return kNoTensor;
    if (e_.info(q->x).dtype != DType::I32 || known_zero_point(e_, *q) != 0) return kNoTensor;
    const auto mine = e_.info(scale).constant->as<float>(), given = e_.info(q->scale).constant->as<float>();
    if (mine.size() != given.size() && mine.size() != 1 && given.size() != 1) return kNoTensor;
    for (size_t i = 0; i < std::max(mine.size(), given.size()); i++) {
      const float x = mine[mine.size() == 1 ? 0 : i], y = given[given.size() == 1 ? 0 : i];
      if (!(std::fabs(x - y) <= 1e-6f * std::fabs(x))) return kNoTensor;
    }
    return q->x;
  }

  // A vector over columns or channels in the shape in which it broadcasts against the result.
  TensorId per_column(TensorId t) {
    const Shape& s = *e_.info(t).shape;
    if (p_.behind == 0 || s.size() != 1) return t;
    const Dim columns = s[0];
    Shape shape(p_.behind + 1, Dim(1));
    shape[0] = columns;
    if (e_.is_constant(t))
      return e_.add_constant(e_.graph.tensor(t).name + "/channels", reshaped(e_.info(t).constant, numbers(shape)));
    std::vector<int64_t> spec(p_.behind + 1, 1);
    spec[0] = -1;
    return e_.emit(node_, "Reshape", {t, e_.add_ints(node_.name + "/shape", spec)}, {}, e_.info(t).dtype, shape);
  }

  Editor& e_;
  const Node node_;
  const Product p_;
};

void run(Editor& e, const Explain& explain) {
  const Handle count = e.size();
  for (Handle h = 0; h < count; h++) {
    if (!e.alive(h)) continue;
    const Node& n = e.node(h);
    if (!is_product(n)) continue;
    if (!e.maker(n.inputs[0], "DequantizeLinear") && !e.maker(n.inputs[1], "DequantizeLinear")) continue;
    Product p;
    const std::string label = n.label(), why = read_product(e, n, p);
    if (why.empty()) Rewrite(e, n, p).run();
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace

void register_quantized_product(FusionRegistry& registry) {
  registry.add({.name = "quantized_product",
                .formula = "op(s (A - z), t (B - w)) -> f32(opInteger(A, B, z, w)) * (s t)",
                .pass = run});
}

}  // namespace ingot
