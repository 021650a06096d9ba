#include <algorithm>
#include <cmath>

#include "passes/constants.h"
#include "passes/passes.h"
#include "passes/qdq.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Nodes around one QuantizeLinear or DequantizeLinear.
class Expansion {
 public:
  Expansion(Editor& e, Handle h, const QdqNode& q) : e_(e), node_(e.node(h)), q_(q) {}

  // f32( x - z ) * s
  TensorId dequantized() {
    TensorId y = q_.x;
    if (e_.info(q_.x).dtype == DType::I32 && known_zero_point(e_, q_) != 0)
      y = cast(emit("Sub", y, q_.zero), DType::F32);
    else
      y = less_zero(cast(y, DType::F32));
    return emit("Mul", y, parameter(q_.scale));
  }

  // saturate( round( x / s ) + z )
  TensorId quantized() {
    const DType to = e_.info(node_.outputs[0]).dtype;
    const double values = static_cast<double>(int64_t{1} << bits(to)), low = is_signed(to) ? -values / 2 : 0;
    TensorId y = emit("Add", emit("Round", divided(without_relu(q_.x, low))), float_zero());
    y = e_.emit(node_, "Clip", {y, scalar(low), scalar(low + values - 1)}, {}, DType::F32, e_.info(y).shape);
    return cast(y, to);
  }

 private:
  TensorId emit(const std::string& op, TensorId x, TensorId y = kNoTensor) {
    std::vector<TensorId> inputs = {x};
    if (y != kNoTensor) inputs.push_back(y);
    return e_.emit(node_, op, inputs, {}, e_.info(x).dtype, e_.info(node_.inputs[0]).shape);
  }
  TensorId cast(TensorId x, DType to) {
    return e_.emit(node_, "Cast", {x}, {{"to", static_cast<int64_t>(to)}}, to, e_.info(x).shape);
  }
  TensorId scalar(double v) { return e_.add_constant("bound", filled(static_cast<float>(v))); }

  // A scale or zero point as a tensor that broadcasts to x.
  TensorId parameter(TensorId t) {
    const bool one = q_.axis == QdqNode::kPerTensor;
    if (!e_.is_constant(t)) return t;
    std::vector<int64_t> dims;
    if (!one) {
      dims.assign(e_.info(q_.x).shape->size() - static_cast<size_t>(q_.axis), 1);
      dims[0] = e_.info(t).constant->elements();
    }
    return e_.add_constant(e_.graph.tensor(t).name, reshaped(e_.info(t).constant, dims));
  }
  TensorId float_zero() {
    if (auto one = known_zero_point(e_, q_)) return scalar(*one);
    return cast(parameter(q_.zero), DType::F32);
  }
  TensorId less_zero(TensorId x) { return known_zero_point(e_, q_) == 0 ? x : emit("Sub", x, float_zero()); }

  // Saturation does what Relu did where the zero point is the lowest number.
  TensorId without_relu(TensorId x, double low) const {
    const Node* relu = e_.maker(x, "Relu");
    return relu && e_.single_use(x) && known_zero_point(e_, q_) == low ? relu->inputs[0] : x;
  }

  bool is_f32_constant(TensorId t) const { return e_.is_constant(t) && e_.info(t).dtype == DType::F32; }

  // Can x / s be had by dividing constants: a factor, a bias, or those of a sum or a Relu? x is read only here.
  bool divides_constants(TensorId x, int depth = 0) const {
    if (is_f32_constant(x)) return true;
    const Node* n = e_.maker(x);
    if (!n || !e_.single_use(x) || depth > 4 || !n->domain.empty()) return false;
    if (n->op == "Mul") return is_f32_constant(n->inputs[0]) || is_f32_constant(n->inputs[1]);
    if (n->op == "Relu") return divides_constants(n->inputs[0], depth + 1);
    if (n->op != "Add") return false;
    return divides_constants(n->inputs[0], depth + 1) && divides_constants(n->inputs[1], depth + 1);
  }
  TensorId with_divided_constants(TensorId x, float scale) {
    if (is_f32_constant(x)) {
      const Constant& c = *e_.info(x).constant;
      std::vector<float> out(c.as<float>().begin(), c.as<float>().end());
      for (float& v : out) v /= scale;
      return e_.add_constant(e_.graph.tensor(x).name + "/scaled", make_constant(DType::F32, c.dims, out));
    }
    const Node n = *e_.maker(x);
    std::vector<TensorId> inputs = n.inputs;
    const bool product = n.op == "Mul";
    for (TensorId& t : inputs)
      if (!product || is_f32_constant(t)) {
        t = with_divided_constants(t, scale);
        if (product) break;
      }
    return e_.emit(n, n.op, inputs, {}, DType::F32, e_.info(x).shape);
  }

  TensorId divided(TensorId x) {
    const auto s = scalar_value(e_.info(q_.scale));
    if (!s) return emit("Div", x, parameter(q_.scale));
    const auto scale = static_cast<float>(*s);
    if (!is_f32_constant(x) && divides_constants(x)) return with_divided_constants(x, scale);
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5f) return emit("Mul", x, scalar(1 / scale));  // exact
    return emit("Div", x, parameter(q_.scale));
  }

  Editor& e_;
  const Node node_;
  const QdqNode q_;
};

}  // namespace

void expand_quantization(Graph& graph) {
  Editor e(graph);
  const Handle count = e.size();
  for (Handle h = 0; h < count; h++) {
    const auto q = read_qdq(e, e.node(h));
    if (!q) continue;
    const bool quantizes = e.node(h).is("QuantizeLinear");
    Expansion expansion(e, h, *q);
    e.replace_uses(e.node(h).outputs[0], quantizes ? expansion.quantized() : expansion.dequantized());
  }
  e.finish();
}

}  // namespace ingot
