// Convolution as the f32 kernels see it: sizes, which kernel, and how its weights are packed. Shared by the operator
// and by planner/pack_weights.cpp, which packs constant weights ahead.
#pragma once
#include "kernels/conv.h"
#include "ops/window.h"

namespace ingot {

// Matrix: kernel 1, stride 1, no pads, one group: a matrix product over pixels. Depthwise: as many groups as channels
// on both sides.
enum class ConvForm { Matrix, Depthwise, General };
ConvForm conv_form(const Window&, int64_t groups, const std::vector<int64_t>& w);

// The dims of W as the model has it: of the operand, or from "packed_shape" where it has been packed.
std::vector<int64_t> conv_weight_dims(const Node&, const std::vector<int64_t>& operand);

// What packing needs: channels, groups, taps and the panel; the sizes of images are filled in where they are known.
kernel::ConvParams conv_weights_params(const Window&, int64_t groups, const std::vector<int64_t>& w);

}  // namespace ingot
