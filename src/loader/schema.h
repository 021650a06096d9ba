// What ONNX's own schemas say of operators: the opsets that have them, the element types their operands may have, their
// attributes. The table is generated from the onnx package that Ingot is built with. Graphs hold the operators' current
// versions, which is what extractors make of any model; older versions are what writer/downgrade.h writes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// One version of an operator.
struct OpSchema {
  struct Operand {
    uint64_t types;     // bit n: the element type numbered n in ONNX
    std::string which;  // operands with the same name here have the same type; "" has none
    bool variadic;      // stands for all operands from here on

    bool takes(DType t) const { return types == 0 || (types >> static_cast<int>(t) & 1) != 0; }
  };
  struct Attr {
    std::string name;
    std::optional<std::string> fallback;  // the default of an integer (in digits) or a string
  };
  std::string domain, name;
  int64_t version;  // the opset that this version came with
  bool deprecated;
  size_t min_operands, max_operands, min_results, max_results;
  std::vector<Operand> operands, results;
  std::vector<Attr> attributes;
};

// The version of the operator that an opset has; nullptr when it has none. Without an opset the newest.
const OpSchema* find_schema(const Node&, std::optional<int64_t> opset = std::nullopt);
// The first opset that has the operator; nothing for operators that ONNX does not have.
std::optional<int64_t> first_opset(const Node&);

// May the operator have an attribute of this name, from ONNX in any version or from Ingot? Of operators that neither
// has, any.
bool knows_attribute(const Node&, const std::string& name);
// InvalidModel naming the first attribute of a node, here or in a body, that its operator does not know.
void check_attributes(const Graph&);

// InvalidModel naming node, operand and types, when an operand's element type is not one its operator takes. Types that
// are not known, and operators that ONNX does not have, pass.
void check_operand_types(const Graph&, const Node&, const std::vector<TensorInfo>& known);

}  // namespace ingot
