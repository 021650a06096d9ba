// Reading and rearranging constant tensors at compile time.
#pragma once
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// The value of a constant with one element (any rank), of float, integer or bool type.
std::optional<double> scalar_value(const TensorInfo&);
// All elements when they are known numbers: an integer constant, or values that shapes told.
std::optional<std::vector<int64_t>> integer_values(const TensorInfo&);
// The same where some elements may be symbols.
std::optional<std::vector<Dim>> dim_values(const TensorInfo&);

// The bytes of c seen with other dims (same number of elements).
ConstantPtr reshaped(const ConstantPtr& c, std::vector<int64_t> dims);
// y[i_0, i_1, ...] = x[i at perm]: as ONNX Transpose. Nothing for types that are not whole bytes.
ConstantPtr transposed(const ConstantPtr& c, const std::vector<int64_t>& perm);
// A scalar or a tensor filled with one F32 value.
ConstantPtr filled(float value, std::vector<int64_t> dims = {});

bool is_f32(const TensorInfo&);
// Provably the same shape.
bool same_shape(const TensorInfo& a, const TensorInfo& b);
bool same_shape(const Shape& a, const Shape& b);
// A shape of rank `rank`, ones in front.
Shape padded_shape(const Shape&, size_t rank);

}  // namespace ingot
