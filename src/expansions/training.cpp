// One step of an optimiser, ai.onnx.preview.training. Operands: the rate R, the count T of steps so far, then for each
// tensor X that is learnt its value, then all gradients G, then all states. With g = G + norm_coefficient X:
//   Adagrad:   H' = H + g^2,  X' = X - R / (1 + T decay_factor) g / (sqrt(H') + epsilon)
//   Adam:      V' = alpha V + (1 - alpha) g,  H' = beta H + (1 - beta) g^2,
//              X' = (1 - norm_coefficient_post) (X - R' V' / (sqrt(H') + epsilon)),
//              R' = R sqrt(1 - beta^T) / (1 - alpha^T) from the second step on
//   Momentum:  V' = alpha V + beta g (the first time: + g),  X' = X - R V', or nesterov: X - R (g + alpha V')
#include "expansions/expander.h"

namespace ingot {
namespace {

class Optimiser {
 public:
  Optimiser(Expander& expander, size_t states) : e(expander), tensors((e.node.inputs.size() - 2) / (2 + states)) {
    e.require(e.node.inputs.size() == 2 + tensors * (2 + states) && tensors > 0,
              "has {} operands, expected 2 and {} for each tensor", e.node.inputs.size(), 2 + states);
    type = e.dtype(e.in(2));
    rate = scalar_operand(0);
    steps = scalar_operand(1);
    later = e.emit("Greater", {steps, number(0)});
  }

  Expander& e;
  size_t tensors;
  DType type;
  TensorId rate, steps, later;  // later: not the first step

  TensorId number(double v) { return e.scalar(v, type); }
  TensorId attribute(const char* name, float fallback) { return number(e.node.get_float(name, fallback)); }
  TensorId add(TensorId a, TensorId b) { return e.emit("Add", {a, b}); }
  TensorId sub(TensorId a, TensorId b) { return e.emit("Sub", {a, b}); }
  TensorId mul(TensorId a, TensorId b) { return e.emit("Mul", {a, b}); }
  TensorId div(TensorId a, TensorId b) { return e.emit("Div", {a, b}); }

  TensorId value(size_t i) { return e.in(2 + i); }
  TensorId state(size_t which, size_t i) { return e.in(2 + (2 + which) * tensors + i); }
  TensorId gradient(size_t i) { return add(mul(attribute("norm_coefficient", 0), value(i)), e.in(2 + tensors + i)); }
  // sqrt(h) + epsilon
  TensorId root(TensorId h) { return add(e.emit("Sqrt", {h}), attribute("epsilon", 1e-6f)); }
  // kept * old + (1 - kept) * fresh
  TensorId blend(const char* kept, float fallback, TensorId old, TensorId fresh) {
    const float k = e.node.get_float(kept, fallback);
    return add(mul(number(k), old), mul(number(1 - static_cast<double>(k)), fresh));
  }
  // Results are grouped as the operands are, without the gradients.
  void result(size_t group, size_t i, TensorId t) { e.result(group * tensors + i, t); }

 private:
  TensorId scalar_operand(size_t i) {
    const TensorId t = e.cast(e.in(i), type);
    return e.rank(t) == 0 ? t : e.reshape(t, {});
  }
};

void expand_adagrad(Expander& e) {
  Optimiser o(e, 1);
  const TensorId rate = o.div(o.rate, o.add(o.number(1), o.mul(o.steps, o.attribute("decay_factor", 0))));
  for (size_t i = 0; i < o.tensors; i++) {
    const TensorId g = o.gradient(i), h = o.add(o.state(0, i), o.mul(g, g));
    o.result(0, i, o.sub(o.value(i), o.div(o.mul(rate, g), o.root(h))));
    o.result(1, i, h);
  }
}

void expand_adam(Expander& e) {
  Optimiser o(e, 2);
  auto rest = [&](const char* base, float fallback) {
    return o.sub(o.number(1), e.emit("Pow", {o.attribute(base, fallback), o.steps}));
  };
  const TensorId corrected = o.div(o.mul(o.rate, e.emit("Sqrt", {rest("beta", 0.999f)})), rest("alpha", 0.9f));
  const TensorId rate = e.emit("Where", {o.later, corrected, o.rate});
  const TensorId shrink = o.number(1 - static_cast<double>(e.node.get_float("norm_coefficient_post", 0)));
  for (size_t i = 0; i < o.tensors; i++) {
    const TensorId g = o.gradient(i), v = o.blend("alpha", 0.9f, o.state(0, i), g);
    const TensorId h = o.blend("beta", 0.999f, o.state(1, i), o.mul(g, g));
    o.result(0, i, o.mul(shrink, o.sub(o.value(i), o.div(o.mul(rate, v), o.root(h)))));
    o.result(1, i, v);
    o.result(2, i, h);
  }
}

void expand_momentum(Expander& e) {
  Optimiser o(e, 1);
  const std::string mode = e.node.get_string("mode", "");
  e.require(mode == "standard" || mode == "nesterov", "attribute 'mode' is '{}', expected standard or nesterov", mode);
  const TensorId alpha = o.attribute("alpha", 0);
  const TensorId beta = e.emit("Where", {o.later, o.attribute("beta", 0), o.number(1)});
  for (size_t i = 0; i < o.tensors; i++) {
    const TensorId g = o.gradient(i), v = o.add(o.mul(alpha, o.state(0, i)), o.mul(beta, g));
    const TensorId direction = mode == "standard" ? v : o.add(g, o.mul(alpha, v));
    o.result(0, i, o.sub(o.value(i), o.mul(o.rate, direction)));
    o.result(1, i, v);
  }
}

constexpr const char* kDomain = "ai.onnx.preview.training";

}  // namespace

void register_training(ExpansionRegistry& r) {
  r.add("Adagrad", expand_adagrad, kDomain);
  r.add("Adam", expand_adam, kDomain);
  r.add("Momentum", expand_momentum, kDomain);
}

}  // namespace ingot
