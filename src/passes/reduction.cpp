#include "passes/reduction.h"

#include <algorithm>
#include <numeric>

#include "passes/constants.h"

namespace ingot {

std::optional<std::vector<int64_t>> known_axes(const Editor& e, const Node& n) {
  const auto& shape = e.info(n.inputs[0]).shape;
  if (!shape) return std::nullopt;
  const auto rank = static_cast<int64_t>(shape->size());
  std::vector<int64_t> axes = n.get_ints("axes");
  if (n.has_input(1)) {
    auto given = integer_values(e.info(n.inputs[1]));
    if (!given) return std::nullopt;
    axes = *given;
  }
  if (axes.empty()) {
    if (n.get_int("noop_with_empty_axes", 0) != 0) return std::nullopt;
    axes.resize(shape->size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& a : axes) {
    if (a < 0) a += rank;
    if (a < 0 || a >= rank) return std::nullopt;
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::optional<std::vector<int64_t>> reduced_axes(const Editor& e, const Node& n) {
  if (n.get_int("keepdims", 1) == 0) return std::nullopt;
  return known_axes(e, n);
}

std::optional<int64_t> first_of_last(const std::vector<int64_t>& axes, size_t rank) {
  for (size_t i = 0; i < axes.size(); i++)
    if (axes[i] != static_cast<int64_t>(rank - axes.size() + i)) return std::nullopt;
  if (axes.empty()) return std::nullopt;
  return axes[0];
}

TensorId normalization_operand(Editor& e, TensorId t, const Shape& shape, int64_t axis) {
  const auto& own = e.info(t).shape;
  if (!own || e.info(t).dtype != DType::F32) return kNoTensor;
  const Shape wanted(shape.begin() + axis, shape.end());
  if (same_shape(*own, wanted)) return t;
  const bool constant = e.is_constant(t) && is_const(wanted);
  if (!constant || !same_shape(*own, padded_shape(wanted, own->size()))) return kNoTensor;
  return e.add_constant(e.graph.tensor(t).name + "/vector", reshaped(e.info(t).constant, numbers(wanted)));
}

TensorId ones_like_normalized(Editor& e, const std::string& name, DType dtype, const Shape& shape, int64_t axis) {
  const Shape wanted(shape.begin() + axis, shape.end());
  if (!is_const(wanted) || dtype != DType::F32) return kNoTensor;
  return e.add_constant(name + "/ones", filled(1.f, numbers(wanted)));
}

}  // namespace ingot
