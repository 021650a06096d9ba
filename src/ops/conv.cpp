// Conv: Y = epilogue( conv(X, W) + B ). Plain Conv is [N, C, spatial...]; ingot.Conv has an epilogue over x0 = conv + B
// and the operands after B, and channels_last for [N, spatial..., C]. The f32 kernels are channels last; other layouts
// are moved before and after. W may be packed ahead: attributes "packed" and "packed_shape", its dims before. W of
// ingot.Conv may be stored as bf16 or f16 while X and the arithmetic are f32. Attribute "winograd" of ingot.Conv: see
// ops/conv.h.
#include "ops/conv.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/conv_any.h"
#include "ops/layout.h"
#include "ops/product.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

using kernel::ConvParams;
using kernel::WinogradParams;

constexpr size_t kFirstExtra = 3;

DType result_type(const InferContext& ctx) {
  std::vector<DType> extras;
  for (size_t i = kFirstExtra; i < ctx.input_count(); i++) extras.push_back(ctx.dtype(i));
  const Expr e = parse_epilogue(ctx.node, ctx.dtype(0), extras);
  return e.results.empty() ? ctx.dtype(0) : e.result_types[0];
}

void infer(InferContext& ctx) {
  const DType x_type = ctx.dtype(0), w_type = ctx.dtype(1);
  const bool stored_narrow = ctx.node.domain == "ingot" && x_type == DType::F32 && is_half(w_type);
  ctx.require(x_type == w_type || stored_narrow || ctx.node.has("packed"), "X is {} and W is {}, expected one type",
              name(x_type), name(w_type));
  ctx.set_dtype(0, result_type(ctx));
  const Shape& x = ctx.shape(0);
  const Shape w = ctx.node.has("packed") ? to_shape(ctx.node.get_ints("packed_shape")) : ctx.shape(1);
  Shape out = conv_shape(ctx, x, w);
  if (const int64_t side = winograd_side(ctx.node))
    ctx.require((side == 2 || side == 4) && is_const(w) &&
                    fits_winograd(window_of(ctx.node, w.size() - 2, numbers(Shape(w.begin() + 2, w.end()))),
                                  ctx.node.get_int("group", 1), numbers(w)),
                "winograd is {} and W is {}, expected 2 or 4 and a 3x3 filter of stride 1 in one group", side, str(w));
  if (ctx.has(2)) {
    const Shape& b = ctx.shape(2);
    ctx.require(b.size() == 1 && (!b[0].is_const() || !w[0].is_const() || b[0] == w[0]),
                "B is {}, expected one element for each of the {} channels of Y", str(b), w[0].str());
  }
  require_extras(ctx, kFirstExtra, out);
  ctx.set_shape(0, std::move(out));
}

// Everything about one convolution of numbers.
struct Conv {
  ImageLayout layout;
  Window window;
  int64_t groups;
  std::vector<int64_t> w;        // dims of the weights
  std::vector<int64_t> in, out;  // channels last: [N, spatial..., C]
};

Conv conv_of(const Node& node, const std::vector<int64_t>& x, std::vector<int64_t> w, const std::vector<int64_t>& y) {
  const ImageLayout l{x.size(), channels_last(node)};
  Conv c{l, {}, node.get_int("group", 1), std::move(w), as_channels_last(x, l.last), as_channels_last(y, l.last)};
  c.window = window_of(node, l.spatial_rank(), {c.w.begin() + 2, c.w.end()});
  resolve_pads(c.window, {c.in.begin() + 1, c.in.end() - 1});
  return c;
}

// What the kernel of a form decides by sizes.
void choose(ConvParams& p, ConvForm form, const Target& target) {
  kernel::conv_choose(p, target.lanes);
  if (form == ConvForm::Depthwise) kernel::conv_choose_depthwise(p, target.lanes);
  if (form == ConvForm::Few) kernel::conv_choose_few(p, target.lanes);
}

// An image that is one pixel wide is its height, so that taps along it are neighbours in memory.
void drop_single_columns(ConvParams& p) {
  for (int i = 0; i < 2 && p.in[2] == 1 && p.kernel[2] == 1 && p.out[2] == 1 && p.pad[2] == 0; i++)
    for (auto* dims : {&p.in, &p.out, &p.kernel, &p.stride, &p.dilation, &p.pad})
      std::rotate(std::begin(*dims), std::end(*dims) - 1, std::end(*dims));
}

