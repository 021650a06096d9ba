#include "runtime/c_values.h"

#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "runtime/output_memory.h"

namespace ingot {
namespace {

int64_t checked_elements(const ingot_tensor& t, const std::string& what) {
  if (t.rank < 0 || t.rank > INGOT_MAX_RANK) invalid_input("{} has rank {}", what, t.rank);
  int64_t elements = 1;
  for (int32_t d = 0; d < t.rank; d++)
    if (t.dims[d] < 0 || __builtin_mul_overflow(elements, t.dims[d], &elements))
      invalid_input("{} has a bad shape", what);
  return elements;
}

void set_dims(const std::vector<int64_t>& dims, const std::string& what, ingot_tensor& t) {
  if (dims.size() > INGOT_MAX_RANK) invalid_input("{} has rank {}, above INGOT_MAX_RANK", what, dims.size());
  t.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), t.dims);
}

}  // namespace

TensorView view_from_c(const ingot_tensor& t, const std::string& what) {
  if (t.kind != INGOT_TENSOR) invalid_input("{} must be a tensor", what);
  const auto dtype = dtype_from_onnx(t.dtype);
  if (!dtype) invalid_input("{} has the unknown dtype {}", what, t.dtype);
  const auto bytes = static_cast<size_t>(byte_size(*dtype, checked_elements(t, what)));
  if (bytes > t.bytes) invalid_input("{} needs {} bytes, has {}", what, bytes, t.bytes);
  if (bytes > 0 && !t.data) invalid_input("{} has no data", what);
  return {*dtype, {t.dims, t.dims + t.rank}, t.data};
}

Value from_c(const ingot_tensor& t, const std::string& what) {
  if (t.kind == INGOT_NONE) return {};
  const int64_t elements = checked_elements(t, what);
  if (t.kind == INGOT_SEQUENCE) {
    if (t.rank != 1 || (!t.data && elements > 0)) invalid_input("{} is a sequence, whose rank must be 1", what);
    if (static_cast<size_t>(elements) > t.bytes / sizeof(ingot_tensor))
      invalid_input("{} is a sequence of {} tensors, has {} bytes", what, elements, t.bytes);
    std::vector<Value> items;
    for (int64_t i = 0; i < elements; i++) items.push_back(from_c(static_cast<const ingot_tensor*>(t.data)[i], what));
    return Value(std::move(items));
  }
  const TensorView view = view_from_c(t, what);
  if (view.dtype != DType::String) return borrow(view);
  auto c = std::make_shared<Constant>();
  c->dtype = view.dtype;
  c->dims = view.dims;
  for (int64_t i = 0; i < elements; i++) {
    const char* s = static_cast<const char* const*>(t.data)[i];
    c->strings.emplace_back(s ? s : "");
  }
  return ConstantPtr(std::move(c));
}

void to_c(const Value& v, const std::string& what, ingot_tensor& t) {
  t = {};
  try {
    if (v.is_none()) {
      t.kind = INGOT_NONE;
    } else if (v.is_sequence()) {
      t.kind = INGOT_SEQUENCE;
      t.bytes = v.items().size() * sizeof(ingot_tensor);
      t.data = take_output(t.bytes);
      t.rank = 1;
      for (const Value& item : v.items()) {
        to_c(item, what, static_cast<ingot_tensor*>(t.data)[t.dims[0]]);
        t.dims[0]++;
      }
    } else {
      const Constant& c = v.tensor();
      t.dtype = static_cast<int32_t>(c.dtype);
      set_dims(c.dims, what, t);
      t.bytes = static_cast<size_t>(byte_size(c.dtype, c.elements()));
      // The texts of strings stand behind the pointers to them.
      size_t text = 0;
      for (const std::string& s : c.strings) text += s.size() + 1;
      t.data = take_output(t.bytes + text);
      char* to = static_cast<char*>(t.data) + t.bytes;
      for (size_t i = 0; i < c.strings.size(); i++) {
        static_cast<const char**>(t.data)[i] = to;
        std::memcpy(to, c.strings[i].c_str(), c.strings[i].size() + 1);
        to += c.strings[i].size() + 1;
      }
      if (!c.bytes.empty()) std::memcpy(t.data, c.bytes.data(), c.bytes.size());
    }
  } catch (...) {
    release_c(t);
    throw;
  }
}

void release_c(ingot_tensor& t) {
  if (t.kind == INGOT_SEQUENCE && t.data)
    for (int64_t i = 0; i < t.dims[0]; i++) release_c(static_cast<ingot_tensor*>(t.data)[i]);
  give_back_output(t.data);
  t.data = nullptr;
  t.bytes = 0;
}

}  // namespace ingot
