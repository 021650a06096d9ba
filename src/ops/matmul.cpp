// MatMul and Gemm:  Y = alpha A B + beta C,  with numpy's rules for MatMul: leading dims broadcast, a 1-D A is a row, a
// 1-D B a column. ingot.MatMul has transA, transB (of the last two dims) and an epilogue over x0 = A B and the operands
// after B. B may be packed ahead (planner/pack_weights.h): attributes "packed", the columns of a panel, and
// "packed_shape", the dims it had.
//
// B of ingot.MatMul and ingot.Gemm may be stored in fewer bits while A and the arithmetic are f32: as bf16 or f16, or,
// with the attribute "quantized", as a constant matrix of 8- or 4-bit integers. Then the two operands after B are its
// scale and zero point, as DequantizeLinear takes them with axis "b_axis" and block_size "b_block", except that a zero
// point may be f32. With "a_bits" 16 rows of A may be rounded to fixed-point numbers of 16 bits (kernels/fixed.h);
// with 24, which is the default, a single row that meets 4-bit integers counts as numbers of 24 bits
// (kernels/narrow.h).
//
// A and B of bf16 are multiplied as they are where the target has a unit for it (kernels/gemm_bf16.h), and widened to
// f32 elsewhere. With the attribute "f32_result" of ingot.MatMul the result is f32, as if both had been widened.
#include <algorithm>

#include "ops/layout.h"
#include "ops/product.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

bool flag(const Node& node, const char* attr) { return node.get_int(attr, 0) != 0; }

Shape b_shape(const InferContext& ctx) {
  return ctx.node.has("packed") ? to_shape(ctx.node.get_ints("packed_shape")) : ctx.shape(1);
}

bool is_quantized(const Node& node) { return node.domain == "ingot" && flag(node, "quantized"); }
size_t first_extra(const Node& node) { return is_quantized(node) ? 4 : 2; }

bool is_4_or_8_bit(DType t) { return t == DType::I8 || t == DType::U8 || t == DType::I4 || t == DType::U4; }

// The scale (and zero point) of B: one number, one for each of an axis, or one for each block along it.
void require_parameters(const InferContext& ctx, size_t i) {
  const Shape &b = ctx.shape(1), &s = ctx.shape(i);
  const int64_t axis = ctx.axis(ctx.node.get_int("b_axis", 1), 2), block = ctx.node.get_int("b_block", 0);
  ctx.require(b.size() == 2 && is_const(b) && is_const(s), "quantized B is {} and operand {} is {}, expected constants",
              str(b), i, str(s));
  ctx.require(block >= 0, "blocks of {} rows", block);
  Shape blocked = b;
  if (block) blocked[static_cast<size_t>(axis)] = ceil_div(b[static_cast<size_t>(axis)], block);
  const bool fits = block ? s == blocked : product(s).is(1) || s == Shape{b[static_cast<size_t>(axis)]};
  ctx.require(fits, "operand {} is {}, which does not fit B {} along axis {} in blocks of {}", i, str(s), str(b), axis,
              block);
}

void require_quantized(const InferContext& ctx) {
  const DType a = ctx.dtype(0), b = ctx.dtype(1);
  ctx.require(a == DType::F32 && is_4_or_8_bit(b), "A is {} and quantized B {}, expected f32 and 8- or 4-bit integers",
              name(a), name(b));
  const int64_t a_bits = ctx.node.get_int("a_bits", 24);
  ctx.require(a_bits == 24 || a_bits == 16, "a_bits is {}, expected 24 or 16", a_bits);
  ctx.require(ctx.has(2) && ctx.dtype(2) == DType::F32, "the scale of B is absent or not f32");
  require_parameters(ctx, 2);
  if (!ctx.has(3)) return;
  ctx.require(ctx.dtype(3) == b || ctx.dtype(3) == DType::F32, "B is {} and its zero point {}", name(b),
              name(ctx.dtype(3)));
  if (!product(ctx.shape(3)).is(1)) require_parameters(ctx, 3);
  ctx.require(product(ctx.shape(3)).is(1) || product(ctx.shape(3)) == product(ctx.shape(2)),
              "the scale is {} and the zero point {}", str(ctx.shape(2)), str(ctx.shape(3)));
}