ConvParams params(const Conv& c, const Target& target) {
  ConvParams p = conv_weights_params(c.window, c.groups, c.w, target);
  p.batch = c.in[0];
  spread(p.in, {c.in.begin() + 1, c.in.end() - 1}, 1);
  spread(p.out, {c.out.begin() + 1, c.out.end() - 1}, 1);
  spread(p.stride, c.window.stride, 1);
  spread(p.dilation, c.window.dilation, 1);
  spread(p.pad, c.window.begin, 0);
  drop_single_columns(p);
  choose(p, conv_form(c.window, c.groups, c.w), target);
  return p;
}

void emit_matrix(LowerContext& ctx, const Conv& c, Operand x, Operand y, const Expr& expr,
                 const std::vector<DenseOperand>& extras) {
  Product p;
  p.batch = {c.out.begin(), c.out.end() - 2};
  p.m = c.out[c.out.size() - 2];
  p.n = c.w[0];
  p.k = c.w[1];
  const auto strides = strides_of(c.in);
  p.a = {x, p.k, 1, {strides.begin(), strides.end() - 2}};
  p.b = {ctx.input(1), 1, p.k, std::vector<int64_t>(p.batch.size(), 0)};
  read_packed(ctx.node, p);
  emit_product(ctx, p, expr, extras, y);
}

Operand packed_weights(LowerContext& ctx, const ConvParams& p, bool depthwise) {
  if (ctx.node.has("packed")) return ctx.input(1);
  const int64_t floats = depthwise ? kernel::conv_depthwise_floats(p) : kernel::conv_packed_floats(p);
  const Operand packed = ctx.shared_temporary(floats * 4);
  Step& s = ctx.step(depthwise ? ingot_conv_pack_depthwise_kernel : ingot_conv_pack_kernel);
  s.operands = {ctx.input(1), packed};
  s.params = params_of(p);
  s.units = depthwise ? 1 : kernel::conv_panels(p);
  return packed;
}

// The fused epilogue as the kernel reads it, or nothing where an operand is broadcast in another way.
template <class Params>
bool add_epilogue(const Conv& c, const Expr& expr, const std::vector<DenseOperand>& extras, Params& p) {
  if (extras.size() > kernel::kMaxEpilogueOperands) return false;
  if (!expr.results.empty() && expr.result_types[0] != DType::F32) return false;
  for (size_t i = 0; i < extras.size(); i++) {
    auto o = epilogue_operand(extras[i].dims, {c.out.begin(), c.out.end() - 1});
    if (!o) return false;
    p.extra[i] = *o;
  }
  p.extras = static_cast<int64_t>(extras.size());
  return true;
}

// A kernel of operands X, W, Y and those of its epilogue.
struct ConvKernel {
  const Kernel& kernel;
  Operand w;
  std::span<const SizeField> sizes;
  int64_t units, scratch;
};
template <class Params>
void emit_with_epilogue(LowerContext& ctx, const Conv& c, Operand x, Operand y, const Expr& expr,
                        const std::vector<DenseOperand>& extras, const ConvKernel& k, Params p) {
  const bool fused = add_epilogue(c, expr, extras, p);
  if (!fused) p.extras = 0;
  const Operand target = fused ? y : ctx.shared_temporary(4 * product_of(c.out));
  Step& s = ctx.step(k.kernel);
  s.operands = {x, k.w, target};
  if (fused)
    for (const DenseOperand& e : extras) s.operands.push_back(e.operand);
  s.params = params_of(p);
  s.sizes = k.sizes;
  s.units = k.units;
  s.grain = grain_for_products(product_of(c.out) / std::max<int64_t>(1, k.units) * product_of(c.w, 1));
  s.scratch = k.scratch;
  if (fused && !expr.results.empty()) s.expr = std::make_shared<Expr>(expr);
  s.specialise = true;
  if (fused) return;
  std::vector<DenseOperand> inputs = {{target, c.out}};
  inputs.insert(inputs.end(), extras.begin(), extras.end());
  emit_elementwise(ctx, expr, inputs, {y}, c.out);
}

