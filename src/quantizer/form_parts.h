// What both directions of quantizer/forms.h are built from.
#pragma once
#include <optional>
#include <string>

#include "passes/editor.h"

namespace ingot {

// A tensor in integers: real = (q - zero) * scale.
struct Quantized {
  TensorId q = kNoTensor, scale = kNoTensor, zero = kNoTensor;  // zero: absent is 0
  int64_t axis = 0;                                             // of scales that are a vector
};

// One number, of any rank.
bool is_one(const TensorInfo&);
// What t is the DequantizeLinear of; nothing for blocked ones, other types than 8 bits (or 32 of a bias), and results
// other than f32.
std::optional<Quantized> dequantized_from(const Editor&, TensorId t);
// Scales and zero points have the same values, as far as can be known.
bool same_parameters(const Editor&, const Quantized&, const Quantized&);

// The zero point as an operand: a constant 0 where it is absent, one number where all are equal.
TensorId zero_operand(Editor&, const Quantized&);
// f32 values of a constant, dequantized if it is made so; nothing when they are not constant.
std::optional<std::vector<float>> constant_floats(const Editor&, TensorId t);

}  // namespace ingot
