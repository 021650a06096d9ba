// What the rules of ai.onnx.ml share: scores to results.
#pragma once
#include "extractors/rewriter.h"

namespace ingot {

// A list as a constant operand.
TensorId floats(Rewriter&, const std::vector<float>& values, const std::vector<int64_t>& dims, const std::string& what);
TensorId cast_to(Rewriter&, TensorId x, DType);

// The attribute post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT, over the last axis of f32 scores.
TensorId post_transformed(Rewriter&, TensorId scores, const std::string& transform);

// The node becomes the tensor that `result` is: of its i-th result. The rule must drop the node.
void set_result(Rewriter&, size_t i, TensorId result);

// The labels of the node, from the attribute of this name; Unsupported for labels that are strings.
std::vector<int64_t> class_labels(Rewriter&, const char* attr);
// labels[index], and high or low by the sign of a condition.
TensorId labels_at(Rewriter&, const std::vector<int64_t>& labels, TensorId index);

}  // namespace ingot