ConvKernel windows_kernel(ConvForm form, Operand w, const ConvParams& p) {
  switch (form) {
    case ConvForm::Depthwise:
      return {kernel::ingot_conv_depthwise_f32_kernel, w, kernel::kConvDepthwiseSizes, kernel::conv_depthwise_units(p),
              0};
    case ConvForm::Few:
      return {kernel::ingot_conv_few_f32_kernel, w, kernel::kConvSizes, kernel::conv_few_units(p),
              kernel::conv_scratch_bytes(p)};
    default:
      return {kernel::ingot_conv_f32_kernel, w, kernel::kConvSizes, kernel::conv_units(p),
              kernel::conv_scratch_bytes(p)};
  }
}

void emit_windows(LowerContext& ctx, const Conv& c, Operand x, Operand y, const Expr& expr,
                  const std::vector<DenseOperand>& extras, ConvForm form) {
  const ConvParams p = params(c, ctx.target);
  const Operand w = packed_weights(ctx, p, form == ConvForm::Depthwise);
  emit_with_epilogue(ctx, c, x, y, expr, extras, windows_kernel(form, w, p), p);
}

void emit_winograd(LowerContext& ctx, const Conv& c, Operand x, Operand y, const Expr& expr,
                   const std::vector<DenseOperand>& extras) {
  WinogradParams p = winograd_weights_params(winograd_side(ctx.node), c.w, ctx.target);
  p.batch = c.in[0];
  for (size_t d = 0; d < 2; d++) {
    p.in[d] = c.in[1 + d];
    p.out[d] = c.out[1 + d];
    p.pad[d] = c.window.begin[d];
  }
  kernel::winograd_choose(p, ctx.target.lanes);
  const ConvKernel k{kernel::ingot_conv_winograd_f32_kernel, ctx.input(1), kernel::kWinogradSizes,
                     kernel::winograd_units(p), kernel::winograd_scratch_bytes(p)};
  emit_with_epilogue(ctx, c, x, y, expr, extras, k, p);
}

void emit_channels_last(LowerContext& ctx, const Conv& c, Operand x, Operand y, const Expr& expr,
                        const std::vector<DenseOperand>& extras) {
  const ConvForm form = conv_form(c.window, c.groups, c.w);
  if (form == ConvForm::Matrix)
    emit_matrix(ctx, c, x, y, expr, extras);
  else if (winograd_side(ctx.node) && ctx.node.has("packed"))
    emit_winograd(ctx, c, x, y, expr, extras);
  else
    emit_windows(ctx, c, x, y, expr, extras, form);
}

// x0 + B, then the epilogue: one expression over the accumulator, B where there is one, and the extra operands.
Expr whole_expr(const LowerContext& ctx, std::vector<DenseOperand>& operands) {
  std::vector<DType> types;
  for (size_t i = kFirstExtra; i < ctx.input_count(); i++) types.push_back(ctx.in(i).dtype);
  const DType dtype = ctx.in(0).dtype;
  const Expr epilogue = parse_epilogue(ctx.node, dtype, types);
  Expr e;
  e.input_types = {dtype};
  if (ctx.has(2)) {
    e.input_types.push_back(dtype);
    const bool last = channels_last(ctx.node);
    std::vector<int64_t> dims(last ? 1 : ctx.out_dims(0).size() - 1, 1);
    dims[0] = ctx.dims(2)[0];
    operands.push_back({ctx.input(2), dims});
  }
  e.input_types.insert(e.input_types.end(), types.begin(), types.end());
  for (size_t i = kFirstExtra; i < ctx.input_count(); i++) operands.push_back({ctx.input(i), ctx.dims(i)});
  if (epilogue.results.empty() && !ctx.has(2)) return {};
  int value = e.input(0);
  if (ctx.has(2)) value = e.call("add", {value, e.input(1)});
  e.results = {value};
  e.result_types = {dtype};
  if (epilogue.results.empty()) return e;
  std::vector<int> map = {value};
  for (size_t i = 0; i < types.size(); i++)
    map.push_back(e.input(static_cast<int>(e.input_types.size() - types.size() + i)));
  e.results = e.inline_expr(epilogue, map);
  e.result_types = epilogue.result_types;
  return e;
}

// Per-channel and one-element operands of a [N, C, spatial...] result, as they are channels last.
bool per_channel(std::vector<DenseOperand>& operands, size_t rank) {
  for (DenseOperand& o : operands) {
    for (size_t d = 0; d < o.dims.size(); d++)
      if (o.dims[o.dims.size() - 1 - d] != 1 && d != rank - 2) return false;
    const int64_t channels = o.dims.size() >= rank - 1 ? o.dims[o.dims.size() - (rank - 1)] : 1;
    o.dims = {channels};
  }
  return true;
}

