// ScatterElements and ScatterND: the data, copied or taken over, with updates written by index (kernels/scatter.h).
#include "kernels/scatter.h"

#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

std::optional<int64_t> reduction_of(const Node& node) {
  const std::string r = node.get_string("reduction", "none");
  if (r == "none") return kScatterNone;
  if (r == "add") return kScatterAdd;
  if (r == "mul") return kScatterMul;
  if (r == "max") return kScatterMax;
  if (r == "min") return kScatterMin;
  return std::nullopt;
}

void infer_common(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.require(reduction_of(ctx.node).has_value(), "reduction '{}' is none of none, add, mul, max, min",
              ctx.node.get_string("reduction", ""));
  ctx.require(ctx.dtype(2) == ctx.dtype(0) || ctx.dtype(2) == DType::Undefined, "the data is {} and the updates are {}",
              name(ctx.dtype(0)), name(ctx.dtype(2)));
  ctx.set_shape(0, ctx.shape(0));
}

bool differ(const Dim& a, const Dim& b) { return a.is_const() && b.is_const() && !(a == b); }

void infer_elements(InferContext& ctx) {
  infer_common(ctx);
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1), &updates = ctx.shape(2);
  ctx.require(!data.empty() && data.size() == indices.size() && data.size() == updates.size(),
              "data {}, indices {} and updates {} need the same rank, at least 1", str(data), str(indices),
              str(updates));
  const auto axis = static_cast<size_t>(ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0)));
  for (size_t d = 0; d < data.size(); d++) {
    ctx.require(!differ(indices[d], updates[d]), "indices {} and updates {} differ in dim {}", str(indices),
                str(updates), d);
    ctx.require(d == axis || !data[d].is_const() || !indices[d].is_const() || indices[d].value() <= data[d].value(),
                "indices {} pass the end of data {} in dim {}", str(indices), str(data), d);
  }
}

void infer_nd(InferContext& ctx) {
  infer_common(ctx);
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1), &updates = ctx.shape(2);
  ctx.require(!data.empty() && !indices.empty(), "data {} and indices {} need at least rank 1", str(data),
              str(indices));
  if (!indices.back().is_const()) return;
  const int64_t depth = indices.back().value();
  ctx.require(depth <= ctx.rank(0), "the last dim of indices {} is {}; data {} has only {} dims", str(indices), depth,
              str(data), data.size());
  Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + depth, data.end());
  bool fits = expected.size() == updates.size();
  for (size_t d = 0; fits && d < expected.size(); d++) fits = !differ(expected[d], updates[d]);
  ctx.require(fits, "updates have shape {}; indices {} into data {} need {}", str(updates), str(indices), str(data),
              str(expected));
}

// The result starts as the data: taken over when nobody else needs it, otherwise copied.
void copy_data(LowerContext& ctx, int64_t size) {
  const int64_t n = product_of(ctx.dims(0));
  emit_copy(ctx, ctx.input(0), ctx.output(0), size, {{n}, {1}, {1}, 0, 0});
  if (!ctx.steps.empty()) ctx.steps.back().in_place = 0;
}

int64_t index_size(const LowerContext& ctx) {
  const DType t = ctx.in(1).dtype;
  if (t != DType::I32 && t != DType::I64) ctx.fail("indices are {}, expected i32 or i64", name(t));
  return bits(t) / 8;
}

int64_t checked_reduction(const LowerContext& ctx) {
  const int64_t reduction = *reduction_of(ctx.node);
  const DType t = ctx.in(0).dtype;
  if (reduction != kScatterNone && !is_integer(t) && !(is_float(t) && bits(t) >= 16))
    ctx.fail("there is no reduction of elements of type {}", name(t));
  return reduction;
}

void lower_elements(LowerContext& ctx) {
  const auto data = ctx.dims(0), indices = ctx.dims(1);
  if (data.size() > kMaxScatterRank) ctx.fail("rank {} is more than the {} supported", data.size(), kMaxScatterRank);
  const int64_t rank = static_cast<int64_t>(data.size()), given = ctx.node.get_int("axis", 0);
  ScatterElementsParams p{};
  p.rank = rank;
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  p.index_size = index_size(ctx);
  p.reduction = checked_reduction(ctx);
  p.axis = given < 0 ? given + rank : given;
  p.axis_dim = data[static_cast<size_t>(p.axis)];
  const auto from = strides_of(indices), to = strides_of(data);
  std::copy(indices.begin(), indices.end(), p.dims);
  std::copy(from.begin(), from.end(), p.index_stride);
  std::copy(to.begin(), to.end(), p.stride);
  copy_data(ctx, p.size);
  const int64_t n = p.dims[p.axis];
  Step& step = ctx.step(ingot_scatter_elements_kernel);
  step.operands = {ctx.input(1), ctx.input(2), ctx.output(0)};
  step.units = n == 0 ? 0 : product_of(indices) / n;
  step.grain = grain_for(n * (p.size + p.index_size));
  step.params = params_of(p);
}

void lower_nd(LowerContext& ctx) {
  const auto data = ctx.dims(0), indices = ctx.dims(1);
  const auto depth = static_cast<size_t>(indices.back());
  if (depth > kMaxScatterRank) ctx.fail("indices of {} parts are more than the {} supported", depth, kMaxScatterRank);
  ScatterNDParams p{};
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  p.index_size = index_size(ctx);
  p.reduction = checked_reduction(ctx);
  p.depth = indices.back();
  p.count = product_of(indices, 0, indices.size() - 1);
  p.row = product_of(data, depth);
  const auto strides = strides_of(data);
  std::copy_n(data.begin(), depth, p.dims);
  std::copy_n(strides.begin(), depth, p.stride);
  copy_data(ctx, p.size);
  p.pieces = std::clamp<int64_t>(p.row * p.count * p.size / (32 * 1024), 1, std::max<int64_t>(1, p.row / 64));
  Step& step = ctx.step(ingot_scatter_nd_kernel);
  step.operands = {ctx.input(1), ctx.input(2), ctx.output(0)};
  step.units = p.row * p.count == 0 ? 0 : p.pieces;
  step.params = params_of(p);
}

}  // namespace

void register_scatter(OpRegistry& r) {
  r.add({"ScatterElements", "", 3, 3, 1, 1, infer_elements, lower_elements});
  r.add({"ScatterND", "", 3, 3, 1, 1, infer_nd, lower_nd});
}

}  // namespace ingot
