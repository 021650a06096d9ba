// Det (kernels/det.h).
#include "kernels/det.h"

#include "base/checked.h"
#include "ops/layout.h"
#include "ops/square.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  const Shape& x = infer_square_matrices(ctx);
  ctx.set_shape(0, Shape(x.begin(), x.end() - 2));
}

void lower(LowerContext& ctx) {
  const int64_t n = ctx.dims(0).back();
  Step& s = ctx.step(ingot_det_kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(DetParams{static_cast<int64_t>(ctx.in(0).dtype), n});
  s.units = product_of(ctx.out_dims(0));
  s.grain = grain_for(checked_mul(checked_mul(n, n), 8));
  s.scratch = 8 * n * n;
}

}  // namespace

void register_det(OpRegistry& r) { r.add({"Det", "", 1, 1, 1, 1, infer, lower}); }

}  // namespace ingot
