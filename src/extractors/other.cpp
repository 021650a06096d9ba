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

// Opset 8 scanned each member of a batch: an outer Scan over the batch, in it a Scan over the sequence. States and
// sequences are all scanned outside; inside they are what they were, for one member.
void scan_8(Rewriter& r) {
  if (r.node.has_input(0)) r.fail(ErrorKind::Unsupported, "with sequence_lens is not supported");
  const auto captures = static_cast<size_t>(r.node.get_int("captures", 0));
  const int64_t sequences = r.node.need_int("num_scan_inputs");
  if (r.node.inputs.size() < captures + 1 || !r.node.get_graph("body"))
    r.fail(ErrorKind::InvalidModel, "has no operands or no body");
  r.node.inputs.erase(r.node.inputs.begin());

  auto member = std::make_shared<Graph>();
  member->name = "member";
  Node inner;
  inner.op = "Scan";
  inner.name = r.node.name + "/member";
  inner.origins = r.node.origins;
  inner.attrs = {
      {"body", r.node.get_graph("body")}, {"num_scan_inputs", sequences}, {"captures", static_cast<int64_t>(captures)}};
  if (auto directions = r.take_ints("directions")) inner.attrs["scan_input_directions"] = *directions;
  for (size_t i = 0; i < r.node.inputs.size(); i++) inner.inputs.push_back(member->add_tensor(fmt::format("in_{}", i)));
  for (size_t i = 0; i < r.node.outputs.size(); i++)
    inner.outputs.push_back(member->add_tensor(fmt::format("out_{}", i)));
  member->inputs = inner.inputs;
  member->outputs = inner.outputs;
  member->nodes.push_back(std::move(inner));
  r.node.attrs = {{"body", member},
                  {"num_scan_inputs", static_cast<int64_t>(r.node.inputs.size() - captures)},
                  {"captures", static_cast<int64_t>(captures)}};
}

constexpr Rule kRules[] = {
    {"Cast", 1, 5, cast_1},
    {"DFT", 17, 19, dft_17},
    {"Scan", 8, 8, scan_8},
};

}  // namespace

RuleTable other_rules() { return {"", kRules}; }

}  // namespace ingot
