#include <algorithm>
#include <cmath>

#include "passes/constants.h"
#include "passes/passes.h"
#include "passes/quantization.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Nodes around one QuantizeLinear or DequantizeLinear.
class Expansion {
 public:
  Expansion(Editor& e, Handle h, const Quantizer& q) : e_(e), node_(e.node(h)), q_(q) {}

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
    TensorId y = emit("Round", divided(without_relu(q_.x, low)));
    if (known_zero_point(e_, q_) != 0) y = emit("Add", y, float_zero());
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
    const bool one = q_.axis == Quantizer::kPerTensor;
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

  // c * f32(integers), read only here: the factor c, a constant.
  TensorId factor_of(TensorId x) const {
    const Node* mul = e_.maker(x, "Mul");
    if (!mul || !e_.single_use(x)) return kNoTensor;
    for (size_t i = 0; i < 2; i++) {
      const Node* cast = e_.maker(mul->inputs[i], "Cast");
      if (cast && is_integer(e_.info(cast->inputs[0]).dtype) && is_f32_constant(mul->inputs[1 - i]))
        return mul->inputs[1 - i];
    }
    return kNoTensor;
  }
  bool is_f32_constant(TensorId t) const { return e_.is_constant(t) && e_.info(t).dtype == DType::F32; }

  TensorId over_scale(TensorId t, float scale) {
    const Constant& c = *e_.info(t).constant;
    std::vector<float> out(c.as<float>().begin(), c.as<float>().end());
    for (float& v : out) v /= scale;
    return e_.add_constant(e_.graph.tensor(t).name + "/scaled", make_constant(DType::F32, c.dims, out));
  }
  TensorId rescaled_product(TensorId x, TensorId factor, float scale) {
    const Node mul = *e_.maker(x, "Mul");
    const TensorId integers = mul.inputs[mul.inputs[0] == factor ? 1 : 0];
    return emit("Mul", integers, over_scale(factor, scale));
  }

  // x / s, with s multiplied into a constant factor, or a factor and a bias, that x ends with.
  TensorId divided(TensorId x) {
    const auto s = scalar_value(e_.info(q_.scale));
    if (!s) return emit("Div", x, parameter(q_.scale));
    const auto scale = static_cast<float>(*s);
    if (TensorId c = factor_of(x); c != kNoTensor) return rescaled_product(x, c, scale);
    if (const Node* add = e_.maker(x, "Add"); add && e_.single_use(x))
      for (size_t i = 0; i < 2; i++) {
        const TensorId product = add->inputs[i], bias = add->inputs[1 - i];
        if (TensorId c = factor_of(product); c != kNoTensor && is_f32_constant(bias))
          return emit("Add", rescaled_product(product, c, scale), over_scale(bias, scale));
      }
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5f) return emit("Mul", x, scalar(1 / scale));  // exact
    return emit("Div", x, parameter(q_.scale));
  }

  Editor& e_;
  const Node node_;
  const Quantizer q_;
};

}  // namespace

void expand_quantization(Graph& graph) {
  Editor e(graph);
  const Handle count = e.size();
  for (Handle h = 0; h < count; h++) {
    const auto q = read_quantizer(e, e.node(h));
    if (!q) continue;
    const bool quantizes = e.node(h).is("QuantizeLinear");
    Expansion expansion(e, h, *q);
    e.replace_uses(e.node(h).outputs[0], quantizes ? expansion.quantized() : expansion.dequantized());
  }
  e.finish();
}

}  // namespace ingot
