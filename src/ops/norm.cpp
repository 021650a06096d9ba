// Normalisations with kernels of their own (kernels/norm.h): Softmax and LogSoftmax; LayerNormalization,
// RMSNormalization, InstanceNormalization and GroupNormalization, which differ in where scale and bias come from.
#include <algorithm>
#include <cstddef>

#include "kernels/norm.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

struct NormOperands {
  Operand x, gamma, beta, y, mean, invstd;
};

void emit_layer_norm(LowerContext& ctx, const NormOperands& o, DType dtype, int64_t rows, LayerNormParams p) {
  auto there = [](const Operand& x) { return static_cast<int64_t>(x.kind != Operand::kNull); };
  p.has_gamma = there(o.gamma);
  p.has_beta = there(o.beta);
  p.has_mean = there(o.mean);
  p.has_invstd = there(o.invstd);
  p.epsilon = ctx.node.get_float("epsilon", 1e-5f);
  Step& s = ctx.step(dtype == DType::F64 ? ingot_layernorm_f64_kernel : ingot_layernorm_f32_kernel);
  s.operands = {o.x, o.gamma, o.beta, o.y, o.mean, o.invstd};
  s.params = params_of(p);
  s.sizes = kLayerNormSizes;
  s.units = rows;
  s.grain = grain_for(p.n * bits(dtype) / 8);
  s.specialise = rows * p.n >= 4096;
  s.in_place = 0;
}

void require_float(const InferContext& ctx, size_t i) {
  const DType t = ctx.dtype(i);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "operand {} is {}, expected f16, bf16, f32 or f64", i,
              name(t));
}

void infer_layer_norm(InferContext& ctx) {
  require_float(ctx, 0);
  const bool rms = ctx.node.op == "RMSNormalization";
  ctx.set_dtype(0, rms ? ctx.dtype(1) : ctx.dtype(0));
  auto stash = dtype_from_onnx(static_cast<int32_t>(ctx.node.get_int("stash_type", 1)));
  ctx.require(stash && (*stash == DType::F32 || *stash == DType::BF16),
              "stash_type is {}, expected 1 (f32) or 16 (bf16)", ctx.node.get_int("stash_type", 1));
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set_dtype(i, *stash);
  const Shape& x = ctx.shape(0);
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0));
  for (size_t i = 1; i < ctx.input_count(); i++) {
    if (!ctx.has(i)) continue;
    const Shape both = broadcast(ctx, x, ctx.shape(i));
    bool fits = both.size() == x.size();
    for (size_t d = 0; fits && d < x.size(); d++) fits = !x[d].is(1) || !both[d].is_const() || both[d].is(1);
    ctx.require(fits, "operand {} of shape {} does not broadcast to {}", i, str(ctx.shape(i)), str(x));
  }
  ctx.set_shape(0, x);
  Shape stats = x;
  for (size_t d = static_cast<size_t>(axis); d < stats.size(); d++) stats[d] = 1;
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set_shape(i, stats);
}

std::vector<int64_t> without_leading_ones(std::vector<int64_t> dims) {
  dims.erase(dims.begin(), std::find_if(dims.begin(), dims.end(), [](int64_t d) { return d != 1; }));
  return dims;
}

// Mean and InvStdDev have the type of stash_type; the kernel gives that of X.
Operand statistic(LowerContext& ctx, size_t i) {
  const DType x = ctx.in(0).dtype;
  if (!ctx.has_out(i) || ctx.out(i).dtype == x) return ctx.output(i);
  return ctx.shared_temporary(byte_size(x, product_of(ctx.out_dims(i))));
}
void store_statistics(LowerContext& ctx, Operand mean, Operand invstd) {
  const DType x = ctx.in(0).dtype;
  for (size_t i = 1; i < 3; i++) {
    const Operand& from = i == 1 ? mean : invstd;
    if (from.kind != Operand::kTemporary) continue;
    const Expr rounded = parse_expr(x == DType::F64 ? "cast_f32(x0)" : "x0", {x}, {ctx.out(i).dtype});
    emit_elementwise(ctx, rounded, {{from, ctx.out_dims(i)}}, {ctx.output(i)}, ctx.out_dims(i));
  }
}

