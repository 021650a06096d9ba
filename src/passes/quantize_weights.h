// Constant weights in fewer bits.
#pragma once
#include "graph/graph.h"

namespace ingot {

// The elements rounded to bf16 or f16; nothing where one that is finite would not be.
ConstantPtr in_half(const Constant&, DType);

// values[i] * scale ~ x[i]: symmetric integers without zero points; values is null where an element is not finite.
struct QuantizedWeights {
  ConstantPtr values, scale;
};
// block 0: i8, one scale for each element of `axis`. Otherwise a matrix as i4 with one scale for each `block` elements
// along the axis, in the layout that DequantizeLinear takes. Of 4 bits all 16 values are used: the element that is
// farthest from zero becomes -8.
QuantizedWeights quantize_weights(const Constant&, int64_t axis, int64_t block);

}  // namespace ingot
