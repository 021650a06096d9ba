#include "loader/onnx_tensor.h"

#include <charconv>
#include <cstring>

#include "base/checked.h"
#include "loader/onnx_external.h"
#include "loader/onnx_wire.h"
#include "onnx.pb.h"

namespace ingot {
namespace {

constexpr int64_t kMaxRank = 64;
// Three quarters of the weights in an ONNX file lie at addresses that are not a multiple of their element's size.
// Copying them costs more than all the rest of loading (60 to 350 ms of 265 MB), and the processors we compile for read
// unaligned elements as fast as others; so large ones stay where they are. In small ones a copy costs nothing.
#if __has_feature(undefined_behavior_sanitizer)
constexpr size_t kCopyUnalignedBelow = SIZE_MAX;
#else
constexpr size_t kCopyUnalignedBelow = 1 << 16;
#endif
constexpr int64_t kMaxDense = int64_t{1} << 30;  // bytes a sparse tensor may become

std::vector<int64_t> read_dims(const google::protobuf::RepeatedField<int64_t>& dims) {
  if (dims.size() > kMaxRank) invalid_model("has {} dimensions", dims.size());
  int64_t elements = 1;
  for (int64_t d : dims) {
    if (d < 0) invalid_model("has the negative dimension {}", d);
    if (d > 0) elements = checked_mul(elements, d);  // zeros must not hide an overflow of the rest
  }
  return {dims.begin(), dims.end()};
}

DType read_dtype(int32_t number) {
  if (number == 0) invalid_model("has no element type");
  if (auto t = dtype_from_onnx(number)) return *t;
  if (number <= onnx::TensorProto::DataType_MAX)
    unsupported("has element type {}, which is not supported",
                onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(number)));
  invalid_model("has the unknown element type {}", number);
}

int64_t count(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n = checked_mul(n, d);
  return n;
}

std::string shape_text(DType dtype, const std::vector<int64_t>& dims) {
  return fmt::format("{} {}", name(dtype), str(to_shape(dims)));
}

// Points at the bytes, or copies them if nobody keeps them or their address does not suit the element type.
ConstantPtr from_bytes(DType dtype, std::vector<int64_t> dims, std::span<const std::byte> bytes,
                       std::shared_ptr<const void> owner) {
  if (dtype == DType::String) invalid_model("holds strings as raw bytes");
  const int64_t expected = byte_size(dtype, count(dims));
  if (static_cast<int64_t>(bytes.size()) != expected)
    invalid_model("is {}, which takes {} bytes, but has {}", shape_text(dtype, dims), expected, bytes.size());
  const auto alignment = static_cast<uintptr_t>(std::min(8, std::max(1, bits(dtype) / 8)));
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0;
  if (!owner || bytes.empty() || (!aligned && bytes.size() < kCopyUnalignedBelow))
    return make_constant(dtype, std::move(dims), bytes);
  auto c = std::make_shared<Constant>();
  c->dtype = dtype;
  c->dims = std::move(dims);
  c->bytes = bytes;
  c->owner = std::move(owner);
  return c;
}

template <class Out, class Field>
ConstantPtr from_field(DType dtype, std::vector<int64_t> dims, const Field& field, const char* field_name,
                       int64_t expected) {
  if (field.size() != expected)
    invalid_model("is {}, which takes {} entries of {}, but has {}", shape_text(dtype, dims), expected, field_name,
                  field.size());
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(dtype, std::move(dims), &data);
  for (int i = 0; i < field.size(); i++) {
    const auto v = static_cast<Out>(field.Get(i));
    std::memcpy(data + static_cast<size_t>(i) * sizeof(Out), &v, sizeof(Out));
  }
  return c;
}

ConstantPtr from_strings(const onnx::TensorProto& t, std::vector<int64_t> dims, int64_t n) {
  if (t.string_data_size() != n)
    invalid_model("is {}, but has {} strings", shape_text(DType::String, dims), t.string_data_size());
  auto c = std::make_shared<Constant>();
  c->dtype = DType::String;
  c->dims = std::move(dims);
  c->strings.assign(t.string_data().begin(), t.string_data().end());
  return c;
}

// Which typed field holds which element type: the table in onnx.proto.
ConstantPtr from_typed(const onnx::TensorProto& t, DType dtype, std::vector<int64_t> dims) {
  const int64_t n = count(dims);
  switch (dtype) {
    case DType::String:
      return from_strings(t, std::move(dims), n);
    case DType::F32:
      return from_field<float>(dtype, std::move(dims), t.float_data(), "float_data", n);
    case DType::C64:
      return from_field<float>(dtype, std::move(dims), t.float_data(), "float_data", checked_mul(n, 2));
    case DType::F64:
      return from_field<double>(dtype, std::move(dims), t.double_data(), "double_data", n);
    case DType::C128:
      return from_field<double>(dtype, std::move(dims), t.double_data(), "double_data", checked_mul(n, 2));
    case DType::I64:
      return from_field<int64_t>(dtype, std::move(dims), t.int64_data(), "int64_data", n);
    case DType::U64:
      return from_field<uint64_t>(dtype, std::move(dims), t.uint64_data(), "uint64_data", n);
    case DType::U32:
      return from_field<uint32_t>(dtype, std::move(dims), t.uint64_data(), "uint64_data", n);
    case DType::I32:
      return from_field<int32_t>(dtype, std::move(dims), t.int32_data(), "int32_data", n);
    case DType::U16:
    case DType::I16:
    case DType::F16:
    case DType::BF16:
      return from_field<uint16_t>(dtype, std::move(dims), t.int32_data(), "int32_data", n);
    default:  // one byte each; several 4- or 2-bit elements share a byte, which is an entry
      return from_field<uint8_t>(dtype, std::move(dims), t.int32_data(), "int32_data", byte_size(dtype, n));
  }
}

int64_t parse_number(const std::string& key, const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    invalid_model("external data has the {} '{}', which is not a size", key, text);
  return value;
}

}  // namespace

