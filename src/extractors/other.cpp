// Casts, transforms, control flow.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// The type was given by its name in TensorProto.
void cast_1(Rewriter& r) {
  static const std::map<std::string, DType> types = {
      {"FLOAT", DType::F32}, {"UINT8", DType::U8},    {"INT8", DType::I8},    {"UINT16", DType::U16},
      {"INT16", DType::I16}, {"INT32", DType::I32},   {"INT64", DType::I64},  {"STRING", DType::String},
      {"BOOL", DType::Bool}, {"FLOAT16", DType::F16}, {"DOUBLE", DType::F64}, {"UINT32", DType::U32},
      {"UINT64", DType::U64}};
  if (!r.node.has("to") || !std::holds_alternative<std::string>(r.node.attrs["to"])) return;
  const std::string to = r.node.get_string("to", "");
  auto it = types.find(to);
  if (it == types.end()) r.fail(ErrorKind::InvalidModel, "attribute 'to' is the unknown type '{}'", to);
  r.node.attrs["to"] = static_cast<int64_t>(it->second);
}

// The axis became an operand; its default changed from 1 to -2.
void dft_17(Rewriter& r) {
  const int64_t axis = r.take_int("axis").value_or(1);
  r.set_input(2, r.constant(make_constant(DType::I64, {}, std::vector{axis}), "axis"));
}

// Opset 8 scanned batches, with a length for each member.
void scan_8(Rewriter& r) {
  r.fail(ErrorKind::Unsupported, "of opset 8 is not supported; export the model with opset 9 or higher");
}

constexpr Rule kRules[] = {
    {"Cast", 1, 5, cast_1},
    {"DFT", 17, 19, dft_17},
    {"Scan", 8, 8, scan_8},
};

}  // namespace

RuleTable other_rules() { return {"", kRules}; }

}  // namespace ingot
