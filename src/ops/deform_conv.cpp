// DeformConv (kernels/deform_conv.h).
#include "kernels/deform_conv.h"

#include "ops/conv.h"
#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

enum Input { kX, kW, kOffset, kB, kMask };

// offset, mask: [N, channels, out...]
void check_field(const InferContext& ctx, size_t i, const Shape& out, const Dim& channels, const char* what) {
  if (!ctx.has(i)) return;
  const Shape& s = ctx.shape(i);
  Shape expected = out;
  expected[1] = channels;
  bool fits = s.size() == expected.size();
  for (size_t d = 0; fits && d < s.size(); d++) fits = may_equal(s[d], expected[d]);
  ctx.require(fits, "{} is {}, expected {}", what, str(s), str(expected));
}

void infer(InferContext& ctx) {
  const DType t = ctx.dtype(kX);
  ctx.set_dtype(0, t);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "X is {}, expected f16, bf16, f32 or f64", name(t));
  for (size_t i = 0; i < ctx.input_count(); i++)
    ctx.require(!ctx.has(i) || ctx.dtype(i) == t, "operand {} is {}, X is {}", i, ctx.has(i) ? name(ctx.dtype(i)) : "",
                name(t));
  const Shape &x = ctx.shape(kX), &w = ctx.shape(kW);
  const Shape out = conv_shape(ctx, x, w);
  const int64_t groups = ctx.node.get_int("offset_group", 1);
  ctx.require(groups > 0 && (!x[1].is_const() || x[1].value() % groups == 0),
              "offset_group is {}, which does not divide the {} channels of X", groups, x[1].str());
  const Dim taps = product(Shape(w.begin() + 2, w.end())) * groups;
  check_field(ctx, kOffset, out, taps * static_cast<int64_t>(w.size() - 2), "offset");
  check_field(ctx, kMask, out, taps, "mask");
  if (ctx.has(kB)) {
    const Shape& b = ctx.shape(kB);
    ctx.require(b.size() == 1 && may_equal(b[0], w[0]), "B is {}, expected one number for each channel of Y", str(b));
  }
  ctx.set_shape(0, out);
}

void lower(LowerContext& ctx) {
  const auto x = ctx.dims(kX), w = ctx.dims(kW), y = ctx.out_dims(0);
  const std::vector<int64_t> in(x.begin() + 2, x.end()), out(y.begin() + 2, y.end());
  Window window = window_of(ctx.node, in.size(), {w.begin() + 2, w.end()});
  resolve_pads(window, in);
  DeformConvParams p{};
  p.dtype = static_cast<int64_t>(ctx.in(kX).dtype);
  p.rank = static_cast<int64_t>(in.size());
  p.groups = ctx.node.get_int("group", 1);
  p.offset_groups = ctx.node.get_int("offset_group", 1);
  p.in_channels = x[1];
  p.out_channels = w[0];
  spread(p.in, in, 1);
  spread(p.out, out, 1);
  spread(p.kernel, window.kernel, 1);
  spread(p.stride, window.stride, 1);
  spread(p.dilation, window.dilation, 1);
  spread(p.pad, window.begin, 0);
  Step& s = ctx.step(ingot_deform_conv_kernel);
  s.operands = {ctx.input(kX), ctx.input(kW), ctx.input(kOffset), ctx.input(kB), ctx.input(kMask), ctx.output(0)};
  s.params = params_of(p);
  s.units = x[0] * product_of(out);
  s.scratch = 8 * p.out_channels;
}

}  // namespace

void register_deform_conv(OpRegistry& r) { r.add({"DeformConv", "", 3, 5, 1, 1, infer, with_halves<lower>}); }

}  // namespace ingot
