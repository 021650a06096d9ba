// Operators whose results are as large as the data say: NonZero, Compress, Unique, NonMaxSuppression.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "base/stop.h"
#include "kernels/number.h"
#include "ops/host.h"
#include "ops/host_tensors.h"

namespace ingot {
namespace {

using Wide = long double;  // holds every float and every 64-bit integer

// Elements for comparing with zero and with each other.
std::vector<Wide> elements_of(const Constant& c) {
  return kernel::with_number_type(static_cast<int64_t>(c.dtype), [&]<class T>() {
    std::vector<Wide> out;
    for (T v : c.as<T>()) out.push_back(static_cast<Wide>(kernel::widen(v)));
    return out;
  });
}

std::vector<bool> truths(const Constant& c) {
  std::vector<bool> out;
  if (c.dtype == DType::String) unsupported("strings have no truth value");
  for (Wide v : elements_of(c)) out.push_back(v != 0);
  return out;
}

void infer_non_zero(InferContext& ctx) {
  ctx.set_dtype(0, DType::I64);
  ctx.set_shape(0, {Dim(std::max<int64_t>(ctx.rank(0), 1)), Dim::unknown()});
}

void run_non_zero(HostContext& ctx) {
  const Constant& x = *ctx.tensor(0);
  const std::vector<bool> on = truths(x);
  std::vector<int64_t> at;
  for (size_t i = 0; i < on.size(); i++)
    if (on[i]) at.push_back(static_cast<int64_t>(i));
  const size_t rank = std::max<size_t>(x.dims.size(), 1);
  std::vector<int64_t> out(rank * at.size());
  for (size_t d = rank, stride = 1; d-- > 0;) {
    const auto size = static_cast<size_t>(x.dims.empty() ? 1 : x.dims[d]);
    for (size_t i = 0; i < at.size(); i++)
      out[d * at.size() + i] = static_cast<int64_t>(static_cast<size_t>(at[i]) / stride % size);
    stride *= size;
  }
  ctx.set(0, DType::I64, {static_cast<int64_t>(rank), static_cast<int64_t>(at.size())}, out);
}

void infer_compress(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.require(ctx.dtype(1) == DType::Bool, "the condition is {}, not bool", name(ctx.dtype(1)));
  if (!ctx.node.has("axis")) return ctx.set_shape(0, {Dim::unknown()});
  Shape shape = ctx.shape(0);
  shape[static_cast<size_t>(ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0)))] = Dim::unknown();
  ctx.set_shape(0, shape);
}

void run_compress(HostContext& ctx) {
  ConstantPtr x = ctx.tensor(0);
  if (!ctx.node.has("axis")) x = with_dims(x, {x->elements()});
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", 0), static_cast<int64_t>(x->dims.size()));
  const std::vector<bool> on = truths(*ctx.tensor(1));
  if (static_cast<int64_t>(on.size()) > x->dims[static_cast<size_t>(axis)])
    ctx.fail("the condition has {} elements, the axis {}", on.size(), x->dims[static_cast<size_t>(axis)]);
  std::vector<ConstantPtr> kept;
  for (size_t i = 0; i < on.size(); i++)
    if (on[i]) kept.push_back(slice(*x, axis, static_cast<int64_t>(i), 1));
  ctx.set(0, kept.empty() ? slice(*x, axis, 0, 0) : join(kept, axis));
}

void infer_unique(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set(i, DType::I64, {Dim::unknown()});
  if (!ctx.node.has("axis")) return ctx.set_shape(0, {Dim::unknown()});
  Shape shape = ctx.shape(0);
  shape[static_cast<size_t>(ctx.axis(ctx.node.get_int("axis", 0), ctx.rank(0)))] = Dim::unknown();
  ctx.set_shape(0, shape);
}

