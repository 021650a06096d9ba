// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear. What expressions can say is element-wise steps over the
// operands seen with the right dims; other types (below a byte, 8-bit floats, quotients in half precision) have a
// kernel.
#include "ops/quantize.h"

#include <cmath>

#include "kernels/quantize.h"
#include "kernels/value_range.h"
#include "ops/layout.h"

namespace ingot {
namespace {

DType attribute_type(const Node& node, const char* attr, DType fallback) {
  const int64_t number = node.get_int(attr, 0);
  if (number == 0) return fallback;
  const auto t = dtype_from_onnx(static_cast<int32_t>(number));
  if (!t) invalid_model("{}: attribute '{}' is {}, which is no element type", node.label(), attr, number);
  return *t;
}

bool is_quantized_type(DType t) {
  return in_quantized_expressions(t) || (is_integer(t) && bits(t) < 8) ||
         (is_float(t) && bits(t) <= 8 && t != DType::F8E8M0);
}
bool is_scale_type(DType t) {
  return t == DType::F32 || t == DType::F16 || t == DType::BF16 || t == DType::F8E8M0 || t == DType::I32;
}

// Along which axis scales lie, and how many elements share one; per tensor: block 0, axis 0.
struct Granularity {
  enum { kTensor, kAxis, kBlocked } kind = kTensor;
  int64_t axis = 0, block = 0;
};

Granularity granularity(const Node& node, size_t x_rank, size_t s_rank, bool one_scale) {
  Granularity g;
  const int64_t rank = static_cast<int64_t>(x_rank), block = node.get_int("block_size", 0);
  if (block == 0 && (s_rank == 0 || one_scale)) return g;
  int64_t axis = node.get_int("axis", 1);
  if (axis < 0) axis += rank;
  if (rank == 1) axis = 0;
  if (axis < 0 || axis >= rank) invalid_model("{}: axis {} is outside a tensor of rank {}", node.label(), axis, rank);
  return {block == 0 ? Granularity::kAxis : Granularity::kBlocked, axis, block};
}

void check_scale(const InferContext& ctx) {
  if (!ctx.at_run_time())  // what is known was looked at when the model was compiled
    if (auto wrong = wrong_scale(ctx.in(1))) ctx.fail("{}", *wrong);
  const Shape &x = ctx.shape(0), &s = ctx.shape(1);
  if (ctx.has(2)) {
    const Shape& z = ctx.shape(2);
    bool fits = z.size() == s.size() || (may_equal(product(z), 1) && may_equal(product(s), 1));
    for (size_t d = 0; fits && d < z.size() && d < s.size(); d++) fits = may_equal(z[d], s[d]);
    ctx.require(fits, "the scale is {} and the zero point {}, expected one shape", str(s), str(z));
  }
  const int64_t block = ctx.node.get_int("block_size", 0);
  ctx.require(block >= 0, "block_size is {}", block);
  const Granularity g = granularity(ctx.node, x.size(), s.size(), product(s).is(1));
  if (g.kind == Granularity::kTensor) return;
  const auto axis = static_cast<size_t>(g.axis);
  if (g.kind == Granularity::kAxis) {
    ctx.require(s.size() == 1, "the scale is {}, expected a scalar or one number for each of axis {} of {}", str(s),
                g.axis, str(x));
    // A symbolic scale may have one element yet.
    ctx.require(may_equal(s[0], x[axis]), "the scale has {} numbers, axis {} of {} has {}", s[0].str(), g.axis, str(x),
                x[axis].str());
    return;
  }
  bool fits = s.size() == x.size();
  for (size_t d = 0; fits && d < s.size(); d++) fits = may_equal(s[d], d == axis ? ceil_div(x[d], g.block) : x[d]);
  ctx.require(fits, "the scale is {}, expected the shape of x {} with axis {} in blocks of {}", str(s), str(x), g.axis,
              g.block);
}

void infer_quantize(InferContext& ctx) {
  const DType x = ctx.dtype(0), s = ctx.dtype(1),
              to = attribute_type(ctx.node, "output_dtype", ctx.has(2) ? ctx.dtype(2) : DType::U8);
  ctx.set_dtype(0, to);
  ctx.require(!ctx.has(2) || ctx.dtype(2) == to, "output_dtype is {} and the zero point {}", name(to),
              ctx.has(2) ? name(ctx.dtype(2)) : "");
  ctx.require(is_quantized_type(to), "cannot quantize to {}", name(to));
  ctx.require(is_scale_type(x) && x != DType::F8E8M0, "x is {}, expected f32, f16, bf16 or i32", name(x));
  ctx.require(is_scale_type(s), "the scale is {}, expected f32, f16, bf16, i32 or f8e8m0", name(s));
  const DType precision = attribute_type(ctx.node, "precision", DType::F32);
  ctx.require(is_scale_type(precision) && precision != DType::F8E8M0, "precision is {}, expected f32, f16 or bf16",
              name(precision));
  check_scale(ctx);
  ctx.set_shape(0, ctx.shape(0));
}

void infer_dequantize(InferContext& ctx) {
  const DType x = ctx.dtype(0), s = ctx.dtype(1);
  const DType to = attribute_type(ctx.node, "output_dtype", s == DType::F8E8M0 ? DType::F32 : s);
  ctx.set_dtype(0, to);
  ctx.require(is_quantized_type(x) || x == DType::I32, "x is {}, which is no quantized type", name(x));
  ctx.require(is_scale_type(s) && s != DType::I32, "the scale is {}, expected f32, f16, bf16 or f8e8m0", name(s));
  ctx.require(to == DType::F32 || to == DType::F16 || to == DType::BF16, "cannot dequantize to {}", name(to));
  ctx.require(!ctx.has(2) || ctx.dtype(2) == x, "x is {} and the zero point {}", name(x),
              ctx.has(2) ? name(ctx.dtype(2)) : "");
  check_scale(ctx);
  ctx.set_shape(0, ctx.shape(0));
}

// x and the dims with which a broadcast scale meets it.
struct Views {
  std::vector<int64_t> x, s;
};

Granularity granularity(const LowerContext& ctx) {
  const auto s = ctx.dims(1);
  return granularity(ctx.node, ctx.dims(0).size(), s.size(), product_of(s) == 1);
}

// Nothing where the last block is shorter.
std::optional<Views> broadcast_views(const LowerContext& ctx) {
  const auto x = ctx.dims(0);
  const Granularity g = granularity(ctx);
  const auto axis = static_cast<size_t>(g.axis);
  if (g.kind == Granularity::kTensor) return Views{x, {}};
  if (g.kind == Granularity::kAxis) {
    Views v{x, std::vector<int64_t>(x.size() - axis, 1)};
    v.s[0] = x[axis];
    return v;
  }
  if (x[axis] % g.block != 0) return std::nullopt;
  const int64_t outer = product_of(x, 0, axis), inner = product_of(x, axis + 1), blocks = x[axis] / g.block;
  return Views{{outer, blocks, g.block, inner}, {outer, blocks, 1, inner}};
}

void emit_generic(LowerContext& ctx, const Kernel& kernel, DType precision) {
  const auto x = ctx.dims(0);
  const Granularity g = granularity(ctx);
  const auto axis = static_cast<size_t>(g.axis);
  QuantizeParams p{};
  p.x_type = static_cast<int64_t>(ctx.in(0).dtype);
  p.s_type = static_cast<int64_t>(ctx.in(1).dtype);
  p.y_type = static_cast<int64_t>(ctx.out(0).dtype);
  p.precision = static_cast<int64_t>(precision);
  p.saturate = ctx.node.get_int("saturate", 1) != 0;
  p.count = product_of(x);
  p.n = p.inner = p.block = 1;
  if (g.kind != Granularity::kTensor) {
    p.n = x[axis];
    p.inner = product_of(x, axis + 1);
    p.block = g.kind == Granularity::kAxis ? 1 : g.block;
    p.s_block = g.kind == Granularity::kAxis ? 1 : p.inner;
    p.s_inner = g.kind == Granularity::kAxis ? 0 : 1;
    p.s_outer = g.kind == Granularity::kAxis ? 0 : (p.n + p.block - 1) / p.block * p.inner;
  }
  Step& s = ctx.step(kernel);
  s.operands = {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0)};
  s.params = params_of(p);
  s.units = (p.count + kQuantizeChunk - 1) / kQuantizeChunk;
}

void emit_expression(LowerContext& ctx, const Expr& expr, const Views& v) {
  std::vector<DenseOperand> inputs = {{ctx.input(0), v.x}, {ctx.input(1), v.s}};
  if (ctx.has(2)) inputs.push_back({ctx.input(2), v.s});
  emit_elementwise(ctx, expr, inputs, {ctx.output(0)}, v.x);
}

Expr start(const LowerContext& ctx) {
  Expr e;
  e.input_types = {ctx.in(0).dtype, ctx.in(1).dtype};
  if (ctx.has(2)) e.input_types.push_back(ctx.in(2).dtype);
  return e;
}
Expr finish(Expr e, int result, DType to) {
  e.results = {result};
  e.result_types = {to};
  return e;
}
int as_f32(Expr& e, int x) { return e.code[static_cast<size_t>(x)].dtype == DType::F32 ? x : e.call("cast_f32", {x}); }

void lower_quantize(LowerContext& ctx) {
  const DType s = ctx.in(1).dtype, to = ctx.out(0).dtype;
  DType precision = attribute_type(ctx.node, "precision", s);
  if (precision != DType::F16 && precision != DType::BF16) precision = DType::F32;
  const auto views = broadcast_views(ctx);
  if (!views || precision != DType::F32 || !in_quantized_expressions(to) || s == DType::F8E8M0)
    return emit_generic(ctx, ingot_quantize_kernel, precision);
  Expr e = start(ctx);
  const int quotient = e.call("div", {as_f32(e, e.input(0)), as_f32(e, e.input(1))});
  const int y = quantized(e, quotient, ctx.has(2) ? e.input(2) : -1, to);
  emit_expression(ctx, finish(e, y, to), *views);
}

void lower_dequantize(LowerContext& ctx) {
  const DType x = ctx.in(0).dtype, s = ctx.in(1).dtype;
  const auto views = broadcast_views(ctx);
  if (!views || (!in_quantized_expressions(x) && x != DType::I32) || s == DType::F8E8M0)
    return emit_generic(ctx, ingot_dequantize_kernel, DType::F32);
  Expr e = start(ctx);
  int v = x == DType::I32 ? e.input(0) : e.call("cast_i32", {e.input(0)});
  if (ctx.has(2)) v = e.call("sub", {v, x == DType::I32 ? e.input(2) : e.call("cast_i32", {e.input(2)})});
  const int y = e.call("mul", {e.call("cast_f32", {v}), e.input(1)});
  emit_expression(ctx, finish(e, y, ctx.out(0).dtype), *views);
}

void infer_dynamic(InferContext& ctx) {
  ctx.set_dtype(0, DType::U8);
  ctx.set(1, DType::F32, {});
  ctx.set(2, DType::U8, {});
  ctx.require(ctx.dtype(0) == DType::F32, "x is {}, expected f32", name(ctx.dtype(0)));
  ctx.set_shape(0, ctx.shape(0));
}

// The range of x with 0 in it is cut into 255 steps. A tensor of zeros has a scale of 1.
void lower_dynamic(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  const ValueRangeParams p{product_of(dims)};
  const int64_t chunks = (p.count + kRangeChunk - 1) / kRangeChunk;
  auto result = [&](size_t i, int64_t bytes) { return ctx.has_out(i) ? ctx.output(i) : ctx.shared_temporary(bytes); };
  const Operand scale = result(1, 4), zero = result(2, 1), ranges = ctx.shared_temporary(8 * chunks);
  Step& range = ctx.step(ingot_value_range_kernel);
  range.operands = {ctx.input(0), ranges};
  range.params = params_of(p);
  range.units = chunks;
  range.grain = grain_for(4 * kRangeChunk);
  Step& step = ctx.step(ingot_value_range_scale_kernel);
  step.operands = {ranges, scale, zero};
  step.params = params_of(p);
  step.units = 1;
  if (!ctx.has_out(0)) return;
  Expr e;
  e.input_types = {DType::F32, DType::F32, DType::U8};
  const int quotient = e.call("div", {e.input(0), e.input(1)});
  const int y = quantized(e, quotient, e.input(2), DType::U8);
  emit_elementwise(ctx, finish(e, y, DType::U8), {{ctx.input(0), dims}, {scale, {}}, {zero, {}}}, {ctx.output(0)},
                   dims);
}

}  // namespace

