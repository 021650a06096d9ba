// GridSample (kernels/grid_sample.h): in [N, C, in...], grid [N, out..., r] -> [N, C, out...].
#include "kernels/grid_sample.h"

#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

std::optional<int64_t> taps_of(const Node& n) {
  const std::string mode = n.get_string("mode", "linear");
  if (mode == "nearest") return 1;
  if (mode == "linear" || mode == "bilinear") return 2;
  if (mode == "cubic" || mode == "bicubic") return 4;
  return std::nullopt;
}

std::optional<int64_t> padding_of(const Node& n) {
  const std::string mode = n.get_string("padding_mode", "zeros");
  if (mode == "zeros") return kSampleZeros;
  if (mode == "border") return kSampleBorder;
  if (mode == "reflection") return kSampleReflection;
  return std::nullopt;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.require(taps_of(ctx.node).has_value(), "mode '{}' is none of nearest, linear, cubic",
              ctx.node.get_string("mode", ""));
  ctx.require(padding_of(ctx.node).has_value(), "padding_mode '{}' is none of zeros, border, reflection",
              ctx.node.get_string("padding_mode", ""));
  const Shape &in = ctx.shape(0), &grid = ctx.shape(1);
  ctx.require(in.size() >= 3 && in.size() == grid.size(), "input {} and grid {} need the same rank, at least 3",
              str(in), str(grid));
  ctx.require(!grid.back().is_const() || grid.back().is(ctx.rank(0) - 2), "the last dim of grid {} must be {}",
              str(grid), in.size() - 2);
  ctx.require(!in[0].is_const() || !grid[0].is_const() || in[0] == grid[0], "input {} and grid {} differ in the batch",
              str(in), str(grid));
  Shape out = {in[0], in[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  for (size_t d = 2; d < in.size(); d++) ctx.require(!in[d].is(0), "the input {} is empty in dim {}", str(in), d);
  ctx.set_shape(0, std::move(out));
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0), grid = ctx.dims(1);
  GridSampleParams p{};
  p.rank = static_cast<int64_t>(in.size()) - 2;
  if (p.rank > kMaxSampleRank) ctx.fail("{} spatial dims are more than the {} supported", p.rank, kMaxSampleRank);
  for (size_t i = 0; i < 2; i++)
    if (!is_float(ctx.in(i).dtype) || bits(ctx.in(i).dtype) < 16)
      ctx.fail("there is no kernel for an operand of type {}", name(ctx.in(i).dtype));
  p.channels = in[1];
  p.positions = product_of(grid, 1, grid.size() - 1);
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.grid_dtype = static_cast<int64_t>(ctx.in(1).dtype);
  p.taps = *taps_of(ctx.node);
  p.padding = *padding_of(ctx.node);
  p.align_corners = ctx.node.get_int("align_corners", 0) != 0;
  std::copy(in.begin() + 2, in.end(), p.in);
  Step& step = ctx.step(ingot_grid_sample_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.channels == 0 ? 0 : in[0] * p.positions;
  step.grain = grain_for(p.channels * p.taps * p.taps * 4);
  step.params = params_of(p);
}

}  // namespace

void register_grid_sample(OpRegistry& r) { r.add({"GridSample", "", 2, 2, 1, 1, infer, lower}); }

}  // namespace ingot
