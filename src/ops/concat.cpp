// Concat: operands side by side along one axis. Each is a strided copy into its part of the result.
#include "ops/layout.h"

namespace ingot {
namespace {

// Merges what two operands say about a dim that must be the same in both.
Dim same_dim(InferContext& ctx, const Dim& a, const Dim& b, size_t operand, size_t d) {
  ctx.require(!a.is_const() || !b.is_const() || a == b,
              "operand 0 has shape {} and operand {} {}: they differ in dim {}", str(ctx.shape(0)), operand,
              str(ctx.shape(operand)), d);
  return a.is_const() ? a : b.is_const() ? b : a;
}

// Known elements of all operands in the order of the result; only for what shape arithmetic does: rank 1.
void concat_values(InferContext& ctx) {
  std::vector<Dim> all;
  for (size_t i = 0; i < ctx.input_count(); i++) {
    auto v = ctx.known_values(i);
    if (!v) return;
    all.insert(all.end(), v->begin(), v->end());
  }
  ctx.set_values(0, std::move(all));
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  Shape out = ctx.shape(0);
  ctx.require(!out.empty(), "operand 0 is a scalar; operands need at least rank 1");
  const auto axis = static_cast<size_t>(ctx.axis(ctx.node.need_int("axis"), ctx.rank(0)));
  for (size_t i = 1; i < ctx.input_count(); i++) {
    ctx.require(ctx.dtype(i) == ctx.dtype(0) || ctx.dtype(i) == DType::Undefined,
                "operand 0 is {} and operand {} is {}", name(ctx.dtype(0)), i, name(ctx.dtype(i)));
    const Shape& s = ctx.shape(i);
    ctx.require(s.size() == out.size(), "operand 0 has shape {} and operand {} {}: the ranks differ", str(ctx.shape(0)),
                i, str(s));
    for (size_t d = 0; d < out.size(); d++) out[d] = d == axis ? out[d] + s[d] : same_dim(ctx, out[d], s[d], i, d);
  }
  if (out.size() == 1) concat_values(ctx);
  ctx.set_shape(0, std::move(out));
}

void lower(LowerContext& ctx) {
  const auto out = ctx.out_dims(0);
  const auto strides = strides_of(out);
  const int64_t rank = static_cast<int64_t>(out.size()), given = ctx.node.need_int("axis");
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  const int64_t size = element_bytes(ctx, ctx.out(0).dtype);
  int64_t offset = 0;
  for (size_t i = 0; i < ctx.input_count(); i++) {
    const auto dims = ctx.dims(i);
    const StridedCopy copy{dims, strides_of(dims), strides, 0, offset * strides[axis]};
    if (dims == out)  // the others are empty
      return ctx.view(0, i);
    emit_copy(ctx, ctx.input(i), ctx.output(0), size, copy);
    offset += dims[axis];
  }
}

}  // namespace

void register_concat(OpRegistry& r) { r.add({"Concat", "", 1, -1, 1, 1, infer, lower}).movement = Movement::kSome; }

}  // namespace ingot