bool in_quantized_expressions(DType t) {
  return t == DType::U8 || t == DType::I8 || t == DType::U16 || t == DType::I16;
}

std::optional<std::string> wrong_scale(const TensorInfo& info) {
  if (!info.constant || info.dtype != DType::F32) return std::nullopt;
  const auto numbers = info.constant->as<float>();
  for (size_t i = 0; i < numbers.size(); i++)
    if (!(numbers[i] > 0) || std::isinf(numbers[i]))
      return fmt::format("scale {} is {}, expected a positive number", i, numbers[i]);
  return std::nullopt;
}

int quantized(Expr& e, int x, int z, DType to) {
  int y = e.call("round", {x});
  if (z >= 0) y = e.call("add", {y, e.call("cast_f32", {z})});
  const double values = static_cast<double>(1 << bits(to)), low = is_signed(to) ? -values / 2 : 0;
  y = e.call("clip", {y, e.constant(low, DType::F32), e.constant(low + values - 1, DType::F32)});
  return e.call("cast_" + std::string(name(to)), {y});
}

Expr centred_expr(const std::vector<DType>& types) {
  Expr e;
  e.input_types = types;
  int x = e.call("cast_i32", {e.input(0)});
  if (types.size() > 1) x = e.call("sub", {x, e.call("cast_i32", {e.input(1)})});
  return finish(e, x, DType::I32);
}

void register_quantize(OpRegistry& r) {
  r.add({"QuantizeLinear", "", 2, 3, 1, 1, infer_quantize, lower_quantize});
  r.add({"DequantizeLinear", "", 2, 3, 1, 1, infer_dequantize, lower_dequantize});
  r.add({"DynamicQuantizeLinear", "", 1, 1, 1, 3, infer_dynamic, lower_dynamic});
}

}  // namespace ingot
