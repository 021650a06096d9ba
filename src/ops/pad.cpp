// Pad (kernels/pad.h). A negative pad removes elements before anything is added.
#include "kernels/pad.h"

#include <algorithm>

#include "ops/layout.h"

namespace ingot {
namespace {

std::optional<int64_t> mode_of(const Node& node) {
  const std::string mode = node.get_string("mode", "constant");
  if (mode == "constant") return kPadConstant;
  if (mode == "reflect") return kPadReflect;
  if (mode == "edge") return kPadEdge;
  if (mode == "wrap") return kPadWrap;
  return std::nullopt;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const auto mode = mode_of(ctx.node);
  ctx.require(mode.has_value(), "mode '{}' is none of constant, reflect, edge, wrap", ctx.node.get_string("mode", ""));
  if (ctx.has(2)) {
    ctx.require(ctx.dtype(2) == ctx.dtype(0), "pads {} with a value of {}", name(ctx.dtype(0)), name(ctx.dtype(2)));
    const Dim count = product(ctx.shape(2));
    ctx.require(!count.is_const() || count.is(1), "the value to pad with has {} elements, not one", count.str());
  }
  const Shape& in = ctx.shape(0);
  Shape out = in;
  std::vector<Dim> axes;
  for (size_t d = 0; d < in.size(); d++) axes.emplace_back(static_cast<int64_t>(d));
  const auto pads = ctx.values(1);
  if (ctx.has(3)) {
    const auto given = ctx.values(3);
    if (!given) return ctx.set_shape(0, Shape(in.size(), Dim::unknown()));
    axes = *given;
  }
  const size_t n = axes.size();
  ctx.require(!pads || pads->size() == 2 * n, "{} pads for {} axes: there must be two for each",
              pads ? pads->size() : 0, n);
  const auto at = normalized_axes(ctx, axes, ctx.rank(0));
  for (size_t i = 0; i < n; i++) {
    const auto d = static_cast<size_t>(at[i]);
    if (!pads) {
      out[d] = Dim::unknown();
      continue;
    }
    const Dim &before = (*pads)[i], &after = (*pads)[i + n];
    out[d] = in[d] + before + after;
    if (!in[d].is_const() || !before.is_const() || !after.is_const()) continue;
    const Dim kept = in[d] + min(before, 0) + min(after, 0);
    ctx.require(kept.value() >= 0, "pads {} and {} remove more than the {} elements of axis {}", before.str(),
                after.str(), in[d].str(), d);
    ctx.require(*mode == kPadConstant || kept.value() > 0 || out[d].is(0),
                "axis {} of {} has nothing to pad with in mode '{}'", d, str(in), ctx.node.get_string("mode", ""));
  }
  product(out);
  ctx.set_shape(0, std::move(out));
}

struct PaddedDim {
  int64_t out, kept, before, stride;
  bool padded() const { return out != kept; }
};

// Neighbouring dims as one where the inner one is not padded; with a constant even if the outer one is.
std::vector<PaddedDim> merged(const std::vector<PaddedDim>& dims, int64_t mode) {
  std::vector<PaddedDim> r;
  for (const PaddedDim& d : dims) {
    const bool joins = !r.empty() && !d.padded() && r.back().stride == d.stride * d.kept &&
                       (mode == kPadConstant || !r.back().padded());
    if (joins)
      r.back() = {r.back().out * d.out, r.back().kept * d.kept, r.back().before * d.kept, d.stride};
    else
      r.push_back(d);
  }
  return r;
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0), strides = strides_of(in), pads = ctx.values(1);
  std::vector<PaddedDim> dims;
  for (size_t d = 0; d < in.size(); d++) dims.push_back({out[d], in[d], 0, strides[d]});
  PadParams p{};
  const size_t n = pads.size() / 2;
  for (size_t i = 0; i < n; i++) {
    const auto d =
        ctx.has(3) ? static_cast<size_t>(normalized_axes(ctx.values(3), static_cast<int64_t>(in.size()))[i]) : i;
    const int64_t before = pads[i], after = pads[i + n];
    dims[d].kept += std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    dims[d].before = std::max<int64_t>(before, 0);
    p.offset -= std::min<int64_t>(before, 0) * strides[d];
  }
  p.mode = *mode_of(ctx.node);
  dims = merged(dims, p.mode);
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  if (dims.empty() || (dims.size() == 1 && !dims[0].padded())) return ctx.view(0, 0, p.offset * p.size);
  if (dims.size() > kMaxPadRank)
    ctx.fail("pads {} separate dims, more than the {} supported", dims.size(), kMaxPadRank);
  p.rank = static_cast<int64_t>(dims.size());
  for (size_t d = 0; d < dims.size(); d++) {
    p.dims[d] = dims[d].out;
    p.kept[d] = dims[d].kept;
    p.before[d] = dims[d].before;
    p.stride[d] = dims[d].stride;
  }
  Step& step = ctx.step(ingot_pad_kernel);
  step.operands = {ctx.input(0), ctx.input(2), ctx.output(0)};
  const int64_t row = dims.back().out;
  step.units = row == 0 ? 0 : product_of(out) / row;
  step.grain = grain_for(row * p.size);
  step.params = params_of(p);
}

}  // namespace

void register_pad(OpRegistry& r) { r.add({"Pad", "", 2, 4, 1, 1, infer, lower}); }

}  // namespace ingot
