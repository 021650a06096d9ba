// MaxUnpool: zeros, with the elements of the input where MaxPool found them. The indices count in a tensor of the size
// that undoes the pooling; a larger output_shape has that tensor in its corner.
#include <algorithm>

#include "kernels/fill.h"
#include "kernels/scatter.h"
#include "ops/layout.h"

namespace ingot {
namespace {

// (n - 1) * stride - pads + kernel, per spatial dim.
Shape unpooled(const Node& node, const Shape& in) {
  const size_t spatial = in.size() - 2;
  const auto kernel = node.get_ints("kernel_shape"),
             strides = node.get_ints("strides", std::vector<int64_t>(spatial, 1)),
             pads = node.get_ints("pads", std::vector<int64_t>(2 * spatial, 0));
  Shape out = in;
  for (size_t d = 0; d < spatial; d++)
    out[d + 2] = (in[d + 2] - 1) * strides[d] - pads[d] - pads[d + spatial] + kernel[d];
  return out;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  ctx.require(in.size() >= 3, "the input needs at least rank 3, it has shape {}", str(in));
  const size_t spatial = in.size() - 2;
  auto check = [&](const char* attr, size_t n, bool needed) {
    const auto v = ctx.node.get_ints(attr);
    ctx.require(v.size() == n || (v.empty() && !needed), "{} has {} elements, expected {}", attr, v.size(), n);
  };
  check("kernel_shape", spatial, true);
  check("strides", spatial, false);
  check("pads", 2 * spatial, false);
  const Shape least = unpooled(ctx.node, in);
  if (!ctx.has(2)) return ctx.set_shape(0, least);
  const auto wanted = ctx.values(2);
  if (!wanted) return ctx.set_shape(0, Shape(in.size(), Dim::unknown()));
  ctx.require(wanted->size() == in.size(), "output_shape {} for an input of shape {}", str(*wanted), str(in));
  for (size_t d = 0; d < in.size(); d++)
    ctx.require(!least[d].is_const() || !(*wanted)[d].is_const() || (*wanted)[d].value() >= least[d].value(),
                "output_shape {} is smaller than the {} that undoes the pooling", str(*wanted), str(least));
  ctx.set_shape(0, *wanted);
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0), strides = strides_of(out);
  const auto inside = numbers(unpooled(ctx.node, *ctx.in(0).shape));
  if (in.size() > kMaxScatterRank) ctx.fail("rank {} is more than the {} supported", in.size(), kMaxScatterRank);
  const int64_t size = element_bytes(ctx, ctx.in(0).dtype);
  Step& zeros = ctx.step(ingot_fill_kernel);
  zeros.operands = {ctx.output(0)};
  zeros.units = product_of(out);
  zeros.grain = grain_for(size);
  zeros.params = params_of(FillParams{size, 0, 0});
  MaxUnpoolParams p{};
  p.rank = static_cast<int64_t>(in.size());
  p.size = size;
  p.count = product_of(in);
  std::copy(inside.begin(), inside.end(), p.dims);
  std::copy(strides.begin(), strides.end(), p.stride);
  Step& step = ctx.step(ingot_max_unpool_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.count == 0 || product_of(inside) <= 0 ? 0 : 1;
  step.params = params_of(p);
}

}  // namespace

void register_max_unpool(OpRegistry& r) { r.add({"MaxUnpool", "", 2, 3, 1, 1, infer, lower}); }

}  // namespace ingot
