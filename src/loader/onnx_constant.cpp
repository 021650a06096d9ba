#include "loader/onnx_constant.h"

#include "base/error.h"

namespace ingot {
namespace {

ConstantPtr strings(std::vector<int64_t> dims, std::vector<std::string> values) {
  auto c = std::make_shared<Constant>();
  c->dtype = DType::String;
  c->dims = std::move(dims);
  c->strings = std::move(values);
  return c;
}

struct ToConstant {
  const std::string& name;

  ConstantPtr operator()(const ConstantPtr& t) const { return t; }
  ConstantPtr operator()(int64_t v) const { return make_constant(DType::I64, {}, std::vector{v}); }
  ConstantPtr operator()(float v) const { return make_constant(DType::F32, {}, std::vector{v}); }
  ConstantPtr operator()(const std::string& v) const { return strings({}, {v}); }
  ConstantPtr operator()(const std::vector<int64_t>& v) const {
    return make_constant(DType::I64, {static_cast<int64_t>(v.size())}, v);
  }
  ConstantPtr operator()(const std::vector<float>& v) const {
    return make_constant(DType::F32, {static_cast<int64_t>(v.size())}, v);
  }
  ConstantPtr operator()(const std::vector<std::string>& v) const {
    return strings({static_cast<int64_t>(v.size())}, v);
  }
  ConstantPtr operator()(const GraphPtr&) const { invalid_model("attribute '{}' is a graph", name); }
};

}  // namespace

ConstantPtr constant_value(const std::map<std::string, Attribute>& attrs) {
  // What each attribute must hold, by index into Attribute.
  static const std::map<std::string, size_t> kinds = {
      {"value", 6},     {"sparse_value", 6}, {"value_float", 1},  {"value_floats", 4},
      {"value_int", 0}, {"value_ints", 3},   {"value_string", 2}, {"value_strings", 5},
  };
  ConstantPtr result;
  for (const auto& [name, value] : attrs) {
    auto kind = kinds.find(name);
    if (kind == kinds.end()) continue;
    if (result) invalid_model("has more than one value");
    if (value.index() != kind->second) invalid_model("attribute '{}' has the wrong type", name);
    result = std::visit(ToConstant{name}, value);
  }
  if (!result) invalid_model("has no value");
  return result;
}

}  // namespace ingot
