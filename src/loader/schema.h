// What ONNX's own schemas say of operands: the element types they may have. The table is generated from the onnx
// package that Ingot is built with, and is of the operators' current versions, which is what extractors make of any
// model.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ingot {

struct OpSchema {
  struct Operand {
    uint64_t types;     // bit n: the element type numbered n in ONNX
    std::string which;  // operands with the same name here have the same type; "" has none
    bool variadic;      // stands for all operands from here on
  };
  std::string domain, name;
  std::vector<Operand> operands;
  int64_t since;  // the first opset that has the operator
};

const std::vector<OpSchema>& onnx_schemas();  // generated

// InvalidModel naming node, operand and types, when an operand's element type is not one its operator takes. Types that
// are not known, and operators that ONNX does not have, pass.
void check_operand_types(const Graph&, const Node&, const std::vector<TensorInfo>& known);

}  // namespace ingot
