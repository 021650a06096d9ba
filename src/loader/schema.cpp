#include "loader/schema.h"

#include <map>
#include <unordered_map>

#include "base/error.h"

namespace ingot {
namespace {

const OpSchema* find_schema(const Node& node) {
  static const auto index = [] {
    std::unordered_map<std::string, const OpSchema*> all;
    for (const OpSchema& s : onnx_schemas()) all.emplace(s.domain + ":" + s.name, &s);
    return all;
  }();
  const auto it = index.find(node.domain + ":" + node.op);
  return it == index.end() ? nullptr : it->second;
}

std::string spell(uint64_t types) {
  std::string out;
  for (int32_t number = 0; number < 64; number++)
    if (types >> number & 1)
      if (auto dtype = dtype_from_onnx(number)) out += (out.empty() ? "" : ", ") + std::string(name(*dtype));
  return out;
}

}  // namespace

void check_operand_types(const Graph& graph, const Node& node, const std::vector<TensorInfo>& known) {
  const OpSchema* schema = find_schema(node);
  if (!schema || schema->operands.empty()) return;
  std::map<std::string, std::pair<DType, size_t>> bound;
  for (size_t i = 0; i < node.inputs.size(); i++) {
    if (node.inputs[i] == kNoTensor) continue;
    if (i >= schema->operands.size() && !schema->operands.back().variadic) return;  // captured values
    const OpSchema::Operand& operand = schema->operands[std::min(i, schema->operands.size() - 1)];
    const DType type = known[static_cast<size_t>(node.inputs[i])].dtype;
    if (type == DType::Undefined || operand.types == 0) continue;
    if (!(operand.types >> static_cast<int>(type) & 1))
      invalid_model("{}: operand {} ('{}') is {}, expected one of {}", node.label(), i,
                    graph.tensor(node.inputs[i]).name, name(type), spell(operand.types));
    if (operand.which.empty()) continue;
    const auto [first, fresh] = bound.try_emplace(operand.which, type, i);
    if (!fresh && first->second.first != type)
      invalid_model("{}: operand {} ('{}') is {}, and operand {} is {}: they must be of one type", node.label(), i,
                    graph.tensor(node.inputs[i]).name, name(type), first->second.second, name(first->second.first));
  }
}

}  // namespace ingot
