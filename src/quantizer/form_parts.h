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
// What t is the product of with one scale for each row, all that is summed in a product with t on the left:
//   Cast(q) * s,  (Cast(q) - Cast(z)) * s  with s and z [..., 1];  DequantizeLinear along axis 0 of a matrix, or in
//   blocks
// as long as rows. Scales and zero points as tensors [..., 1] are made where they have another shape.
std::optional<Quantized> dequantized_rows(Editor&, TensorId t);
// Is t made by DequantizeLinear, or as dequantized_rows tells?
bool is_marked(const Editor&, TensorId t);
// Scales and zero points have the same values, as far as can be known.
bool same_parameters(const Editor&, const Quantized&, const Quantized&);

// The zero point as an operand: a constant 0 where it is absent, one number where all are equal.
TensorId zero_operand(Editor&, const Quantized&);
// The bias of a product: int32 with scale = input scale x weight scale.
struct IntegerBias {
  ConstantPtr q, scale;
};
// Nothing when a number does not fit, or the counts do not.
std::optional<IntegerBias> integer_bias(const std::vector<float>& bias, float x_scale,
                                        const std::vector<float>& w_scale);
TensorId dequantized_bias(Editor&, std::string name, const IntegerBias&);
// The integers of a bias that has that scale already; kNoTensor when it has not.
TensorId integers_of_bias(const Editor&, TensorId bias, const Quantized& x, const Quantized& w);

// f32 values of a constant, dequantized if it is made so; nothing when they are not constant.
std::optional<std::vector<float>> constant_floats(const Editor&, TensorId t);

}  // namespace ingot
