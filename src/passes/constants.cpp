#include "passes/constants.h"

#include <algorithm>
#include <cstring>

namespace ingot {
namespace {

template <class T>
void append(const Constant& c, std::vector<int64_t>& out) {
  for (T v : c.as<T>()) out.push_back(static_cast<int64_t>(v));
}

}  // namespace

std::optional<std::vector<int64_t>> integer_values(const TensorInfo& info) {
  std::vector<int64_t> out;
  if (info.constant) {
    const Constant& c = *info.constant;
    switch (c.dtype) {
      case DType::I64:
        append<int64_t>(c, out);
        return out;
      case DType::I32:
        append<int32_t>(c, out);
        return out;
      case DType::I16:
        append<int16_t>(c, out);
        return out;
      case DType::I8:
        append<int8_t>(c, out);
        return out;
      case DType::U8:
      case DType::Bool:
        append<uint8_t>(c, out);
        return out;
      default:
        return std::nullopt;
    }
  }
  if (!info.values) return std::nullopt;
  for (const Dim& d : *info.values) {
    if (!d.is_const()) return std::nullopt;
    out.push_back(d.value());
  }
  return out;
}

std::optional<std::vector<Dim>> dim_values(const TensorInfo& info) {
  if (info.values) return info.values;
  auto numbers = integer_values(info);
  if (!numbers) return std::nullopt;
  return std::vector<Dim>(numbers->begin(), numbers->end());
}

std::optional<double> scalar_value(const TensorInfo& info) {
  if (!info.constant || info.constant->elements() != 1) return std::nullopt;
  const Constant& c = *info.constant;
  if (c.dtype == DType::F32) return c.as<float>()[0];
  if (c.dtype == DType::F64) return c.as<double>()[0];
  if (auto v = integer_values(info); v && v->size() == 1) return static_cast<double>((*v)[0]);
  return std::nullopt;
}

ConstantPtr reshaped(const ConstantPtr& c, std::vector<int64_t> dims) {
  auto out = std::make_shared<Constant>(*c);
  out->dims = std::move(dims);
  out->owner = c;  // the view keeps the original alive
  return out;
}

ConstantPtr transposed(const ConstantPtr& c, const std::vector<int64_t>& perm) {
  if (bits(c->dtype) % 8 != 0 || bits(c->dtype) == 0 || perm.size() != c->dims.size()) return nullptr;
  const auto size = static_cast<int64_t>(bits(c->dtype) / 8);
  const size_t rank = perm.size();
  std::vector<int64_t> in_stride(rank, size), dims(rank), stride(rank);
  for (size_t i = rank; i-- > 1;) in_stride[i - 1] = in_stride[i] * c->dims[i];
  for (size_t i = 0; i < rank; i++) {
    dims[i] = c->dims[static_cast<size_t>(perm[i])];
    stride[i] = in_stride[static_cast<size_t>(perm[i])];
  }
  std::byte* to = nullptr;
  ConstantPtr out = make_constant(c->dtype, dims, &to);
  std::vector<int64_t> index(rank);
  const std::byte* from = c->bytes.data();
  int64_t offset = 0;
  for (int64_t n = out->elements(); n > 0; n--, to += size) {
    std::memcpy(to, from + offset, static_cast<size_t>(size));
    for (size_t d = rank; d-- > 0;) {
      offset += stride[d];
      if (++index[d] < dims[d]) break;
      offset -= stride[d] * dims[d];
      index[d] = 0;
    }
  }
  return out;
}

ConstantPtr filled(float value, std::vector<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return make_constant(DType::F32, std::move(dims), std::vector<float>(static_cast<size_t>(n), value));
}

bool is_f32(const TensorInfo& info) { return info.dtype == DType::F32; }

bool same_shape(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
bool same_shape(const TensorInfo& a, const TensorInfo& b) {
  return a.shape && b.shape && same_shape(*a.shape, *b.shape);
}

Shape padded_shape(const Shape& s, size_t rank) {
  Shape out(rank > s.size() ? rank - s.size() : 0, Dim(1));
  out.insert(out.end(), s.begin(), s.end());
  return out;
}

}  // namespace ingot
