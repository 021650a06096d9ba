// ingot.Couple (kernels/couple.h): the class probabilities of SVMClassifier.
#include "kernels/couple.h"

#include "base/checked.h"
#include "ops/layout.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, DType::F64);
  ctx.require(ctx.dtype(0) == DType::F64, "the pairs are {}, expected f64", name(ctx.dtype(0)));
  const int64_t n = ctx.node.need_int("classes");
  const Shape& x = ctx.shape(0);
  ctx.require(n >= 2 && n < 1 << 20 && x.size() == 2 && (!x[1].is_const() || x[1].is(n * (n - 1) / 2)),
              "the pairs of {} classes are {}", n, str(x));
  ctx.set_shape(0, {x[0], n});
}

void lower(LowerContext& ctx) {
  const int64_t n = ctx.node.need_int("classes");
  Step& s = ctx.step(ingot_couple_kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(CoupleParams{n});
  s.units = ctx.dims(0)[0];
  s.grain = grain_for(checked_mul(n, n) * 800);
  s.scratch = 8 * n * (n + 1);
}

}  // namespace

void register_couple(OpRegistry& r) { r.add({"Couple", "ingot", 1, 1, 1, 1, infer, lower}); }

}  // namespace ingot