// Slices along an axis (or single elements), compared element by element.
void run_unique(HostContext& ctx) {
  ConstantPtr x = ctx.tensor(0);
  if (!ctx.node.has("axis")) x = with_dims(x, {x->elements()});
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", 0), static_cast<int64_t>(x->dims.size()));
  const int64_t count = x->dims[static_cast<size_t>(axis)];
  std::vector<ConstantPtr> slices;
  std::vector<std::vector<Wide>> numbers;
  std::vector<std::vector<std::string>> words;
  const bool text = x->dtype == DType::String;
  for (int64_t i = 0; i < count; i++) {
    slices.push_back(slice(*x, axis, i, 1));
    if (text) {
      words.emplace_back();
      for (int64_t id : slices.back()->as<int64_t>()) words.back().push_back(ctx.pool().get(id));
    } else {
      numbers.push_back(elements_of(*slices.back()));
    }
  }
  size_t compared = 0;
  constexpr size_t kBetweenChecks = 4096;
  auto less = [&](int64_t a, int64_t b) {
    if (++compared % kBetweenChecks == 0) check_stop();
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return text ? words[i] < words[j] : numbers[i] < numbers[j];
  };
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), less);
  struct Group {
    int64_t first, size;
  };
  std::vector<Group> groups;
  std::vector<int64_t> group_of(order.size());
  for (size_t i = 0; i < order.size(); i++) {
    if (i == 0 || less(order[i - 1], order[i])) groups.push_back({order[i], 0});
    groups.back().size++;
    group_of[static_cast<size_t>(order[i])] = static_cast<int64_t>(groups.size()) - 1;
  }
  std::vector<int64_t> rank(groups.size());
  std::iota(rank.begin(), rank.end(), 0);
  if (ctx.node.get_int("sorted", 1) == 0)
    std::sort(rank.begin(), rank.end(), [&](int64_t a, int64_t b) {
      return groups[static_cast<size_t>(a)].first < groups[static_cast<size_t>(b)].first;
    });
  std::vector<int64_t> place(groups.size()), firsts, sizes, inverse;
  std::vector<ConstantPtr> kept;
  for (size_t i = 0; i < rank.size(); i++) {
    const Group& g = groups[static_cast<size_t>(rank[i])];
    place[static_cast<size_t>(rank[i])] = static_cast<int64_t>(i);
    firsts.push_back(g.first);
    sizes.push_back(g.size);
    kept.push_back(slices[static_cast<size_t>(g.first)]);
  }
  for (int64_t g : group_of) inverse.push_back(place[static_cast<size_t>(g)]);
  const auto n = static_cast<int64_t>(groups.size());
  ctx.set(0, kept.empty() ? slice(*x, axis, 0, 0) : join(kept, axis));
  ctx.set(1, DType::I64, {n}, firsts);
  ctx.set(2, DType::I64, {count}, inverse);
  ctx.set(3, DType::I64, {n}, sizes);
}

void infer_suppression(InferContext& ctx) {
  ctx.set(0, DType::I64, {Dim::unknown(), Dim(3)});
  for (size_t i : {0, 1}) ctx.require(ctx.dtype(i) == DType::F32, "operand {} is {}, not f32", i, name(ctx.dtype(i)));
  for (size_t i : {0, 1}) ctx.require(ctx.rank(i) == 3, "operand {} has rank {}, not 3", i, ctx.rank(i));
}

struct Box {
  float top, left, bottom, right;
  float area() const { return (bottom - top) * (right - left); }
};

Box box_at(const float* p, bool centred) {
  if (centred) return {p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
}

float overlap(const Box& a, const Box& b) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0;
  const float shared = height * width, all = a.area() + b.area() - shared;
  return all > 0 ? shared / all : 0;
}

void run_suppression(HostContext& ctx) {
  const Constant &boxes = *ctx.tensor(0), &scores = *ctx.tensor(1);
  auto optional = [&](size_t i, double fallback) { return ctx.given(i) ? ctx.number(i) : fallback; };
  const int64_t most = ctx.given(2) ? ctx.integer(2) : 0;
  const auto threshold = static_cast<float>(optional(3, 0)), least = static_cast<float>(optional(4, 0));
  const bool scored = ctx.given(4), centred = ctx.node.get_int("center_point_box", 0) != 0;
  const int64_t batches = scores.dims[0], classes = scores.dims[1], count = scores.dims[2];
  if (boxes.dims != std::vector<int64_t>{batches, count, 4})
    ctx.fail("boxes are {} for scores {}", str(to_shape(boxes.dims)), str(to_shape(scores.dims)));
  std::vector<int64_t> out;
  for (int64_t b = 0; b < batches; b++)
    for (int64_t c = 0; c < classes; c++) {
      const float* score = scores.as<float>().data() + (b * classes + c) * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; i++)
        if (!scored || score[i] > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return score[i] > score[j]; });
      std::vector<Box> kept;
      size_t looked = 0;
      for (int64_t i : order) {
        if (looked++ % 256 == 0) check_stop();  // each is compared with all that are kept
        if (static_cast<int64_t>(kept.size()) >= most) break;
        const Box box = box_at(boxes.as<float>().data() + (b * count + i) * 4, centred);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& k) { return overlap(k, box) > threshold; })) continue;
        kept.push_back(box);
        out.insert(out.end(), {b, c, i});
      }
    }
  ctx.set(0, DType::I64, {static_cast<int64_t>(out.size()) / 3, 3}, out);
}

}  // namespace

void register_data_sized(OpRegistry& r) {
  r.add(host_op("NonZero", 1, 1, 1, infer_non_zero, run_non_zero));
  r.add(host_op("Compress", 2, 2, 1, infer_compress, run_compress));
  r.add(host_op("Unique", 1, 1, 4, infer_unique, run_unique));
  r.add(host_op("NonMaxSuppression", 2, 5, 1, infer_suppression, run_suppression));
}

}  // namespace ingot
