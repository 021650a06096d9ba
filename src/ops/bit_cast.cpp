// BitCast: the same bytes under another element type of the same width.
#include "ops/op.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  const int64_t number = ctx.node.need_int("to");
  const auto to = dtype_from_onnx(static_cast<int32_t>(number));
  ctx.require(to.has_value() && bits(*to) > 0, "attribute 'to' is {}, which is no type of numbers", number);
  ctx.set_dtype(0, *to);
  ctx.require(bits(ctx.dtype(0)) == bits(*to), "{} has {} bits and {} has {}", name(ctx.dtype(0)), bits(ctx.dtype(0)),
              name(*to), bits(*to));
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) { ctx.view(0, 0); }

}  // namespace

void register_bit_cast(OpRegistry& r) { r.add({"BitCast", "", 1, 1, 1, 1, infer, lower}); }

}  // namespace ingot
