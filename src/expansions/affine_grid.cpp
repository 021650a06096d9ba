// AffineGrid:  grid[n, (z,) y, x] = theta[n] (x, y, (z,) 1)^T with coordinates evenly spaced in [-1, 1]: at the centres
// of pixels, or with align_corners from the first to the last.
#include "expansions/expander.h"

namespace ingot {
namespace {

// The number of spatial axes, where theta or size tells it.
std::optional<int64_t> spatial_axes(Expander& e, TensorId theta, TensorId size) {
  std::optional<int64_t> axes;
  auto tell = [&](const Size& s, int64_t more) {
    if (!s.is_number()) return;
    const int64_t told = s.number - more;
    e.require((told == 2 || told == 3) && axes.value_or(told) == told,
              "theta is {} and size {}, expected [N, 2, 3] and [4] or [N, 3, 4] and [5]", str(e.shape(theta)),
              str(e.shape(size)));
    axes = told;
  };
  tell(e.size(theta, 1), 0);
  tell(e.size(theta, 2), 1);
  tell(e.size(size, 0), 2);
  return axes;
}

// The position of every pixel, [pixels, 3], with x first; `extent` has the three sizes, those of z first.
TensorId positions(Expander& e, TensorId extent, DType type) {
  auto number = [&](double v) { return e.scalar(v, type); };
  auto extent_at = [&](int64_t axis) { return e.emit("Gather", {extent, e.ints({axis})}); };
  const TensorId width = extent_at(2), area = e.emit("Mul", {width, extent_at(1)});
  const TensorId pixels = e.squeeze(e.emit("Mul", {area, extent_at(0)}), {0});
  const TensorId pixel = e.emit("Range", {e.scalar(0, DType::I64), pixels, e.scalar(1, DType::I64)});
  const TensorId strides = e.concat({e.ints({1}), width, area}, 0);
  const TensorId sizes = e.emit("Gather", {extent, e.ints({2, 1, 0})});
  const TensorId at = e.emit("Mod", {e.emit("Div", {e.unsqueeze(pixel, {1}), strides}), sizes});
  const TensorId twice = e.emit("Mul", {e.cast(at, type), number(2)}), count = e.cast(sizes, type);
  if (!e.node.get_int("align_corners", 0))
    return e.emit("Sub", {e.emit("Div", {e.emit("Add", {twice, number(1)}), count}), number(1)});
  // A single element stands at -1 whatever it is divided by.
  const TensorId gaps = e.emit("Max", {e.emit("Sub", {count, number(1)}), number(1)});
  return e.emit("Sub", {e.emit("Div", {twice, gaps}), number(1)});
}

void expand_affine_grid(Expander& e) {
  TensorId theta = e.in(0);
  const TensorId size = e.cast(e.in(1), DType::I64);
  const DType given = e.dtype(theta), type = given == DType::F64 ? given : DType::F32;
  e.require(e.rank(theta) == 3 && e.rank(size) == 1, "theta is of rank {} and size of rank {}, expected 3 and 1",
            e.rank(theta), e.rank(size));
  const auto axes = spatial_axes(e, theta, size);
  TensorId space = e.slice(size, 0, 2);
  if (axes) {
    space = e.reshape(space, {*axes});
  } else {  // theta has to agree with size
    const TensorId count = e.sizes({e.size(space, 0)}), one_more = e.emit("Add", {count, e.ints({1})});
    theta = e.emit("Reshape", {theta, e.concat({e.sizes({e.size(theta, 0)}), count, one_more}, 0)});
  }

  // An image without depth has one layer, and no place for z in theta.
  const TensorId extent = e.reshape(e.slice(e.concat({e.ints({1}), space}, 0), 0, -3), {3});
  const TensorId position = e.slice(positions(e, extent, type), 1, 0, e.size(theta, 1));
  const TensorId one =
      e.emit("Expand", {e.scalar(1, type), e.concat({e.sizes({e.size(position, 0)}), e.ints({1})}, 0)});
  const TensorId points = e.concat({position, one}, 1);
  const TensorId grid = e.emit("MatMul", {points, e.transpose(e.cast(theta, type), {0, 2, 1})});
  const TensorId shape = e.concat({e.sizes({e.size(theta, 0)}), space, e.sizes({e.size(theta, 1)})}, 0);
  e.result(0, e.cast(e.emit("Reshape", {grid, shape}, {{"allowzero", int64_t{1}}}), given));
}

}  // namespace

void register_affine_grid(ExpansionRegistry& r) { r.add("AffineGrid", expand_affine_grid); }

}  // namespace ingot
