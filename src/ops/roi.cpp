// RoiAlign and MaxRoiPool (kernels/roi.h).
#include "kernels/roi.h"

#include "ops/layout.h"

namespace ingot {
namespace {

// in [N, C, H, W], rois [R, columns] -> [R, C, height, width].
void infer_pooled(InferContext& ctx, int64_t columns, int64_t height, int64_t width) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape &in = ctx.shape(0), &rois = ctx.shape(1);
  ctx.require(in.size() == 4, "the input must have rank 4, it has shape {}", str(in));
  ctx.require(rois.size() == 2 && (!rois[1].is_const() || rois[1].is(columns)),
              "rois have shape {}, expected [rois, {}]", str(rois), columns);
  ctx.require(height > 0 && width > 0, "the output of a roi would be {} x {}", height, width);
  ctx.require(!in[2].is(0) && !in[3].is(0), "the input {} has no pixels", str(in));
  ctx.set_shape(0, {rois[0], in[1], height, width});
}

void infer_align(InferContext& ctx) {
  const std::string mode = ctx.node.get_string("mode", "avg"),
                    transform = ctx.node.get_string("coordinate_transformation_mode", "half_pixel");
  ctx.require(mode == "avg" || mode == "max", "mode '{}' is neither avg nor max", mode);
  ctx.require(transform == "half_pixel" || transform == "output_half_pixel",
              "coordinate_transformation_mode '{}' is not known", transform);
  infer_pooled(ctx, 4, ctx.node.get_int("output_height", 1), ctx.node.get_int("output_width", 1));
  const Shape &rois = ctx.shape(1), &batch = ctx.shape(2);
  ctx.require(batch.size() == 1 && (!batch[0].is_const() || !rois[0].is_const() || batch[0] == rois[0]),
              "batch_indices have shape {} for rois {}", str(batch), str(rois));
}

void infer_pool(InferContext& ctx) {
  const auto pooled = ctx.node.get_ints("pooled_shape");
  ctx.require(pooled.size() == 2, "pooled_shape must have 2 elements, it has {}", pooled.size());
  infer_pooled(ctx, 5, pooled[0], pooled[1]);
}

RoiParams common_params(LowerContext& ctx) {
  const DType t = ctx.in(0).dtype;
  if (!is_float(t) || bits(t) < 16) ctx.fail("there is no kernel for elements of type {}", name(t));
  if (ctx.in(1).dtype != t) ctx.fail("the input is {} and the rois are {}", name(t), name(ctx.in(1).dtype));
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  RoiParams p{};
  p.dtype = static_cast<int64_t>(t);
  p.batch = in[0], p.channels = in[1], p.in_height = in[2], p.in_width = in[3];
  p.height = out[2], p.width = out[3];
  p.scale = static_cast<double>(ctx.node.get_float("spatial_scale", 1));
  return p;
}

void emit(LowerContext& ctx, const Kernel& kernel, std::vector<Operand> operands, const RoiParams& p) {
  const int64_t units = product_of(ctx.out_dims(0), 0, 2);
  if (units == 0) return;  // the other sizes of an empty result may be absurd
  Step& step = ctx.step(kernel);
  step.operands = std::move(operands);
  step.units = units;
  step.grain = grain_for(product_of({p.height, p.width, 64}));
  step.params = params_of(p);
}

void lower_align(LowerContext& ctx) {
  RoiParams p = common_params(ctx);
  p.sampling = ctx.node.get_int("sampling_ratio", 0);
  if (p.sampling > 1024) ctx.fail("a sampling_ratio of {} is too large", p.sampling);
  p.max = ctx.node.get_string("mode", "avg") == "max";
  p.offset = ctx.node.get_string("coordinate_transformation_mode", "half_pixel") == "half_pixel" ? 0.5 : 0;
  emit(ctx, ingot_roi_align_kernel, {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0)}, p);
}

void lower_pool(LowerContext& ctx) {
  emit(ctx, ingot_max_roi_pool_kernel, {ctx.input(0), ctx.input(1), ctx.output(0)}, common_params(ctx));
}

}  // namespace

void register_roi(OpRegistry& r) {
  r.add({"RoiAlign", "", 3, 3, 1, 1, infer_align, lower_align});
  r.add({"MaxRoiPool", "", 2, 2, 1, 1, infer_pool, lower_pool});
}

}  // namespace ingot
