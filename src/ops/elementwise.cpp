#include "ops/elementwise.h"

#include <algorithm>

#include "kernels/ewise.h"
#include "kernels/interpreter.h"
#include "ops/layout.h"

namespace ingot {
namespace {

std::vector<DType> operand_types(const InferContext& ctx) {
  std::vector<DType> types;
  for (size_t i = 0; i < ctx.input_count(); i++) types.push_back(ctx.has(i) ? ctx.dtype(i) : DType::Undefined);
  return types;
}

// Elements of `values` (of shape `from`) in the order of the elements of `to`, to which they are broadcast.
std::vector<Dim> broadcast_values(const std::vector<Dim>& values, const std::vector<int64_t>& from,
                                  const std::vector<int64_t>& to, size_t count) {
  if (values.size() == count) return values;
  if (values.size() == 1) return std::vector<Dim>(count, values[0]);
  std::vector<Dim> out;
  for (size_t e = 0; e < count; e++) {
    int64_t rest = static_cast<int64_t>(e), index = 0, step = 1;
    for (size_t d = 0; d < from.size(); d++) {
      const int64_t size = to[to.size() - 1 - d], mine = from[from.size() - 1 - d];
      if (mine != 1) index += rest % size * step;
      step *= mine;
      rest /= size;
    }
    out.push_back(values[static_cast<size_t>(index)]);
  }
  return out;
}

// Shape arithmetic: integer results of integer operands whose elements are known become known.
void infer_values(InferContext& ctx, const Expr& expr, const Shape& shape) {
  if (!is_const(shape) || product(shape).value() > static_cast<int64_t>(kMaxValues)) return;
  const size_t count = static_cast<size_t>(product(shape).value());
  std::vector<std::vector<Dim>> operands(ctx.input_count());
  for (const ExprInstr& i : expr.code) {
    if (i.kind != ExprInstr::kInput) continue;
    const auto input = static_cast<size_t>(i.input);
    auto values = ctx.known_values(input);
    if (!values || !is_const(ctx.shape(input))) return;
    operands[input] = broadcast_values(*values, numbers(ctx.shape(input)), numbers(shape), count);
  }
  for (size_t r = 0; r < expr.results.size() && r < ctx.output_count(); r++)
    if (is_integer(expr.result_types[r]) || expr.result_types[r] == DType::Bool)
      ctx.set_values(r, eval_on_dims(expr, expr.results[r], operands, count));
}

Expr infer_types(InferContext& ctx) {
  Expr expr = elementwise_expr(ctx.node, operand_types(ctx));
  for (size_t r = 0; r < expr.results.size(); r++) ctx.set_dtype(r, expr.result_types[r]);
  ctx.require(expr.results.size() >= ctx.output_count(), "has {} results, the expression computes {}",
              ctx.output_count(), expr.results.size());
  return expr;
}

struct Loop {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;  // [operand][dim], in elements
};

// Drops dims of one element and merges neighbours that every operand walks as one.
Loop collapse(const Loop& loop) {
  Loop out;
  out.strides.resize(loop.strides.size());
  for (size_t d = 0; d < loop.dims.size(); d++) {
    if (loop.dims[d] == 1) continue;
    bool merge = !out.dims.empty();
    for (size_t o = 0; o < loop.strides.size() && merge; o++)
      merge = out.strides[o].back() == loop.strides[o][d] * loop.dims[d];
    if (merge)
      out.dims.back() *= loop.dims[d];
    else
      out.dims.push_back(loop.dims[d]);
    for (size_t o = 0; o < loop.strides.size(); o++) {
      if (merge)
        out.strides[o].back() = loop.strides[o][d];
      else
        out.strides[o].push_back(loop.strides[o][d]);
    }
  }
  if (out.dims.empty()) {
    out.dims = {1};
    for (auto& s : out.strides) s = {1};
  }
  return out;
}

constexpr int64_t kGrainElements = 16384;  // below this a thread costs more than it brings

// Rows of an image channels last are as short as it has channels. Where operands are dense or repeat in every row (a
// mean for each channel), several rows are joined, for which operands that repeat are written out:
//   x    [102400][3]    ->  [1024][300]
//   mean         [3]    ->        [300]
constexpr int64_t kShortRow = 64, kLongRow = 256;  // elements
constexpr int64_t kLeastToJoin = 1024;             // elements of the loop: for fewer the written-out row costs more

// One row for the whole loop.
bool repeats_in_rows(const std::vector<int64_t>& s) {
  return s.back() == 1 && std::all_of(s.begin(), s.end() - 1, [](int64_t stride) { return stride == 0; });
}

// How many rows make one, 1: none.
int64_t rows_to_join(const Loop& loop) {
  const size_t last = loop.dims.size() - 1;
  if (last == 0 || loop.dims[last] == 0 || loop.dims[last] >= kShortRow) return 1;
  const int64_t inner = loop.dims[last], rows = loop.dims[last - 1];
  if (product_of(loop.dims) < kLeastToJoin) return 1;
  for (const auto& s : loop.strides) {
    const bool dense = s[last - 1] == inner * s[last] && s[last] <= 1;
    if (!dense && !repeats_in_rows(s)) return 1;
  }
  int64_t best = 1;
  for (int64_t n = 2; n <= std::min(rows, kEwiseChunk / inner) && best * inner < kLongRow; n++)
    if (rows % n == 0) best = n;
  return best;
}

// Operand o of the loop is operands[o], the element type of its first ones is types[o].
void join_short_rows(LowerContext& ctx, Loop& loop, std::vector<Operand>& operands, const std::vector<DType>& types) {
  const int64_t joined = rows_to_join(loop);
  if (joined == 1) return;
  const size_t last = loop.dims.size() - 1;
  const int64_t inner = loop.dims[last];
  for (size_t o = 0; o < loop.strides.size(); o++) {
    if (repeats_in_rows(loop.strides[o])) {
      const int64_t size = element_bytes(ctx, types[o]);
      const Operand row = ctx.shared_temporary(joined * inner * size);
      emit_copy(ctx, operands[o], row, size, {{joined, inner}, {0, 1}, {inner, 1}});
      operands[o] = row;
    } else {
      loop.strides[o][last - 1] *= joined;
    }
  }
  loop.dims[last - 1] /= joined;
  loop.dims[last] *= joined;
}

}  // namespace

Expr elementwise_expr(const Node& node, const std::vector<DType>& input_types) {
  try {
    return OpRegistry::get().need(node).expr(node, input_types);
  } catch (const Error& e) {
    throw e.message().starts_with(node.label()) ? e : e.at(node.label());
  }
}

void infer_elementwise(InferContext& ctx) {
  Expr expr = infer_types(ctx);
  Shape shape;
  for (size_t i = 0; i < ctx.input_count(); i++)
    if (ctx.has(i)) shape = broadcast(ctx, shape, ctx.shape(i));
  for (size_t r = 0; r < ctx.output_count(); r++) ctx.set_shape(r, shape);
  infer_values(ctx, expr, shape);
}

void infer_like_first(InferContext& ctx) {
  Expr expr = infer_types(ctx);
  const Shape& shape = ctx.shape(0);
  for (const ExprInstr& i : expr.code) {
    if (i.kind != ExprInstr::kInput || i.input == 0) continue;
    const auto input = static_cast<size_t>(i.input);
    const Shape both = broadcast(ctx, shape, ctx.shape(input));
    ctx.require(both.size() == shape.size() || product(ctx.shape(input)).is(1),
                "operand {} of shape {} does not broadcast to {}", input, str(ctx.shape(input)), str(shape));
    for (size_t d = 0; both.size() == shape.size() && d < both.size(); d++)
      ctx.require(!shape[d].is(1) || !both[d].is_const() || both[d].is(1),
                  "operand {} of shape {} does not broadcast to {}", input, str(ctx.shape(input)), str(shape));
  }
  for (size_t r = 0; r < ctx.output_count(); r++) ctx.set_shape(r, shape);
  infer_values(ctx, expr, shape);
}

void lower_elementwise(LowerContext& ctx) {
  std::vector<DType> types;
  std::vector<DenseOperand> inputs;
  std::vector<Operand> results;
  for (size_t i = 0; i < ctx.input_count(); i++) {
    types.push_back(ctx.has(i) ? ctx.in(i).dtype : DType::Undefined);
    inputs.push_back({ctx.input(i), ctx.has(i) ? ctx.dims(i) : std::vector<int64_t>{}});
  }
  const Expr expr = elementwise_expr(ctx.node, types);
  for (size_t r = 0; r < expr.results.size(); r++) results.push_back(ctx.output(r));
  emit_elementwise(ctx, expr, inputs, results, ctx.out_dims(0));
}

std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<int64_t> out(to.size(), 0);
  int64_t step = 1;
  for (size_t d = 0; d < std::min(from.size(), to.size()); d++) {  // what is beyond can only be ones
    const int64_t mine = from[from.size() - 1 - d];
    if (mine != 1) out[to.size() - 1 - d] = step;
    step *= mine;
  }
  return out;
}

