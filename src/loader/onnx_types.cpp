#include "loader/onnx_types.h"

#include <cctype>

#include "base/checked.h"
#include "onnx.pb.h"

namespace ingot {
namespace {

constexpr int kMaxRank = 64;

// "_" and "?" are how some exporters write that a dimension has no name.
bool is_name(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c >= 0x80; });
}

Shape read_shape(const onnx::TensorShapeProto& proto, const std::string& owner, Role role, SymbolNames& symbols) {
  if (proto.dim_size() > kMaxRank) invalid_model("has {} dimensions", proto.dim_size());
  Shape shape;
  int64_t elements = 1;
  for (int i = 0; i < proto.dim_size(); i++) {
    const auto& d = proto.dim(i);
    // Old exporters write -1 for a free dimension.
    if (d.has_dim_value() && d.dim_value() != -1) {
      if (d.dim_value() < 0) invalid_model("has the negative dimension {}", d.dim_value());
      if (d.dim_value() > 0) elements = checked_mul(elements, d.dim_value());
      shape.emplace_back(d.dim_value());
    } else if (d.has_dim_param() && is_name(d.dim_param())) {
      shape.push_back(symbols.dim(d.dim_param()));
    } else {
      shape.push_back(role == Role::Input ? symbols.dim(fmt::format("{}_dim{}", owner, i)) : Dim::unknown());
    }
  }
  return shape;
}

const char* kind_name(onnx::TypeProto::ValueCase kind) {
  switch (kind) {
    case onnx::TypeProto::kSequenceType:
      return "sequence";
    case onnx::TypeProto::kOptionalType:
      return "optional";
    case onnx::TypeProto::kMapType:
      return "map";
    case onnx::TypeProto::kSparseTensorType:
      return "sparse tensor";
    default:
      return "opaque";
  }
}

}  // namespace

Dim SymbolNames::dim(const std::string& text) {
  std::string& symbol = symbols_[text];
  if (symbol.empty()) {
    std::string word;
    for (char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      word += byte >= 0x80 || std::isalnum(byte) || c == '_' || c == '.' ? c : '_';
    }
    if (std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '.') word = "_" + word;
    symbol = taken_.make(word);
  }
  return Dim::symbol(symbol);
}

TensorInfo read_type(const onnx::ValueInfoProto& value, Role role, SymbolNames& symbols) try {
  TensorInfo info;
  const onnx::TypeProto* type = &value.type();
  if (type->value_case() == onnx::TypeProto::VALUE_NOT_SET) return info;
  const bool optional = type->value_case() == onnx::TypeProto::kOptionalType;
  if (optional) type = &type->optional_type().elem_type();
  const bool sequence = type->value_case() == onnx::TypeProto::kSequenceType;
  if (sequence) type = &type->sequence_type().elem_type();
  if (optional)
    info.form = sequence ? Form::OptionalSequence : Form::Optional;
  else if (sequence)
    info.form = Form::Sequence;
  if (type->value_case() == onnx::TypeProto::VALUE_NOT_SET) return info;
  if (type->value_case() != onnx::TypeProto::kTensorType)
    unsupported("is of {} type{}, which is not supported", kind_name(type->value_case()),
                sequence || optional ? " inside" : "");
  const auto& tensor = type->tensor_type();
  if (tensor.elem_type() != 0) {
    auto dtype = dtype_from_onnx(tensor.elem_type());
    if (!dtype) invalid_model("has the unknown element type {}", tensor.elem_type());
    info.dtype = *dtype;
  }
  // The elements of a sequence may differ in shape, whatever the model says.
  if (tensor.has_shape() && info.form == Form::Tensor)
    info.shape = read_shape(tensor.shape(), value.name(), role, symbols);
  return info;
} catch (const Error& e) {
  throw Error(e.kind(), fmt::format("'{}' {}", value.name(), e.message()), e.hint());
}

}  // namespace ingot
