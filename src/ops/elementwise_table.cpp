// ONNX operator -> expression. An operator that is one row of kernels/ewise_ops.h is one line of kDirect; the others
// have a builder. F16 and BF16 are F32 values inside an expression, so no builder mentions them.
#include <algorithm>
#include <array>
#include <limits>

#include "ops/elementwise.h"
#include "ops/strings.h"

namespace ingot {
namespace {

using Types = std::vector<DType>;

struct Direct {
  const char* op;
  const char* row;
  int operands;
  OpTraits traits = {};
};
constexpr OpTraits kCommutative = {.commutative = true}, kLikeFirst = {.like_first = true};
constexpr Direct kDirect[] = {
    {"Abs", "abs", 1},
    {"Acos", "acos", 1},
    {"Acosh", "acosh", 1},
    {"Add", "add", 2, kCommutative},
    {"And", "and", 2, kCommutative},
    {"Asin", "asin", 1},
    {"Asinh", "asinh", 1},
    {"Atan", "atan", 1},
    {"Atanh", "atanh", 1},
    {"BitwiseAnd", "bitand", 2, kCommutative},
    {"BitwiseNot", "bitnot", 1},
    {"BitwiseOr", "bitor", 2, kCommutative},
    {"BitwiseXor", "bitxor", 2, kCommutative},
    {"Ceil", "ceil", 1},
    {"Cos", "cos", 1},
    {"Cosh", "cosh", 1},
    {"Div", "div", 2},
    {"Equal", "eq", 2, kCommutative},
    {"Erf", "erf", 1},
    {"Exp", "exp", 1},
    {"Floor", "floor", 1},
    {"Greater", "gt", 2},
    {"GreaterOrEqual", "ge", 2},
    {"HardSwish", "hardswish", 1},
    {"IsNaN", "isnan", 1},
    {"Less", "lt", 2},
    {"LessOrEqual", "le", 2},
    {"Log", "log", 1},
    {"Mish", "mish", 1},
    {"Mul", "mul", 2, kCommutative},
    {"Neg", "neg", 1},
    {"Not", "not", 1},
    {"Or", "or", 2, kCommutative},
    {"PRelu", "prelu", 2, kLikeFirst},
    {"Reciprocal", "recip", 1},
    {"Relu", "relu", 1},
    {"Round", "round", 1},
    {"Sigmoid", "sigmoid", 1},
    {"Sign", "sign", 1},
    {"Sin", "sin", 1},
    {"Sinh", "sinh", 1},
    {"Softplus", "softplus", 1},
    {"Softsign", "softsign", 1},
    {"Sqrt", "sqrt", 1},
    {"Sub", "sub", 2},
    {"Tan", "tan", 1},
    {"Tanh", "tanh", 1},
    {"Xor", "xor", 2, kCommutative},
};

Expr start(const Types& types) {
  Expr e;
  e.input_types = types;
  return e;
}
Expr finish(Expr& e, int result, DType stored) {
  e.results = {result};
  e.result_types = {stored};
  return std::move(e);
}
// The usual result: stored like the first operand, except that comparisons give Bool.
Expr finish(Expr& e, int result) {
  DType computed = e.code[static_cast<size_t>(result)].dtype, first = e.input_types[0];
  return finish(e, result, computed == value_type(first) ? first : computed);
}

void need_one_type(const Node& node, const Types& types, size_t from = 0) {
  for (size_t i = from + 1; i < types.size(); i++)
    if (types[i] != DType::Undefined && types[i] != types[from])
      invalid_model("{}: operand {} is {}, expected {} as operand {} is", node.label(), i, name(types[i]),
                    name(types[from]), from);
}

int cast(Expr& e, int x, DType to) {
  to = value_type(to);
  return e.code[static_cast<size_t>(x)].dtype == to ? x : e.call("cast_" + std::string(name(to)), {x});
}

Expr direct_expr(const Node& node, const Types& types) {
  const Direct* row = std::find_if(std::begin(kDirect), std::end(kDirect), [&](auto& d) { return node.op == d.op; });
  need_one_type(node, types);
  Expr e = start(types);
  std::vector<int> args;
  for (int i = 0; i < row->operands; i++) args.push_back(e.input(i));
  int result = e.call(row->row, args);
  return finish(e, result);
}

// f(f(x0, x1), x2) ...: Min, Max, Sum, Mean. `mean_of`: divide the sum by so many, 0 for not.
Expr fold_expr(const Node& node, const Types& types, size_t mean_of) {
  Expr e = start(types);
  int r = e.input(0);
  const char* row = node.op == "Min" ? "min" : node.op == "Max" ? "max" : "add";
  for (size_t i = 1; i < types.size(); i++) r = e.call(row, {r, e.input(static_cast<int>(i))});
  if (mean_of) r = e.call("div", {r, e.constant(static_cast<double>(mean_of), types[0])});
  return finish(e, r);
}
Expr variadic_expr(const Node& node, const Types& types) {
  need_one_type(node, types);
  return fold_expr(node, types, node.op == "Mean" ? types.size() : 0);
}

// The type and shape need no expression, which would be as long as there are operands.
void infer_variadic(InferContext& ctx) {
  if (ctx.input_count() < kEwiseMaxOperands) return infer_elementwise(ctx);
  Shape shape = ctx.shape(0);
  for (size_t i = 1; i < ctx.input_count(); i++) {
    ctx.require(ctx.dtype(i) == ctx.dtype(0), "operand {} is {}, expected {} as operand 0 is", i, name(ctx.dtype(i)),
                name(ctx.dtype(0)));
    if (ctx.shape(i) != shape) shape = broadcast(ctx, shape, ctx.shape(i));
  }
  ctx.set_dtype(0, fold_expr(ctx.node, {ctx.dtype(0), ctx.dtype(0)}, 0).result_types[0]);
  ctx.set_shape(0, shape);
}

// More operands than one step takes are folded in groups.
void lower_variadic(LowerContext& ctx) {
  constexpr size_t most = kEwiseMaxOperands - 1;
  if (ctx.input_count() <= most) return lower_elementwise(ctx);
  const auto dims = ctx.out_dims(0);
  const DType dtype = ctx.in(0).dtype;
  std::vector<DenseOperand> group;
  for (size_t i = 0; i < ctx.input_count(); i++) {
    group.push_back({ctx.input(i), ctx.dims(i)});
    const bool last = i + 1 == ctx.input_count();
    if (group.size() < most && !last) continue;
    const Operand out = last ? ctx.output(0) : ctx.shared_temporary(byte_size(dtype, product(to_shape(dims)).value()));
    const Expr e =
        fold_expr(ctx.node, Types(group.size(), dtype), last && ctx.node.op == "Mean" ? ctx.input_count() : 0);
    emit_elementwise(ctx, e, group, {out}, dims);
    group = {{out, dims}};
  }
}

// An activation with parameters: row(x, attr_0, attr_1).
template <size_t N>
Expr with_attributes(const Node& node, const Types& types, const char* row,
                     const std::array<std::pair<const char*, float>, N>& attrs) {
  Expr e = start(types);
  std::vector<int> args = {e.input(0)};
  for (auto& [key, fallback] : attrs) args.push_back(e.constant(node.get_float(key, fallback), types[0]));
  int r = e.call(row, args);
  return finish(e, r);
}
using Attr = std::pair<const char*, float>;

Expr leaky_relu_expr(const Node& n, const Types& t) {
  return with_attributes(n, t, "leaky_relu", std::array{Attr{"alpha", 0.01f}});
}
Expr elu_expr(const Node& n, const Types& t) { return with_attributes(n, t, "elu", std::array{Attr{"alpha", 1.f}}); }
Expr celu_expr(const Node& n, const Types& t) { return with_attributes(n, t, "celu", std::array{Attr{"alpha", 1.f}}); }
Expr selu_expr(const Node& n, const Types& t) {
  return with_attributes(n, t, "selu", std::array{Attr{"alpha", 1.67326319f}, Attr{"gamma", 1.05070102f}});
}
Expr thresholded_relu_expr(const Node& n, const Types& t) {
  return with_attributes(n, t, "thresholded_relu", std::array{Attr{"alpha", 1.f}});
}
Expr hard_sigmoid_expr(const Node& n, const Types& t) {
  return with_attributes(n, t, "hard_sigmoid", std::array{Attr{"alpha", 0.2f}, Attr{"beta", 0.5f}});
}
// Integers are shrunk as doubles: lambd and bias need not be whole numbers.
Expr shrink_expr(const Node& node, const Types& types) {
  Expr e = start(types);
  DType t = is_float(types[0]) ? types[0] : DType::F64;
  int lambd = e.constant(node.get_float("lambd", 0.5f), t), bias = e.constant(node.get_float("bias", 0.f), t);
  int r = e.call("shrink", {cast(e, e.input(0), t), bias, lambd});
  return finish(e, cast(e, r, types[0]), types[0]);
}

Expr gelu_expr(const Node& node, const Types& types) {
  std::string approximate = node.get_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    invalid_model("{}: approximate is '{}', expected 'none' or 'tanh'", node.label(), approximate);
  Expr e = start(types);
  int r = e.call(approximate == "none" ? "gelu" : "gelu_tanh", {e.input(0)});
  return finish(e, r);
}

// x sigmoid(alpha x)
int swish(Expr& e, int x, float alpha) {
  if (alpha == 1.f) return e.call("silu", {x});
  return e.call("mul", {x, e.call("sigmoid", {e.call("mul", {x, e.constant(alpha, e.input_types[0])})})});
}
Expr swish_expr(const Node& node, const Types& types) {
  Expr e = start(types);
  int r = swish(e, e.input(0), node.get_float("alpha", 1.f));
  return finish(e, r);
}
Expr swiglu_expr(const Node& node, const Types& types) {
  need_one_type(node, types);
  Expr e = start(types);
  int r = e.call("mul", {swish(e, e.input(0), node.get_float("alpha", 1.f)), e.input(1)});
  return finish(e, r);
}

double largest_finite(DType t) {
  switch (t) {
    case DType::F16:
      return 65504;
    case DType::BF16:
      return 0x1.fep127;
    case DType::F32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

// A bound that is not given is that of the finite numbers: infinities do not pass.
Expr clip_expr(const Node& node, const Types& types) {
  need_one_type(node, types);
  Expr e = start(types);
  bool low = types.size() > 1 && types[1] != DType::Undefined, high = types.size() > 2 && types[2] != DType::Undefined;
  int r = e.input(0);
  if (is_float(types[0]) || (low && high)) {
    const double most = largest_finite(types[0]);
    r = e.call("clip",
               {r, low ? e.input(1) : e.constant(-most, types[0]), high ? e.input(2) : e.constant(most, types[0])});
  } else if (low) {
    r = e.call("max", {r, e.input(1)});
  } else if (high) {
    r = e.call("min", {r, e.input(2)});
  }
  return finish(e, r);
}

Expr where_expr(const Node& node, const Types& types) {
  if (types[0] != DType::Bool) invalid_model("{}: the condition is {}, expected bool", node.label(), name(types[0]));
  need_one_type(node, types, 1);
  Expr e = start(types);
  int r = e.call("where", {e.input(0), e.input(1), e.input(2)});
  return finish(e, r, types[1]);
}

// The result has the type of the base. Whole numbers stay exact; an integer to a fractional power goes through f64.
Expr pow_expr(const Node&, const Types& types) {
  Expr e = start(types);
  DType t = is_float(types[0]) || is_integer(types[1]) ? types[0] : DType::F64;
  int r = e.call("pow", {cast(e, e.input(0), t), cast(e, e.input(1), t)});
  r = cast(e, r, types[0]);
  return finish(e, r, types[0]);
}

// fmod has the sign of the dividend; a - floor(a / b) b has that of the divisor.
Expr mod_expr(const Node& node, const Types& types) {
  need_one_type(node, types);
  Expr e = start(types);
  int a = e.input(0), b = e.input(1);
  if (node.get_int("fmod", 0)) return finish(e, e.call("fmod", {a, b}));
  if (is_integer(types[0])) return finish(e, e.call("mod", {a, b}));
  int r = e.call("fmod", {a, b}), zero = e.constant(0, types[0]);
  // The sign of the divisor, of a zero too.
  int negative = e.call("lt", {b, zero}), differs = e.call("xor", {e.call("lt", {r, zero}), negative});
  int moved = e.call("where", {differs, e.call("add", {r, b}), r});
  int nothing = e.call("where", {negative, e.call("neg", {zero}), zero});
  return finish(e, e.call("where", {e.call("ne", {r, zero}), moved, nothing}));
}

// The row gives 0 for counts outside [0, width); to the right only the sign must be left of a negative number then.
Expr shift_expr(const Node& node, const Types& types) {
  need_one_type(node, types);
  std::string direction = node.get_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    invalid_model("{}: direction is '{}', expected 'LEFT' or 'RIGHT'", node.label(), direction);
  Expr e = start(types);
  int x = e.input(0), count = e.input(1);
  if (direction == "LEFT") return finish(e, e.call("shl", {x, count}));
  if (is_signed(types[0])) {
    int last = e.constant(bits(types[0]) - 1, types[0]);
    int outside = e.call("or", {e.call("lt", {count, e.constant(0, types[0])}), e.call("gt", {count, last})});
    count = e.call("where", {outside, last, count});
  }
  return finish(e, e.call("shr", {x, count}));
}

Expr is_inf_expr(const Node& node, const Types& types) {
  bool positive = node.get_int("detect_positive", 1), negative = node.get_int("detect_negative", 1);
  Expr e = start(types);
  if (!positive && !negative) return finish(e, e.constant(0, DType::Bool), DType::Bool);
  int r = e.call(!negative ? "isinf_pos" : !positive ? "isinf_neg" : "isinf", {e.input(0)});
  return finish(e, r, DType::Bool);
}

Expr fused_expr(const Node& node, const Types& types) {
  return parse_expr(node.get_string("expr", ""), types, result_dtypes(node));
}

// Strings are compared too.
void infer_equal(InferContext& ctx) {
  if (ctx.dtype(0) != DType::String || ctx.dtype(1) != DType::String) return infer_elementwise(ctx);
  ctx.set_dtype(0, DType::Bool);
  ctx.set_shape(0, broadcast(ctx, ctx.shape(0), ctx.shape(1)));
}

}  // namespace

std::vector<DType> result_dtypes(const Node& node) {
  std::vector<DType> out;
  for (const std::string& text : node.get_strings("dtypes")) {
    auto dtype = dtype_from_name(text);
    if (!dtype) invalid_model("{}: attribute 'dtypes' names '{}', which is no element type", node.label(), text);
    out.push_back(*dtype);
  }
  return out;
}

void register_elementwise_table(OpRegistry& registry) {
  auto add = [&](const char* op, int min_inputs, int max_inputs, auto* expr, OpTraits traits = {}) {
    registry.add({.name = op,
                  .domain = "",
                  .min_inputs = min_inputs,
                  .max_inputs = max_inputs,
                  .infer = traits.like_first ? infer_like_first : infer_elementwise,
                  .lower = lower_elementwise,
                  .expr = expr,
                  .traits = traits});
  };
  for (const Direct& d : kDirect)
    if (d.op != std::string("Equal")) add(d.op, d.operands, d.operands, direct_expr, d.traits);
  registry.add({"Equal", "", 2, 2, 1, 1, infer_equal, lower_elementwise, direct_expr, equal_strings, kCommutative});
  for (const char* op : {"Min", "Max", "Sum", "Mean"})
    registry.add({op, "", 1, -1, 1, 1, infer_variadic, lower_variadic, variadic_expr, nullptr, kCommutative});
  add("BitShift", 2, 2, shift_expr);
  add("Celu", 1, 1, celu_expr);
  add("Clip", 1, 3, clip_expr, kLikeFirst);
  add("Elu", 1, 1, elu_expr);
  add("Gelu", 1, 1, gelu_expr);
  add("HardSigmoid", 1, 1, hard_sigmoid_expr);
  add("IsInf", 1, 1, is_inf_expr);
  add("LeakyRelu", 1, 1, leaky_relu_expr);
  add("Mod", 2, 2, mod_expr);
  add("Pow", 2, 2, pow_expr);
  add("Selu", 1, 1, selu_expr);
  add("Shrink", 1, 1, shrink_expr);
  add("SwiGLU", 2, 2, swiglu_expr, kLikeFirst);
  add("Swish", 1, 1, swish_expr);
  add("ThresholdedRelu", 1, 1, thresholded_relu_expr);
  add("Where", 3, 3, where_expr);
  registry.add({.name = "Elementwise",
                .domain = "ingot",
                .min_inputs = 1,
                .max_inputs = -1,
                .max_outputs = -1,
                .infer = infer_elementwise,
                .lower = lower_elementwise,
                .expr = fused_expr});
}

}  // namespace ingot
