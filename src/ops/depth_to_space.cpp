// DepthToSpace and SpaceToDepth: a reshape to six dims, a transpose, a reshape; one strided copy.
//   DepthToSpace  DCR: [n, b, b, c, h, w] -> [n, c, h, b, w, b]     CRD: [n, c, b, b, h, w] -> [n, c, h, b, w, b]
//   SpaceToDepth  DCR: [n, c, h, b, w, b] -> [n, b, b, c, h, w]     CRD: [n, c, h, b, w, b] -> [n, c, b, b, h, w]
#include "ops/layout.h"

namespace ingot {
namespace {

int64_t checked_block_size(InferContext& ctx) {
  const int64_t b = ctx.node.need_int("blocksize");
  ctx.require(b > 0 && b < 1 << 20, "blocksize {} is not a positive number", b);
  const std::string mode = ctx.node.get_string("mode", "DCR");
  ctx.require(mode == "DCR" || mode == "CRD", "mode '{}' is neither DCR nor CRD", mode);
  ctx.require(ctx.rank(0) == 4, "the input must have rank 4, it has shape {}", str(ctx.shape(0)));
  return b;
}

Dim divided(InferContext& ctx, size_t d, int64_t by) {
  const Dim& n = ctx.shape(0)[d];
  ctx.require(!n.is_const() || n.value() % by == 0, "dim {} of {} does not divide by {}", d, str(ctx.shape(0)), by);
  return floor_div(n, by);
}

void infer_depth_to_space(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const int64_t b = checked_block_size(ctx);
  const Shape& in = ctx.shape(0);
  ctx.set_shape(0, {in[0], divided(ctx, 1, b * b), in[2] * b, in[3] * b});
}

void infer_space_to_depth(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const int64_t b = checked_block_size(ctx);
  const Shape& in = ctx.shape(0);
  ctx.set_shape(0, {in[0], in[1] * (b * b), divided(ctx, 2, b), divided(ctx, 3, b)});
}

void move_blocks(LowerContext& ctx, const std::vector<int64_t>& dims, const std::vector<size_t>& perm) {
  const auto strides = strides_of(dims);
  StridedCopy c;
  for (size_t p : perm) {
    c.dims.push_back(dims[p]);
    c.src.push_back(strides[p]);
  }
  c.dst = strides_of(c.dims);
  emit_move(ctx, 0, 0, c);
}

bool depth_first(const LowerContext& ctx) { return ctx.node.get_string("mode", "DCR") == "DCR"; }

void lower_depth_to_space(LowerContext& ctx) {
  const auto in = ctx.dims(0);
  const int64_t b = ctx.node.need_int("blocksize"), c = in[1] / (b * b);
  if (depth_first(ctx))
    move_blocks(ctx, {in[0], b, b, c, in[2], in[3]}, {0, 3, 4, 1, 5, 2});
  else
    move_blocks(ctx, {in[0], c, b, b, in[2], in[3]}, {0, 1, 4, 2, 5, 3});
}

void lower_space_to_depth(LowerContext& ctx) {
  const auto in = ctx.dims(0);
  const int64_t b = ctx.node.need_int("blocksize");
  const std::vector<int64_t> dims = {in[0], in[1], in[2] / b, b, in[3] / b, b};
  if (depth_first(ctx))
    move_blocks(ctx, dims, {0, 3, 5, 1, 2, 4});
  else
    move_blocks(ctx, dims, {0, 1, 3, 5, 2, 4});
}

}  // namespace

void register_depth_to_space(OpRegistry& r) {
  r.add({"DepthToSpace", "", 1, 1, 1, 1, infer_depth_to_space, lower_depth_to_space}).movement = Movement::kAll;
  r.add({"SpaceToDepth", "", 1, 1, 1, 1, infer_space_to_depth, lower_space_to_depth}).movement = Movement::kAll;
}

}  // namespace ingot
