// QuantizeLinear and DequantizeLinear of any types, one element at a time:
//   quantize:    y = saturate( round( x / s ) + z ),  the quotient rounded to `precision`, then half to even
//   dequantize:  y = f32(x - z) * s
// x is seen as [outer, n, inner] around the axis; blocks of `block` elements along it share a scale and a zero point.
// Operands: x, s, z (null: 0), y. A unit is kQuantizeChunk elements, whole bytes of every type.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kQuantizeChunk = 1024;

struct QuantizeParams {
  int64_t x_type, s_type, y_type;  // DType; z is of the quantized type
  int64_t precision;               // F32, F16 or BF16
  int64_t saturate;
  int64_t count, n, inner, block;
  int64_t s_outer, s_block, s_inner;  // strides of s and z
};

INGOT_KERNEL(ingot_dequantize);
INGOT_KERNEL(ingot_quantize);

}  // namespace ingot
