// Slice:  out[.., i_a, ..] = in[.., start_a + i_a * step_a, ..]  for each sliced axis a.
// Starts and ends count from the back when negative and are then clamped to the axis, as in numpy.
#include <algorithm>
#include <cstdlib>

#include "ops/layout.h"

namespace ingot {
namespace {

struct Range {
  Dim start = 0, size;
  int64_t step = 1;
};

// Exporters write "to the end" as any of these and more; no real axis is longer.
constexpr int64_t kToTheEnd = INT32_MAX;

// v resolved against an axis of n elements and clamped to [low, high]; unknown when its sign is not known.
Dim clamp_index(const Dim& v, const Dim& n, const Dim& low, const Dim& high) {
  if (v.is_const() && v.value() >= kToTheEnd && !n.is_const()) return high;
  if (v.is_const() && v.value() <= -kToTheEnd) return n.is_const() && n.value() > kToTheEnd ? max(low, n + v) : low;
  Dim at;
  if (at_least(v, 0))
    at = v;
  else if (at_least(v * -1, 1))
    at = n + v;
  else
    return Dim::unknown();
  return max(low, min(high, at));
}

// A step as long as the axis or longer takes one element; keeps sums of sizes and steps small.
int64_t step_length(int64_t step, const Dim& n) {
  const int64_t longest = n.is_const() ? std::max<int64_t>(n.value(), 1) : kToTheEnd;
  return step < -longest || step > longest ? longest : std::abs(step);
}

Range resolve(InferContext& ctx, const Dim& start, const Dim& end, const Dim& step, const Dim& n) {
  if (!step.is_const()) return {Dim::unknown(), Dim::unknown(), 1};
  const int64_t k = step.value();
  ctx.require(k != 0, "a step is 0");
  if (k > 0) {
    const Dim from = clamp_index(start, n, 0, n), to = clamp_index(end, n, 0, n);
    return {from, ceil_div(max(to - from, 0), step_length(k, n)), k};
  }
  if (n.is(0)) return {0, 0, k};  // no last element to start from
  const Dim from = clamp_index(start, n, 0, n - 1), to = clamp_index(end, n, -1, n - 1);
  return {from, ceil_div(max(from - to, 0), step_length(k, n)), k};
}

struct Slicing {
  Shape out;
  std::vector<Range> ranges;  // per dim of the input
};

// Elements of an optional operand or a default for each entry; nothing when they are not known.
std::optional<std::vector<Dim>> list(InferContext& ctx, size_t operand, size_t n, bool counting) {
  if (ctx.has(operand)) return ctx.values(operand);
  std::vector<Dim> out;
  for (size_t i = 0; i < n; i++) out.emplace_back(counting ? static_cast<int64_t>(i) : 1);
  return out;
}

StridedCopy slice_copy(const std::vector<int64_t>& in, const std::vector<int64_t>& out,
                       const std::vector<int64_t>& start, const std::vector<int64_t>& step) {
  StridedCopy c{out, strides_of(in), strides_of(out), 0, 0};
  for (size_t d = 0; d < in.size(); d++) {
    if (out[d] == 0) continue;
    c.src_offset += start[d] * c.src[d];
    c.src[d] *= out[d] == 1 ? 1 : step[d];  // a single element takes no step, however large
  }
  return c;
}

// Which elements are kept, per dim. Dims whose bounds are not known are unknown in `out`.
Slicing slicing(InferContext& ctx) {
  const Shape& in = ctx.shape(0);
  Slicing s{in, {}};
  for (const Dim& d : in) s.ranges.push_back({0, d, 1});
  const auto starts = ctx.values(1), ends = ctx.values(2);
  if (starts && ends)
    ctx.require(starts->size() == ends->size(), "{} starts but {} ends", starts->size(), ends->size());
  const size_t n = starts ? starts->size() : ends ? ends->size() : in.size();
  const auto axes = list(ctx, 3, n, true), steps = list(ctx, 4, n, false);
  if (!axes) {
    s.out.assign(in.size(), Dim::unknown());
    return s;
  }
  ctx.require(axes->size() == n || (!starts && !ends), "{} starts but {} axes", n, axes->size());
  ctx.require(!steps || !ctx.has(4) || steps->size() == axes->size(), "{} steps for {} axes", steps ? steps->size() : 0,
              axes->size());
  const auto at = normalized_axes(ctx, *axes, ctx.rank(0));
  for (size_t i = 0; i < at.size(); i++) {
    const auto d = static_cast<size_t>(at[i]);
    const Range r = starts && ends && steps ? resolve(ctx, (*starts)[i], (*ends)[i], (*steps)[i], in[d])
                                            : Range{Dim::unknown(), Dim::unknown(), 1};
    s.ranges[d] = r;
    s.out[d] = r.size;
  }
  return s;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Slicing s = slicing(ctx);
  ctx.set_shape(0, s.out);
  const Shape& in = ctx.shape(0);
  std::vector<int64_t> start, step;
  for (const Range& r : s.ranges) {
    if (!r.start.is_const()) return;
    start.push_back(r.start.value());
    step.push_back(r.step);
  }
  if (is_const(in) && is_const(s.out)) move_values(ctx, 0, 0, slice_copy(numbers(in), numbers(s.out), start, step));
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  const auto starts = ctx.values(1);
  std::vector<int64_t> start(in.size(), 0), step(in.size(), 1);
  std::vector<int64_t> axes;
  if (ctx.has(3)) {
    axes = normalized_axes(ctx.values(3), static_cast<int64_t>(in.size()));
  } else {
    for (size_t i = 0; i < starts.size(); i++) axes.push_back(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < axes.size(); i++) {
    const auto d = static_cast<size_t>(axes[i]);
    if (ctx.has(4)) step[d] = ctx.values(4)[i];
    const Dim n = in[d];
    start[d] = clamp_index(starts[i], n, 0, step[d] < 0 ? n - 1 : n).value();
  }
  emit_move(ctx, 0, 0, slice_copy(in, out, start, step));
}

}  // namespace

void register_slice(OpRegistry& r) { r.add({"Slice", "", 3, 5, 1, 1, infer, lower}).movement = Movement::kSome; }

}  // namespace ingot
