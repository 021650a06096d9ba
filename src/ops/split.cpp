// Split: the parts of a tensor along one axis. Parts along the outermost axis are views.
#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

// n parts of ceil(total / n), the last ones short or empty.
std::vector<int64_t> even_parts(int64_t total, size_t n) {
  const int64_t part = ceil_div(Dim(total), Dim(static_cast<int64_t>(n))).value();
  std::vector<int64_t> sizes(n);
  for (int64_t& s : sizes) {
    s = std::min(total, part);
    total -= s;
  }
  return sizes;
}

// Sizes of the parts, for every output.
std::optional<std::vector<Dim>> part_sizes(InferContext& ctx, const Dim& total) {
  const size_t n = ctx.output_count();
  if (ctx.has(1)) {
    auto sizes = ctx.values(1);
    if (!sizes) return std::nullopt;
    ctx.require(sizes->size() == n, "has {} outputs and {} split sizes", n, sizes->size());
    Dim sum = 0;
    for (const Dim& s : *sizes) {
      ctx.require(!s.is_const() || s.value() >= 0, "split sizes {} hold a negative one", str(*sizes));
      sum = sum + s;
    }
    ctx.require(!sum.is_const() || !total.is_const() || sum == total, "split sizes {} sum to {}, the axis has size {}",
                str(*sizes), sum.str(), total.str());
    return sizes;
  }
  const auto count = static_cast<int64_t>(n), wanted = ctx.node.get_int("num_outputs", count);
  ctx.require(wanted == count, "num_outputs is {} but there are {} outputs", wanted, count);
  if (total.is_const()) return to_shape(even_parts(total.value(), n));
  const Dim part = ceil_div(total, count);
  std::vector<Dim> sizes(n, part);
  sizes.back() = total - part * (count - 1);
  return sizes;
}

StridedCopy part_copy(const std::vector<int64_t>& in, const std::vector<int64_t>& out, size_t axis, int64_t from) {
  const auto strides = strides_of(in);
  return {out, strides, strides_of(out), from * strides[axis], 0};
}

void infer(InferContext& ctx) {
  for (size_t i = 0; i < ctx.output_count(); i++) ctx.set_dtype(i, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  ctx.require(!in.empty(), "a scalar cannot be split");
  const auto axis = static_cast<size_t>(ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0)));
  const auto sizes = part_sizes(ctx, in[axis]);
  Dim from = 0;
  for (size_t i = 0; i < ctx.output_count(); i++) {
    Shape out = in;
    out[axis] = sizes ? (*sizes)[i] : Dim::unknown();
    ctx.set_shape(i, out);
    if (is_const(in) && is_const(out) && from.is_const())
      move_values(ctx, i, 0, part_copy(numbers(in), numbers(out), axis, from.value()));
    from = from + out[axis];
  }
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0);
  const int64_t given = ctx.node.get_int("axis", 0);
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(in.size()) : given);
  const size_t n = ctx.node.outputs.size();
  const auto sizes = ctx.has(1) ? ctx.values(1) : even_parts(in[axis], n);
  int64_t from = 0;
  for (size_t i = 0; i < n; i++) {
    if (ctx.has_out(i)) emit_move(ctx, i, 0, part_copy(in, ctx.out_dims(i), axis, from));
    from += sizes[i];
  }
}

}  // namespace

void register_split(OpRegistry& r) { r.add({"Split", "", 1, 2, 1, -1, infer, lower}).movement = Movement::kSome; }

}  // namespace ingot
