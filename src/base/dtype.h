// Element types. The numbers are those of ONNX's TensorProto.DataType.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ingot {

enum class DType : int32_t {
  Undefined = 0,
  F32 = 1,
  U8 = 2,
  I8 = 3,
  U16 = 4,
  I16 = 5,
  I32 = 6,
  I64 = 7,
  String = 8,
  Bool = 9,
  F16 = 10,
  F64 = 11,
  U32 = 12,
  U64 = 13,
  C64 = 14,
  C128 = 15,
  BF16 = 16,
  F8E4M3FN = 17,
  F8E4M3FNUZ = 18,
  F8E5M2 = 19,
  F8E5M2FNUZ = 20,
  U4 = 21,
  I4 = 22,
  F4E2M1 = 23,
  F8E8M0 = 24,
  U2 = 25,
  I2 = 26,
};

// "f32", "i64", "bool", ...: the names used in the IR, in messages and in kernel symbols.
std::string_view name(DType);
// The inverse; nothing for a name that is not one.
std::optional<DType> dtype_from_name(std::string_view);
// Nothing for numbers that are not element types.
std::optional<DType> dtype_from_onnx(int32_t);
// Bits an element takes in memory; 0 for String and Undefined.
int bits(DType);
// Bytes of n elements, rounded up where they are smaller than a byte; throws on overflow.
int64_t byte_size(DType, int64_t elements);

bool is_float(DType);    // F16, BF16, F32, F64 and the 8/4-bit floats
bool is_integer(DType);  // signed and unsigned integers, not Bool
inline bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }
bool is_signed(DType);

}  // namespace ingot
