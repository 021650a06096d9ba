// Element-wise identities.
#include <cmath>

#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// The node's result is x itself: allowed when type and shape agree.
bool forward(Editor& e, Handle h, TensorId x) {
  TensorId y = e.node(h).outputs[0];
  if (e.info(x).dtype != e.info(y).dtype || !same_shape(e.info(x), e.info(y))) return false;
  return e.replace_uses(y, x);
}

bool is_scalar(const Editor& e, TensorId t, double value) { return t != kNoTensor && scalar_value(e.info(t)) == value; }

// Every element of a constant is `value`.
bool all_equal(const Editor& e, TensorId t, double value) {
  if (!e.is_constant(t)) return false;
  if (is_scalar(e, t, value)) return true;
  const Constant& c = *e.info(t).constant;
  if (c.elements() == 0 || c.bytes.size() > (1 << 20)) return false;
  if (c.dtype == DType::F32) {
    for (float v : c.as<float>())
      if (v != static_cast<float>(value)) return false;
    return true;
  }
  auto values = integer_values(e.info(t));
  if (!values) return false;
  for (int64_t v : *values)
    if (static_cast<double>(v) != value) return false;
  return true;
}

// Identity(x) -> x
bool identity(Editor& e, Handle h) { return e.replace_uses(e.node(h).outputs[0], e.node(h).inputs[0]); }

// Dropout(x) -> x outside of training, when nobody reads the mask
bool dropout(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (n.has_input(2) && !is_scalar(e, n.inputs[2], 0)) return false;
  if (n.has_output(1) && (e.is_output(n.outputs[1]) || !e.consumers(n.outputs[1]).empty())) return false;
  return e.replace_uses(n.outputs[0], n.inputs[0]);
}

// x + 0, 0 + x, x | false -> x
bool add_zero(Editor& e, Handle h) {
  const Node& n = e.node(h);
  return (all_equal(e, n.inputs[1], 0) && forward(e, h, n.inputs[0])) ||
         (all_equal(e, n.inputs[0], 0) && forward(e, h, n.inputs[1]));
}
// x - 0 -> x
bool sub_zero(Editor& e, Handle h) {
  return all_equal(e, e.node(h).inputs[1], 0) && forward(e, h, e.node(h).inputs[0]);
}
// x * 1, 1 * x, x & true -> x
bool mul_one(Editor& e, Handle h) {
  const Node& n = e.node(h);
  return (all_equal(e, n.inputs[1], 1) && forward(e, h, n.inputs[0])) ||
         (all_equal(e, n.inputs[0], 1) && forward(e, h, n.inputs[1]));
}
// x / 1 -> x
bool div_one(Editor& e, Handle h) { return all_equal(e, e.node(h).inputs[1], 1) && forward(e, h, e.node(h).inputs[0]); }

// x / 2^k -> x * 2^-k: the same value, without the division
bool div_power_of_two(Editor& e, Handle h) {
  const Node& n = e.node(h);
  auto c = scalar_value(e.info(n.inputs[1]));
  if (!c || !is_f32(e.info(n.inputs[1]))) return false;
  int exponent;
  if (std::fabs(std::frexp(*c, &exponent)) != 0.5 || exponent < -100 || exponent > 100) return false;
  TensorId inv =
      e.add_constant(n.name + "/reciprocal", filled(static_cast<float>(1.0 / *c), e.info(n.inputs[1]).constant->dims));
  e.replace(h, Node{.op = "Mul", .inputs = {n.inputs[0], inv}});
  return true;
}

