// What the quantizer knows of operators: those that multiply by weights, and those that keep elements as they are.
#pragma once
#include "passes/qdq.h"

namespace ingot {

bool is_recurrent(const Node&);
// Work other than products, which stays in f32: recurrent networks, Attention, Einsum, DeformConv.
bool is_work_in_f32(const Node&);
// Its results are elements of its operands: one scale for all.
bool keeps_scale(const Node&);
// Operand 2 is a bias: one number for each output channel.
bool has_bias(const Node&);
// The axis of the weight (operand 1) along which output channels lie; absent where no axis does (a vector).
std::optional<int64_t> channel_axis(const Node&, const std::vector<int64_t>& weight_dims);
// The axis along which the weight is summed, where that is one axis: MatMul and Gemm.
std::optional<int64_t> reduced_axis(const Node&, const std::vector<int64_t>& weight_dims);
int64_t output_channels(const Node&, const std::vector<int64_t>& weight_dims);
// The axis of the result along which output channels lie.
int64_t result_axis(const Node&, int64_t result_rank);

}  // namespace ingot
