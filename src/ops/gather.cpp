// Gather, GatherElements, GatherND: reading by index (kernels/gather.h). A Gather with a known single index is a Slice
// without its axis, so it is a view or a strided copy.
#include "kernels/gather.h"

#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

int64_t index_size(const LowerContext& ctx, size_t operand) {
  const DType t = ctx.in(operand).dtype;
  if (t != DType::I32 && t != DType::I64) ctx.fail("indices are {}, expected i32 or i64", name(t));
  return bits(t) / 8;
}

void gather_values(InferContext& ctx) {
  const auto data = ctx.known_values(0), indices = ctx.known_values(1);
  if (!data || !indices || ctx.rank(0) != 1) return;
  std::vector<Dim> out;
  const auto n = static_cast<int64_t>(data->size());
  for (const Dim& i : *indices) {
    if (!i.is_const()) return;
    ctx.require(i.value() >= -n && i.value() < n, "index {} is outside [{}, {})", i.value(), -n, n);
    out.push_back((*data)[static_cast<size_t>(i.value() < 0 ? i.value() + n : i.value())]);
  }
  ctx.set_values(0, std::move(out));
}

void infer_gather(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  ctx.require(!data.empty(), "the data is a scalar; it needs at least rank 1");
  const auto axis = ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0));
  Shape out(data.begin(), data.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), data.begin() + axis + 1, data.end());
  ctx.set_shape(0, std::move(out));
  gather_values(ctx);
}

// The one index of this Gather if it is known, from a constant or from shapes.
std::optional<int64_t> known_index(const LowerContext& ctx) {
  const TensorInfo& info = ctx.in(1);
  if (product(*info.shape).value() != 1 || (!info.values && !info.constant)) return std::nullopt;
  return ctx.values(1)[0];
}

void lower_gather(LowerContext& ctx) {
  const auto data = ctx.dims(0);
  const int64_t rank = static_cast<int64_t>(data.size()), given = ctx.node.get_int("axis", 0);
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  const int64_t n = data[axis];
  if (auto i = known_index(ctx)) {
    if (*i < -n || *i >= n)
      throw Error(ErrorKind::InvalidInput,
                  fmt::format("{}: index {} is outside [{}, {})", ctx.node.label(), *i, -n, n));
    const int64_t outer = product_of(data, 0, axis), inner = product_of(data, axis + 1);
    return emit_move(ctx, 0, 0, {{outer, inner}, {n * inner, 1}, {inner, 1}, (*i < 0 ? *i + n : *i) * inner, 0});
  }
  GatherParams p{};
  p.count = product_of(ctx.dims(1));
  p.axis = n;
  p.row = product_of(data, axis + 1) * element_bytes(ctx, ctx.in(0).dtype);
  p.index_size = index_size(ctx, 1);
  Step& step = ctx.step(ingot_gather_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.row == 0 ? 0 : product_of(data, 0, axis) * p.count;
  step.grain = grain_for(p.row);
  step.params = params_of(p);
}

void infer_gather_elements(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_shape(0, ctx.shape(1));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  ctx.require(data.size() == indices.size() && !data.empty(), "data {} and indices {} need the same rank, at least 1",
              str(data), str(indices));
  const auto axis = static_cast<size_t>(ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0)));
  for (size_t d = 0; d < data.size(); d++)
    ctx.require(d == axis || !data[d].is_const() || !indices[d].is_const() || indices[d].value() <= data[d].value(),
                "indices {} pass the end of data {} in dim {}", str(indices), str(data), d);
}

void lower_gather_elements(LowerContext& ctx) {
  const auto data = ctx.dims(0), out = ctx.out_dims(0);
  if (data.size() > kMaxGatherRank) ctx.fail("rank {} is more than the {} supported", data.size(), kMaxGatherRank);
  const int64_t rank = static_cast<int64_t>(data.size()), given = ctx.node.get_int("axis", 0);
  GatherElementsParams p{};
  p.rank = rank;
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  p.index_size = index_size(ctx, 1);
  p.axis = given < 0 ? given + rank : given;
  p.axis_dim = data[static_cast<size_t>(p.axis)];
  std::copy(out.begin(), out.end(), p.dims);
  const auto strides = strides_of(data);
  std::copy(strides.begin(), strides.end(), p.stride);
  Step& step = ctx.step(ingot_gather_elements_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = out.back() == 0 ? 0 : product_of(out) / out.back();
  step.grain = grain_for(out.back() * p.size);
  step.params = params_of(p);
}

void infer_gather_nd(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const int64_t batch = ctx.node.get_int("batch_dims", 0);
  ctx.require(!data.empty() && !indices.empty(), "data {} and indices {} need at least rank 1", str(data),
              str(indices));
  ctx.require(batch >= 0 && batch < std::min(ctx.rank(0), ctx.rank(1)),
              "batch_dims {} does not fit data {} and indices {}", batch, str(data), str(indices));
  for (int64_t d = 0; d < batch; d++) {
    const Dim &a = data[static_cast<size_t>(d)], &b = indices[static_cast<size_t>(d)];
    ctx.require(!a.is_const() || !b.is_const() || a == b, "data {} and indices {} differ in batch dim {}", str(data),
                str(indices), d);
  }
  if (!indices.back().is_const()) return;  // decides the rank
  const int64_t depth = indices.back().value();
  ctx.require(depth >= 0 && depth <= ctx.rank(0) - batch,
              "the last dim of indices {} is {}; data {} has {} dims to index", str(indices), depth, str(data),
              ctx.rank(0) - batch);
  Shape out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), data.begin() + batch + depth, data.end());
  ctx.set_shape(0, std::move(out));
}

void lower_gather_nd(LowerContext& ctx) {
  const auto data = ctx.dims(0), indices = ctx.dims(1);
  const auto batch = static_cast<size_t>(ctx.node.get_int("batch_dims", 0));
  const auto depth = static_cast<size_t>(indices.back());
  if (depth > kMaxGatherRank) ctx.fail("indices of {} parts are more than the {} supported", depth, kMaxGatherRank);
  const int64_t size = element_bytes(ctx, ctx.in(0).dtype);
  GatherNDParams p{};
  p.depth = indices.back();
  p.index_size = index_size(ctx, 1);
  p.count = product_of(indices, batch, indices.size() - 1);
  p.batch = product_of(data, batch) * size;
  p.row = product_of(data, batch + depth) * size;
  const auto strides = strides_of(data);
  for (size_t d = 0; d < depth; d++) {
    p.dims[d] = data[batch + d];
    p.stride[d] = strides[batch + d] * size;
  }
  Step& step = ctx.step(ingot_gather_nd_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.row == 0 ? 0 : product_of(indices, 0, indices.size() - 1);
  step.grain = grain_for(p.row);
  step.params = params_of(p);
}

}  // namespace

void register_gather(OpRegistry& r) {
  r.add({"Gather", "", 2, 2, 1, 1, infer_gather, lower_gather}).movement = Movement::kSome;
  r.add({"GatherElements", "", 2, 2, 1, 1, infer_gather_elements, lower_gather_elements}).movement = Movement::kSome;
  r.add({"GatherND", "", 2, 2, 1, 1, infer_gather_nd, lower_gather_nd}).movement = Movement::kSome;
}

}  // namespace ingot
