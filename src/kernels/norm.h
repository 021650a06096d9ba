// Normalisations along a dim: softmax, and the family of layer normalisation.
//
// ingot_softmax_f32, _f64: operands [x, y], both of shape [outer, n, inner], along n:
//   y = e^(x - max x) / sum e^(x - max x), or its logarithm (x - max x) - log sum e^(x - max x).
// A unit is a block of kSoftmaxColumns of the inner dim, so there are outer * ceil(inner / kSoftmaxColumns) units.
// As numpy has it, a row of only -inf, or with +inf or NaN in it, gives NaN. y may be x.
//
// ingot_layernorm_f32, _f64: operands [x, gamma, beta, y, mean, invstd], of which only x and y must be there; a unit is
// one row of n elements:
//   y = (x - mean) invstd gamma + beta,  invstd = 1 / sqrt(mean of (x - mean)^2 + eps); for RMS, mean = 0.
// Where gamma and beta come from:
//   affine_columns = 1: one per column, gamma[j] (LayerNormalization, RMSNormalization)
//   otherwise a row holds row_channels runs of equal length, and run s of row r takes gamma[(r row_channels + s) %
//   channels] (InstanceNormalization: row_channels = 1; GroupNormalization per channel: the channels of a group)
// y may be x.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/sizes.h"

namespace ingot {

inline constexpr int64_t kSoftmaxColumns = 16;

struct SoftmaxParams {
  int64_t log;
  int64_t n, inner;
};

struct LayerNormParams {
  int64_t has_gamma, has_beta, has_mean, has_invstd;  // operands that are there
  int64_t rms, affine_columns;
  int64_t n, row_channels, channels;
  double epsilon;
};

inline constexpr SizeField kLayerNormSizes[] = {
    INGOT_SIZE(LayerNormParams, n), INGOT_SIZE(LayerNormParams, row_channels), INGOT_SIZE(LayerNormParams, channels),
    INGOT_SIZE(LayerNormParams, epsilon)};
inline constexpr SizeField kSoftmaxSizes[] = {INGOT_SIZE(SoftmaxParams, n), INGOT_SIZE_ABOVE(1, SoftmaxParams, inner)};

INGOT_KERNEL(ingot_layernorm_f32);
INGOT_KERNEL(ingot_layernorm_f64);
INGOT_KERNEL(ingot_softmax_f32);
INGOT_KERNEL(ingot_softmax_f64);

}  // namespace ingot