ConstantPtr TensorReader::external(const onnx::TensorProto& t, DType dtype, std::vector<int64_t> dims) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& entry : t.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = parse_number("offset", entry.value());
    if (entry.key() == "length") length = parse_number("length", entry.value());
  }
  if (dtype == DType::String) invalid_model("holds strings in external data");
  auto& file = files_[location];
  if (!file) file = FileContent::read(external_path(model_->path(), location));
  const auto size = static_cast<int64_t>(file->bytes().size());
  if (length < 0) length = byte_size(dtype, count(dims));  // an absent length means what the shape needs
  if (!range_inside(offset, length, size))
    throw Error(ErrorKind::InvalidModel,
                fmt::format("is at bytes {} to {} of external data '{}', which has {} bytes", offset,
                            static_cast<uint64_t>(offset) + static_cast<uint64_t>(length), location, size),
                "the data file may be truncated, or belong to another model");
  return from_bytes(dtype, std::move(dims),
                    file->bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(length)), file);
}

ConstantPtr TensorReader::convert(const onnx::TensorProto& t) {
  const DType dtype = read_dtype(t.data_type());
  std::vector<int64_t> dims = read_dims(t.dims());
  if (t.data_location() == onnx::TensorProto::EXTERNAL) return external(t, dtype, std::move(dims));
  if (t.has_segment()) {
    const auto cut = cut_range(t.segment().begin(), t.segment().end());
    if (!cut) unsupported("is stored in segments, which is not supported");
    if (!range_inside(cut->offset, cut->size, static_cast<int64_t>(model_->bytes().size())))
      invalid_model("has data outside the file");
    return from_bytes(dtype, std::move(dims),
                      model_->bytes().subspan(static_cast<size_t>(cut->offset), static_cast<size_t>(cut->size)),
                      model_);
  }
  if (t.has_raw_data()) return from_bytes(dtype, std::move(dims), std::as_bytes(std::span(t.raw_data())), nullptr);
  return from_typed(t, dtype, std::move(dims));
}

ConstantPtr TensorReader::read(const onnx::TensorProto& t) try {
  ConstantPtr& made = done_[&t];
  if (!made) made = convert(t);
  return made;
} catch (const Error& e) {
  throw Error(e.kind(), fmt::format("tensor '{}' {}", t.name(), e.message()), e.hint());
}

ConstantPtr TensorReader::read(const onnx::SparseTensorProto& s) try {
  ConstantPtr& made = done_[&s];
  if (made) return made;
  const ConstantPtr values = read(s.values()), indices = read(s.indices());
  std::vector<int64_t> dims = read_dims(s.dims());
  const int64_t total = count(dims), n = static_cast<int64_t>(values->elements());
  if (values->dims.size() != 1 || bits(values->dtype) < 8)
    invalid_model("has values of {}", shape_text(values->dtype, values->dims));
  const auto rank = static_cast<int64_t>(dims.size());
  const bool linear = indices->dims == std::vector<int64_t>{n};
  if (indices->dtype != DType::I64 || (!linear && indices->dims != std::vector<int64_t>{n, rank}))
    invalid_model("has indices of {}, expected i64 [{}] or [{}, {}]", shape_text(indices->dtype, indices->dims), n, n,
                  rank);
  if (byte_size(values->dtype, total) > kMaxDense)
    unsupported("would take {} bytes as a dense tensor; the limit is {}", byte_size(values->dtype, total), kMaxDense);

  std::byte* data = nullptr;
  ConstantPtr dense = make_constant(values->dtype, dims, &data);
  std::memset(data, 0, dense->bytes.size());
  const auto index = indices->as<int64_t>();
  const auto element = static_cast<size_t>(bits(values->dtype) / 8);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (int64_t d = 0; d < (linear ? 1 : rank); d++) {
      const int64_t v = index[static_cast<size_t>(linear ? i : i * rank + d)];
      const int64_t limit = linear ? total : dims[static_cast<size_t>(d)];
      if (v < 0 || v >= limit) invalid_model("has index {} outside [0, {})", v, limit);
      at = at * limit + v;
    }
    std::memcpy(data + static_cast<size_t>(at) * element, values->bytes.data() + static_cast<size_t>(i) * element,
                element);
  }
  made = dense;
  return dense;
} catch (const Error& e) {
  throw Error(e.kind(), fmt::format("sparse tensor '{}' {}", s.values().name(), e.message()), e.hint());
}

}  // namespace ingot