// x^1 -> x, x^2 -> x*x, x^3 -> x*x*x, x^0.5 -> sqrt(x), x^-1 -> 1/x, x^-0.5 -> 1/sqrt(x)   (f32)
bool pow_small(Editor& e, Handle h) {
  const Node n = e.node(h);
  TensorId x = n.inputs[0], y = n.outputs[0];
  auto p = scalar_value(e.info(n.inputs[1]));
  if (!p || !is_f32(e.info(x)) || !same_shape(e.info(x), e.info(y))) return false;
  auto emit = [&](const char* op, std::vector<TensorId> in) {
    return e.emit(n, op, std::move(in), {}, DType::F32, e.info(x).shape);
  };
  if (*p == 1) return e.replace_uses(y, x);
  if (*p == 2)
    e.replace(h, Node{.op = "Mul", .inputs = {x, x}});
  else if (*p == 3)
    e.replace(h, Node{.op = "Mul", .inputs = {emit("Mul", {x, x}), x}});
  else if (*p == 0.5)
    e.replace(h, Node{.op = "Sqrt", .inputs = {x}});
  else if (*p == -1)
    e.replace(h, Node{.op = "Reciprocal", .inputs = {x}});
  else if (*p == -0.5)
    e.replace(h, Node{.op = "Reciprocal", .inputs = {emit("Sqrt", {x})}});
  else
    return false;
  return true;
}

// Cast(x) to its own type -> x
bool cast_same(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (e.info(n.inputs[0]).dtype != e.info(n.outputs[0]).dtype || e.info(n.inputs[0]).dtype == DType::Undefined)
    return false;
  return e.replace_uses(n.outputs[0], n.inputs[0]);
}

// CastLike(x, y) -> Cast(x): y is not read
bool cast_like(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const DType to = e.info(n.outputs[0]).dtype;
  if (to == DType::Undefined) return false;
  Node with{.op = "Cast", .inputs = {n.inputs[0]}, .attrs = n.attrs};
  with.attrs["to"] = static_cast<int64_t>(to);
  e.replace(h, std::move(with));
  return true;
}

// f(f(x)) -> x for Not and Neg
bool involution(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* inner = e.maker(n.inputs[0], n.op);
  return inner && e.replace_uses(n.outputs[0], inner->inputs[0]);
}

// Where(true, a, b) -> a, Where(false, a, b) -> b
bool where_constant(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (all_equal(e, n.inputs[0], 1)) return forward(e, h, n.inputs[1]);
  if (all_equal(e, n.inputs[0], 0)) return forward(e, h, n.inputs[2]);
  return false;
}

// Max(x, -inf) -> x, Min(x, inf) -> x
bool no_bound(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const double bound = n.is("Max") ? -INFINITY : INFINITY;
  if (n.inputs.size() != 2) return false;
  return (is_scalar(e, n.inputs[1], bound) && forward(e, h, n.inputs[0])) ||
         (is_scalar(e, n.inputs[0], bound) && forward(e, h, n.inputs[1]));
}

// Sum(x) -> x, and Max, Min, Mean, Concat
bool only_operand(Editor& e, Handle h) {
  const Node& n = e.node(h);
  return n.inputs.size() == 1 && e.replace_uses(n.outputs[0], n.inputs[0]);
}

// Sum(a, b) -> Add(a, b)
bool sum_of_two(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (n.inputs.size() != 2) return false;
  e.replace(h, Node{.op = "Add", .inputs = n.inputs});
  return true;
}

// Clip(x) without bounds -> x for integers; a float would still lose its infinities
bool clip_nothing(Editor& e, Handle h) {
  const Node& n = e.node(h);
  return is_integer(e.info(n.inputs[0]).dtype) && !n.has_input(1) && !n.has_input(2) &&
         e.replace_uses(n.outputs[0], n.inputs[0]);
}

constexpr SimplifyRule kRules[] = {
    {"Identity", identity},    {"Dropout", dropout},  {"Add", add_zero},      {"Or", add_zero},
    {"Sub", sub_zero},         {"Mul", mul_one},      {"And", mul_one},       {"Div", div_one},
    {"Div", div_power_of_two}, {"Pow", pow_small},    {"Cast", cast_same},    {"CastLike", cast_same},
    {"CastLike", cast_like},   {"Not", involution},   {"Neg", involution},    {"Where", where_constant},
    {"Sum", only_operand},     {"Sum", sum_of_two},   {"Max", only_operand},  {"Max", no_bound},
    {"Min", no_bound},         {"Min", only_operand}, {"Mean", only_operand}, {"Concat", only_operand},
    {"Clip", clip_nothing},
};

}  // namespace

std::span<const SimplifyRule> simplify_elementwise_rules() { return kRules; }

}  // namespace ingot
