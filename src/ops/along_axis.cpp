// Operators that walk one axis (kernels/along_axis.h): CumSum, CumProd, ArgMax, ArgMin, Hardmax, TopK.
#include "kernels/along_axis.h"

#include "ops/layout.h"

namespace ingot {
namespace {

int64_t resolved(int64_t axis, size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; }

// The input seen as [outer, n, inner] around the axis; outer is returned.
int64_t split_at(const LowerContext& ctx, int64_t axis, AxisParams& p) {
  const auto dims = ctx.dims(0);
  const auto a = static_cast<size_t>(resolved(axis, dims.size()));
  const DType t = ctx.in(0).dtype;
  if (!is_integer(t) && !(is_float(t) && bits(t) >= 16))
    ctx.fail("there is no kernel for elements of type {}", name(t));
  p = {dims[a], product_of(dims, a + 1), static_cast<int64_t>(t)};
  return product_of(dims, 0, a);
}

// A unit is a block of lines.
void set_units(Step& step, int64_t outer, const AxisParams& p, int64_t element) {
  step.units = outer * line_blocks(p.inner);
  step.grain = grain_for(p.n * std::min(p.inner, kLineBlock) * element);
}

void infer_cumulate(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_shape(0, ctx.shape(0));
  const auto axis = ctx.values(1);
  if (!axis) return;
  ctx.require(axis->size() == 1, "axis must be a scalar, it has {} elements", axis->size());
  if ((*axis)[0].is_const()) ctx.axis((*axis)[0].value(), ctx.rank(0));
}

void lower_cumulate(LowerContext& ctx) {
  CumulateParams p{};
  const int64_t outer = split_at(ctx, ctx.values(1)[0], p.axis);
  p.product = ctx.node.op == "CumProd";
  p.exclusive = ctx.node.get_int("exclusive", 0) != 0;
  p.reverse = ctx.node.get_int("reverse", 0) != 0;
  Step& step = ctx.step(ingot_cumulate_kernel);
  step.operands = {ctx.input(0), ctx.output(0)};
  step.params = params_of(p);
  step.in_place = 0;
  set_units(step, outer, p.axis, element_bytes(ctx, ctx.in(0).dtype));
}

void infer_arg(InferContext& ctx) {
  ctx.set_dtype(0, DType::I64);
  Shape out = ctx.shape(0);
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0));
  Dim& d = out[static_cast<size_t>(axis)];
  ctx.require(!d.is(0), "axis {} of {} is empty: it has no greatest or least element", axis, str(out));
  d = 1;
  if (ctx.node.get_int("keepdims", 1) == 0) out.erase(out.begin() + axis);
  ctx.set_shape(0, std::move(out));
}

void lower_arg(LowerContext& ctx) {
  ArgParams p{};
  const int64_t outer = split_at(ctx, ctx.node.get_int("axis", 0), p.axis);
  p.greatest = ctx.node.op == "ArgMax";
  p.last = ctx.node.get_int("select_last_index", 0) != 0;
  Step& step = ctx.step(ingot_arg_kernel);
  step.operands = {ctx.input(0), ctx.output(0)};
  step.params = params_of(p);
  set_units(step, outer, p.axis, element_bytes(ctx, ctx.in(0).dtype));
}

void infer_hardmax(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_shape(0, ctx.shape(0));
  ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0));
}

void lower_hardmax(LowerContext& ctx) {
  HardmaxParams p{};
  const int64_t outer = split_at(ctx, ctx.node.get_int("axis", -1), p.axis);
  if (p.axis.n == 0) return;
  Step& step = ctx.step(ingot_hardmax_kernel);
  step.operands = {ctx.input(0), ctx.output(0)};
  step.params = params_of(p);
  set_units(step, outer, p.axis, element_bytes(ctx, ctx.in(0).dtype));
}

void infer_top_k(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_dtype(1, DType::I64);
  Shape out = ctx.shape(0);
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0));
  Dim& d = out[static_cast<size_t>(axis)];
  const auto k = ctx.values(1);
  if (k) {
    ctx.require(k->size() == 1, "k must have one element, it has {}", k->size());
    ctx.require(!(*k)[0].is_const() || (*k)[0].value() >= 0, "k is {}", (*k)[0].str());
    ctx.require(!(*k)[0].is_const() || !d.is_const() || (*k)[0].value() <= d.value(),
                "k is {}, but axis {} has only {} elements", (*k)[0].str(), axis, d.str());
  }
  d = k ? (*k)[0] : Dim::unknown();
  ctx.set_shape(0, out);
  ctx.set_shape(1, out);
}

void lower_top_k(LowerContext& ctx) {
  TopKParams p{};
  const int64_t outer = split_at(ctx, ctx.node.get_int("axis", -1), p.axis);
  p.k = ctx.values(1)[0];
  p.greatest = ctx.node.get_int("largest", 1) != 0;
  const int64_t size = element_bytes(ctx, ctx.in(0).dtype), lines = outer * p.axis.inner;
  Step& step = ctx.step(ingot_top_k_kernel);
  // The kernel writes both results; one that nobody wants goes to memory of the step.
  auto result = [&](size_t i, int64_t bytes) {
    return ctx.has_out(i) ? ctx.output(i) : LowerContext::temporary(bytes);
  };
  step.operands = {ctx.input(0), result(0, lines * p.k * size), result(1, lines * p.k * 8)};
  step.params = params_of(p);
  step.units = p.k == 0 ? 0 : lines;
  step.grain = grain_for(p.axis.n * size);
  step.scratch = p.k * 8;
}

}  // namespace

void register_along_axis(OpRegistry& r) {
  r.add({"CumSum", "", 2, 2, 1, 1, infer_cumulate, lower_cumulate});
  r.add({"CumProd", "", 2, 2, 1, 1, infer_cumulate, lower_cumulate});
  r.add({"ArgMax", "", 1, 1, 1, 1, infer_arg, lower_arg});
  r.add({"ArgMin", "", 1, 1, 1, 1, infer_arg, lower_arg});
  r.add({"Hardmax", "", 1, 1, 1, 1, infer_hardmax, lower_hardmax});
  r.add({"TopK", "", 2, 2, 1, 2, infer_top_k, lower_top_k});
}

}  // namespace ingot
