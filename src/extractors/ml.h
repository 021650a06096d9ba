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

// What a classifier calls its classes: integers or strings.
struct ClassLabels {
  std::vector<int64_t> integers;
  std::vector<std::string> strings;
  size_t size() const { return integers.size() + strings.size(); }
};
// The labels of the node: from the attribute of this name, or from classlabels_strings.
ClassLabels class_labels(Rewriter&, const char* attr);
// labels[index]
TensorId labels_at(Rewriter&, const ClassLabels& labels, TensorId index);

}  // namespace ingot
