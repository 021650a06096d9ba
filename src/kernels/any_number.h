// Single elements of any numeric type, read and written by DType: for kernels whose types are many and whose speed is
// not needed.
#pragma once
#include "kernels/minifloat.h"

namespace ingot::kernel {

// An element on its way: integers exactly, everything else as double.
struct Number {
  bool whole;
  int64_t i;
  double f;
};
INGOT_INLINE Number whole(int64_t i) { return {true, i, double(i)}; }
INGOT_INLINE Number real(double f) { return {false, 0, f}; }

INGOT_INLINE uint32_t bits_at(const void* x, int64_t i, int width) {
  const int per_byte = 8 / width;
  return static_cast<const uint8_t*>(x)[i / per_byte] >> (i % per_byte * width) & ((1u << width) - 1);
}
INGOT_INLINE void put_bits(void* y, int64_t i, int width, uint32_t code) {
  const int per_byte = 8 / width, shift = int(i % per_byte) * width;
  auto& byte = static_cast<uint8_t*>(y)[i / per_byte];
  const uint32_t mask = ((1u << width) - 1) << shift;
  byte = uint8_t((shift ? byte & ~mask : 0) | (code << shift & mask));  // the first leaves no bits undefined
}
template <class T>
INGOT_INLINE T at(const void* x, int64_t i) {
  return static_cast<const T*>(x)[i];
}
template <class T>
INGOT_INLINE void put(void* y, int64_t i, T v) {
  static_cast<T*>(y)[i] = v;
}

[[maybe_unused]] static Number read_number(DType t, const void* x, int64_t i) {
  switch (t) {
    case DType::Bool:
      return whole(at<uint8_t>(x, i) != 0);
    case DType::U8:
      return whole(at<uint8_t>(x, i));
    case DType::I8:
      return whole(at<int8_t>(x, i));
    case DType::U16:
      return whole(at<uint16_t>(x, i));
    case DType::I16:
      return whole(at<int16_t>(x, i));
    case DType::U32:
      return whole(at<uint32_t>(x, i));
    case DType::I32:
      return whole(at<int32_t>(x, i));
    case DType::I64:
      return whole(at<int64_t>(x, i));
    case DType::U64:
      return {true, at<int64_t>(x, i), double(at<uint64_t>(x, i))};
    case DType::U4:
      return whole(bits_at(x, i, 4));
    case DType::I4:
      return whole(int64_t(bits_at(x, i, 4) ^ 8) - 8);
    case DType::U2:
      return whole(bits_at(x, i, 2));
    case DType::I2:
      return whole(int64_t(bits_at(x, i, 2) ^ 2) - 2);
    case DType::F32:
      return real(at<float>(x, i));
    case DType::F64:
      return real(at<double>(x, i));
    case DType::F16:
    case DType::BF16:
      return real(decode_float(at<uint16_t>(x, i), float_format(t)));
    case DType::F8E8M0:
      return real(decode_e8m0(at<uint8_t>(x, i)));
    case DType::F4E2M1:
      return real(decode_float(bits_at(x, i, 4), float_format(t)));
    default:
      return real(decode_float(at<uint8_t>(x, i), float_format(t)));
  }
}

INGOT_INLINE int64_t integer(const Number& n) {
  if (n.whole) return n.i;
  return n.f > -9.2e18 && n.f < 9.2e18 ? int64_t(n.f) : 0;
}

// `saturate` is for floats of 8 bits, `round` (RoundE8m0) for e8m0.
[[maybe_unused]] static void write_number(DType t, bool saturate, int64_t round, void* y, int64_t i, const Number& n) {
  switch (t) {
    case DType::Bool:
      return put<uint8_t>(y, i, n.whole ? n.i != 0 : n.f != 0);
    case DType::U8:
    case DType::I8:
      return put(y, i, uint8_t(integer(n)));
    case DType::U16:
    case DType::I16:
      return put(y, i, uint16_t(integer(n)));
    case DType::U32:
    case DType::I32:
      return put(y, i, uint32_t(integer(n)));
    case DType::U64:
    case DType::I64:
      return put(y, i, integer(n));
    case DType::U4:
    case DType::I4:
      return put_bits(y, i, 4, uint32_t(integer(n)));
    case DType::U2:
    case DType::I2:
      return put_bits(y, i, 2, uint32_t(integer(n)));
    case DType::F32:
      return put(y, i, float(n.f));
    case DType::F64:
      return put(y, i, n.f);
    case DType::F16:
    case DType::BF16:
      return put(y, i, uint16_t(encode_float(n.f, float_format(t), false)));
    case DType::F8E8M0:
      return put(y, i, uint8_t(encode_e8m0(n.f, round, saturate)));
    case DType::F4E2M1:
      return put_bits(y, i, 4, encode_float(n.f, float_format(t), true));
    default:
      return put(y, i, uint8_t(encode_float(n.f, float_format(t), saturate)));
  }
}

}  // namespace ingot::kernel
