// How operators are differentiated: for a node y = f(x0, x1, ...) and the gradient g of some scalar with respect to y,
// a rule gives the gradients with respect to the operands, g df/dx0, g df/dx1, ...
#pragma once
#include <functional>

#include "expansions/expander.h"

namespace ingot {

// One node on the way back, and how a rule speaks of it.
class Backward {
 public:
  using Give = std::function<void(TensorId operand, TensorId gradient)>;
  using Wanted = std::function<bool(TensorId)>;
  Backward(Expander& expander, const Node& n, std::vector<TensorId> of_results, Wanted wanted, Give give)
      : e(expander),
        node(n),
        g(of_results[0]),
        gradients(std::move(of_results)),
        wanted_(std::move(wanted)),
        give_(std::move(give)) {}

  Expander& e;
  const Node& node;
  const TensorId g;                       // of the first result
  const std::vector<TensorId> gradients;  // of each result; kNoTensor where nothing depends on it

  TensorId x(size_t i) const { return node.inputs[i]; }
  TensorId y() const { return node.outputs[0]; }
  bool wants(size_t i) const { return node.has_input(i) && wanted_(node.inputs[i]); }
  // The gradient of operand i; axes that broadcasting made are summed up.
  void give(size_t i, TensorId gradient);

  TensorId number(double v) const { return e.scalar(v, e.dtype(x(0))); }
  TensorId add(TensorId a, TensorId b) const { return e.emit("Add", {a, b}); }
  TensorId sub(TensorId a, TensorId b) const { return e.emit("Sub", {a, b}); }
  TensorId mul(TensorId a, TensorId b) const { return e.emit("Mul", {a, b}); }
  TensorId div(TensorId a, TensorId b) const { return e.emit("Div", {a, b}); }
  TensorId neg(TensorId a) const { return e.emit("Neg", {a}); }
  TensorId square(TensorId a) const { return mul(a, a); }
  TensorId where(TensorId condition, TensorId a, TensorId b) const { return e.emit("Where", {condition, a, b}); }

 private:
  TensorId summed_like(TensorId gradient, TensorId operand) const;

  Wanted wanted_;
  Give give_;
};

using GradientRule = void (*)(Backward&);

// nullptr when the operator has none.
GradientRule gradient_rule(const Node&);

}  // namespace ingot
