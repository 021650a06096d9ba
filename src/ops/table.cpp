// ingot.Table(x, t): each byte of x replaced by the element of t, of 256, that it counts to.
#include "kernels/table.h"

#include "ops/layout.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(1));
  ctx.require(is_byte(ctx.dtype(0)) && is_byte(ctx.dtype(1)), "x is {} and the table {}, expected u8 or i8",
              name(ctx.dtype(0)), name(ctx.dtype(1)));
  ctx.require(ctx.rank(1) == 1 && ctx.shape(1)[0].is(256), "the table is {}, expected [256]", str(ctx.shape(1)));
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) {
  TableParams p{product_of(ctx.dims(0))};
  Step& s = ctx.step(ingot_table_kernel);
  s.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  s.params = params_of(p);
  s.units = (p.count + kTableChunk - 1) / kTableChunk;
  s.grain = grain_for(kTableChunk);
}

}  // namespace

void register_table(OpRegistry& r) { r.add({"Table", "ingot", 2, 2, 1, 1, infer, lower}); }

}  // namespace ingot
