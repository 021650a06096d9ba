#include "expansions/gradient_rules.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <string_view>

namespace ingot {
namespace {

using B = Backward;

TensorId shape_of(B& b, TensorId t) { return b.e.emit("Shape", {t}); }
TensorId with_shape(B& b, TensorId t, TensorId shape) {
  return b.e.emit("Reshape", {t, shape}, {{"allowzero", int64_t{1}}});
}
TensorId size_of(B& b, TensorId t) { return b.e.cast(b.e.emit("Size", {t}), b.e.dtype(b.x(0))); }
TensorId square_root_of_pi(B& b, double factor) { return b.number(factor / std::sqrt(std::numbers::pi)); }

// ---- one operand, element by element: the gradient times the derivative ----

void scaled(B& b, TensorId derivative) { b.give(0, b.mul(b.g, derivative)); }
// The gradient where the condition holds, otherwise `other` times it.
void gated(B& b, TensorId condition, TensorId other) { b.give(0, b.where(condition, b.g, b.mul(b.g, other))); }
TensorId positive(B& b) { return b.e.emit("Greater", {b.x(0), b.number(0)}); }
TensorId one_minus(B& b, TensorId t) { return b.sub(b.number(1), t); }
TensorId of_x(B& b, const char* op) { return b.e.emit(op, {b.x(0)}); }
// 1 / sqrt(t)
TensorId inverse_root(B& b, TensorId t) { return b.e.emit("Reciprocal", {b.e.emit("Sqrt", {t})}); }

void identity(B& b) { b.give(0, b.g); }
void none(B&) {}
void negation(B& b) { b.give(0, b.neg(b.g)); }
void cast(B& b) { b.give(0, b.e.cast(b.g, b.e.dtype(b.x(0)))); }
void abs(B& b) { scaled(b, of_x(b, "Sign")); }
void exp(B& b) { scaled(b, b.y()); }
void log(B& b) { b.give(0, b.div(b.g, b.x(0))); }
void sqrt(B& b) { b.give(0, b.div(b.mul(b.g, b.number(0.5)), b.y())); }
void reciprocal(B& b) { scaled(b, b.neg(b.square(b.y()))); }
void sin(B& b) { scaled(b, of_x(b, "Cos")); }
void cos(B& b) { scaled(b, b.neg(of_x(b, "Sin"))); }
void tan(B& b) { scaled(b, b.add(b.number(1), b.square(b.y()))); }
void asin(B& b) { scaled(b, inverse_root(b, one_minus(b, b.square(b.x(0))))); }
void acos(B& b) { scaled(b, b.neg(inverse_root(b, one_minus(b, b.square(b.x(0)))))); }
void atan(B& b) { b.give(0, b.div(b.g, b.add(b.square(b.x(0)), b.number(1)))); }
void sinh(B& b) { scaled(b, of_x(b, "Cosh")); }
void cosh(B& b) { scaled(b, of_x(b, "Sinh")); }
void tanh(B& b) { scaled(b, one_minus(b, b.square(b.y()))); }
void asinh(B& b) { scaled(b, inverse_root(b, b.add(b.square(b.x(0)), b.number(1)))); }
void acosh(B& b) { scaled(b, inverse_root(b, b.sub(b.square(b.x(0)), b.number(1)))); }
void atanh(B& b) { b.give(0, b.div(b.g, one_minus(b, b.square(b.x(0))))); }
void sigmoid(B& b) { scaled(b, b.mul(b.y(), one_minus(b, b.y()))); }
void softplus(B& b) { scaled(b, of_x(b, "Sigmoid")); }
void softsign(B& b) { b.give(0, b.div(b.g, b.square(b.add(of_x(b, "Abs"), b.number(1))))); }
void relu(B& b) { b.give(0, b.where(positive(b), b.g, b.number(0))); }
void leaky_relu(B& b) { gated(b, positive(b), b.number(b.node.get_float("alpha", 0.01f))); }
// y = alpha (e^x - 1) below zero
void elu(B& b) { gated(b, positive(b), b.add(b.y(), b.number(b.node.get_float("alpha", 1)))); }
void erf(B& b) { scaled(b, b.mul(square_root_of_pi(b, 2), b.e.emit("Exp", {b.neg(b.square(b.x(0)))}))); }

void hard_sigmoid(B& b) {
  const TensorId inside =
      b.e.emit("And", {b.e.emit("Greater", {b.y(), b.number(0)}), b.e.emit("Less", {b.y(), b.number(1)})});
  b.give(0, b.where(inside, b.mul(b.g, b.number(b.node.get_float("alpha", 0.2f))), b.number(0)));
}

// y = x s, s = sigmoid(alpha x):  s + alpha x s (1 - s) = s + alpha y (1 - s)
void swish(B& b) {
  const TensorId alpha = b.number(b.node.get_float("alpha", 1));
  const TensorId s = b.e.emit("Sigmoid", {b.mul(alpha, b.x(0))});
  scaled(b, b.add(s, b.mul(alpha, b.mul(b.y(), one_minus(b, s)))));
}

// y = x P(x), P the normal distribution or with a tanh close to it:  P + x P'
void gelu(B& b) {
  const TensorId x = b.x(0), half = b.number(0.5), xx = b.square(x);
  if (b.node.get_string("approximate", "none") == "none") {
    const TensorId p = b.mul(half, b.add(b.number(1), b.e.emit("Erf", {b.mul(x, b.number(std::sqrt(0.5)))})));
    const TensorId density = b.mul(square_root_of_pi(b, std::sqrt(0.5)), b.e.emit("Exp", {b.neg(b.mul(half, xx))}));
    return scaled(b, b.add(p, b.mul(x, density)));
  }
  const double root = std::sqrt(2 / std::numbers::pi), cubic = 0.044715;
  const TensorId inner = b.mul(x, b.add(b.number(root), b.mul(b.number(root * cubic), xx)));
  const TensorId slope = b.add(b.number(root), b.mul(b.number(3 * root * cubic), xx));
  const TensorId t = b.e.emit("Tanh", {inner});
  const TensorId p = b.mul(half, b.add(b.number(1), t));
  scaled(b, b.add(p, b.mul(b.mul(half, x), b.mul(one_minus(b, b.square(t)), slope))));
}

void clip(B& b) {
  TensorId g = b.g;
  for (size_t i : {1u, 2u})
    if (b.node.has_input(i))
      g = b.where(b.e.emit(i == 1 ? "GreaterOrEqual" : "LessOrEqual", {b.x(0), b.x(i)}), g, b.number(0));
  b.give(0, g);
}

// ---- several operands, element by element ----

void sum(B& b) {
  for (size_t i = 0; i < b.node.inputs.size(); i++) b.give(i, b.g);
}
void mean(B& b) {
  const TensorId share = b.mul(b.g, b.number(1.0 / static_cast<double>(b.node.inputs.size())));
  for (size_t i = 0; i < b.node.inputs.size(); i++) b.give(i, share);
}
void sub(B& b) {
  b.give(0, b.g);
  if (b.wants(1)) b.give(1, b.neg(b.g));
}
void mul(B& b) {
  if (b.wants(0)) b.give(0, b.mul(b.g, b.x(1)));
  if (b.wants(1)) b.give(1, b.mul(b.g, b.x(0)));
}
void div(B& b) {
  const TensorId first = b.div(b.g, b.x(1));
  b.give(0, first);
  if (b.wants(1)) b.give(1, b.neg(b.mul(first, b.y())));
}

// p x^(p - 1), which is 0 for p = 0 whatever x is; x^p log x, which is 0 where x^p is.
void pow(B& b) {
  const DType type = b.e.dtype(b.x(0));
  const TensorId p = b.e.cast(b.x(1), type), zero = b.number(0);
  if (b.wants(0)) {
    const TensorId slope = b.mul(p, b.e.emit("Pow", {b.x(0), b.sub(p, b.number(1))}));
    b.give(0, b.mul(b.g, b.where(b.e.emit("Equal", {p, zero}), zero, slope)));
  }
  if (b.wants(1)) {
    const TensorId slope = b.mul(b.y(), of_x(b, "Log"));
    b.give(1, b.e.cast(b.mul(b.g, b.where(b.e.emit("Equal", {b.y(), zero}), zero, slope)), b.e.dtype(b.x(1))));
  }
}

// Those that are the largest (the smallest) share the gradient.
void extremum(B& b) {
  std::vector<TensorId> is_it;
  is_it.reserve(b.node.inputs.size());
  for (TensorId x : b.node.inputs) is_it.push_back(b.e.cast(b.e.emit("Equal", {x, b.y()}), b.e.dtype(b.x(0))));
  const TensorId share = b.div(b.g, is_it.size() == 1 ? is_it[0] : b.e.emit("Sum", is_it));
  for (size_t i = 0; i < is_it.size(); i++)
    if (b.wants(i)) b.give(i, b.mul(share, is_it[i]));
}

void where(B& b) {
  const TensorId zero = b.e.scalar(0, b.e.dtype(b.y()));
  if (b.wants(1)) b.give(1, b.where(b.x(0), b.g, zero));
  if (b.wants(2)) b.give(2, b.where(b.x(0), zero, b.g));
}

void prelu(B& b) {
  if (b.wants(0)) b.give(0, b.where(positive(b), b.g, b.mul(b.g, b.x(1))));
  if (b.wants(1)) b.give(1, b.where(positive(b), b.number(0), b.mul(b.g, b.x(0))));
}

// ---- products ----

TensorId swapped(B& b, TensorId t) {
  std::vector<int64_t> perm(static_cast<size_t>(b.e.rank(t)));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.e.transpose(t, perm);
}

void matmul(B& b) {
  const bool row = b.e.rank(b.x(0)) == 1, column = b.e.rank(b.x(1)) == 1;
  const TensorId left = row ? b.e.unsqueeze(b.x(0), {0}) : b.x(0);
  const TensorId right = column ? b.e.unsqueeze(b.x(1), {1}) : b.x(1);
  TensorId g = column ? b.e.unsqueeze(b.g, {-1}) : b.g;
  if (row) g = b.e.unsqueeze(g, {-2});
  // A vector's gradient has the batches of the other side, and an axis of one, to be summed up.
  auto as_vector = [&](bool vector, TensorId t, int64_t axis) { return vector ? b.e.squeeze(t, {axis}) : t; };
  if (b.wants(0)) b.give(0, as_vector(row, b.e.emit("MatMul", {g, swapped(b, right)}), -2));
  if (b.wants(1)) b.give(1, as_vector(column, b.e.emit("MatMul", {swapped(b, left), g}), -1));
}

// Y = alpha A' B' + beta C
void gemm(B& b) {
  const bool turned_a = b.node.get_int("transA", 0) != 0, turned_b = b.node.get_int("transB", 0) != 0;
  const TensorId g = b.mul(b.g, b.number(b.node.get_float("alpha", 1)));
  const TensorId left = turned_a ? b.x(0) : swapped(b, b.x(0)), right = turned_b ? b.x(1) : swapped(b, b.x(1));
  if (b.wants(0)) {
    const TensorId da = b.e.emit("MatMul", {g, right});
    b.give(0, turned_a ? swapped(b, da) : da);
  }
  if (b.wants(1)) {
    const TensorId db = b.e.emit("MatMul", {left, g});
    b.give(1, turned_b ? swapped(b, db) : db);
  }
  if (b.wants(2)) b.give(2, b.mul(b.g, b.number(b.node.get_float("beta", 1))));
}

// ---- reductions ----

// A reduction's result, or its gradient, for each element it was made from.
TensorId spread(B& b, TensorId t) {
  if (!b.node.get_int("keepdims", 1) && b.node.has_input(1)) t = b.e.emit("Unsqueeze", {t, b.x(1)});
  return b.e.emit("Expand", {t, shape_of(b, b.x(0))});
}
void reduce_sum(B& b) { b.give(0, spread(b, b.g)); }
void reduce_mean(B& b) { b.give(0, b.div(spread(b, b.g), b.div(size_of(b, b.x(0)), size_of(b, b.y())))); }
void reduce_l1(B& b) { b.give(0, b.mul(spread(b, b.g), of_x(b, "Sign"))); }
void reduce_l2(B& b) { b.give(0, b.div(b.mul(spread(b, b.g), b.x(0)), spread(b, b.y()))); }
void reduce_sum_square(B& b) { b.give(0, b.mul(spread(b, b.mul(b.g, b.number(2))), b.x(0))); }
void reduce_log_sum(B& b) { b.give(0, spread(b, b.div(b.g, b.e.emit("Exp", {b.y()})))); }
void reduce_log_sum_exp(B& b) { b.give(0, b.mul(spread(b, b.g), b.e.emit("Exp", {b.sub(b.x(0), spread(b, b.y()))}))); }
void reduce_extremum(B& b) {
  const TensorId is_it = b.e.cast(b.e.emit("Equal", {b.x(0), spread(b, b.y())}), b.e.dtype(b.x(0)));
  std::vector<TensorId> operands = b.node.inputs;
  operands[0] = is_it;
  const TensorId count = b.e.emit("ReduceSum", operands, b.node.attrs);
  b.give(0, b.mul(spread(b, b.div(b.g, count)), is_it));
}

TensorId sum_along(B& b, TensorId t) { return b.e.reduce("ReduceSum", t, {b.node.get_int("axis", -1)}, true); }
void softmax(B& b) { b.give(0, b.mul(b.y(), b.sub(b.g, sum_along(b, b.mul(b.g, b.y()))))); }
void log_softmax(B& b) { b.give(0, b.sub(b.g, b.mul(b.e.emit("Exp", {b.y()}), sum_along(b, b.g)))); }

void cumulative_sum(B& b) {
  auto attrs = b.node.attrs;
  attrs["reverse"] = int64_t{b.node.get_int("reverse", 0) == 0};
  b.give(0, b.e.emit("CumSum", {b.g, b.x(1)}, std::move(attrs)));
}

// y = h scale + bias, h = (x - mean) / deviation.  With k = g scale:  (k - mean k - h mean(k h)) / deviation.
void layer_norm(B& b) {
  const int64_t rank = b.e.rank(b.x(0)), first = b.e.axis(b.node.get_int("axis", -1), rank);
  std::vector<int64_t> axes;
  for (int64_t d = first; d < rank; d++) axes.push_back(d);
  auto mean_of = [&](TensorId t) { return b.e.reduce("ReduceMean", t, axes, true); };
  const TensorId centred = b.sub(b.x(0), mean_of(b.x(0)));
  const TensorId variance = b.add(mean_of(b.square(centred)), b.number(b.node.get_float("epsilon", 1e-5f)));
  const TensorId inverse = inverse_root(b, variance), h = b.mul(centred, inverse);
  if (b.wants(0)) {
    const TensorId k = b.mul(b.g, b.x(1));
    b.give(0, b.mul(inverse, b.sub(b.sub(k, mean_of(k)), b.mul(h, mean_of(b.mul(k, h))))));
  }
  if (b.wants(1)) b.give(1, b.mul(b.g, h));
  if (b.wants(2)) b.give(2, b.g);
}

// ---- movement ----

void reshaped(B& b) { b.give(0, with_shape(b, b.g, shape_of(b, b.x(0)))); }

void transpose(B& b) {
  const auto rank = static_cast<size_t>(b.e.rank(b.x(0)));
  const std::vector<int64_t> perm = b.node.get_ints("perm");
  std::vector<int64_t> back(rank);
  for (size_t i = 0; i < rank; i++) {
    if (perm.empty())
      back[i] = static_cast<int64_t>(rank - 1 - i);
    else
      back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  b.give(0, b.e.transpose(b.g, back));
}

void concat(B& b) {
  const int64_t axis = b.e.axis(b.node.need_int("axis"), b.e.rank(b.y()));
  std::vector<Size> sizes;
  sizes.reserve(b.node.inputs.size());
  for (TensorId x : b.node.inputs) sizes.push_back(b.e.size(x, axis));
  const auto parts = b.e.emit_many("Split", {b.g, b.e.sizes(sizes)}, sizes.size(), {{"axis", axis}});
  for (size_t i = 0; i < parts.size(); i++) b.give(i, parts[i]);
}

void split(B& b) {
  std::vector<TensorId> parts;
  for (size_t i = 0; i < b.gradients.size(); i++) {
    const TensorId shape = shape_of(b, b.node.outputs[i]);
    parts.push_back(b.gradients[i] != kNoTensor ? b.gradients[i] : b.e.emit("Expand", {b.number(0), shape}));
  }
  b.give(0, b.e.concat(parts, b.node.get_int("axis", 0)));
}

// With constants around it: what was put around is taken away again.
void pad(B& b) {
  if (b.node.get_string("mode", "constant") != "constant")
    b.e.fail(ErrorKind::Unsupported, "cannot differentiate {} with mode '{}'", b.node.label(),
             b.node.get_string("mode", ""));
  b.give(0, b.e.emit("Pad", {b.g, b.neg(b.x(1)), kNoTensor, b.node.has_input(3) ? b.x(3) : kNoTensor}));
}

// What moves elements moves their positions likewise: each gradient is added where its element came from.
void moved(B& b) {
  const TensorId shape = shape_of(b, b.x(0)), count = b.e.emit("Size", {b.x(0)});
  const TensorId flat = b.e.unsqueeze(count, {0}), all = b.e.ints({-1});
  const TensorId range = b.e.emit("Range", {b.e.scalar(0, DType::I64), count, b.e.scalar(1, DType::I64)});
  std::vector<TensorId> operands = b.node.inputs;
  operands[0] = with_shape(b, range, shape);
  const TensorId origins = b.e.emit("Reshape", {b.e.emit_copy(b.node, operands)[0], all});
  const TensorId sums =
      b.e.emit("ScatterElements", {b.e.emit("Expand", {b.number(0), flat}), origins, b.e.emit("Reshape", {b.g, all})},
               {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  b.give(0, with_shape(b, sums, shape));
}

constexpr struct {
  std::string_view op;
  GradientRule rule;
} kRules[] = {
    {"Abs", abs},
    {"Acos", acos},
    {"Acosh", acosh},
    {"Add", sum},
    {"Asin", asin},
    {"Asinh", asinh},
    {"Atan", atan},
    {"Atanh", atanh},
    {"Cast", cast},
    {"CastLike", cast},
    {"Ceil", none},
    {"Clip", clip},
    {"Concat", concat},
    {"Cos", cos},
    {"Cosh", cosh},
    {"CumSum", cumulative_sum},
    {"DepthToSpace", moved},
    {"Div", div},
    {"Elu", elu},
    {"Erf", erf},
    {"Exp", exp},
    {"Expand", identity},
    {"Flatten", reshaped},
    {"Floor", none},
    {"Gather", moved},
    {"GatherElements", moved},
    {"GatherND", moved},
    {"Gelu", gelu},
    {"Gemm", gemm},
    {"HardSigmoid", hard_sigmoid},
    {"Identity", identity},
    {"LayerNormalization", layer_norm},
    {"LeakyRelu", leaky_relu},
    {"Log", log},
    {"LogSoftmax", log_softmax},
    {"MatMul", matmul},
    {"Max", extremum},
    {"Mean", mean},
    {"Min", extremum},
    {"Mul", mul},
    {"Neg", negation},
    {"PRelu", prelu},
    {"Pad", pad},
    {"Pow", pow},
    {"Reciprocal", reciprocal},
    {"ReduceL1", reduce_l1},
    {"ReduceL2", reduce_l2},
    {"ReduceLogSum", reduce_log_sum},
    {"ReduceLogSumExp", reduce_log_sum_exp},
    {"ReduceMax", reduce_extremum},
    {"ReduceMean", reduce_mean},
    {"ReduceMin", reduce_extremum},
    {"ReduceSum", reduce_sum},
    {"ReduceSumSquare", reduce_sum_square},
    {"Relu", relu},
    {"Reshape", reshaped},
    {"Round", none},
    {"Sigmoid", sigmoid},
    {"Sign", none},
    {"Sin", sin},
    {"Sinh", sinh},
    {"Slice", moved},
    {"Softmax", softmax},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"SpaceToDepth", moved},
    {"Split", split},
    {"Sqrt", sqrt},
    {"Squeeze", reshaped},
    {"Sub", sub},
    {"Sum", sum},
    {"Swish", swish},
    {"Tan", tan},
    {"Tanh", tanh},
    {"Tile", moved},
    {"Transpose", transpose},
    {"Unsqueeze", reshaped},
    {"Where", where},
};

}  // namespace

GradientRule gradient_rule(const Node& node) {
  for (const auto& [op, rule] : kRules)
    if (node.is(op)) return rule;
  return nullptr;
}

void Backward::give(size_t i, TensorId gradient) {
  if (wants(i)) give_(x(i), summed_like(gradient, x(i)));
}

TensorId Backward::summed_like(TensorId gradient, TensorId operand) const {
  const Shape from = e.shape(gradient), to = e.shape(operand);
  const size_t lead = from.size() - to.size();
  std::vector<int64_t> leading, ones;
  bool in_doubt = false;
  for (size_t d = 0; d < from.size(); d++) {
    if (d < lead)
      leading.push_back(static_cast<int64_t>(d));
    else if (!(from[d] == to[d - lead]))
      to[d - lead].is(1) ? ones.push_back(static_cast<int64_t>(d)) : void(in_doubt = true);
  }
  if (!in_doubt) return e.reduce("ReduceSum", e.reduce("ReduceSum", gradient, ones, true), leading);

  // An axis may be one that was broadcast, which only run time tells. Seen as [own size, size / own size] it is summed
  // over the second part, whichever of the two is 1.
  std::vector<TensorId> parts;
  std::vector<int64_t> summed = leading;
  for (size_t d = 0; d < from.size(); d++) {
    const TensorId whole = e.sizes({e.size(gradient, static_cast<int64_t>(d))});
    if (d < lead) {
      parts.push_back(whole);
      continue;
    }
    const TensorId own = e.sizes({e.size(operand, static_cast<int64_t>(d - lead))});
    parts.push_back(own);
    summed.push_back(static_cast<int64_t>(parts.size()));
    parts.push_back(e.emit("Div", {whole, e.emit("Max", {own, e.ints({1})})}));
  }
  const TensorId pairs = e.emit("Reshape", {gradient, e.concat(parts, 0)}, {{"allowzero", int64_t{1}}});
  return e.reduce("ReduceSum", pairs, summed);
}

}  // namespace ingot
