// Expand and Tile: repeating a tensor. Both read with a stride of 0 along what is repeated:
//   Expand: out[i] = in[i where in has more than one element, else 0]
//   Tile:   [.., n_d * r_d, ..] seen as [.., r_d, n_d, ..], r_d read with stride 0
#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

StridedCopy expanding(const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
  StridedCopy c{out, std::vector<int64_t>(out.size(), 0), strides_of(out), 0, 0};
  const auto strides = strides_of(in);
  const size_t added = out.size() - in.size();
  for (size_t d = 0; d < in.size(); d++) c.src[added + d] = in[d] == 1 ? 0 : strides[d];
  return c;
}

void infer_expand(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  const auto wanted = ctx.values(1);
  if (!wanted) {
    const Shape& s = ctx.shape(1);
    ctx.require(s.size() == 1, "the shape operand must have rank 1, it has shape {}", str(s));
    if (s[0].is_const()) ctx.set_shape(0, unknown_shape(ctx, std::max<int64_t>(ctx.rank(0), s[0].value())));
    return;
  }
  for (const Dim& d : *wanted)
    ctx.require(!d.is_const() || d.value() >= 0, "the shape {} has the negative size {}", str(*wanted), d.str());
  const Shape out = broadcast(ctx, in, *wanted);
  product(out);  // a size that overflows is an error here, not later
  ctx.set_shape(0, out);
  if (is_const(in) && is_const(out)) move_values(ctx, 0, 0, expanding(numbers(in), numbers(out)));
}

void lower_expand(LowerContext& ctx) { emit_move(ctx, 0, 0, expanding(ctx.dims(0), ctx.out_dims(0))); }

StridedCopy tiling(const std::vector<int64_t>& in, const std::vector<int64_t>& repeats) {
  StridedCopy c;
  std::vector<int64_t> out;
  for (size_t d = 0; d < in.size(); d++) out.push_back(in[d] * repeats[d]);
  const auto from = strides_of(in), to = strides_of(out);
  for (size_t d = 0; d < in.size(); d++) {
    c.dims.insert(c.dims.end(), {repeats[d], in[d]});
    c.src.insert(c.src.end(), {0, from[d]});
    c.dst.insert(c.dst.end(), {in[d] * to[d], to[d]});
  }
  return c;
}

void infer_tile(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  const auto repeats = ctx.values(1);
  if (!repeats) return ctx.set_shape(0, Shape(in.size(), Dim::unknown()));
  ctx.require(repeats->size() == in.size(), "{} repeats for an input of shape {}", repeats->size(), str(in));
  Shape out;
  for (size_t d = 0; d < in.size(); d++) {
    const Dim& r = (*repeats)[d];
    ctx.require(!r.is_const() || r.value() >= 0, "repeats {} hold a negative one", str(*repeats));
    out.push_back(in[d] * r);
  }
  product(out);
  ctx.set_shape(0, out);
  if (is_const(in) && is_const(*repeats)) move_values(ctx, 0, 0, tiling(numbers(in), numbers(*repeats)));
}

void lower_tile(LowerContext& ctx) { emit_move(ctx, 0, 0, tiling(ctx.dims(0), ctx.values(1))); }

}  // namespace

void register_expand(OpRegistry& r) {
  r.add({"Expand", "", 2, 2, 1, 1, infer_expand, lower_expand}).movement = Movement::kSome;
  r.add({"Tile", "", 2, 2, 1, 1, infer_tile, lower_tile}).movement = Movement::kSome;
}

}  // namespace ingot
