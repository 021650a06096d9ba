// QDQ and integer operators: two ways to write the same quantized computation.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ingot {

struct FormReport {
  int64_t changed = 0;                         // nodes written in the other form
  std::vector<std::string> stays;              // "ConvTranspose 'up': ONNX has no integer operator for it"
  std::map<std::string, std::string> reasons;  // the same by the node's name: "ONNX has no integer operator for it"
};

// DequantizeLinear -> Conv -> QuantizeLinear becomes QLinearConv, and so on: QLinearConv, QLinearMatMul, and where the
// result stays fp32 ConvInteger and MatMulInteger. Operators that only move data work on the integers. Precondition:
// types are known. InvalidModel, naming the node, for scales that are not positive or do not fit.
// QLinearConv's bias is an int32: one that is fp32 is rounded to it, or, with keep_bias, added behind a ConvInteger.
FormReport to_integer_operators(Graph&, bool keep_bias = false);

// The same for products whose first operand has a scale for each row: of those ONNX's DequantizeLinear knows none.
void rows_to_integer_operators(Graph&);

// The other way.
FormReport to_qdq(Graph&);

// Scales and zero points of all nodes of both forms, as far as they are constant.
void check_quantization(const Graph&);

}  // namespace ingot
