// Resize. Each resized axis maps an output coordinate o to a source coordinate x(o) by the transformation below, and
// the source is read around x(o):
//   nearest:  one element, rounded as nearest_mode says
//   linear:   2 taps 1-r, r at floor(x), floor(x)+1,  r = x - floor(x)
//   cubic:    4 taps of Keys' kernel with parameter a
// With antialias and scale < 1 the kernel is stretched by 1/scale and takes more taps. Taps outside the source repeat
// its edge, or are left out and the rest renormalised (exclude_outside). Axes are independent of each other, so an
// n-dimensional resize is one pass per axis.
//
//   half_pixel:            x = (o + 0.5) / scale - 0.5
//   half_pixel_symmetric:  the same about the centres:  + in/2 * (1 - out / (scale * in))
//   pytorch_half_pixel:    the same, -0.5 when the output has one element
//   align_corners:         x = o * (in - 1) / (scale * in - 1)
//   asymmetric:            x = o / scale
//   tf_crop_and_resize:    x = (start + o * (end - start) / (scale * in - 1)) * (in - 1), and a constant where x is
//   outside
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum ResizeTransform : int64_t {
  kHalfPixel = 0,
  kHalfPixelSymmetric = 1,
  kPytorchHalfPixel = 2,
  kAlignCorners = 3,
  kAsymmetric = 4,
  kCropAndResize = 5,
};
enum ResizeMode : int64_t { kNearest = 0, kLinear = 1, kCubic = 2 };
enum NearestMode : int64_t { kRoundPreferFloor = 0, kRoundPreferCeil = 1, kFloor = 2, kCeil = 3 };

inline constexpr int kMaxResizeRank = 8;

struct ResizeAxis {
  int64_t in, out;
  int64_t resized;  // 0: passed through, in == out
  int64_t taps;     // of an interpolated axis
  int64_t roi;      // its position in the roi operand: start there, end `roi_count` later; -1: [0, 1]
  double scale;
};

// Operands: in, roi (or null), out. Neighbouring dims that are not resized are one; `rank` dims follow `outer`.
//
// ingot_resize_nearest: moves blocks of `block` elements of `size` bytes, what follows the last resized dim. A unit is
// a row
//   of blocks along that dim. repeat: when > 0, each block of the row is repeated so many times.
//   Scratch: 8 bytes for each output coordinate of the last dim.
// ingot_resize (linear and cubic): a unit is one output coordinate of dim 0, which is resized, in one of `outer`; it
//   holds all that follows. Scratch: two buffers of `buffer` accumulators (float, or double for f64 and wide integers),
//   then for each resized dim 16 bytes per tap and output coordinate (dim 0: one coordinate).
struct ResizeParams {
  int64_t outer, rank;
  int64_t dtype, size;
  int64_t mode, transform, nearest_mode, antialias, exclude_outside;
  int64_t roi_dtype, roi_count;
  int64_t block, repeat;
  int64_t buffer;  // elements of each of the two scratch buffers
  double cubic_a, extrapolation;
  ResizeAxis axis[kMaxResizeRank];
};

// x(o) for an output coordinate.
inline double resize_coordinate(const ResizeAxis& a, int64_t transform, double start, double end, int64_t o) {
  const double x = static_cast<double>(o), in = static_cast<double>(a.in), width = a.scale * in;
  switch (transform) {
    case kAlignCorners:
      return width == 1 ? 0 : x * (in - 1) / (width - 1);
    case kAsymmetric:
      return x / a.scale;
    case kCropAndResize:
      return (width == 1 ? (end - start) * (in - 1) / 2 : x * (end - start) * (in - 1) / (width - 1)) +
             start * (in - 1);
    case kPytorchHalfPixel:
      return width == 1 ? -0.5 : (x + 0.5) / a.scale - 0.5;
    case kHalfPixelSymmetric:
      return in / 2 * (1 - static_cast<double>(a.out) / width) + (x + 0.5) / a.scale - 0.5;
    default:
      return (x + 0.5) / a.scale - 0.5;
  }
}

// The nearest source index of x, inside the source.
inline int64_t nearest_index(const ResizeAxis& a, int64_t nearest_mode, double x) {
  const double low = __builtin_floor(x), r = x - low;
  double i = low;
  if (nearest_mode == kCeil) i = __builtin_ceil(x);
  if (nearest_mode == kRoundPreferFloor && r > 0.5) i = low + 1;
  if (nearest_mode == kRoundPreferCeil && r >= 0.5) i = low + 1;
  const double last = static_cast<double>(a.in - 1);
  return static_cast<int64_t>(i > 0 ? (i < last ? i : last) : 0);  // NaN: 0
}

INGOT_KERNEL(ingot_resize);
INGOT_KERNEL(ingot_resize_nearest);

}  // namespace ingot
