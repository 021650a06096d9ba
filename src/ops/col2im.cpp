// Col2Im: blocks [N, C taps, L] added up into images [N, C, spatial...] (kernels/col2im.h). L counts the places a block
// has in the padded image.
#include "kernels/col2im.h"

#include "ops/layout.h"
#include "ops/via_f32.h"
#include "ops/window.h"

namespace ingot {
namespace {

enum Input : size_t { kBlocks, kImage, kBlock };

// Sizes that are numbers by now, all of them positive.
std::vector<int64_t> block_sizes(const InferContext& ctx, const std::vector<Dim>& block) {
  std::vector<int64_t> sizes;
  for (const Dim& d : block) {
    ctx.require(d.is_const() && d.value() > 0, "a block of {} cannot be", str(block));
    sizes.push_back(d.value());
  }
  return sizes;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(kBlocks));
  const Shape& x = ctx.shape(kBlocks);
  ctx.require(x.size() == 3, "the blocks are {}, expected [N, C taps, L]", str(x));
  ctx.require(ctx.rank(kImage) == 1 && ctx.rank(kBlock) == 1, "image_shape is {} and block_shape {}, expected vectors",
              str(ctx.shape(kImage)), str(ctx.shape(kBlock)));
  const auto image = ctx.values(kImage), block = ctx.values(kBlock);
  if (!image || !block) {
    const Dim dims = ctx.shape(kImage)[0];
    if (!dims.is_const()) return;
    ctx.require(dims.value() <= 3, "an image of {} dims is not served", dims.value());
    Shape unknown(static_cast<size_t>(dims.value()) + 2, Dim::unknown());
    unknown[0] = x[0];
    return ctx.set_shape(0, std::move(unknown));
  }
  ctx.require(image->size() == block->size() && !image->empty() && image->size() <= 3,
              "an image of {} dims and blocks of {}, expected 1 to 3 of both", image->size(), block->size());
  const Window w = window_of(ctx.node, block->size(), block_sizes(ctx, *block));
  const Dim taps = product(*block);
  Dim places = 1;
  for (size_t d = 0; d < image->size(); d++) {
    ctx.require(!(*image)[d].is_const() || (*image)[d].value() >= 0, "an image of {} cannot be", str(*image));
    places = places * window_count(w, d, (*image)[d]);
  }
  ctx.require(!x[1].is_const() || x[1].value() % taps.value() == 0, "{} values are no multiple of the block {}",
              x[1].str(), str(*block));
  ctx.require(!x[2].is_const() || !places.is_const() || x[2] == places,
              "there are {} blocks, the image has place for {}", x[2].str(), places.str());
  Shape out = {x[0], floor_div(x[1], taps)};
  out.insert(out.end(), image->begin(), image->end());
  ctx.set_shape(0, std::move(out));
}

void lower(LowerContext& ctx) {
  const DType dtype = ctx.in(kBlocks).dtype;
  if (dtype != DType::F32 && dtype != DType::F64) ctx.fail("is served for floats, not for {}", name(dtype));
  const auto y = ctx.out_dims(0), kernel = ctx.values(kBlock);
  const std::vector<int64_t> out(y.begin() + 2, y.end());
  const Window w = window_of(ctx.node, kernel.size(), kernel);
  std::vector<int64_t> in;
  for (size_t d = 0; d < out.size(); d++) in.push_back(window_count(w, d, out[d]).value());
  Col2imParams p{};
  p.dtype = static_cast<int64_t>(dtype);
  p.channels = y[1];
  spread(p.in, in, 1);
  spread(p.out, out, 1);
  spread(p.kernel, w.kernel, 1);
  spread(p.stride, w.stride, 1);
  spread(p.dilation, w.dilation, 1);
  spread(p.pad, w.begin, 0);
  Step& s = ctx.step(ingot_col2im_kernel);
  s.operands = {ctx.input(kBlocks), Operand{}, ctx.output(0)};
  s.params = params_of(p);
  s.units = p.out[2] == 0 ? 0 : y[0] * y[1] * p.out[0] * p.out[1];
  s.grain = grain_for(p.out[2] * product_of(kernel) * bits(dtype) / 8);
}

}  // namespace

void register_col2im(OpRegistry& r) { r.add({"Col2Im", "", 3, 3, 1, 1, infer, with_halves<lower>}); }

}  // namespace ingot