void lower_plain_layer_norm(LowerContext& ctx) {
  const bool rms = ctx.node.op == "RMSNormalization";
  const auto dims = ctx.dims(0);
  const int64_t given = ctx.node.get_int("axis", -1);
  const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(dims.size()) : given);
  const DType dtype = ctx.in(0).dtype;
  LayerNormParams p{};
  p.rms = rms;
  p.affine_columns = 1;
  p.n = product_of(dims, axis);
  p.row_channels = p.channels = 1;
  const auto normalized = without_leading_ones({dims.begin() + static_cast<int64_t>(axis), dims.end()});
  bool direct = true;  // scale and bias have one element for each column
  for (size_t i = 1; i < ctx.input_count(); i++)
    if (ctx.has(i)) direct &= ctx.in(i).dtype == dtype && without_leading_ones(ctx.dims(i)) == normalized;
  const int64_t rows = product_of(dims, 0, axis);
  const Operand mean = statistic(ctx, 1), invstd = statistic(ctx, 2);
  if (direct) {
    emit_layer_norm(ctx, {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0), mean, invstd}, dtype, rows, p);
    return store_statistics(ctx, mean, invstd);
  }
  const Operand plain = ctx.shared_temporary(byte_size(dtype, product_of(dims)));
  emit_layer_norm(ctx, {ctx.input(0), {}, {}, plain, mean, invstd}, dtype, rows, p);
  ctx.steps.back().in_place = -1;
  store_statistics(ctx, mean, invstd);
  std::vector<DType> types = {dtype, ctx.in(1).dtype};
  std::vector<DenseOperand> inputs = {{plain, dims}, {ctx.input(1), ctx.dims(1)}};
  if (ctx.has(2)) {
    types.push_back(ctx.in(2).dtype);
    inputs.push_back({ctx.input(2), ctx.dims(2)});
  }
  const std::string cast = types[0] == types[1] ? "x0" : fmt::format("cast_{}(x0)", name(types[1]));
  const std::string product = fmt::format("mul({}, x1)", cast);
  const Expr expr = parse_expr(ctx.has(2) ? fmt::format("add({}, x2)", product) : product, types);
  emit_elementwise(ctx, expr, inputs, {ctx.output(0)}, dims);
}

// InstanceNormalization and GroupNormalization: X is [N, C, ...], scale and bias are [C].
void infer_channel_norm(InferContext& ctx) {
  require_float(ctx, 0);
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& x = ctx.shape(0);
  ctx.require(x.size() >= 2, "X is {}, expected at least [N, C]", str(x));
  for (size_t i = 1; i < 3; i++) {
    const Shape& s = ctx.shape(i);
    ctx.require(s.size() == 1 && (!s[0].is_const() || !x[1].is_const() || s[0] == x[1]),
                "operand {} is {}, expected one element for each of the {} channels", i, str(s), x[1].str());
  }
  if (ctx.node.op == "GroupNormalization") {
    const int64_t groups = ctx.node.need_int("num_groups");
    ctx.require(groups > 0 && (!x[1].is_const() || x[1].value() % groups == 0),
                "num_groups is {}, which does not divide {} channels", groups, x[1].str());
  }
  ctx.set_shape(0, x);
}

void lower_plain_channel_norm(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const int64_t channels = dims[1], pixels = product_of(dims, 2);
  LayerNormParams p{};
  const int64_t rows = ctx.node.op == "GroupNormalization" ? ctx.node.need_int("num_groups") : channels;
  p.row_channels = rows ? channels / rows : 0;
  p.channels = channels;
  p.n = p.row_channels * pixels;
  emit_layer_norm(ctx, {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0), {}, {}}, ctx.in(0).dtype,
                  pixels ? dims[0] * rows : 0, p);
}

void infer_softmax(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  require_float(ctx, 0);
  if (ctx.rank(0) > 0) ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0));
  ctx.set_shape(0, ctx.shape(0));
}

void lower_plain_softmax(LowerContext& ctx) {
  auto dims = ctx.dims(0);
  if (dims.empty()) dims = {1};
  const int64_t given = ctx.node.get_int("axis", -1);
  const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(dims.size()) : given);
  const SoftmaxParams p{ctx.node.op == "LogSoftmax", dims[axis], product_of(dims, axis + 1)};
  const int64_t size = bits(ctx.in(0).dtype) / 8, elements = product_of(dims);
  Step& s = ctx.step(size == 8 ? ingot_softmax_f64_kernel : ingot_softmax_f32_kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(p);
  s.sizes = kSoftmaxSizes;
  s.units = elements == 0 ? 0 : product_of(dims, 0, axis) * ((p.inner + kSoftmaxColumns - 1) / kSoftmaxColumns);
  s.grain = grain_for(p.n * std::min(p.inner, kSoftmaxColumns) * size * 4);
  s.specialise = elements >= 4096;
  s.in_place = 0;
}

}  // namespace

void register_norm(OpRegistry& r) {
  r.add({"Softmax", "", 1, 1, 1, 1, infer_softmax, with_halves<lower_plain_softmax>});
  r.add({"LogSoftmax", "", 1, 1, 1, 1, infer_softmax, with_halves<lower_plain_softmax>});
  r.add({"LayerNormalization", "", 2, 3, 1, 3, infer_layer_norm, with_halves<lower_plain_layer_norm>});
  r.add({"RMSNormalization", "", 2, 2, 1, 1, infer_layer_norm, with_halves<lower_plain_layer_norm>});
  r.add({"InstanceNormalization", "", 3, 3, 1, 1, infer_channel_norm, with_halves<lower_plain_channel_norm>});
  r.add({"GroupNormalization", "", 3, 3, 1, 1, infer_channel_norm, with_halves<lower_plain_channel_norm>});
}

}  // namespace ingot
