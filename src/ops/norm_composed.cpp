// Normalisations made of reductions and element-wise steps: BatchNormalization, LpNormalization,
// MeanVarianceNormalization.
#include <algorithm>
#include <numeric>

#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/reduce.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

// A dense intermediate of this node.
DenseOperand temporary(LowerContext& ctx, DType dtype, const std::vector<int64_t>& dims) {
  return {ctx.shared_temporary(byte_size(dtype, product_of(dims))), dims};
}

// reduce(pre(x)) over the axes, which stay as ones.
DenseOperand reduced(LowerContext& ctx, const DenseOperand& x, DType dtype, const std::vector<int64_t>& axes,
                     ReduceKind kind, ReducePre pre = kPreNone, ReducePost post = kPostNone) {
  auto dims = x.dims;
  for (int64_t a : axes) dims[static_cast<size_t>(a)] = 1;
  DenseOperand out = temporary(ctx, dtype, dims);
  emit_reduce(ctx, x.operand, x.dims, out.operand, dtype, axes, kind, pre, post);
  return out;
}

void apply(LowerContext& ctx, const std::string& text, DType dtype, const std::vector<DenseOperand>& inputs,
           Operand out, const std::vector<int64_t>& dims) {
  emit_elementwise(ctx, parse_expr(text, std::vector<DType>(inputs.size(), dtype)), inputs, {out}, dims);
}

void infer_same(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const DType t = ctx.dtype(0);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "X is {}, expected f16, bf16, f32 or f64", name(t));
  ctx.set_shape(0, ctx.shape(0));
}
void infer_axis(InferContext& ctx) {
  infer_same(ctx);
  if (ctx.rank(0) > 0) ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0));
}

int64_t axis_of(const LowerContext& ctx) {
  const int64_t axis = ctx.node.get_int("axis", -1);
  return axis < 0 ? axis + static_cast<int64_t>(ctx.dims(0).size()) : axis;
}

// x / |x|_p, and 0 where that is 0 / 0
void lower_lp(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const DType t = ctx.in(0).dtype;
  const DenseOperand x = {ctx.input(0), dims};
  const bool two = ctx.node.get_int("p", 2) == 2;
  const DenseOperand norm =
      reduced(ctx, x, t, {axis_of(ctx)}, kReduceSum, two ? kPreSquare : kPreAbs, two ? kPostSqrt : kPostNone);
  apply(ctx, fmt::format("where(eq(x1, 0:{0}), 0:{0}, div(x0, x1))", name(t)), t, {x, norm}, ctx.output(0), dims);
}
void infer_lp(InferContext& ctx) {
  infer_axis(ctx);
  ctx.require(ctx.rank(0) > 0, "X has no axes to normalize over");
  const int64_t p = ctx.node.get_int("p", 2);
  ctx.require(p == 1 || p == 2, "p is {}, expected 1 or 2", p);
}

// (x - E x) / (sqrt(E (x - E x)^2) + 1e-9)
void lower_mvn(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const DType t = ctx.in(0).dtype;
  const auto axes = normalized_axes(ctx.node.get_ints("axes", {0, 2, 3}), static_cast<int64_t>(dims.size()));
  const DenseOperand x = {ctx.input(0), dims}, centred = temporary(ctx, t, dims);
  apply(ctx, "sub(x0, x1)", t, {x, reduced(ctx, x, t, axes, kReduceMean)}, centred.operand, dims);
  const DenseOperand deviation = reduced(ctx, centred, t, axes, kReduceMean, kPreSquare, kPostSqrt);
  apply(ctx, fmt::format("div(x0, add(x1, 1e-9:{}))", name(t)), t, {centred, deviation}, ctx.output(0), dims);
}
void infer_mvn(InferContext& ctx) {
  infer_same(ctx);
  const auto axes = ctx.node.get_ints("axes", {0, 2, 3});
  normalized_axes(ctx, std::vector<Dim>(axes.begin(), axes.end()), ctx.rank(0));
}

