// Reading QuantizeLinear and DequantizeLinear nodes, and the products they are for.
#pragma once
#include "passes/editor.h"

namespace ingot {

// MatMul, Gemm, Conv, ConvTranspose.
bool is_product(const Node&);

struct QdqNode {
  TensorId x, scale, zero;  // zero may be kNoTensor
  int64_t axis;             // of x along which scales lie; kPerTensor: there is one
  static constexpr int64_t kPerTensor = -1;
};

// The operands of a QuantizeLinear or DequantizeLinear of f32 and whole-byte integers, without blocks, whose scales and
// zero points are constants where they lie along an axis; nothing for others.
std::optional<QdqNode> read_qdq(const Editor&, const Node&);
// The same of the DequantizeLinear that makes t.
std::optional<QdqNode> read_dequantized(const Editor&, TensorId t);

// Same scale and zero point, as known constants.
bool same_qdq(const Editor&, const QdqNode&, const QdqNode&);

// The zero point if it is known and the same for all: 0 where there is none.
std::optional<double> known_zero_point(const Editor&, const QdqNode&);

}  // namespace ingot
