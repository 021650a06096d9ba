// AffineGrid:  grid[n, (z,) y, x] = theta[n] (x, y, (z,) 1)^T with coordinates evenly spaced in [-1, 1]: at the centres
// of pixels, or with align_corners from the first to the last.
#include "expansions/expander.h"

namespace ingot {
namespace {

// Coordinates along a spatial axis with n elements (a scalar of i64).
TensorId coordinates(Expander& e, TensorId n, DType type) {
  auto number = [&](double v) { return e.scalar(v, type); };
  const TensorId i = e.cast(e.emit("Range", {e.scalar(0, DType::I64), n, e.scalar(1, DType::I64)}), type);
  const TensorId count = e.cast(n, type), twice = e.emit("Mul", {i, number(2)});
  if (!e.node.get_int("align_corners", 0))
    return e.emit("Sub", {e.emit("Div", {e.emit("Add", {twice, number(1)}), count}), number(1)});
  // A single element stands at -1 whatever it is divided by.
  const TensorId gaps = e.emit("Max", {e.emit("Sub", {count, number(1)}), number(1)});
  return e.emit("Sub", {e.emit("Div", {twice, gaps}), number(1)});
}

void expand_affine_grid(Expander& e) {
  const TensorId theta = e.in(0), size = e.cast(e.in(1), DType::I64);
  const DType given = e.dtype(theta), type = given == DType::F64 ? given : DType::F32;
  e.require(e.rank(theta) == 3 && e.rank(size) == 1, "theta is of rank {} and size of rank {}, expected 3 and 1",
            e.rank(theta), e.rank(size));
  const int64_t axes = e.number(theta, 1);
  e.require((axes == 2 || axes == 3) && e.number(theta, 2) == axes + 1, "theta is {}, expected [N, 2, 3] or [N, 3, 4]",
            str(e.shape(theta)));
  e.require(e.number(size, 0) == axes + 2, "size has {} elements, expected {}", e.number(size, 0), axes + 2);

  const TensorId space = e.concat({e.slice(size, 0, 2), e.ints({1})}, 0);
  std::vector<TensorId> position;  // x, y, (z,) 1
  for (int64_t axis = axes - 1; axis >= 0; axis--) {
    const TensorId n = e.emit("Gather", {size, e.scalar(static_cast<double>(axis + 2), DType::I64)});
    std::vector<int64_t> others;
    for (int64_t d = 0; d <= axes; d++)
      if (d != axis) others.push_back(d);
    position.push_back(e.emit("Expand", {e.unsqueeze(coordinates(e, n, type), others), space}));
  }
  position.push_back(e.emit("Expand", {e.scalar(1, type), space}));
  const TensorId points = e.unsqueeze(e.concat(position, axes), {0});
  const TensorId maps = e.transpose(e.cast(theta, type), {0, 2, 1});
  const TensorId per_batch = e.unsqueeze(maps, axes == 2 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2});
  e.result(0, e.cast(e.emit("MatMul", {points, per_batch}), given));
}

}  // namespace

void register_affine_grid(ExpansionRegistry& r) { r.add("AffineGrid", expand_affine_grid); }

}  // namespace ingot