void require_types(const InferContext& ctx) {
  if (ctx.node.has("packed")) return;
  if (is_quantized(ctx.node)) return require_quantized(ctx);
  const DType a = ctx.dtype(0), b = ctx.dtype(1);
  const bool stored_narrow = ctx.node.domain == "ingot" && a == DType::F32 && is_half(b);
  ctx.require(a == b || stored_narrow, "A is {} and B is {}, expected one type", name(a), name(b));
}
void require_inner(const InferContext& ctx, const Dim& ka, const Dim& kb, const Shape& a, const Shape& b) {
  ctx.require(!ka.is_const() || !kb.is_const() || ka == kb, "A {} and B {} do not fit: the inner dims are {} and {}",
              str(a), str(b), ka.str(), kb.str());
}

// `b` with its axes in order.
void require_packed(const InferContext& ctx, const Shape& b) {
  if (!ctx.node.has("packed")) return;
  ctx.require(b.size() == 2 && is_const(b), "packed B is {}, expected a matrix", str(b));
  check_packed(ctx, b[0].value(), b[1].value());
}

// The type that the epilogue is over.
DType product_type(const Node& node, DType a) { return flag(node, "f32_result") ? DType::F32 : a; }

DType result_type(const InferContext& ctx) {
  std::vector<DType> extras;
  for (size_t i = first_extra(ctx.node); i < ctx.input_count(); i++) extras.push_back(ctx.dtype(i));
  const DType type = product_type(ctx.node, ctx.dtype(0));
  const Expr e = ctx.node.domain == "ingot" ? parse_epilogue(ctx.node, type, extras) : Expr{};
  return e.results.empty() ? type : e.result_types[0];
}

