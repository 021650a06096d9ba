// Convolution as the f32 kernels see it: sizes, which kernel, and how its weights are packed. Shared by the operator
// and by planner/pack_weights.cpp, which packs constant weights ahead.
#pragma once
#include "kernels/conv.h"
#include "kernels/conv_winograd.h"
#include "ops/window.h"

namespace ingot {

// Matrix: kernel 1, stride 1, no pads, one group, more than half a panel of outputs: a matrix product over pixels.
// Depthwise: groups of 1, 2 or 4 channels, as many in as out. Few: few output channels in a group, each a long sum.
enum class ConvForm { Matrix, Depthwise, Few, General };
ConvForm conv_form(const Window&, int64_t groups, const std::vector<int64_t>& w);

// The dims of W as the model has it: of the operand, or from "packed_shape" where it has been packed.
std::vector<int64_t> conv_weight_dims(const Node&, const std::vector<int64_t>& operand);

// What packing needs: channels, groups, taps and the panel; the sizes of images are filled in where they are known.
kernel::ConvParams conv_weights_params(const Window&, int64_t groups, const std::vector<int64_t>& w, const Target&);

// Winograd's form of a convolution (kernels/conv_winograd.h): attribute "winograd" of ingot.Conv is the side of its
// tiles, 2 or 4. It holds for filters that are packed ahead; others are computed directly.
bool fits_winograd(const Window&, int64_t groups, const std::vector<int64_t>& w);
int64_t winograd_side(const Node&);  // 0: none
kernel::WinogradParams winograd_weights_params(int64_t side, const std::vector<int64_t>& w, const Target&);

// The shape of Y for shapes of X and W, which are checked against the attributes.
Shape conv_shape(const InferContext&, const Shape& x, const Shape& w);

// Dims of an image tensor as [N, spatial..., C], and its bytes moved there from [N, C, spatial...] or back; `dims` are
// those channels last.
std::vector<int64_t> as_channels_last(std::vector<int64_t> dims, bool last);
void emit_to_last(LowerContext&, Operand from, Operand to, const std::vector<int64_t>& dims, int64_t bytes, bool back);

// A step of a kernel that takes ConvAnyParams (kernels/conv_any.h), by the attributes of the node; nothing of it is
// packed.
struct ConvAnyOperand {
  Operand operand;
  std::vector<int64_t> dims;
};
void emit_conv_any(LowerContext&, const Kernel&, const ConvAnyOperand& x, const ConvAnyOperand& w,
                   const ConvAnyOperand& y);

}  // namespace ingot
