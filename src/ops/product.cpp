#include "ops/product.h"

#include <algorithm>
#include <cstddef>

#include "kernels/gemm.h"
#include "kernels/matmul_any.h"
#include "ops/layout.h"

namespace ingot {
namespace {

using kernel::EpilogueOperand;
using kernel::GemmBf16Params;
using kernel::GemmParams;

// The batch dims with neighbours merged that all three matrices walk as one.
struct Batch {
  std::vector<int64_t> dims, a, b, c;
};

Batch collapsed_batch(const Product& p) {
  Batch out;
  std::vector<int64_t> c(p.batch.size());
  int64_t step = p.m * p.n;
  for (size_t d = p.batch.size(); d-- > 0; step *= p.batch[d]) c[d] = step;
  for (size_t d = 0; d < p.batch.size(); d++) {
    const int64_t size = p.batch[d], a = p.a.batch[d], b = p.b.batch[d];
    if (size == 1) continue;
    if (!out.dims.empty() && out.a.back() == a * size && out.b.back() == b * size) {
      out.dims.back() *= size;
      out.a.back() = a;
      out.b.back() = b;
      out.c.back() = c[d];
      continue;
    }
    out.dims.push_back(size);
    out.a.push_back(a);
    out.b.push_back(b);
    out.c.push_back(c[d]);
  }
  return out;
}

// One matrix B for a dense stack of As is one taller A.
void fold_batch(Batch& batch, int64_t& m, const Product& p) {
  if (batch.dims.size() == 1 && batch.b[0] == 0 && batch.a[0] == m * p.a.row && batch.c[0] == m * p.n) {
    m *= batch.dims[0];
    batch = {};
  }
}

bool fused_epilogue(const Expr& expr, const Product& p, const std::vector<DenseOperand>& extras,
                    std::vector<EpilogueOperand>& operands) {
  if (value_type(p.dtype) != DType::F32 || extras.size() > kernel::kMaxEpilogueOperands) return false;
  if (!expr.results.empty() && expr.result_types[0] != (p.f32_result ? DType::F32 : p.dtype)) return false;
  std::vector<int64_t> rows = p.batch;
  rows.push_back(p.m);
  for (const DenseOperand& e : extras) {
    auto o = epilogue_operand(e.dims, rows);
    if (!o) return false;
    operands.push_back(*o);
  }
  return true;
}

// The sizes and strides that every kernel of a product has. Missing dims of the batch are outermost.
template <class Params>
void set_matrices(Params& g, const Product& p, const Batch& batch, int64_t m) {
  g.m = m;
  g.n = p.n;
  g.k = p.k;
  g.a_row = p.a.row;
  g.a_col = p.a.col;
  g.b_row = p.b.row;
  g.b_col = p.b.col;
  const size_t missing = 3 - batch.dims.size();
  for (size_t d = 0; d < 3; d++) {
    g.batch[d] = d < missing ? 1 : batch.dims[d - missing];
    g.a_batch[d] = d < missing ? 0 : batch.a[d - missing];
    g.b_batch[d] = d < missing ? 0 : batch.b[d - missing];
  }
}

// C, which is dense, and the operands of the epilogue.
template <class Params>
void set_result(Params& g, const Product& p, const Batch& batch, const std::vector<EpilogueOperand>& operands) {
  g.c_row = p.n;
  std::copy(batch.c.begin(), batch.c.end(), g.c_batch + 3 - batch.c.size());
  g.extras = static_cast<int64_t>(operands.size());
  std::copy(operands.begin(), operands.end(), g.extra);
}

void emit_gemm_f32(LowerContext& ctx, const Product& p, Batch batch, int64_t m, const Expr& expr,
                   const std::vector<DenseOperand>& extras, const std::vector<EpilogueOperand>& operands, Operand out) {
  GemmParams g{};
  g.panel = p.b_panel ? p.b_panel : kernel::best_panel(ctx.target.lanes, p.n);
  if (!kernel::is_panel(ctx.target.lanes, g.panel))
    ctx.fail("has panels of {} columns, which the kernels of {} do not know", g.panel, ctx.target.name);
  g.b_packed = p.b_panel != 0;
  g.a_packing = p.a.col != 1;
  g.b_type = p.b_type;
  g.b_zeros = p.b_zeros;
  g.b_half = p.b_half;
  g.a_digits = p.a_digits;
  g.b_block = p.b_block;
  g.b_zero = p.b_zero;
  set_matrices(g, p, batch, m);
  set_result(g, p, batch, operands);
  kernel::gemm_cut(g, ctx.target.lanes, kernel::gemm_form(g));
  Step& s = ctx.step(kernel::gemm_kernel(g, ctx.target.adds_byte_products()));
  s.operands = {p.a.operand, p.b.operand, out};
  for (const DenseOperand& e : extras) s.operands.push_back(e.operand);
  s.params = params_of(g);
  s.units = kernel::gemm_units(g);
  s.grain = grain_for_products(g.m / g.m_blocks * g.panel * g.k);
  s.scratch = kernel::gemm_scratch_bytes(g);
  if (!expr.results.empty()) s.expr = std::make_shared<Expr>(expr);
  s.sizes = kernel::kGemmSizes;
  s.specialise = m * p.n * p.k >= 4096;
}

void emit_gemm_bf16(LowerContext& ctx, const Product& p, const Batch& batch, int64_t m, bool c_half, const Expr& expr,
                    const std::vector<DenseOperand>& extras, const std::vector<EpilogueOperand>& operands,
                    Operand out) {
  const auto form = bf16_form(ctx.target);
  if (!form || (p.b_form && p.b_form != form))
    ctx.fail("has bf16 operands in a form that the kernels of {} do not know", ctx.target.name);
  GemmBf16Params g{};
  set_matrices(g, p, batch, m);
  g.form = *form;
  g.panel = kernel::bf16_panel(*form, ctx.target.lanes, p.n);
  if (p.b_panel && p.b_panel != g.panel)
    ctx.fail("has panels of {} columns, the kernels of {} expect {}", p.b_panel, ctx.target.name, g.panel);
  g.a_packing = kernel::bf16_must_copy(g);
  g.b_packed = p.b_panel != 0;
  g.c_half = c_half;
  g.m_blocks = kernel::bf16_m_blocks(m);
  set_result(g, p, batch, operands);
  Step& s = ctx.step(kernel::bf16_kernel(*form));
  s.operands = {p.a.operand, p.b.operand, out};
  for (const DenseOperand& e : extras) s.operands.push_back(e.operand);
  s.params = params_of(g);
  s.sizes = kernel::kGemmBf16Sizes;
  s.units = kernel::bf16_units(g);
  s.grain = grain_for_products(g.m / g.m_blocks * g.panel * g.k);
  s.scratch = kernel::bf16_scratch(g).total;
  if (!expr.results.empty()) s.expr = std::make_shared<Expr>(expr);
  s.specialise = m * p.n * p.k >= 4096;
}

void emit_matmul_any(LowerContext& ctx, const Product& p, const Batch& batch, int64_t m, Operand out) {
  MatmulAnyParams g{};
  g.dtype = static_cast<int64_t>(p.dtype);
  set_matrices(g, p, batch, m);
  Step& s = ctx.step(ingot_matmul_any_kernel);
  s.operands = {p.a.operand, p.b.operand, out};
  s.params = params_of(g);
  s.units = p.n == 0 ? 0 : m * g.batch[0] * g.batch[1] * g.batch[2];
  s.grain = grain_for(p.n * p.k * bits(p.dtype) / 8);
}

}  // namespace

std::optional<kernel::Bf16Form> bf16_form(const Target& target) {
  if (target.has("amx-bf16")) return kernel::kBf16Tiles;
  if (target.has("avx512bf16")) return kernel::kBf16Dot;
  return std::nullopt;
}

std::string_view name(kernel::Bf16Form form) { return form == kernel::kBf16Tiles ? "bf16_tiles" : "bf16_dot"; }

void read_packed(const Node& node, Product& p) {
  p.b_panel = node.get_int("packed", 0);
  const std::string form = node.get_string("packed_form", "");
  for (const auto known : {kernel::kBf16Dot, kernel::kBf16Tiles})
    if (form == name(known)) p.b_form = known;
  p.a_digits = node.get_int("a_bits", 24) == 16 ? 2 : 3;
  p.b_type = node.get_int("packed_type", kernel::kPanelF32);
  p.b_block = node.get_int("packed_block", 0);
  p.b_zeros = node.get_int("packed_zeros", 0);
  p.b_half = node.get_int("packed_half", 0);
  p.b_zero = node.get_int("packed_zero", 0);
}

void check_packed(const InferContext& ctx, int64_t k, int64_t n) {
  Product p;
  read_packed(ctx.node, p);
  ctx.require(kernel::is_panel(8, p.b_panel) || kernel::is_panel(16, p.b_panel), "panels of {} columns", p.b_panel);
  ctx.require(p.b_form || !ctx.node.has("packed_form"), "there is no form '{}' of a packed matrix",
              ctx.node.get_string("packed_form", ""));
  ctx.require(p.b_type >= kernel::kPanelF32 && p.b_type <= kernel::kPanelU4, "panels of unknown type {}", p.b_type);
  const bool wide = p.b_type == kernel::kPanelF32;
  ctx.require(wide || p.b_block >= 1, "blocks of {} rows", p.b_block);
  const int64_t expected = p.b_form ? kernel::bf16_packed_elements(*p.b_form, p.b_panel, k, n)
                           : wide   ? kernel::packed_floats(k, n, p.b_panel)
                                    : kernel::narrow_bytes({p.b_type, p.b_panel, k, p.b_block, p.b_zeros, p.b_half}, n);
  const Dim found = product(ctx.shape(1));
  ctx.require(!found.is_const() || found.is(expected), "a packed {} x {} matrix has {} elements, operand 1 has {}", k,
              n, expected, found.str());
}

void emit_product(LowerContext& ctx, const Product& p, const Expr& expr, const std::vector<DenseOperand>& extras,
                  Operand out) {
  std::vector<EpilogueOperand> operands;
  const bool fused = fused_epilogue(expr, p, extras, operands);
  const bool finish = !expr.results.empty() && !fused;
  std::vector<int64_t> dims = p.batch;
  dims.insert(dims.end(), {p.m, p.n});
  const Operand target = finish ? ctx.shared_temporary(byte_size(value_type(p.dtype), product_of(dims))) : out;

  Batch batch = collapsed_batch(p);
  int64_t m = p.m;
  fold_batch(batch, m, p);
  if (batch.dims.size() > 3) ctx.fail("has {} separate batch dims; the kernel takes 3", batch.dims.size());
  if (!fused) operands.clear();
  const Expr& inside = fused ? expr : Expr{};
  const std::vector<DenseOperand>& with = fused ? extras : std::vector<DenseOperand>{};
  if (p.dtype == DType::F32)
    emit_gemm_f32(ctx, p, batch, m, inside, with, operands, target);
  else if (p.dtype == DType::BF16)
    emit_gemm_bf16(ctx, p, batch, m, !finish && !p.f32_result, inside, with, operands, target);
  else
    emit_matmul_any(ctx, p, batch, m, target);
  if (finish) {
    std::vector<DenseOperand> inputs = {{target, dims}};
    inputs.insert(inputs.end(), extras.begin(), extras.end());
    emit_elementwise(ctx, expr, inputs, {out}, dims);
  }
}

std::optional<EpilogueOperand> epilogue_operand(const std::vector<int64_t>& from, const std::vector<int64_t>& rows) {
  if (from.size() > rows.size() + 1) return std::nullopt;
  EpilogueOperand out{0, !from.empty() && from.back() != 1 ? 1 : 0};
  int64_t stride = from.empty() ? 1 : from.back(), walked = 1;  // `walked` rows lie between neighbours of this dim
  bool first = true;
  for (size_t d = 1; d <= rows.size(); d++) {
    const int64_t size = rows[rows.size() - d];
    const int64_t mine = d < from.size() ? from[from.size() - 1 - d] : 1;
    if (size != 1) {
      const int64_t here = mine == 1 ? 0 : stride;
      if (first) {
        if (here % walked != 0) return std::nullopt;
        out.row_stride = here / walked;
        first = false;
      } else if (here != out.row_stride * walked) {
        return std::nullopt;
      }
    }
    stride *= mine;
    walked *= size;
  }
  return out;
}

void require_broadcast(const InferContext& ctx, size_t i, const Shape& from, const Shape& to) {
  bool fits = from.size() <= to.size();
  for (size_t d = 0; fits && d < from.size(); d++) {
    const Dim &x = from[from.size() - 1 - d], &y = to[to.size() - 1 - d];
    fits = !x.is_const() || x.is(1) || !y.is_const() || x == y;
  }
  ctx.require(fits, "operand {} is {}, which does not broadcast to {}", i, str(ctx.shape(i)), str(to));
}

void require_extras(const InferContext& ctx, size_t first, const Shape& result) {
  for (size_t i = first; i < ctx.input_count(); i++)
    if (ctx.has(i)) require_broadcast(ctx, i, ctx.shape(i), result);
}

Expr parse_epilogue(const Node& node, DType dtype, const std::vector<DType>& extras) {
  const std::string text = node.get_string("epilogue", "");
  if (text.empty()) return {};
  std::vector<DType> types = {value_type(dtype)};
  types.insert(types.end(), extras.begin(), extras.end());
  Expr e = parse_expr(text, types);
  if (e.result_types[0] == value_type(dtype)) e.result_types[0] = dtype;
  return e;
}

}  // namespace ingot
