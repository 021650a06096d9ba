// Affine quantization,  q = saturate( round( x / s ) + z ),  as expressions over whole-byte integers.
#pragma once
#include "ops/elementwise.h"

namespace ingot {

// u8, i8, u16, i16: the integers that expressions quantize to.
bool in_quantized_expressions(DType);

// saturate( round(instruction `x`, an f32) + instruction `z`, a quantized value ) as type `to`; z < 0: no zero point.
int quantized(Expr&, int x, int z, DType to);

// What is wrong with a scale that is known: a number in it that is zero, negative, infinite or not a number.
std::optional<std::string> wrong_scale(const TensorInfo&);

// x0 - x1 as i32; only x0 when there is no x1.
Expr centred_expr(const std::vector<DType>& types);

}  // namespace ingot
