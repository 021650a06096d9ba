// com.microsoft: operators of onnxruntime on tensors of numbers that standard ones can say.
#include <cmath>

#include "expansions/expander.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "com.microsoft";

// Distances of all rows of A [m, k] and B [n, k]:  |a|^2 - 2 a b + |b|^2, or the root of it
void cdist(Expander& e) {
  const TensorId a = e.in(0), b = e.in(1);
  e.require(e.rank(a) == 2 && e.rank(b) == 2, "A and B are of ranks {} and {}, expected 2", e.rank(a), e.rank(b));
  const std::string metric = e.node.get_string("metric", "sqeuclidean");
  e.require(metric == "euclidean" || metric == "sqeuclidean", "the metric '{}' is not known", metric);
  const DType type = e.dtype(a);
  const TensorId a_square = e.reduce("ReduceSumSquare", a, {1}, true);
  const TensorId b_square = e.unsqueeze(e.reduce("ReduceSumSquare", b, {1}), {0});
  const TensorId twice = e.emit("Mul", {e.emit("MatMul", {a, e.transpose(b, {1, 0})}), e.scalar(2, type)});
  const TensorId sum = e.emit("Add", {e.emit("Sub", {a_square, twice}), b_square});
  const TensorId square = e.emit("Max", {sum, e.scalar(0, type)});
  e.result(0, metric == "euclidean" ? e.emit("Sqrt", {square}) : square);
}

// Windows of `size` elements along an axis, every `step`: [..., d, ...] -> [..., (d - size) / step + 1, ..., size]
void unfold_tensor(Expander& e) {
  const TensorId x = e.in(0);
  const int64_t rank = e.rank(x), axis = e.axis(e.node.get_int("dim", -1), rank);
  const int64_t size = e.node.need_int("size"), step = e.node.get_int("step", 1);
  e.require(size > 0 && step > 0, "size and step are {} and {}, expected positive numbers", size, step);
  auto number = [&](int64_t n) { return e.scalar(static_cast<double>(n), DType::I64); };
  const TensorId behind = e.emit("Sub", {e.scalar_size(e.size(x, axis)), number(size - 1)});  // the last start
  const TensorId starts = e.emit("Range", {number(0), behind, number(step)});
  const TensorId places = e.emit("Add", {e.unsqueeze(starts, {1}), e.count_up(size)});
  const TensorId windows = e.emit("Gather", {x, places}, {{"axis", axis}});
  std::vector<int64_t> perm;
  for (int64_t d = 0; d <= rank; d++)
    if (d != axis + 1) perm.push_back(d);
  perm.push_back(axis + 1);
  e.result(0, e.transpose(windows, perm));
}

// scores [batch, vocabulary] with minus infinity for each token that would complete an n-gram which is among the
// tokens [batch, length] already.
void ngram_repeat_block(Expander& e) {
  const TensorId tokens = e.cast(e.in(0), DType::I64), scores = e.in(1);
  const int64_t n = e.node.need_int("ngram_size");
  e.require(n > 0, "ngram_size is {}", n);
  e.require(e.rank(tokens) == 2 && e.rank(scores) == 2, "tokens and scores are of ranks {} and {}, expected 2",
            e.rank(tokens), e.rank(scores));
  // The last tokens of the n-grams, and whether what stands before each is what stands at the end of the row.
  const TensorId last = e.slice(tokens, 1, n - 1);
  TensorId repeats = e.emit("Equal", {last, last});
  for (int64_t back = n - 1; back > 0; back--) {
    const TensorId before = e.slice(tokens, 1, n - 1 - back, -back);
    const TensorId end = e.slice(tokens, 1, -back, back == 1 ? kToTheEnd : 1 - back);
    repeats = e.emit("And", {repeats, e.emit("Equal", {before, end})});
  }
  const DType type = e.dtype(scores);
  const TensorId bounds = e.emit("Where", {repeats, e.scalar(-INFINITY, type), e.scalar(INFINITY, type)});
  e.result(
      0, e.emit("ScatterElements", {scores, last, bounds}, {{"axis", int64_t{1}}, {"reduction", std::string("min")}}));
}

// ---- CropAndResize ----

// Where the rows (or columns) of each crop lie in the image: begin (size - 1) ... end (size - 1), [rois, count]
TensorId crop_places(Expander& e, TensorId begin, TensorId end, TensorId last, TensorId count, DType type) {
  const TensorId first = e.emit("Mul", {begin, last}), span = e.emit("Sub", {e.emit("Mul", {end, last}), first});
  const TensorId one = e.scalar(1, DType::I64), steps = e.emit("Sub", {count, one});
  const TensorId several = e.emit("Greater", {count, one});
  const TensorId step = e.emit("Div", {span, e.cast(e.emit("Max", {steps, one}), type)});
  const TensorId index = e.cast(e.emit("Range", {e.scalar(0, DType::I64), count, one}), type);
  // A single place is the middle. The last one is exactly the end.
  const TensorId middle = e.emit("Add", {first, e.emit("Mul", {span, e.scalar(0.5, type)})});
  const TensorId along = e.emit("Add", {first, e.emit("Mul", {index, step})});
  const TensorId at_end = e.emit("Equal", {index, e.cast(steps, type)});
  const TensorId placed = e.emit("Where", {at_end, e.emit("Mul", {end, last}), along});
  return e.emit("Where", {several, placed, middle});
}

