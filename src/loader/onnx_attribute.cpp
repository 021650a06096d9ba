#include "base/error.h"
#include "loader/onnx_graph.h"
#include "onnx.pb.h"

namespace ingot {
namespace {

using Proto = onnx::AttributeProto;

// IR version 1 and some old exporters leave the type out: it is then the one field that is set.
Proto::AttributeType type_of(const Proto& a) {
  if (a.type() != Proto::UNDEFINED) return a.type();
  if (a.has_f()) return Proto::FLOAT;
  if (a.has_i()) return Proto::INT;
  if (a.has_s()) return Proto::STRING;
  if (a.has_t()) return Proto::TENSOR;
  if (a.has_g()) return Proto::GRAPH;
  if (a.has_sparse_tensor()) return Proto::SPARSE_TENSOR;
  if (a.floats_size()) return Proto::FLOATS;
  if (a.ints_size()) return Proto::INTS;
  if (a.strings_size()) return Proto::STRINGS;
  invalid_model("attribute '{}' has no type and no value", a.name());
}

template <class T, class Field>
std::vector<T> list(const Field& field) {
  return {field.begin(), field.end()};
}

}  // namespace

Attribute read_attribute(const Proto& a, TensorReader& tensors) {
  switch (type_of(a)) {
    case Proto::FLOAT:
      return a.f();
    case Proto::INT:
      return static_cast<int64_t>(a.i());
    case Proto::STRING:
      return a.s();
    case Proto::TENSOR:
      if (!a.has_t()) invalid_model("attribute '{}' has no tensor", a.name());
      return tensors.read(a.t());
    case Proto::SPARSE_TENSOR:
      if (!a.has_sparse_tensor()) invalid_model("attribute '{}' has no tensor", a.name());
      return tensors.read(a.sparse_tensor());
    case Proto::FLOATS:
      return list<float>(a.floats());
    case Proto::INTS:
      return list<int64_t>(a.ints());
    case Proto::STRINGS:
      return list<std::string>(a.strings());
    default:
      unsupported("attribute '{}' is of type {}, which is not supported", a.name(),
                  Proto::AttributeType_Name(a.type()));
  }
}

std::optional<Attribute> OnnxGraphBuilder::attribute(const Proto& a,
                                                     std::vector<std::unique_ptr<OnnxGraphBuilder>>& subgraphs) {
  if (a.name().empty()) invalid_model("an attribute has no name");
  if (!a.ref_attr_name().empty()) {
    if (!function_attrs_)
      invalid_model("attribute '{}' refers to '{}' outside a function", a.name(), a.ref_attr_name());
    auto it = function_attrs_->find(a.ref_attr_name());
    return it == function_attrs_->end() ? std::nullopt : std::optional(it->second);
  }
  // Optional says in "type" what follows from its operand and its readers.
  if (type_of(a) == Proto::TYPE_PROTO && a.name() == "type") return std::nullopt;
  if (type_of(a) != Proto::GRAPH) return read_attribute(a, model_.tensors);
  if (!a.has_g()) invalid_model("attribute '{}' has no graph", a.name());
  subgraphs.push_back(std::make_unique<OnnxGraphBuilder>(model_, this, function_attrs_, opsets_, depth_ + 1));
  return subgraphs.back()->build(a.g());
}

}  // namespace ingot
