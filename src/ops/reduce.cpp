// Reductions:  y = post( reduce_axes pre(x) ).  ONNX's ten are a kind with a pre and a post; ingot.Reduce is the
// general one, with expressions. What the kernel does not know as pre or post becomes an element-wise step before or
// after.
#include "ops/reduce.h"

#include <algorithm>

#include "kernels/ewise_reduce.h"
#include "kernels/interpreter.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

struct Standard {
  const char* op;
  ReduceKind kind;
  const char *pre, *post;
};
constexpr Standard kStandard[] = {
    {"ReduceSum", kReduceSum, "", ""},
    {"ReduceMean", kReduceMean, "", ""},
    {"ReduceMax", kReduceMax, "", ""},
    {"ReduceMin", kReduceMin, "", ""},
    {"ReduceProd", kReduceProd, "", ""},
    {"ReduceL1", kReduceSum, "abs(x0)", ""},
    {"ReduceL2", kReduceSum, "square(x0)", "sqrt(x0)"},
    {"ReduceLogSum", kReduceSum, "", "log(x0)"},
    {"ReduceLogSumExp", kReduceLogSumExp, "", ""},
    {"ReduceSumSquare", kReduceSum, "square(x0)", ""},
};
const Standard& standard(const Node& node) {
  return *std::find_if(std::begin(kStandard), std::end(kStandard), [&](auto& s) { return node.op == s.op; });
}

ReduceKind kind_of(const Node& node) {
  const std::string kind = node.get_string("kind", "");
  if (kind == "sum") return kReduceSum;
  if (kind == "mean") return kReduceMean;
  if (kind == "prod") return kReduceProd;
  if (kind == "max") return kReduceMax;
  if (kind == "min") return kReduceMin;
  invalid_model("{}: kind is '{}', expected sum, mean, prod, max or min", node.label(), kind);
}

bool keeps_dims(const Node& node) { return node.get_int("keepdims", 1) != 0; }

// All axes where none are named, unless that means to do nothing.
std::vector<int64_t> default_axes(const Node& node, size_t rank) {
  std::vector<int64_t> axes;
  if (node.get_int("noop_with_empty_axes", 0) == 0)
    for (size_t i = 0; i < rank; i++) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

Shape reduced_shape(const Shape& in, const std::vector<int64_t>& axes, bool keep) {
  Shape out;
  for (size_t d = 0; d < in.size(); d++) {
    const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) > 0;
    if (!reduced)
      out.push_back(in[d]);
    else if (keep)
      out.emplace_back(1);
  }
  return out;
}

void infer_values(InferContext& ctx, ReduceKind kind, const std::vector<int64_t>& axes) {
  auto values = ctx.known_values(0);
  if (!values || values->empty() || ctx.rank(0) != 1 || axes.size() != 1) return;
  Dim r = (*values)[0];
  for (size_t i = 1; i < values->size(); i++) {
    const Dim& v = (*values)[i];
    r = kind == kReduceSum ? r + v : kind == kReduceProd ? r * v : kind == kReduceMax ? max(r, v) : min(r, v);
  }
  ctx.set_values(0, {r});
}

void infer_standard(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  std::vector<int64_t> axes = default_axes(ctx.node, in.size());
  if (ctx.has(1)) {
    ctx.require(ctx.dtype(1) == DType::I64, "axes are {}, expected i64", name(ctx.dtype(1)));
    auto values = ctx.values(1);
    if (!values || !as_numbers(*values)) {
      // Which dims go is not known; their number is, when all stay as ones.
      if (keeps_dims(ctx.node)) ctx.set_shape(0, Shape(in.size(), Dim::unknown()));
      return;
    }
    if (!values->empty()) axes = normalized_axes(ctx, *values, ctx.rank(0));
  }
  ctx.set_shape(0, reduced_shape(in, axes, keeps_dims(ctx.node)));
  const Standard& s = standard(ctx.node);
  if (is_integer(ctx.dtype(0)) && s.kind != kReduceMean && !*s.pre && !*s.post) infer_values(ctx, s.kind, axes);
}

// What a reduction does with its operands, whichever operator it comes from.
struct Reduction {
  ReduceKind kind;
  std::vector<int64_t> axes;
  Expr pre, post;
};

Reduction fused_reduction(const Node& node, const std::vector<DType>& types, const std::vector<int64_t>& axes) {
  Reduction r{kind_of(node), axes, {}, {}};
  const std::string pre = node.get_string("pre", ""), post = node.get_string("post", "");
  r.pre = parse_expr(pre.empty() ? "x0" : pre, types);
  const DType inside = r.pre.code[static_cast<size_t>(r.pre.results[0])].dtype;
  r.pre.result_types = {inside};
  r.post = parse_expr(post.empty() ? "x0" : post, {inside}, result_dtypes(node));
  return r;
}