struct Places {
  TensorId at, low, high, inside;  // positions, the pixels around them, are they in the image?
};

Places pixels(Expander& e, TensorId at, TensorId last, bool nearest, DType type) {
  const TensorId zero = e.scalar(0, type);
  const TensorId inside = e.emit("And", {e.emit("GreaterOrEqual", {at, zero}), e.emit("LessOrEqual", {at, last})});
  const TensorId safe = e.emit("Where", {inside, at, zero});
  auto pixel = [&](const char* rounding) { return e.cast(e.emit(rounding, {safe}), DType::I64); };
  if (nearest) {
    const TensorId half = e.emit("Add", {safe, e.scalar(0.5, type)});
    const TensorId closest = e.cast(e.emit("Floor", {half}), DType::I64);
    return {safe, closest, closest, inside};
  }
  return {safe, pixel("Floor"), pixel("Ceil"), inside};
}

// (X [N, C, H, W], rois [R, 4] as y1, x1, y2, x2 of an image of size 1, their images [R], size of a crop [2])
// -> [R, C, height, width]
void crop_and_resize(Expander& e) {
  enum Operand : size_t { kImages, kRois, kBatch, kSize };
  const TensorId x = e.in(kImages), rois = e.in(kRois), size = e.cast(e.in(kSize), DType::I64);
  e.require(e.rank(x) == 4 && e.rank(rois) == 2, "X and rois are of ranks {} and {}, expected 4 and 2", e.rank(x),
            e.rank(rois));
  const std::string mode = e.node.get_string("mode", "bilinear");
  e.require(mode == "bilinear" || mode == "nearest", "mode '{}' is none of bilinear, nearest", mode);
  const bool nearest = mode == "nearest";
  const DType type = e.dtype(x);

  auto along = [&](int64_t axis) {  // 0: rows, 1: columns
    auto bound = [&](int64_t column) { return e.slice(rois, 1, column, column + 1); };
    const TensorId extent = e.scalar_size(e.size(x, axis + 2));
    const TensorId last = e.cast(e.emit("Sub", {extent, e.scalar(1, DType::I64)}), type);
    const TensorId count = e.squeeze(e.slice(size, 0, axis, axis + 1), {0});
    return pixels(e, crop_places(e, bound(axis), bound(axis + 2), last, count, type), last, nearest, type);
  };
  const Places rows = along(0), columns = along(1);
  const TensorId images = e.transpose(x, {0, 2, 3, 1});
  const TensorId batch = e.unsqueeze(e.cast(e.in(kBatch), DType::I64), {1, 2});
  auto by_row = [&](TensorId t) { return e.unsqueeze(t, {2}); };
  auto by_column = [&](TensorId t) { return e.unsqueeze(t, {1}); };
  const TensorId all = e.emit("Shape", {e.emit("And", {by_row(rows.inside), by_column(columns.inside)})});
  auto pixel = [&](TensorId row, TensorId column) {  // [R, height, width, C]
    std::vector<TensorId> index;
    for (TensorId t : {batch, by_row(row), by_column(column)})
      index.push_back(e.unsqueeze(e.emit("Expand", {t, all}), {3}));
    return e.emit("GatherND", {images, e.concat(index, 3)});
  };
  auto between = [&](TensorId a, TensorId b, TensorId part) {
    return e.emit("Add", {a, e.emit("Mul", {e.emit("Sub", {b, a}), e.unsqueeze(part, {3})})});
  };
  TensorId y = pixel(rows.low, columns.low);
  if (!nearest) {
    const TensorId right = by_column(e.emit("Sub", {columns.at, e.emit("Floor", {columns.at})}));
    const TensorId down = by_row(e.emit("Sub", {rows.at, e.emit("Floor", {rows.at})}));
    const TensorId top = between(y, pixel(rows.low, columns.high), right);
    const TensorId bottom = between(pixel(rows.high, columns.low), pixel(rows.high, columns.high), right);
    y = between(top, bottom, down);
  }
  const TensorId inside = e.unsqueeze(e.emit("And", {by_row(rows.inside), by_column(columns.inside)}), {3});
  const TensorId outside = e.scalar(e.node.get_float("extrapolation_value", 0), type);
  e.result(0, e.transpose(e.emit("Where", {inside, y, outside}), {0, 3, 1, 2}));
}

}  // namespace

void register_microsoft_tensors(ExpansionRegistry& r) {
  r.add("CDist", cdist, kDomain);
  r.add("UnfoldTensor", unfold_tensor, kDomain);
  r.add("NGramRepeatBlock", ngram_repeat_block, kDomain);
  r.add("CropAndResize", crop_and_resize, kDomain);
}

}  // namespace ingot
