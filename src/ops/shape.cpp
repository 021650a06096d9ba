// Shape and Size: known as soon as the shape is, so they run only where a rank is asked of data.
#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

void infer_shape(InferContext& ctx) {
  ctx.set_dtype(0, DType::I64);
  const Shape& in = ctx.shape(0);
  const int64_t rank = ctx.rank(0);
  auto bound = [&](const char* attr, int64_t fallback) {
    const int64_t v = ctx.node.get_int(attr, fallback);
    return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  const int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  ctx.set_shape(0, {end - start});
  ctx.set_values(0, {in.begin() + start, in.begin() + end});
}

void infer_size(InferContext& ctx) {
  ctx.set(0, DType::I64, {});
  ctx.set_values(0, {product(ctx.shape(0))});
}

// Never reached: at run time all shapes are numbers and infer has given the result.
void lower_known(LowerContext& ctx) { ctx.fail("the result should have been known from the shape"); }

}  // namespace

void register_shape(OpRegistry& r) {
  r.add({"Shape", "", 1, 1, 1, 1, infer_shape, lower_known});
  r.add({"Size", "", 1, 1, 1, 1, infer_size, lower_known});
}

}  // namespace ingot
