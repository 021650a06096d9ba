// MaxPool, AveragePool, LpPool over windows, and the Global ones over all of the image. channels_last=1: X and Y are
// [N, spatial..., C].
#include <algorithm>

#include "kernels/pool.h"
#include "kernels/pool_any.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/reduce.h"
#include "ops/via_f32.h"
#include "ops/window.h"

namespace ingot {
namespace {

ImageLayout layout_of(const InferContext& ctx) {
  const Shape& x = ctx.shape(0);
  ctx.require(x.size() >= 3, "X is {}, expected [N, C, spatial...]", str(x));
  return {x.size(), channels_last(ctx.node)};
}

void infer_window_pool(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  if (ctx.output_count() > 1) ctx.set_dtype(1, DType::I64);
  const ImageLayout l = layout_of(ctx);
  ctx.require(l.spatial_rank() <= 3, "has {} spatial dims; up to 3 are served", l.spatial_rank());
  const Window w = window_of(ctx.node, l.spatial_rank());
  Shape out = ctx.shape(0);
  for (size_t d = 0; d < w.rank(); d++) {
    Dim& size = out[l.spatial(d)];
    ctx.require(!size.is_const() || w.same || size.value() + w.begin[d] + w.end[d] >= w.extent(d),
                "spatial dim {} of X {} is smaller with its pads than the window of {}", d, str(ctx.shape(0)),
                w.extent(d));
    size = window_count(w, d, size);
  }
  for (size_t i = 0; i < ctx.output_count(); i++) ctx.set_shape(i, out);
}

PoolKind kind_of(const Node& node) {
  return node.op == "MaxPool" ? kPoolMax : node.op == "AveragePool" ? kPoolAverage : kPoolLp;
}

// The kernel for channels last; nothing where there is none.
const Kernel* channels_last_kernel(const LowerContext& ctx) {
  if (ctx.has_out(1) || ctx.node.op == "LpPool") return nullptr;
  const DType t = ctx.in(0).dtype;
  if (t == DType::F32) return &kernel::ingot_pool_f32_kernel;
  if (ctx.node.op != "MaxPool") return nullptr;
  return t == DType::U8   ? &kernel::ingot_max_pool_u8_kernel
         : t == DType::I8 ? &kernel::ingot_max_pool_i8_kernel
                          : nullptr;
}

void lower_channels_last(LowerContext& ctx, const Kernel& kernel, const std::vector<int64_t>& in,
                         const std::vector<int64_t>& out, const Window& w) {
  kernel::PoolParams p{};
  p.kind = ctx.node.op == "MaxPool" ? kernel::kMaxPool : kernel::kAveragePool;
  p.count_include_pad = ctx.node.get_int("count_include_pad", 0);
  p.batch = in[0];
  p.channels = in.back();
  spread(p.in, {in.begin() + 1, in.end() - 1}, 1);
  spread(p.out, {out.begin() + 1, out.end() - 1}, 1);
  spread(p.kernel, w.kernel, 1);
  spread(p.stride, w.stride, 1);
  spread(p.dilation, w.dilation, 1);
  spread(p.pad, w.begin, 0);
  spread(p.pad_behind, w.end, 0);
  Step& s = ctx.step(kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(p);
  s.sizes = kernel::kPoolSizes;
  s.units = kernel::pool_units(p);
  s.grain = grain_for(p.out[2] * p.channels * product_of(w.kernel) * bits(ctx.in(0).dtype) / 8);
  s.specialise = true;
}

void lower_window_pool(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  const ImageLayout l{in.size(), channels_last(ctx.node)};
  Window w = window_of(ctx.node, l.spatial_rank());
  std::vector<int64_t> from, to;
  for (size_t d = 0; d < l.spatial_rank(); d++) {
    from.push_back(in[l.spatial(d)]);
    to.push_back(out[l.spatial(d)]);
  }
  resolve_pads(w, from);
  if (const Kernel* kernel = channels_last_kernel(ctx); l.last && kernel)
    return lower_channels_last(ctx, *kernel, in, out, w);
  PoolAnyParams p{};
  p.kind = kind_of(ctx.node);
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.batch = in[0];
  p.channels = in[l.channel()];
  spread(p.in, from, 1);
  spread(p.out, to, 1);
  spread(p.kernel, w.kernel, 1);
  spread(p.stride, w.stride, 1);
  spread(p.dilation, w.dilation, 1);
  spread(p.begin, w.begin, 0);
  spread(p.end, w.end, 0);
  p.include_pad = ctx.node.get_int("count_include_pad", 0);
  p.p = ctx.node.get_int("p", 2);
  p.column_major = ctx.node.get_int("storage_order", 0);
  p.x_channel = l.last ? 1 : product_of(from);
  p.y_channel = l.last ? 1 : product_of(to);
  p.x_step = p.y_step = l.last ? p.channels : 1;
  Step& s = ctx.step(ingot_pool_any_kernel);
  s.operands = {ctx.input(0), ctx.output(0), ctx.output(1)};
  s.params = params_of(p);
  s.units = p.out[2] == 0 ? 0 : p.batch * p.channels * p.out[0] * p.out[1];
  s.grain = grain_for(p.out[2] * product_of(w.kernel) * bits(ctx.in(0).dtype) / 8);
}

void infer_global_pool(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const ImageLayout l{static_cast<size_t>(ctx.rank(0)), channels_last(ctx.node)};
  ctx.require(l.rank >= 2, "X is {}, expected [N, C, spatial...]", str(ctx.shape(0)));
  Shape out = ctx.shape(0);
  for (size_t d = 0; d < l.spatial_rank(); d++) out[l.spatial(d)] = 1;
  ctx.set_shape(0, std::move(out));
}

// (sum |x|^p)^(1/p) for a p the reduction does not know.
void lower_global_lp(LowerContext& ctx, const std::vector<int64_t>& axes, int64_t p) {
  const auto dims = ctx.dims(0), out = ctx.out_dims(0);
  const DType t = ctx.in(0).dtype;
  const Operand powers = ctx.shared_temporary(byte_size(t, product_of(dims)));
  const Operand sum = ctx.shared_temporary(byte_size(t, product_of(out)));
  emit_elementwise(ctx, parse_expr(fmt::format("pow(abs(x0), {}:{})", p, name(t)), {t}), {{ctx.input(0), dims}},
                   {powers}, dims);
  emit_reduce(ctx, powers, dims, sum, t, axes, kReduceSum);
  emit_elementwise(ctx, parse_expr(fmt::format("pow(x0, {}:{})", 1.0 / static_cast<double>(p), name(t)), {t}),
                   {{sum, out}}, {ctx.output(0)}, out);
}

void lower_global_pool(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const ImageLayout l{dims.size(), channels_last(ctx.node)};
  std::vector<int64_t> axes;
  for (size_t d = 0; d < l.spatial_rank(); d++) axes.push_back(static_cast<int64_t>(l.spatial(d)));
  ReduceKind kind = ctx.node.op == "GlobalMaxPool" ? kReduceMax : kReduceMean;
  ReducePre pre = kPreNone;
  ReducePost post = kPostNone;
  if (ctx.node.op == "GlobalLpPool") {
    const int64_t p = ctx.node.get_int("p", 2);
    if (p != 1 && p != 2) return lower_global_lp(ctx, axes, p);
    kind = kReduceSum;
    pre = p == 1 ? kPreAbs : kPreSquare;
    post = p == 1 ? kPostNone : kPostSqrt;
  }
  emit_reduce(ctx, ctx.input(0), dims, ctx.output(0), ctx.in(0).dtype, axes, kind, pre, post);
}

}  // namespace

void register_pool(OpRegistry& r) {
  r.add({"MaxPool", "", 1, 1, 1, 2, infer_window_pool, with_halves<lower_window_pool>}).movement = Movement::kChosen;
  r.add({"AveragePool", "", 1, 1, 1, 1, infer_window_pool, with_halves<lower_window_pool>});
  r.add({"LpPool", "", 1, 1, 1, 1, infer_window_pool, with_halves<lower_window_pool>});
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"})
    r.add({op, "", 1, 1, 1, 1, infer_global_pool, with_halves<lower_global_pool>});
}

}  // namespace ingot
