// Normalisations over contiguous rows: LayerNormalization, RMSNormalization, InstanceNormalization, GroupNormalization.
// All are one kernel (kernels/norm_rows.h) with different layouts of scale and bias.
#include <algorithm>

#include "kernels/norm_rows.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

struct NormOperands {
  Operand x, scale, bias, y, mean, inverse;
};

void emit_norm_rows(LowerContext& ctx, const NormOperands& o, DType dtype, int64_t rows, NormRowsParams p) {
  p.dtype = static_cast<int64_t>(dtype);
  p.epsilon = ctx.node.get_float("epsilon", 1e-5f);
  Step& s = ctx.step("ingot_norm_rows");
  s.operands = {o.x, o.scale, o.bias, o.y, o.mean, o.inverse};
  s.params = params_of(p);
  s.structure = kNormRowsStructure;
  s.units = rows;
  s.grain = grain_for(p.cols * bits(dtype) / 8);
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

void lower_plain_layer_norm(LowerContext& ctx) {
  const bool rms = ctx.node.op == "RMSNormalization";
  const auto dims = ctx.dims(0);
  const int64_t given = ctx.node.get_int("axis", -1);
  const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(dims.size()) : given);
  const DType dtype = ctx.in(0).dtype;
  NormRowsParams p{};
  p.center = !rms;
  p.cols = product_of(dims, axis);
  p.groups = p.inner = p.column_step = 1;
  const auto normalized = without_leading_ones({dims.begin() + static_cast<int64_t>(axis), dims.end()});
  bool direct = true;  // scale and bias have one element for each column
  for (size_t i = 1; i < ctx.input_count(); i++)
    if (ctx.has(i)) direct &= ctx.in(i).dtype == dtype && without_leading_ones(ctx.dims(i)) == normalized;
  const int64_t rows = product_of(dims, 0, axis);
  if (direct) {
    emit_norm_rows(ctx, {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0), ctx.output(1), ctx.output(2)}, dtype,
                   rows, p);
    return;
  }
  const Operand plain = ctx.shared_temporary(byte_size(dtype, product_of(dims)));
  emit_norm_rows(ctx, {ctx.input(0), {}, {}, plain, ctx.output(1), ctx.output(2)}, dtype, rows, p);
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
  NormRowsParams p{};
  p.center = 1;
  p.groups = ctx.node.op == "GroupNormalization" ? ctx.node.need_int("num_groups") : channels;
  p.group_step = p.groups ? channels / p.groups : 0;
  p.cols = p.group_step * pixels;
  p.inner = pixels;
  p.column_step = 1;
  emit_norm_rows(ctx, {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0), {}, {}}, ctx.in(0).dtype,
                 pixels ? dims[0] * p.groups : 0, p);
}

}  // namespace

void register_norm(OpRegistry& r) {
  r.add({"LayerNormalization", "", 2, 3, 1, 3, infer_layer_norm, with_halves<lower_plain_layer_norm>});
  r.add({"RMSNormalization", "", 2, 2, 1, 1, infer_layer_norm, with_halves<lower_plain_layer_norm>});
  r.add({"InstanceNormalization", "", 3, 3, 1, 1, infer_channel_norm, with_halves<lower_plain_channel_norm>});
  r.add({"GroupNormalization", "", 3, 3, 1, 1, infer_channel_norm, with_halves<lower_plain_channel_norm>});
}

}  // namespace ingot