size_t channel_axis(const Node& node, size_t rank) {
  return node.get_int("channels_last", 0) || rank < 2 ? rank - 1 : 1;
}

void infer_batch_norm(InferContext& ctx) {
  const bool training = ctx.node.get_int("training_mode", 0) != 0;
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set_dtype(i, ctx.dtype(3));
  infer_same(ctx);
  ctx.require(training || ctx.output_count() == 1, "has {} results outside training mode, expected 1",
              ctx.output_count());
  const Shape& x = ctx.shape(0);
  ctx.require(!x.empty(), "X is a scalar, expected [N, C, ...]");
  const Dim& channels = x[channel_axis(ctx.node, x.size())];
  for (size_t i = 1; i < 5; i++) {
    const Shape& s = ctx.shape(i);
    ctx.require(s.size() == 1 && (!s[0].is_const() || !channels.is_const() || s[0] == channels),
                "operand {} is {}, expected one element for each of the {} channels", i, str(s), channels.str());
  }
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set_shape(i, {channels});
}

// (x - mean) * (scale / sqrt(var + epsilon)) + bias. In training mode mean and variance are those of x, and the running
// ones move toward them.
void lower_batch_norm(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const DType t = ctx.in(0).dtype;
  const size_t axis = channel_axis(ctx.node, dims.size());
  std::vector<int64_t> per_channel(dims.size() - axis, 1), others;
  per_channel[0] = dims[axis];
  for (size_t d = 0; d < dims.size(); d++)
    if (d != axis) others.push_back(static_cast<int64_t>(d));
  std::vector<DenseOperand> inputs = {{ctx.input(0), dims}};
  std::vector<DType> types = {t};
  for (size_t i = 1; i < 5; i++) {
    inputs.push_back({ctx.input(i), per_channel});
    types.push_back(ctx.in(i).dtype);
  }
  if (ctx.node.get_int("training_mode", 0)) {
    const DenseOperand centred = temporary(ctx, t, dims);
    inputs[3] = reduced(ctx, inputs[0], t, others, kReduceMean);
    apply(ctx, "sub(x0, x1)", t, {inputs[0], inputs[3]}, centred.operand, dims);
    inputs[4] = reduced(ctx, centred, t, others, kReduceMean, kPreSquare);
    types[3] = types[4] = t;
    for (size_t i = 1; i < 3 && ctx.has_out(i); i++) {
      const DType running = ctx.in(i + 2).dtype;
      const Expr moved = parse_expr(
          fmt::format("add(mul(x0, {0}:{2}), mul(cast_{2}(x1), {1}:{2}))", ctx.node.get_float("momentum", 0.9f),
                      1 - ctx.node.get_float("momentum", 0.9f), name(running)),
          {running, t});
      emit_elementwise(ctx, moved, {{ctx.input(i + 2), {dims[axis]}}, {inputs[i + 2].operand, {dims[axis]}}},
                       {ctx.output(i)}, {dims[axis]});
    }
  }
  auto as_x = [&](size_t i) { return types[i] == t ? fmt::format("x{}", i) : fmt::format("cast_{}(x{})", name(t), i); };
  const Expr expr = parse_expr(fmt::format("add(mul(sub(x0, {0}), div({1}, sqrt(add({2}, {3}:{4})))), {5})", as_x(3),
                                           as_x(1), as_x(4), ctx.node.get_float("epsilon", 1e-5f), name(t), as_x(2)),
                               types);
  emit_elementwise(ctx, expr, inputs, {ctx.output(0)}, dims);
}

}  // namespace

void register_norm_composed(OpRegistry& r) {
  r.add({"LpNormalization", "", 1, 1, 1, 1, infer_lp, with_halves<lower_lp>});
  r.add({"MeanVarianceNormalization", "", 1, 1, 1, 1, infer_mvn, with_halves<lower_mvn>});
  r.add({"BatchNormalization", "", 5, 5, 1, 3, infer_batch_norm, with_halves<lower_batch_norm>});
}

}  // namespace ingot
