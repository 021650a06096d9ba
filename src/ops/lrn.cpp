// LRN: see kernels/lrn.h. channels_last=1: X is [N, ..., C].
#include "kernels/lrn.h"

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const DType t = ctx.dtype(0);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "X is {}, expected f16, bf16, f32 or f64", name(t));
  ctx.require(ctx.rank(0) >= 2, "X is {}, expected [N, C, ...]", str(ctx.shape(0)));
  ctx.require(ctx.node.need_int("size") > 0, "size is {}, expected a positive number", ctx.node.need_int("size"));
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const bool last = ctx.node.get_int("channels_last", 0) != 0;
  const DType dtype = ctx.in(0).dtype;
  LrnParams p{};
  p.dtype = static_cast<int64_t>(dtype);
  p.channels = last ? dims.back() : dims[1];
  p.pixels = last ? product_of(dims, 1, dims.size() - 1) : product_of(dims, 2);
  p.step = last ? 1 : p.pixels;
  p.pixel_step = last ? p.channels : 1;
  p.size = ctx.node.need_int("size");
  p.alpha = ctx.node.get_float("alpha", 1e-4f);
  p.beta = ctx.node.get_float("beta", 0.75f);
  p.bias = ctx.node.get_float("bias", 1.f);
  Step& s = ctx.step(ingot_lrn_kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(p);
  s.units = dims[0] * p.pixels;
  s.grain = grain_for(p.channels * bits(dtype) / 8);
}

}  // namespace

void register_lrn(OpRegistry& r) { r.add({"LRN", "", 1, 1, 1, 1, infer, with_halves<lower>}); }

}  // namespace ingot
