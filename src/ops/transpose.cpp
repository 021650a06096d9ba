// Transpose:  out[i_0, ..., i_n] = in[j],  j[perm[k]] = i_k.
#include <algorithm>
#include <numeric>

#include "ops/layout.h"

namespace ingot {
namespace {

std::vector<int64_t> permutation(const Node& node, size_t rank) {
  std::vector<int64_t> perm = node.get_ints("perm");
  if (perm.empty()) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  return perm;
}

StridedCopy transposing(const std::vector<int64_t>& dims, const std::vector<int64_t>& perm) {
  const auto strides = strides_of(dims);
  StridedCopy c;
  for (int64_t p : perm) {
    c.dims.push_back(dims[static_cast<size_t>(p)]);
    c.src.push_back(strides[static_cast<size_t>(p)]);
  }
  c.dst = strides_of(c.dims);
  return c;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  const auto perm = permutation(ctx.node, in.size());
  auto sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool valid = perm.size() == in.size();
  for (size_t i = 0; valid && i < sorted.size(); i++) valid = sorted[i] == static_cast<int64_t>(i);
  ctx.require(valid, "perm [{}] is not a permutation of the {} axes of {}", fmt::join(perm, ", "), in.size(), str(in));
  Shape out;
  for (int64_t p : perm) out.push_back(in[static_cast<size_t>(p)]);
  if (is_const(in)) move_values(ctx, 0, 0, transposing(numbers(in), perm));
  ctx.set_shape(0, std::move(out));
}

void lower(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  emit_move(ctx, 0, 0, transposing(dims, permutation(ctx.node, dims.size())));
}

}  // namespace

void register_transpose(OpRegistry& r) { r.add({"Transpose", "", 1, 1, 1, 1, infer, lower}).movement = Movement::kAll; }

}  // namespace ingot
