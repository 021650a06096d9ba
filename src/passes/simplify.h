// The rules behind simplify(): a rule looks at one node and either rewrites it and says true, or leaves it.
#pragma once
#include <span>

#include "passes/editor.h"

namespace ingot {

struct SimplifyRule {
  const char* op;  // of ai.onnx
  bool (*apply)(Editor&, Editor::Handle);
};

std::span<const SimplifyRule> simplify_elementwise_rules();
std::span<const SimplifyRule> simplify_narrow_rules();
std::span<const SimplifyRule> simplify_quantize_rules();
std::span<const SimplifyRule> simplify_shape_rules();
std::span<const SimplifyRule> simplify_transpose_rules();

// The operator computes each element of its result from the broadcast elements of its operands.
bool is_elementwise(const Node&);
// The same, and all operands broadcast against each other (in Clip or PRelu they are broadcast to the first).
bool broadcasts_all(const Node&);

// The shape operand with which Reshape turns `in` into `out`, if numbers, one -1 and copied dims (0) can say it.
std::optional<std::vector<int64_t>> reshape_spec(const Shape& in, const Shape& out);
// Reshape x to `out`, by a constant shape operand where reshape_spec finds one; otherwise nothing.
std::optional<TensorId> emit_reshape(Editor&, const Node& from, TensorId x, const Shape& out);

std::vector<int64_t> transpose_perm(const Editor&, const Node&);  // empty when the rank is not known
bool is_identity(const std::vector<int64_t>& perm);
std::vector<int64_t> inverse(const std::vector<int64_t>& perm);
// Transpose by `first`, then by `second`.
std::vector<int64_t> compose(const std::vector<int64_t>& first, const std::vector<int64_t>& second);
Shape permuted(const Shape&, const std::vector<int64_t>& perm);
// perm leaves the order of the axes that are not of size 1: no data move.
bool moves_only_ones(const Shape& in, const std::vector<int64_t>& perm);

}  // namespace ingot
