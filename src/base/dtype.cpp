#include "base/dtype.h"

#include "base/checked.h"

namespace ingot {
namespace {

struct Row {
  DType type;
  std::string_view name;
  int bits;
};
constexpr Row rows[] = {
    {DType::F32, "f32", 32},
    {DType::U8, "u8", 8},
    {DType::I8, "i8", 8},
    {DType::U16, "u16", 16},
    {DType::I16, "i16", 16},
    {DType::I32, "i32", 32},
    {DType::I64, "i64", 64},
    {DType::String, "string", 64},
    {DType::Bool, "bool", 8},
    {DType::F16, "f16", 16},
    {DType::F64, "f64", 64},
    {DType::U32, "u32", 32},
    {DType::U64, "u64", 64},
    {DType::C64, "c64", 64},
    {DType::C128, "c128", 128},
    {DType::BF16, "bf16", 16},
    {DType::F8E4M3FN, "f8e4m3fn", 8},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", 8},
    {DType::F8E5M2, "f8e5m2", 8},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", 8},
    {DType::U4, "u4", 4},
    {DType::I4, "i4", 4},
    {DType::F4E2M1, "f4e2m1", 4},
    {DType::F8E8M0, "f8e8m0", 8},
    {DType::U2, "u2", 2},
    {DType::I2, "i2", 2},
};

const Row* find(DType t) {
  for (const Row& r : rows)
    if (r.type == t) return &r;
  return nullptr;
}

}  // namespace

std::string_view name(DType t) {
  const Row* r = find(t);
  return r ? r->name : "undefined";
}

std::optional<DType> dtype_from_name(std::string_view n) {
  for (const Row& r : rows)
    if (r.name == n) return r.type;
  return std::nullopt;
}

std::optional<DType> dtype_from_onnx(int32_t number) {
  const Row* r = find(static_cast<DType>(number));
  return r ? std::optional(r->type) : std::nullopt;
}

int bits(DType t) {
  const Row* r = find(t);
  return r ? r->bits : 0;
}

int64_t byte_size(DType t, int64_t elements) { return (checked_add(checked_mul(elements, bits(t)), 7)) / 8; }

bool is_float(DType t) {
  switch (t) {
    case DType::F16:
    case DType::BF16:
    case DType::F32:
    case DType::F64:
    case DType::F8E4M3FN:
    case DType::F8E4M3FNUZ:
    case DType::F8E5M2:
    case DType::F8E5M2FNUZ:
    case DType::F4E2M1:
    case DType::F8E8M0:
      return true;
    default:
      return false;
  }
}

bool is_signed(DType t) {
  return t == DType::I2 || t == DType::I4 || t == DType::I8 || t == DType::I16 || t == DType::I32 || t == DType::I64 ||
         is_float(t);
}

bool is_integer(DType t) {
  switch (t) {
    case DType::U2:
    case DType::U4:
    case DType::U8:
    case DType::U16:
    case DType::U32:
    case DType::U64:
      return true;
    default:
      return is_signed(t) && !is_float(t);
  }
}

}  // namespace ingot