void infer_matmul(InferContext& ctx) {
  require_types(ctx);
  ctx.set_dtype(0, result_type(ctx));
  Shape a = ctx.shape(0), b = b_shape(ctx);
  ctx.require(!a.empty() && !b.empty(), "a scalar operand: A is {}, B is {}; use Mul", str(a), str(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (flag(ctx.node, "transA")) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (flag(ctx.node, "transB")) std::swap(b[b.size() - 1], b[b.size() - 2]);
  require_inner(ctx, a.back(), b[b.size() - 2], ctx.shape(0), b_shape(ctx));
  require_packed(ctx, b);
  Shape out = broadcast(ctx, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  require_extras(ctx, first_extra(ctx.node), out);
  ctx.set_shape(0, std::move(out));
}

// [.., rows, cols] of dense dims, as read by a product with these batch dims.
Matrix matrix_of(Operand operand, const std::vector<int64_t>& dims, bool transposed, size_t batch_rank) {
  Matrix m{operand, dims.back(), 1, std::vector<int64_t>(batch_rank, 0)};
  if (transposed) std::swap(m.row, m.col);
  int64_t step = dims[dims.size() - 1] * dims[dims.size() - 2];
  for (size_t d = 0; d + 2 < dims.size(); d++) {
    const int64_t size = dims[dims.size() - 3 - d];
    if (size != 1) m.batch[batch_rank - 1 - d] = step;
    step *= size;
  }
  return m;
}

void lower_plain_matmul(LowerContext& ctx) {
  const Node& node = ctx.node;
  if (is_quantized(node) && !node.has("packed")) ctx.fail("quantized B is not a constant of this graph");
  std::vector<int64_t> a = ctx.dims(0), b = node.has("packed") ? node.get_ints("packed_shape") : ctx.dims(1);
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const bool trans_a = flag(node, "transA"), trans_b = flag(node, "transB");
  Product p;
  p.dtype = ctx.in(0).dtype;
  p.batch.resize(std::max(a.size(), b.size()) - 2);
  for (size_t d = 0; d < p.batch.size(); d++) {  // from the back
    const int64_t x = d + 2 < a.size() ? a[a.size() - 3 - d] : 1, y = d + 2 < b.size() ? b[b.size() - 3 - d] : 1;
    p.batch[p.batch.size() - 1 - d] = x == 1 ? y : x;
  }
  p.m = a[a.size() - (trans_a ? 1 : 2)];
  p.k = a[a.size() - (trans_a ? 2 : 1)];
  p.n = b[b.size() - (trans_b ? 2 : 1)];
  p.a = matrix_of(ctx.input(0), a, trans_a, p.batch.size());
  p.b = matrix_of(ctx.input(1), b, trans_b, p.batch.size());
  read_packed(node, p);
  std::vector<DenseOperand> extras;
  std::vector<DType> types;
  for (size_t i = first_extra(node); i < ctx.input_count(); i++) {
    extras.push_back({ctx.input(i), ctx.dims(i)});
    types.push_back(ctx.in(i).dtype);
  }
  const DType type = product_type(node, p.dtype);
  p.f32_result = type == DType::F32;
  const Expr expr = node.domain == "ingot" ? parse_epilogue(node, type, types) : Expr{};
  emit_product(ctx, p, expr, extras, ctx.output(0));
}

void infer_gemm(InferContext& ctx) {
  require_types(ctx);
  ctx.set_dtype(0, ctx.dtype(0));
  Shape a = ctx.shape(0), b = b_shape(ctx);
  ctx.require(a.size() == 2 && b.size() == 2, "A is {} and B is {}, expected matrices", str(a), str(b));
  if (flag(ctx.node, "transA")) std::swap(a[0], a[1]);
  if (flag(ctx.node, "transB")) std::swap(b[0], b[1]);
  require_inner(ctx, a[1], b[0], ctx.shape(0), b_shape(ctx));
  require_packed(ctx, b);
  const Shape out = {a[0], b[1]};
  if (ctx.has(2)) {
    const Shape& c = ctx.shape(2);
    ctx.require(c.size() <= 2 && ctx.dtype(2) == ctx.dtype(0), "C is {} {}, expected {} that broadcasts to {}",
                name(ctx.dtype(2)), str(c), name(ctx.dtype(0)), str(out));
    const Shape both = broadcast(ctx, out, c);
    for (size_t d = 0; d < 2; d++)
      ctx.require(!out[d].is(1) || !both[d].is_const() || both[d].is(1), "C {} does not broadcast to {}", str(c),
                  str(out));
  }
  ctx.set_shape(0, out);
}

// alpha x0 + beta x1; integers scale as doubles, as alpha and beta need not be whole.
Expr gemm_expr(const Node& node, DType dtype, bool has_c) {
  Expr e;
  e.input_types = {value_type(dtype)};
  if (has_c) e.input_types.push_back(dtype);
  const std::string to = "cast_" + std::string(name(value_type(dtype)));
  auto scaled = [&](int x, float by) {
    if (by == 1.f) return x;
    if (is_float(dtype)) return e.call("mul", {x, e.constant(by, value_type(dtype))});
    return e.call(to, {e.call("mul", {e.call("cast_f64", {x}), e.constant(by, DType::F64)})});
  };
  int r = scaled(e.input(0), node.get_float("alpha", 1.f));
  if (has_c) r = e.call("add", {r, scaled(e.input(1), node.get_float("beta", 1.f))});
  e.results = {r};
  e.result_types = {dtype};
  return e;
}

void lower_plain_gemm(LowerContext& ctx) {
  const Node& node = ctx.node;
  const std::vector<int64_t> a = ctx.dims(0), b = node.has("packed") ? node.get_ints("packed_shape") : ctx.dims(1);
  const bool trans_a = flag(node, "transA"), trans_b = flag(node, "transB");
  Product p;
  p.dtype = ctx.in(0).dtype;
  p.m = a[trans_a];
  p.k = a[!trans_a];
  p.n = b[!trans_b];
  p.a = matrix_of(ctx.input(0), a, trans_a, 0);
  p.b = matrix_of(ctx.input(1), b, trans_b, 0);
  read_packed(node, p);
  const bool has_c = ctx.has(2) && node.get_float("beta", 1.f) != 0.f;
  Expr expr;
  if (has_c || node.get_float("alpha", 1.f) != 1.f) expr = gemm_expr(node, p.dtype, has_c);
  std::vector<DenseOperand> extras;
  if (has_c) extras.push_back({ctx.input(2), ctx.dims(2)});
  emit_product(ctx, p, expr, extras, ctx.output(0));
}

// bf16 by bf16 as it is where the target has a unit for it, any other halves through f32.
template <void (*lower)(LowerContext&)>
void lower_product(LowerContext& ctx) {
  const bool bf16 = ctx.in(0).dtype == DType::BF16 && ctx.in(1).dtype == DType::BF16 && bf16_form(ctx.target);
  bf16 ? lower(ctx) : with_halves<lower>(ctx);
}

}  // namespace

void register_matmul(OpRegistry& r) {
  r.add({"MatMul", "", 2, 2, 1, 1, infer_matmul, lower_product<lower_plain_matmul>});
  r.add({"MatMul", "ingot", 2, -1, 1, 1, infer_matmul, lower_product<lower_plain_matmul>});
  r.add({"Gemm", "", 2, 3, 1, 1, infer_gemm, lower_product<lower_plain_gemm>});
  r.add({"Gemm", "ingot", 2, 3, 1, 1, infer_gemm, lower_product<lower_plain_gemm>});
}

}  // namespace ingot
