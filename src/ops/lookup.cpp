// ingot.Lookup (kernels/lookup.h): LabelEncoder of numbers; the categories of OneHotEncoder.
#include "kernels/lookup.h"

#include "ops/layout.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(2));
  const DType x = ctx.dtype(0), keys = ctx.dtype(1);
  ctx.require((is_integer(x) && bits(x) >= 8) || (is_float(x) && bits(x) >= 16), "x is {}, expected numbers", name(x));
  ctx.require(keys == DType::I64 || keys == DType::F64, "the keys are {}, expected i64 or f64", name(keys));
  const Shape &k = ctx.shape(1), &v = ctx.shape(2);
  ctx.require(k.size() == 1 && v.size() == 1 && v[0] == k[0] + 1, "the keys are {} and the values {}", str(k), str(v));
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) {
  LookupParams p{};
  p.x_type = static_cast<int64_t>(ctx.in(0).dtype);
  p.integer_keys = ctx.in(1).dtype == DType::I64;
  p.value_bytes = element_bytes(ctx, ctx.in(2).dtype);
  p.strict = ctx.node.get_int("strict", 0) != 0;
  p.keys = ctx.dims(1)[0];
  p.count = product_of(ctx.dims(0));
  Step& s = ctx.step(ingot_lookup_kernel);
  s.operands = {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0)};
  s.params = params_of(p);
  s.structure = 3;
  s.units = (p.count + kLookupChunk - 1) / kLookupChunk;
}

}  // namespace

void register_lookup(OpRegistry& r) { r.add({"Lookup", "ingot", 3, 3, 1, 1, infer, lower}); }

}  // namespace ingot