void infer_fused(InferContext& ctx) {
  std::vector<DType> types;
  for (size_t i = 0; i < ctx.input_count(); i++) types.push_back(ctx.dtype(i));
  const Reduction r = fused_reduction(ctx.node, types, {});
  ctx.set_dtype(0, r.post.result_types[0]);
  Shape shape;
  for (size_t i = 0; i < ctx.input_count(); i++) shape = broadcast(ctx, shape, ctx.shape(i));
  const auto given = ctx.node.get_ints("axes");
  const std::vector<Dim> axes(given.begin(), given.end());
  ctx.set_shape(
      0, reduced_shape(shape, normalized_axes(ctx, axes, static_cast<int64_t>(shape.size())), keeps_dims(ctx.node)));
}

std::optional<ReducePre> native_pre(const Expr& e) {
  const std::string text = e.str();
  if (text == "x0") return kPreNone;
  if (text == "abs(x0)") return kPreAbs;
  if (text == "square(x0)" || text == "mul(x0, x0)") return kPreSquare;
  return std::nullopt;
}
std::optional<ReducePost> native_post(const Expr& e) {
  const std::string text = e.str();
  if (text == "x0") return kPostNone;
  if (text == "sqrt(x0)") return kPostSqrt;
  if (text == "log(x0)") return kPostLog;
  return std::nullopt;
}
// Splits the dims of a dense tensor into kept and reduced ones, neighbours of one sort merged, ones dropped.
ReduceParams split_dims(const LowerContext& ctx, const std::vector<int64_t>& dims, const std::vector<int64_t>& axes) {
  struct Part {
    int64_t size, stride;
    bool reduced;
  };
  std::vector<Part> parts;
  const auto strides = strides_of(dims);
  ReduceParams p{};
  p.count = 1;
  for (size_t d = 0; d < dims.size(); d++) {
    const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) > 0;
    if (reduced) p.count *= dims[d];
    if (dims[d] == 1) continue;
    if (!parts.empty() && parts.back().reduced == reduced)
      parts.back() = {parts.back().size * dims[d], strides[d], reduced};
    else
      parts.push_back({dims[d], strides[d], reduced});
  }
  for (const Part& part : parts) {
    int64_t& rank = part.reduced ? p.reduced_rank : p.kept_rank;
    if (rank == kReduceMaxRank)
      ctx.fail("reduces {} separate groups of dims; the kernel takes {}", rank + 1, kReduceMaxRank);
    (part.reduced ? p.reduced_dims : p.kept_dims)[rank] = part.size;
    (part.reduced ? p.reduced_strides : p.kept_strides)[rank++] = part.stride;
  }
  p.inner_kept = !parts.empty() && !parts.back().reduced;
  return p;
}

// The expression reduced as it is computed.
void emit_ewise_reduce(LowerContext& ctx, const Reduction& r, const std::vector<int64_t>& dims,
                       const std::vector<DenseOperand>& inputs, Operand out) {
  std::vector<size_t> used;
  auto expr = std::make_shared<Expr>(with_used_inputs(r.pre, used));
  std::vector<std::vector<int64_t>> strides;
  Step& s = ctx.step(ingot_ewise_reduce_kernel);
  for (size_t i : used) {
    s.operands.push_back(inputs[i].operand);
    strides.push_back(broadcast_strides(inputs[i].dims, dims));
  }
  s.operands.push_back(out);
  auto kept = dims;
  for (int64_t a : r.axes) kept[static_cast<size_t>(a)] = 1;
  strides.push_back(broadcast_strides(kept, dims));
  EwiseReduceParams p{};
  p.kind = r.kind;
  p.space = ewise_loop(ctx, dims, strides, 1);
  const int64_t last = p.space.rank - 1, results = product_of(kept), elements = product_of(dims);
  p.inner_kept = p.space.strides[used.size()][last] != 0;
  p.space.strides[used.size()][last] = p.space.inner_kind[used.size()] = 1;  // values of a row are dense in scratch
  p.count = results ? elements / results : 0;
  s.params = params_of(p);
  s.sizes = kEwiseReduceSizes;
  const int64_t width = p.space.dims[last];
  s.units =
      p.inner_kept && width ? results / width * ((width + kEwiseReduceColumns - 1) / kEwiseReduceColumns) : results;
  s.grain = grain_for(4 * p.count * (p.inner_kept ? std::min(width, kEwiseReduceColumns) : 1));
  s.scratch = kEwiseReduceScratch + static_cast<int64_t>(expr->code.size()) * kInterpreterChunk * 8;
  s.expr = std::move(expr);
  s.specialise = elements >= kEwiseReduceStretch;
}

