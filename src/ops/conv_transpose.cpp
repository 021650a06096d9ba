// ConvTranspose: a matrix product gives what each input adds to each tap of its window, then the windows are added up:
//   col[n][c, t][i] = sum_k W[k][c, t] X[n][k][i];   Y = col2im(col) + B
// ingot.ConvTranspose is the same of [N, spatial..., C], with W [C_in, kernel..., C_out/group], which may be packed
// ahead as a matrix ("packed", "packed_shape") where there is one group:
//   col[n, i][t, c] = sum_k X[n, i][k] W[k][t, c]
// ingot.ConvTransposeInteger(X, W, x_zero?, w_zero?) is the same of bytes less their zero points, exact in i32. Its W
// is [C_out/group, kernel..., C_in]: the sum runs along neighbours. It has no bias.
#include "kernels/col2im.h"

#include <algorithm>
#include <cstddef>

#include "kernels/gemm_i8.h"
#include "ops/layout.h"
#include "ops/product.h"
#include "ops/quantized_product.h"
#include "ops/via_f32.h"
#include "ops/window.h"

namespace ingot {
namespace {

// The window of the forward convolution; output_padding and output_shape decide the size of Y and the pads.
struct Transposed {
  Window window;
  std::vector<int64_t> extra;  // output_padding
  std::vector<int64_t> shape;  // output_shape, or empty
};

Transposed transposed(const Node& node, const std::vector<int64_t>& kernel) {
  Transposed t{window_of(node, kernel.size(), kernel), node.get_ints("output_padding"), node.get_ints("output_shape")};
  if (t.extra.empty()) t.extra.assign(kernel.size(), 0);
  // Some exporters give the batch and channel dims too.
  if (t.shape.size() == kernel.size() + 2) t.shape.erase(t.shape.begin(), t.shape.begin() + 2);
  if (t.extra.size() != kernel.size() || (!t.shape.empty() && t.shape.size() != kernel.size()))
    invalid_model("{}: output_padding or output_shape does not have {} elements", node.label(), kernel.size());
  return t;
}

Dim result_size(const Transposed& t, size_t d, const Dim& in) {
  const Window& w = t.window;
  if (!t.shape.empty()) return t.shape[d];
  if (w.same) return in * w.stride[d];
  return (in - 1) * w.stride[d] + t.extra[d] + w.extent(d) - w.begin[d] - w.end[d];
}

// Where the size is given, the pads follow from it.
void resolve(Transposed& t, const std::vector<int64_t>& in) {
  Window& w = t.window;
  if (t.shape.empty() && !w.same) return;
  for (size_t d = 0; d < w.rank(); d++) {
    const int64_t full = (in[d] - 1) * w.stride[d] + t.extra[d] + w.extent(d);
    const int64_t total = std::max<int64_t>(0, full - result_size(t, d, in[d]).value());
    w.begin[d] = w.same && !w.same_lower ? total / 2 : total - total / 2;
    w.end[d] = total - w.begin[d];
  }
}

// The shape of Y, channels first; w: [C_in, C_out/group, kernel...]
Shape result_shape(const InferContext& ctx, const Shape& x, const Shape& w) {
  ctx.require(x.size() >= 3 && x.size() <= 5 && w.size() == x.size(),
              "X is {} and W is {}, expected [N, C, spatial...] and [C, M/group, kernel...] with 1 to 3 spatial dims",
              str(x), str(w));
  const int64_t groups = ctx.node.get_int("group", 1);
  ctx.require(groups > 0 && (!x[1].is_const() || !w[0].is_const() || (x[1] == w[0] && x[1].value() % groups == 0)),
              "X {} and W {} do not fit in {} groups", str(x), str(w), groups);
  Shape out = x;
  out[1] = w[1] * groups;
  const Shape taps(w.begin() + 2, w.end());
  for (size_t d = 0; d < taps.size(); d++)
    out[d + 2] = is_const(taps) ? result_size(transposed(ctx.node, numbers(taps)), d, x[d + 2]) : Dim::unknown();
  return out;
}

void require_bias(const InferContext& ctx, const Dim& channels) {
  if (!ctx.has(2)) return;
  ctx.require(ctx.dtype(2) == ctx.dtype(0), "X is {} and B is {}, expected one type", name(ctx.dtype(0)),
              name(ctx.dtype(2)));
  const Shape& b = ctx.shape(2);
  ctx.require(b.size() == 1 && may_equal(b[0], channels),
              "B is {}, expected one element for each of the {} channels of Y", str(b), channels.str());
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.require(ctx.dtype(0) == ctx.dtype(1), "X is {} and W is {}, expected one type", name(ctx.dtype(0)),
              name(ctx.dtype(1)));
  Shape out = result_shape(ctx, ctx.shape(0), ctx.shape(1));
  require_bias(ctx, out[1]);
  ctx.set_shape(0, std::move(out));
}

// Dims 1 to the end, the last of them in front: [a, spatial..., c] to [a, c, spatial...].
template <class Dims>
Dims second_from_last(Dims dims) {
  if (dims.size() > 1) std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
  return dims;
}

std::vector<int64_t> filter_dims(const LowerContext& ctx) {
  return ctx.node.has("packed") ? ctx.node.get_ints("packed_shape") : ctx.dims(1);
}

void infer_last(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape w = ctx.node.has("packed") ? to_shape(ctx.node.get_ints("packed_shape")) : ctx.shape(1);
  Shape out = result_shape(ctx, second_from_last(ctx.shape(0)), second_from_last(w));
  require_bias(ctx, out[1]);
  std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  ctx.set_shape(0, std::move(out));
}

// [C_out/group, kernel..., C_in] to [C_in, C_out/group, kernel...]
template <class Dims>
Dims channels_first(Dims w) {
  if (!w.empty()) std::rotate(w.begin(), w.end() - 1, w.end());
  return w;
}

void infer_integer(InferContext& ctx) {
  ctx.set_dtype(0, DType::I32);
  for (size_t i : {0, 1}) {
    ctx.require(is_byte(ctx.dtype(i)), "operand {} is {}, expected u8 or i8", i, name(ctx.dtype(i)));
    if (!ctx.has(i + 2)) continue;
    ctx.require(ctx.dtype(i + 2) == ctx.dtype(i), "operand {} is {} and its zero point {}", i, name(ctx.dtype(i)),
                name(ctx.dtype(i + 2)));
    const Dim count = product(ctx.shape(i + 2));
    ctx.require(!count.is_const() || count.is(1), "operand {} is {}, expected a scalar", i + 2, str(ctx.shape(i + 2)));
  }
  ctx.set_shape(0, result_shape(ctx, ctx.shape(0), channels_first(ctx.shape(1))));
}

// All dims channels first; w: [C_in, C_out/group, kernel...].
Col2imParams col2im_params(const Node& node, const std::vector<int64_t>& x, const std::vector<int64_t>& w,
                           const std::vector<int64_t>& y) {
  const std::vector<int64_t> in(x.begin() + 2, x.end()), out(y.begin() + 2, y.end());
  Transposed t = transposed(node, {w.begin() + 2, w.end()});
  resolve(t, in);
  Col2imParams c{};
  c.channels = y[1];
  c.batch = y[0];
  c.groups = node.get_int("group", 1);
  spread(c.in, in, 1);
  spread(c.out, out, 1);
  spread(c.kernel, t.window.kernel, 1);
  spread(c.stride, t.window.stride, 1);
  spread(c.dilation, t.window.dilation, 1);
  spread(c.pad, t.window.begin, 0);
  return c;
}

// The windows in `col`, [n][c][t][i] of `dtype`, added up.
void emit_col2im(LowerContext& ctx, DType dtype, const std::vector<int64_t>& w, Operand col, Operand bias) {
  const auto y = ctx.out_dims(0);
  Col2imParams c = col2im_params(ctx.node, ctx.dims(0), w, y);
  c.dtype = static_cast<int64_t>(dtype);
  Step& s = ctx.step(ingot_col2im_kernel);
  s.operands = {col, bias, ctx.output(0)};
  s.params = params_of(c);
  s.units = c.out[2] == 0 ? 0 : y[0] * y[1] * c.out[0] * c.out[1];
  s.grain = grain_for(c.out[2] * product_of(w, 2) * bits(dtype) / 8);
}

void lower_last(LowerContext& ctx) {
  const auto x = second_from_last(ctx.dims(0)), w = second_from_last(filter_dims(ctx)),
             y = second_from_last(ctx.out_dims(0));
  Col2imParams c = col2im_params(ctx.node, x, w, y);
  const int64_t group_in = x[1] / c.groups, taps = product_of(w, 2);
  Product p;
  p.batch = {c.groups};
  p.m = x[0] * product_of(x, 2);
  p.n = taps * w[1];
  p.k = group_in;
  p.a = {ctx.input(0), x[1], 1, {group_in}};
  p.b = {ctx.input(1), p.n, 1, {group_in * p.n}};
  read_packed(ctx.node, p);
  const Operand col = ctx.shared_temporary(byte_size(DType::F32, c.groups * p.m * p.n));
  emit_product(ctx, p, {}, {}, col);
  Step& s = ctx.step(ingot_col2im_last_kernel);
  s.operands = {col, ctx.input(2), ctx.output(0)};
  s.params = params_of(c);
  s.units = product_of(y) == 0 ? 0 : c.batch * c.out[0] * c.out[1];
  s.grain = grain_for(c.out[2] * taps * y[1] * 4);
}

void lower(LowerContext& ctx) {
  const auto x = ctx.dims(0), w = ctx.dims(1);
  const int64_t groups = ctx.node.get_int("group", 1), group_in = x[1] / groups, taps = product_of(w, 2);
  const DType dtype = ctx.in(0).dtype;
  Product p;
  p.dtype = dtype;
  p.batch = {x[0], groups};
  p.m = w[1] * taps;
  p.n = product_of(x, 2);
  p.k = group_in;
  p.a = {ctx.input(1), 1, p.m, {0, group_in * p.m}};
  p.b = {ctx.input(0), p.n, 1, {x[1] * p.n, group_in * p.n}};
  const Operand col = ctx.shared_temporary(byte_size(dtype, x[0] * groups * p.m * p.n));
  emit_product(ctx, p, {}, {}, col);
  emit_col2im(ctx, dtype, w, col, ctx.input(2));
}

void lower_integer(LowerContext& ctx) {
  const auto x = ctx.dims(0), w = channels_first(ctx.dims(1));
  const int64_t groups = ctx.node.get_int("group", 1), group_in = x[1] / groups;
  kernel::GemmI8Params p{};
  p.form = i8_panel_form(ctx.target).value_or(kernel::kI8Pairs);
  p.a_signed = ctx.in(1).dtype == DType::I8;
  p.b_signed = ctx.in(0).dtype == DType::I8;
  p.a_zero = ctx.has(3) ? kernel::kOneZero : kernel::kNoZero;
  p.b_zero = ctx.has(2) ? kernel::kOneZero : kernel::kNoZero;
  p.m = product_of(w, 1);
  p.n = product_of(x, 2);
  std::fill(std::begin(p.row_dims), std::end(p.row_dims), 1);
  p.row_dims[3] = p.m;
  p.row_stride[3] = x[1];
  std::fill(std::begin(p.runs), std::end(p.runs), 1);
  p.run_bytes = group_in;
  p.batch[0] = 1;
  p.batch[1] = x[0];
  p.batch[2] = groups;
  p.a_batch[2] = group_in;
  p.b_batch[1] = x[1] * p.n;
  p.b_batch[2] = group_in * p.n;
  p.b_row = p.n;
  p.b_col = 1;
  p.entry_row = p.m;
  p.c_row = p.n;
  complete(p, ctx.target);
  const Operand col = ctx.shared_temporary(byte_size(DType::I32, x[0] * groups * p.m * p.n));
  Step& s = ctx.step(kernel::i8_kernel(p.form));
  s.operands = {ctx.input(1), ctx.input(0), col, ctx.input(3), ctx.input(2)};
  s.params = params_of(p);
  s.sizes = kernel::kGemmI8Sizes;
  s.units = p.n == 0 || p.run_bytes == 0 ? 0 : kernel::i8_units(p);
  s.scratch = kernel::i8_scratch_bytes(p);
  s.specialise = p.m * p.n * p.run_bytes >= 4096;
  s.expr = std::make_shared<Expr>(parse_expr("acc", {DType::I32}));
  emit_col2im(ctx, DType::I32, w, col, {});
}

}  // namespace

void register_conv_transpose(OpRegistry& r) {
  r.add({"ConvTranspose", "", 2, 3, 1, 1, infer, with_halves<lower>});
  r.add({"ConvTranspose", "ingot", 2, 3, 1, 1, infer_last, with_halves<lower_last>});
  r.add({"ConvTransposeInteger", "ingot", 2, 4, 1, 1, infer_integer, lower_integer});
}

}  // namespace ingot
