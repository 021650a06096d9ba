// Reductions, TopK and the soft-max family.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// An empty list meant "all axes", as an absent operand does today.
void axes_to_input(Rewriter& r) {
  if (auto axes = r.take_ints("axes"); axes && !axes->empty()) r.set_input(1, r.ints(*axes, "axes"));
}

void top_k_1(Rewriter& r) {
  const auto k = r.take_int("k");
  if (!k) r.fail(ErrorKind::InvalidModel, "attribute 'k' is missing");
  r.set_input(1, r.ints({*k}, "k"));
}

// Before opset 13 these worked on the tensor seen as a matrix, rows up to `axis` (default 1):
// softmax_12(x, axis) = Reshape(Softmax(Flatten(x, axis), -1), Shape(x)); over the last axis that is Softmax(x, -1).
void softmax_12(Rewriter& r) {
  const int64_t axis = r.take_int("axis").value_or(1);
  const TensorId x = r.need_input(0);
  const auto rank = r.rank(x);
  r.node.attrs["axis"] = int64_t{-1};
  if (axis == -1 || (rank && axis == *rank - 1)) return;
  r.set_input(0, r.emit("Flatten", {x}, {{"axis", axis}}));
  const TensorId shape = r.emit("Shape", {x}), result = r.detach();
  r.emit_after("Reshape", {r.node.outputs[0], shape}, {result});
}

constexpr Rule kRules[] = {
    {"ReduceSum", 1, 12, axes_to_input},
    {"ReduceL1", 1, 17, axes_to_input},
    {"ReduceL2", 1, 17, axes_to_input},
    {"ReduceLogSum", 1, 17, axes_to_input},
    {"ReduceMax", 1, 17, axes_to_input},
    {"ReduceLogSumExp", 1, 17, axes_to_input},
    {"ReduceMean", 1, 17, axes_to_input},
    {"ReduceSumSquare", 1, 17, axes_to_input},
    {"ReduceMin", 1, 17, axes_to_input},
    {"ReduceProd", 1, 17, axes_to_input},
    {"TopK", 1, 9, top_k_1},
    {"Softmax", 1, 12, softmax_12},
    {"LogSoftmax", 1, 12, softmax_12},
    {"Hardmax", 1, 12, softmax_12},
};

}  // namespace

RuleTable reduce_rules() { return {"", kRules}; }

}  // namespace ingot