ConvAnyParams any_params(const Conv& c) {
  const bool last = c.layout.last;
  ConvAnyParams p{};
  p.groups = c.groups;
  p.in_channels = c.in.back();
  p.out_channels = c.out.back();
  spread(p.in, {c.in.begin() + 1, c.in.end() - 1}, 1);
  spread(p.out, {c.out.begin() + 1, c.out.end() - 1}, 1);
  spread(p.kernel, c.window.kernel, 1);
  spread(p.stride, c.window.stride, 1);
  spread(p.dilation, c.window.dilation, 1);
  spread(p.pad, c.window.begin, 0);
  p.x_channel = last ? 1 : p.in[0] * p.in[1] * p.in[2];
  p.y_channel = last ? 1 : p.out[0] * p.out[1] * p.out[2];
  p.x_step = last ? p.in_channels : 1;
  p.y_step = last ? p.out_channels : 1;
  return p;
}

void lower_f64(LowerContext& ctx, const Conv& c, const Expr& expr, std::vector<DenseOperand> operands) {
  const auto dims = ctx.out_dims(0);
  const Operand target = expr.results.empty() ? ctx.output(0) : ctx.shared_temporary(8 * product_of(dims));
  emit_conv_any(ctx, ingot_conv_f64_kernel, {ctx.input(0), ctx.dims(0)}, {ctx.input(1), c.w}, {target, dims});
  if (expr.results.empty()) return;
  operands.insert(operands.begin(), {target, dims});
  emit_elementwise(ctx, expr, operands, {ctx.output(0)}, dims);
}

void lower(LowerContext& ctx) {
  const Conv c = conv_of(ctx.node, ctx.dims(0), conv_weight_dims(ctx.node, ctx.dims(1)), ctx.out_dims(0));
  std::vector<DenseOperand> operands;
  const Expr expr = whole_expr(ctx, operands);
  if (ctx.in(0).dtype == DType::F64) return lower_f64(ctx, c, expr, operands);
  if (c.layout.last) return emit_channels_last(ctx, c, ctx.input(0), ctx.output(0), expr, operands);

  const Operand x = ctx.shared_temporary(4 * product_of(c.in)), y = ctx.shared_temporary(4 * product_of(c.out));
  emit_to_last(ctx, ctx.input(0), x, c.in, 4, false);
  std::vector<DenseOperand> moved = operands;
  if (per_channel(moved, c.layout.rank) && (expr.results.empty() || expr.result_types[0] == DType::F32)) {
    emit_channels_last(ctx, c, x, y, expr, moved);
    emit_to_last(ctx, y, ctx.output(0), c.out, 4, true);
    return;
  }
  emit_channels_last(ctx, c, x, y, {}, {});
  const auto dims = ctx.out_dims(0);
  const Operand back = ctx.shared_temporary(4 * product_of(dims));
  emit_to_last(ctx, y, back, c.out, 4, true);
  operands.insert(operands.begin(), {back, dims});
  emit_elementwise(ctx, expr, operands, {ctx.output(0)}, dims);
}

}  // namespace

std::vector<int64_t> as_channels_last(std::vector<int64_t> dims, bool last) {
  if (!last) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return dims;
}

void emit_to_last(LowerContext& ctx, Operand from, Operand to, const std::vector<int64_t>& dims, int64_t bytes,
                  bool back) {
  const int64_t pixels = product_of(dims, 1, dims.size() - 1), channels = dims.back();
  StridedCopy copy{{dims[0], pixels, channels}, {pixels * channels, 1, pixels}, {pixels * channels, channels, 1}};
  if (back) copy = {{dims[0], channels, pixels}, {pixels * channels, 1, channels}, {pixels * channels, pixels, 1}};
  emit_copy(ctx, from, to, bytes, copy);
}

