#include "extractors/type_hints.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace ingot {
namespace {

// The result has the rank and the type of the first operand.
const std::unordered_set<std::string_view> kLikeFirst = {"Abs",
                                                         "AveragePool",
                                                         "BatchNormalization",
                                                         "Ceil",
                                                         "Clip",
                                                         "Conv",
                                                         "ConvTranspose",
                                                         "Elu",
                                                         "Erf",
                                                         "Exp",
                                                         "Floor",
                                                         "Gelu",
                                                         "GlobalAveragePool",
                                                         "GlobalLpPool",
                                                         "GlobalMaxPool",
                                                         "GroupNormalization",
                                                         "HardSigmoid",
                                                         "HardSwish",
                                                         "Hardmax",
                                                         "Identity",
                                                         "InstanceNormalization",
                                                         "LRN",
                                                         "LayerNormalization",
                                                         "LeakyRelu",
                                                         "Log",
                                                         "LogSoftmax",
                                                         "LpNormalization",
                                                         "LpPool",
                                                         "MaxPool",
                                                         "Mish",
                                                         "Neg",
                                                         "PRelu",
                                                         "Pad",
                                                         "Reciprocal",
                                                         "Relu",
                                                         "Resize",
                                                         "Round",
                                                         "Selu",
                                                         "Sigmoid",
                                                         "Sign",
                                                         "Slice",
                                                         "Softmax",
                                                         "Softplus",
                                                         "Softsign",
                                                         "Sqrt",
                                                         "Swish",
                                                         "Tanh",
                                                         "ThresholdedRelu",
                                                         "Tile",
                                                         "Transpose"};
// The result has the type of the operands and the rank of the largest.
const std::unordered_set<std::string_view> kBroadcast = {"Add", "Sub", "Mul", "Div",  "Pow",
                                                         "Max", "Min", "Sum", "Mean", "Concat"};

}  // namespace

void propagate_hints(Graph& g, const Node& n) {
  if (!n.domain.empty() || !n.has_input(0) || !n.has_output(0)) return;
  TensorInfo& out = g.info(n.outputs[0]);
  const bool broadcast = kBroadcast.contains(n.op);
  if (out.constant || (!broadcast && !kLikeFirst.contains(n.op))) return;
  if (out.dtype == DType::Undefined) out.dtype = g.info(n.inputs[0]).dtype;
  if (out.shape) return;
  size_t rank = 0;
  for (size_t i = 0; i < (broadcast ? n.inputs.size() : 1); i++) {
    if (!n.has_input(i) || !g.info(n.inputs[i]).shape) return;
    rank = std::max(rank, g.info(n.inputs[i]).shape->size());
  }
  out.shape = Shape(rank, Dim::unknown());
}

}  // namespace ingot
