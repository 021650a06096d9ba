// Range:  out[i] = start + i * delta,  i < max(ceil((limit - start) / delta), 0).
#include <cmath>

#include "kernels/fill.h"
#include "ops/layout.h"

namespace ingot {
namespace {

Dim integer_count(InferContext& ctx, const Dim& start, const Dim& limit, const Dim& delta) {
  if (!delta.is_const()) return Dim::unknown();
  ctx.require(!delta.is(0), "delta is 0");
  if (delta.value() > 0) return ceil_div(max(limit - start, 0), delta);
  return ceil_div(max(start - limit, 0), Dim(0) - delta);
}

void infer_integers(InferContext& ctx) {
  std::optional<Dim> x[3];
  for (size_t i = 0; i < 3; i++) {
    const auto v = ctx.values(i);
    if (!v) return ctx.set_shape(0, {Dim::unknown()});
    ctx.require(v->size() == 1, "start, limit and delta must be scalars; operand {} has {} elements", i, v->size());
    x[i] = (*v)[0];
  }
  const Dim n = integer_count(ctx, *x[0], *x[1], *x[2]);
  ctx.set_shape(0, {n});
  if (!n.is_const() || n.value() > static_cast<int64_t>(kMaxValues)) return;
  std::vector<Dim> values;
  for (int64_t i = 0; i < n.value(); i++) values.push_back(*x[0] + *x[2] * i);
  ctx.set_values(0, std::move(values));
}

void infer_floats(InferContext& ctx) {
  double x[3];
  for (size_t i = 0; i < 3; i++) {
    const auto v = ctx.scalar(i);
    if (!v && ctx.at_run_time()) throw ValuesNeeded{i};
    if (!v) return ctx.set_shape(0, {Dim::unknown()});
    x[i] = *v;
  }
  ctx.require(x[2] != 0, "delta is 0");
  const double n = std::ceil((x[1] - x[0]) / x[2]);
  ctx.require(!(n >= 0x1p62), "a range from {} to {} by {} has too many elements", x[0], x[1], x[2]);
  ctx.set_shape(0, {n > 0 ? static_cast<int64_t>(n) : 0});
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  if (is_float(ctx.dtype(0)))
    infer_floats(ctx);
  else
    infer_integers(ctx);
}

void lower(LowerContext& ctx) {
  Step& step = ctx.step(ingot_range_kernel);
  step.operands = {ctx.input(0), ctx.input(2), ctx.output(0)};
  step.units = ctx.out_dims(0)[0];
  step.grain = grain_for(element_bytes(ctx, ctx.out(0).dtype));
  step.params = params_of(RangeParams{static_cast<int64_t>(ctx.out(0).dtype)});
}

}  // namespace

void register_range(OpRegistry& r) { r.add({"Range", "", 3, 3, 1, 1, infer, lower}); }

}  // namespace ingot
