// What fusions of reductions and normalizations ask of a Reduce* node and of the scale that follows it.
#pragma once
#include "passes/editor.h"

namespace ingot {

// Axes of a Reduce* node that keeps its dims, ascending and from the front; nothing when they are not known.
std::optional<std::vector<int64_t>> reduced_axes(const Editor&, const Node&);
// The axes whether or not the dims are kept.
std::optional<std::vector<int64_t>> known_axes(const Editor&, const Node&);
// Axes are the last ones: the first of them. Nothing otherwise.
std::optional<int64_t> first_of_last(const std::vector<int64_t>& axes, size_t rank);

// t as a scale or bias of a normalization over the axes from `axis` of `shape`: t itself, or the constant reshaped;
// kNoTensor when it has another shape.
TensorId normalization_operand(Editor&, TensorId t, const Shape& shape, int64_t axis);
// A scale of ones; kNoTensor when the normalized dims are not numbers.
TensorId ones_like_normalized(Editor&, const std::string& name, DType, const Shape& shape, int64_t axis);

}  // namespace ingot