Expr with_used_inputs(const Expr& expr, std::vector<size_t>& used) {
  Expr live = expr;
  live.remove_dead();
  for (const ExprInstr& i : live.code)
    if (i.kind == ExprInstr::kInput) used.push_back(static_cast<size_t>(i.input));
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  Expr out;
  std::vector<int> map(expr.input_types.size(), -1);
  for (size_t i : used) out.input_types.push_back(expr.input_types[i]);
  for (size_t i = 0; i < used.size(); i++) map[used[i]] = out.input(static_cast<int>(i));
  out.results = out.inline_expr(live, map);
  out.result_types = live.result_types;
  return out;
}

EwiseParams ewise_loop(const LowerContext& ctx, const std::vector<int64_t>& dims,
                       const std::vector<std::vector<int64_t>>& strides, size_t results) {
  const Loop loop = collapse({dims, strides});
  if (strides.size() > kEwiseMaxOperands)
    ctx.fail("has {} operands and results; one step takes {}", strides.size(), kEwiseMaxOperands);
  if (loop.dims.size() > kEwiseMaxRank)
    ctx.fail("broadcasts over {} separate dims; one step takes {}", loop.dims.size(), kEwiseMaxRank);
  EwiseParams p{};
  p.inputs = static_cast<int64_t>(strides.size() - results);
  p.results = static_cast<int64_t>(results);
  p.rank = static_cast<int64_t>(loop.dims.size());
  std::copy(loop.dims.begin(), loop.dims.end(), p.dims);
  for (size_t o = 0; o < loop.strides.size(); o++) {
    std::copy(loop.strides[o].begin(), loop.strides[o].end(), p.strides[o]);
    const int64_t inner = loop.strides[o].back();
    p.inner_kind[o] = inner == 0 || inner == 1 ? inner : 2;
  }
  p.chunks = (loop.dims.back() + kEwiseChunk - 1) / kEwiseChunk;
  return p;
}

