// Pooling over regions of interest.
//
// RoiAlign: the region [x1, y1, x2, y2] * scale - offset is cut into height x width bins, each sampled bilinearly at a
// grid of `sampling` x `sampling` points (0: as many as the bin has pixels); their mean, or the greatest weighted
// corner (max). Operands: in [N, C, H, W], rois [R, 4], batch indices [R] (int64), out [R, C, height, width]. A unit is
// one (r, c).
//
// MaxRoiPool: the greatest element of each bin, the region rounded to pixels. Operands: in, rois [R, 5] = [batch, x1,
// y1, x2, y2], out. A unit is one (r, c).
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

struct RoiParams {
  int64_t dtype;
  int64_t batch, channels, in_height, in_width;
  int64_t height, width;
  int64_t sampling, max;  // RoiAlign
  double scale;
  double offset;  // RoiAlign: 0.5 (half_pixel) or 0, and then a region has at least one pixel
};

INGOT_KERNEL(ingot_max_roi_pool);
INGOT_KERNEL(ingot_roi_align);

}  // namespace ingot
