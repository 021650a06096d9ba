// Quantization marks as exporters leave them in a graph -> marks as quantizer/forms.h wants them.
//
// A mark is a QuantizeLinear -> DequantizeLinear pair on an activation, a DynamicQuantizeLinear -> DequantizeLinear, or
// a DequantizeLinear of a constant. All functions: in place; types are known.
#pragma once
#include <string>
#include <vector>

#include "quantizer/facts.h"

namespace ingot {

// Integer constants are arranged at compile time, and looked up as integers:
//   QuantizeLinear(c) of a constant           -> the integers
//   Transpose(DequantizeLinear(c))            -> DequantizeLinear(transposed c), its axis following; so Reshape and
//   others Gather(DequantizeLinear(c), i)            -> DequantizeLinear(Gather(c, i)), or with a scale for each row
void settle_marks(Graph&);

// Constants of the other 8-bit type are said in this one: 128 is added to, or taken from, integers and zero points.
void set_weight_type(Graph&, DType);

// The same of activations that are rounded with constant scales, from s8 to u8: other engines do not have all integer
// operators for s8.
void set_unsigned_activations(Graph&);

// Biases of products whose operands are marked, as the recipe says; also those added behind a MatMul. Returns where
// that was not possible, and why.
std::vector<std::string> set_bias(Graph&, BiasRecipe);

}  // namespace ingot
