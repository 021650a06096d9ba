#include "graph/ewise_types.h"

#include "base/error.h"
#include "kernels/ewise_ops.h"

namespace ingot {
namespace {

const EwiseOp* find_op(const std::string& name) {
  for (const EwiseOp& op : kEwiseOps)
    if (name == op.name) return &op;
  return nullptr;
}

std::string list(const std::vector<DType>& types) {
  std::string out;
  for (DType t : types) out += (out.empty() ? "" : ", ") + std::string(name(t));
  return out;
}

}  // namespace

DType ewise_result_type(const std::string& op_name, const std::vector<DType>& args) {
  const EwiseOp* op = find_op(op_name);
  if (!op) invalid_model("there is no element-wise operator '{}'", op_name);
  if (static_cast<int>(args.size()) != op->arity)
    invalid_model("element-wise operator '{}' takes {} arguments, got {}", op_name, op->arity, args.size());
  const DType type = args.back();
  bool right = contains(op->types, type);
  for (size_t i = 0; i + 1 < args.size(); i++)
    right = right && args[i] == (op->rule == EwiseRule::Select && i == 0 ? DType::Bool : type);
  if (!right) invalid_model("element-wise operator '{}' does not take ({})", op_name, list(args));
  if (op->rule == EwiseRule::Test) return DType::Bool;
  if (op->rule == EwiseRule::Cast) return *dtype_from_name(op_name.substr(op_name.rfind('_') + 1));
  return type;
}

}  // namespace ingot
