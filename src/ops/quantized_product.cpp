// MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv: products of quantized matrices in 32-bit integers,
//   acc = (A - a_zero) (B - b_zero),   Y = saturate( round( acc a_scale b_scale / y_scale ) + y_zero ).
// The operands are centred into i32 temporaries and multiplied by the kernels for that type.
#include <algorithm>

#include "kernels/conv_any.h"
#include "ops/conv.h"
#include "ops/layout.h"
#include "ops/product.h"
#include "ops/quantize.h"

namespace ingot {
namespace {

constexpr size_t kNone = SIZE_MAX;

// Where an operator has its operands.
struct Operands {
  size_t a, a_zero, b, b_zero;
  size_t a_scale = kNone, b_scale = kNone, y_scale = kNone, y_zero = kNone, bias = kNone;
};
constexpr Operands kInteger = {0, 2, 1, 3};
constexpr Operands kLinear = {0, 2, 3, 5, 1, 4, 6, 7, 8};

const Operands& operands_of(const Node& node) { return node.op.starts_with("QLinear") ? kLinear : kInteger; }

bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }

void check_types(InferContext& ctx, const Operands& o) {
  const bool requantizes = o.y_zero != kNone;
  ctx.set_dtype(0, requantizes ? ctx.dtype(o.y_zero) : DType::I32);
  for (auto [x, zero] : {std::pair{o.a, o.a_zero}, std::pair{o.b, o.b_zero}}) {
    if (requantizes && is_float(ctx.dtype(x)))
      throw Error(ErrorKind::Unsupported, fmt::format("{}: multiplies {}", ctx.node.label(), name(ctx.dtype(x))),
                  "products of u8 and i8 are served");
    ctx.require(is_byte(ctx.dtype(x)), "operand {} is {}, expected u8 or i8", x, name(ctx.dtype(x)));
    ctx.require(!ctx.has(zero) || ctx.dtype(zero) == ctx.dtype(x), "operand {} is {} and its zero point {}", x,
                name(ctx.dtype(x)), ctx.has(zero) ? name(ctx.dtype(zero)) : "");
  }
  if (!requantizes) return;
  ctx.require(is_byte(ctx.dtype(o.y_zero)), "the result would be {}, expected u8 or i8", name(ctx.dtype(o.y_zero)));
  for (size_t i : {o.a_scale, o.b_scale, o.y_scale})
    ctx.require(is_float(ctx.dtype(i)) && bits(ctx.dtype(i)) >= 16 && ctx.dtype(i) != DType::F64,
                "operand {} is {}, expected a scale of f32, f16 or bf16", i, name(ctx.dtype(i)));
}

// A parameter of one side of a product must broadcast to that side.
void check_broadcast(const InferContext& ctx, size_t i, Shape from, const Shape& to) {
  bool fits = from.size() <= to.size();
  for (size_t d = 0; fits && d < from.size(); d++) {
    const Dim &x = from[from.size() - 1 - d], &y = to[to.size() - 1 - d];
    fits = !x.is_const() || x.is(1) || !y.is_const() || x == y;
  }
  ctx.require(fits, "operand {} is {}, which does not broadcast to {}", i, str(ctx.shape(i)), str(to));
}

// One number for each row of A, or for each column of B, as a tensor that broadcasts to it.
template <class Dims>
Dims along_rows(Dims dims) {
  if (dims.size() == 1) dims.push_back(1);
  return dims;
}

void infer_matmul(InferContext& ctx) {
  const Operands& o = operands_of(ctx.node);
  check_types(ctx, o);
  Shape a = ctx.shape(o.a), b = ctx.shape(o.b);
  ctx.require(!a.empty() && !b.empty(), "a scalar operand: A is {}, B is {}", str(a), str(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  const Dim &ka = a.back(), &kb = b[b.size() - 2];
  ctx.require(!ka.is_const() || !kb.is_const() || ka == kb, "A {} and B {} do not fit", str(ctx.shape(o.a)),
              str(ctx.shape(o.b)));
  Shape out = broadcast(ctx, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  Shape whole = out;
  whole.insert(whole.end(), {a[a.size() - 2], b.back()});
  if (ctx.has(o.a_zero)) check_broadcast(ctx, o.a_zero, along_rows(ctx.shape(o.a_zero)), a);
  if (ctx.has(o.b_zero)) check_broadcast(ctx, o.b_zero, ctx.shape(o.b_zero), b);
  if (o.a_scale != kNone) {
    check_broadcast(ctx, o.a_scale, along_rows(ctx.shape(o.a_scale)), whole);
    check_broadcast(ctx, o.b_scale, ctx.shape(o.b_scale), whole);
    check_broadcast(ctx, o.y_scale, along_rows(ctx.shape(o.y_scale)), whole);
    check_broadcast(ctx, o.y_zero, along_rows(ctx.shape(o.y_zero)), whole);
  }
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  ctx.set_shape(0, std::move(out));
}

void infer_conv(InferContext& ctx) {
  const Operands& o = operands_of(ctx.node);
  check_types(ctx, o);
  const Shape &x = ctx.shape(o.a), &w = ctx.shape(o.b);
  Shape out = conv_shape(ctx, x, w);
  auto need = [&](size_t i, bool per_channel) {
    if (i == kNone || !ctx.has(i)) return;
    const Shape& s = ctx.shape(i);
    const bool one = s.empty() || (s.size() == 1 && (!s[0].is_const() || s[0].is(1)));
    const bool channels = s.size() == 1 && (!s[0].is_const() || !w[0].is_const() || s[0] == w[0]);
    ctx.require(one || (per_channel && channels), "operand {} is {}, expected {}", i, str(s),
                per_channel ? "a scalar or one number for each channel of Y" : "a scalar");
  };
  for (size_t i : {o.a_zero, o.a_scale, o.y_scale, o.y_zero}) need(i, false);
  for (size_t i : {o.b_zero, o.b_scale}) need(i, true);
  if (o.bias != kNone && ctx.has(o.bias)) {
    const Shape& b = ctx.shape(o.bias);
    ctx.require(
        b.size() == 1 && (!b[0].is_const() || !w[0].is_const() || b[0] == w[0]) && ctx.dtype(o.bias) == DType::I32,
        "B is {} {}, expected one i32 for each channel of Y", name(ctx.dtype(o.bias)), str(b));
  }
  ctx.set_shape(0, std::move(out));
}

// Operand x minus its zero point, which broadcasts with `zero_dims`.
DenseOperand centred(LowerContext& ctx, size_t x, size_t zero, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& zero_dims) {
  const DenseOperand out = {ctx.shared_temporary(byte_size(DType::I32, product_of(dims))), dims};
  std::vector<DenseOperand> inputs = {{ctx.input(x), dims}};
  std::vector<DType> types = {ctx.in(x).dtype};
  if (ctx.has(zero)) {
    inputs.push_back({ctx.input(zero), zero_dims});
    types.push_back(ctx.in(zero).dtype);
  }
  emit_elementwise(ctx, centred_expr(types), inputs, {out.operand}, dims);
  return out;
}

// The result from the accumulator: x0 = acc, x1 = a_scale, x2 = b_scale, x3 = y_scale, x4 = y_zero, then the bias.
Expr requantize_expr(const LowerContext& ctx, const Operands& o) {
  Expr e;
  e.input_types = {DType::I32};
  for (size_t i : {o.a_scale, o.b_scale, o.y_scale, o.y_zero}) e.input_types.push_back(ctx.in(i).dtype);
  int acc = e.input(0);
  if (ctx.has(o.bias)) {
    e.input_types.push_back(DType::I32);
    acc = e.call("add", {acc, e.input(5)});
  }
  const int scale = e.call("div", {e.call("mul", {e.input(1), e.input(2)}), e.input(3)});
  const DType to = ctx.out(0).dtype;
  e.results = {quantized(e, e.call("mul", {e.call("cast_f32", {acc}), scale}), e.input(4), to)};
  e.result_types = {to};
  return e;
}

std::vector<int64_t> dims_of(const LowerContext& ctx, size_t i) {
  return ctx.has(i) ? ctx.dims(i) : std::vector<int64_t>{};
}

std::vector<int64_t> batch_strides(const std::vector<int64_t>& dims, const std::vector<int64_t>& batch) {
  std::vector<int64_t> inner(dims.begin(), dims.end() - 2);
  auto strides = broadcast_strides(inner, batch);
  for (int64_t& s : strides) s *= dims[dims.size() - 1] * dims[dims.size() - 2];
  return strides;
}

void lower_matmul(LowerContext& ctx) {
  const Operands& o = operands_of(ctx.node);
  auto a_dims = ctx.dims(o.a), b_dims = ctx.dims(o.b);
  if (a_dims.size() == 1) a_dims.insert(a_dims.begin(), 1);
  if (b_dims.size() == 1) b_dims.push_back(1);
  const DenseOperand a = centred(ctx, o.a, o.a_zero, a_dims, along_rows(dims_of(ctx, o.a_zero)));
  const DenseOperand b = centred(ctx, o.b, o.b_zero, b_dims, dims_of(ctx, o.b_zero));
  Product p;
  p.dtype = DType::I32;
  p.batch.resize(std::max(a_dims.size(), b_dims.size()) - 2, 1);
  for (const auto* dims : {&a_dims, &b_dims})
    for (size_t d = 0; d + 2 < dims->size(); d++) {
      int64_t& size = p.batch[p.batch.size() - 1 - d];
      if (size == 1) size = (*dims)[dims->size() - 3 - d];
    }
  p.m = a_dims[a_dims.size() - 2];
  p.k = a_dims.back();
  p.n = b_dims.back();
  p.a = {a.operand, p.k, 1, batch_strides(a_dims, p.batch)};
  p.b = {b.operand, p.n, 1, batch_strides(b_dims, p.batch)};
  if (o.y_scale == kNone) return emit_product(ctx, p, {}, {}, ctx.output(0));
  const std::vector<DenseOperand> extras = {{ctx.input(o.a_scale), along_rows(ctx.dims(o.a_scale))},
                                            {ctx.input(o.b_scale), ctx.dims(o.b_scale)},
                                            {ctx.input(o.y_scale), along_rows(ctx.dims(o.y_scale))},
                                            {ctx.input(o.y_zero), along_rows(ctx.dims(o.y_zero))}};
  emit_product(ctx, p, requantize_expr(ctx, o), extras, ctx.output(0));
}

// One number, or one for each channel of Y, as a tensor that broadcasts to [N, C, spatial...] or [M, C/group, ...].
std::vector<int64_t> per_channel(const std::vector<int64_t>& dims, size_t from_back) {
  std::vector<int64_t> out(from_back, 1);
  out[0] = product_of(dims);
  return out;
}

void lower_conv(LowerContext& ctx) {
  const Operands& o = operands_of(ctx.node);
  const auto x_dims = ctx.dims(o.a), w_dims = ctx.dims(o.b), dims = ctx.out_dims(0);
  const size_t rank = x_dims.size();
  const DenseOperand x = centred(ctx, o.a, o.a_zero, x_dims, dims_of(ctx, o.a_zero));
  const DenseOperand w = centred(ctx, o.b, o.b_zero, w_dims, per_channel(dims_of(ctx, o.b_zero), rank));
  const bool requantizes = o.y_scale != kNone;
  const Operand acc = requantizes ? ctx.shared_temporary(byte_size(DType::I32, product_of(dims))) : ctx.output(0);
  emit_conv_any(ctx, ingot_conv_i32_kernel, {x.operand, x_dims}, {w.operand, w_dims}, {acc, dims});
  if (!requantizes) return;
  std::vector<DenseOperand> inputs = {{acc, dims}};
  for (size_t i : {o.a_scale, o.b_scale, o.y_scale, o.y_zero})
    inputs.push_back({ctx.input(i), per_channel(ctx.dims(i), rank - 1)});
  if (ctx.has(o.bias)) inputs.push_back({ctx.input(o.bias), per_channel(ctx.dims(o.bias), rank - 1)});
  emit_elementwise(ctx, requantize_expr(ctx, o), inputs, {ctx.output(0)}, dims);
}

}  // namespace

void register_quantized_product(OpRegistry& r) {
  r.add({"MatMulInteger", "", 2, 4, 1, 1, infer_matmul, lower_matmul});
  r.add({"QLinearMatMul", "", 8, 8, 1, 1, infer_matmul, lower_matmul});
  r.add({"ConvInteger", "", 2, 4, 1, 1, infer_conv, lower_conv});
  r.add({"QLinearConv", "", 8, 9, 1, 1, infer_conv, lower_conv});
}

}  // namespace ingot