Step& emit_elementwise(LowerContext& ctx, const Expr& expr, const std::vector<DenseOperand>& inputs,
                       const std::vector<Operand>& results, const std::vector<int64_t>& dims) {
  std::vector<size_t> used;
  auto live = std::make_shared<Expr>(with_used_inputs(expr, used));
  Loop loop{dims, {}};
  std::vector<Operand> operands;
  int in_place = -1;
  for (size_t i : used) {
    const std::vector<int64_t>& in = inputs[i].dims;
    if (in_place < 0 && in == dims && bits(expr.input_types[i]) == bits(live->result_types[0]))
      in_place = static_cast<int>(operands.size());
    operands.push_back(inputs[i].operand);
    loop.strides.push_back(broadcast_strides(in, dims));
  }
  for (const Operand& r : results) {
    operands.push_back(r);
    loop.strides.push_back(broadcast_strides(dims, dims));
  }
  loop = collapse(loop);
  join_short_rows(ctx, loop, operands, live->input_types);
  const EwiseParams p = ewise_loop(ctx, loop.dims, loop.strides, results.size());
  Step& step = ctx.step(ingot_ewise_kernel);
  step.operands = std::move(operands);
  step.in_place = in_place;
  step.params = params_of(p);
  step.sizes = kEwiseSizes;
  const int64_t elements = product_of(dims), inner = p.dims[p.rank - 1];
  step.units = elements == 0 ? 0 : elements / inner * p.chunks;
  step.grain = std::max<int64_t>(1, kGrainElements / std::clamp<int64_t>(inner, 1, kEwiseChunk));
  step.scratch = static_cast<int64_t>(live->code.size()) * kInterpreterChunk * 8;
  step.expr = std::move(live);
  step.specialise = elements >= kEwiseChunk / 4;
  return step;
}

}  // namespace ingot