void lower_reduction(LowerContext& ctx, const Reduction& r, const std::vector<int64_t>& dims,
                     const std::vector<DenseOperand>& inputs) {
  const DType dtype = r.pre.result_types[0];
  auto pre = native_pre(r.pre);
  auto post = native_post(r.post);
  if (pre && (!reduce_has_pre(r.kind, *pre) || dims != inputs[0].dims)) pre.reset();
  const bool native = pre && r.pre.input_types[0] == dtype, stored = r.post.result_types[0] == dtype;
  const bool last = stored && (native ? post.has_value() : post == kPostNone);  // the reduction writes the result
  const auto out_dims = ctx.out_dims(0);
  const Operand out = last ? ctx.output(0) : ctx.shared_temporary(byte_size(dtype, product_of(out_dims)));
  if (native) {
    emit_reduce(ctx, inputs[0].operand, dims, out, dtype, r.axes, r.kind, *pre, last ? *post : kPostNone);
  } else if (dtype == DType::F32 && product_of(dims) > 0) {
    emit_ewise_reduce(ctx, r, dims, inputs, out);
  } else {
    const Operand values = ctx.shared_temporary(byte_size(dtype, product_of(dims)));
    emit_elementwise(ctx, r.pre, inputs, {values}, dims);
    emit_reduce(ctx, values, dims, out, dtype, r.axes, r.kind);
  }
  if (!last) emit_elementwise(ctx, r.post, {{out, out_dims}}, {ctx.output(0)}, out_dims);
}

void lower_plain_standard(LowerContext& ctx) {
  const Standard& s = standard(ctx.node);
  const auto dims = ctx.dims(0);
  std::vector<int64_t> axes = default_axes(ctx.node, dims.size());
  if (ctx.has(1))
    if (auto given = ctx.values(1); !given.empty()) axes = normalized_axes(given, static_cast<int64_t>(dims.size()));
  const DType t = ctx.in(0).dtype;
  // The square root of an integer sum is rounded down to an integer: only the kernel says that.
  emit_reduce(ctx, ctx.input(0), dims, ctx.output(0), t, axes, s.kind,
              *s.pre ? (s.pre[0] == 'a' ? kPreAbs : kPreSquare) : kPreNone,
              *s.post ? (s.post[0] == 's' ? kPostSqrt : kPostLog) : kPostNone);
}
void lower_fused(LowerContext& ctx) {
  std::vector<DType> types;
  std::vector<DenseOperand> inputs;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < ctx.input_count(); i++) {
    types.push_back(ctx.in(i).dtype);
    inputs.push_back({ctx.input(i), ctx.dims(i)});
    const auto& d = inputs.back().dims;
    if (d.size() > dims.size()) dims.insert(dims.begin(), d.size() - dims.size(), 1);
    for (size_t k = 0; k < d.size(); k++) {
      int64_t& size = dims[dims.size() - 1 - k];
      if (size == 1) size = d[d.size() - 1 - k];
    }
  }
  const auto axes = normalized_axes(ctx.node.get_ints("axes"), static_cast<int64_t>(dims.size()));
  lower_reduction(ctx, fused_reduction(ctx.node, types, axes), dims, inputs);
}

}  // namespace

bool reduce_has_pre(ReduceKind kind, ReducePre pre) {
  return pre == kPreNone || kind == kReduceSum || kind == kReduceMean;
}

void emit_reduce(LowerContext& ctx, Operand in, const std::vector<int64_t>& dims, Operand out, DType dtype,
                 const std::vector<int64_t>& axes, ReduceKind kind, ReducePre pre, ReducePost post) {
  ReduceParams p = split_dims(ctx, dims, axes);
  p.kind = kind;
  p.pre = pre;
  p.post = post;
  p.dtype = static_cast<int64_t>(dtype);
  Step& s = ctx.step(ingot_reduce_kernel);
  s.operands = {in, out};
  s.params = params_of(p);
  int64_t outer = 1;
  for (int64_t d = 0; d < p.kept_rank - p.inner_kept; d++) outer *= p.kept_dims[d];
  const int64_t width = p.inner_kept ? p.kept_dims[p.kept_rank - 1] : 1;
  s.units = outer * ((width + kReduceColumns - 1) / kReduceColumns);
  s.grain = grain_for(std::min(width, kReduceColumns) * p.count * bits(dtype) / 8);
}

void register_reduce(OpRegistry& r) {
  for (const Standard& s : kStandard) r.add({s.op, "", 1, 2, 1, 1, infer_standard, with_halves<lower_plain_standard>});
  r.add({"Reduce", "ingot", 1, -1, 1, 1, infer_fused, lower_fused});
}

}  // namespace ingot
