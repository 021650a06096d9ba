// Rows brought to zero mean and unit variance, then scaled and shifted, for every layout of scale and bias:
//   y[r][c] = (x[r][c] - mean_r) * inv_r * scale[s] + bias[s],   inv_r = 1 / sqrt(mean_c (x[r][c] - mean_r)^2 +
//   epsilon) s = r % groups * group_step + c / inner * column_step
// LayerNorm: column_step = inner = 1. InstanceNorm: groups = channels, group_step = 1, column_step = 0. GroupNorm:
// groups, group_step = channels per group, inner = elements per channel, column_step = 1. Without `center` the mean is
// taken as 0: RMSNorm.
//
// Operands: x, scale, bias, y, mean, inv; scale, bias, mean and inv may be null. mean and inv are f32. A unit is a row.
// Two passes over the data before the one that writes: the variance of what is left after the mean is subtracted.
#pragma once
#include <cstdint>

namespace ingot {

struct NormRowsParams {
  int64_t dtype;   // of x, scale, bias, y: F32 or F64
  int64_t center;  // 0: RMS
  int64_t cols;
  int64_t groups, group_step, inner, column_step;
  double epsilon;
};
inline constexpr int kNormRowsStructure = 2;

}  // namespace ingot