Shape conv_shape(const InferContext& ctx, const Shape& x, const Shape& w) {
  ctx.require(x.size() >= 3 && x.size() <= 5 && w.size() == x.size(),
              "X is {} and W is {}, expected [N, C, spatial...] and [M, C/group, kernel...] with 1 to 3 spatial dims",
              str(x), str(w));
  const ImageLayout l{x.size(), channels_last(ctx.node)};
  const int64_t groups = ctx.node.get_int("group", 1);
  const Dim &channels = x[l.channel()], &mine = w[1];
  ctx.require(groups > 0 && (!channels.is_const() || !mine.is_const() || channels.value() == mine.value() * groups),
              "X {} has {} channels, W {} takes {} in each of {} groups", str(x), channels.str(), str(w), mine.str(),
              groups);
  ctx.require(!w[0].is_const() || w[0].value() % groups == 0, "{} groups do not divide the {} channels of Y", groups,
              w[0].str());
  Shape out = x;
  out[l.channel()] = w[0];
  const Shape taps(w.begin() + 2, w.end());
  if (!is_const(taps)) {
    for (size_t d = 0; d < taps.size(); d++) out[l.spatial(d)] = Dim::unknown();
  } else {
    const Window win = window_of(ctx.node, taps.size(), numbers(taps));
    for (size_t d = 0; d < taps.size(); d++) out[l.spatial(d)] = window_count(win, d, x[l.spatial(d)]);
  }
  return out;
}

void emit_conv_any(LowerContext& ctx, const Kernel& kernel, const ConvAnyOperand& x, const ConvAnyOperand& w,
                   const ConvAnyOperand& y) {
  const ConvAnyParams p = any_params(conv_of(ctx.node, x.dims, w.dims, y.dims));
  Step& s = ctx.step(kernel);
  s.operands = {x.operand, w.operand, y.operand};
  s.params = params_of(p);
  s.units = p.out[2] == 0 ? 0 : x.dims[0] * p.out_channels * p.out[0] * p.out[1];
}

ConvForm conv_form(const Window& w, int64_t groups, const std::vector<int64_t>& dims) {
  auto all = [](const std::vector<int64_t>& v, int64_t x) {
    return std::count(v.begin(), v.end(), x) == std::ssize(v);
  };
  // The last panel of a matrix product is computed as a whole, that of a convolution only as far as it has columns.
  constexpr int64_t kHalfPanel = 8;
  if (groups == 1 && dims[0] > kHalfPanel && all(w.kernel, 1) && all(w.stride, 1) && all(w.begin, 0) && all(w.end, 0))
    return ConvForm::Matrix;
  if (kernel::conv_is_depthwise(groups, dims[1], dims[0] / groups)) return ConvForm::Depthwise;
  const int64_t width = groups == 1 && w.dilation.back() == 1 ? w.kernel.back() : 1;
  if (dims[0] > 0 && kernel::conv_is_few(dims[0] / groups, dims[1] * width, dims[1] * product_of(w.kernel)))
    return ConvForm::Few;
  return ConvForm::General;
}

bool fits_winograd(const Window& w, int64_t groups, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> three{3, 3}, one{1, 1};
  return groups == 1 && dims[1] > 0 && w.kernel == three && w.stride == one && w.dilation == one;
}
int64_t winograd_side(const Node& node) { return node.get_int("winograd", 0); }

WinogradParams winograd_weights_params(int64_t side, const std::vector<int64_t>& w, const Target& target) {
  WinogradParams p{};
  p.m = side;
  p.in_channels = w[1];
  p.out_channels = w[0];
  kernel::winograd_choose(p, target.lanes);
  return p;
}

std::vector<int64_t> conv_weight_dims(const Node& node, const std::vector<int64_t>& operand) {
  return node.has("packed") ? node.get_ints("packed_shape") : operand;
}

ConvParams conv_weights_params(const Window& window, int64_t groups, const std::vector<int64_t>& w,
                               const Target& target) {
  ConvParams p{};
  p.groups = groups;
  p.in_channels = w[1] * groups;
  p.out_channels = w[0];
  spread(p.kernel, window.kernel, 1);
  for (int d = 0; d < 3; d++) p.in[d] = p.out[d] = p.stride[d] = 1;
  spread(p.dilation, window.dilation, 1);
  p.batch = 1;
  choose(p, conv_form(window, groups, w), target);
  return p;
}

void register_conv(OpRegistry& r) {
  r.add({"Conv", "", 2, 3, 1, 1, infer, with_halves<lower>});
  r.add({"Conv", "ingot", 2, -1, 1, 1, infer, with_halves<lower>});
}

}  // namespace ingot
