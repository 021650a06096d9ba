// The part of a sliding window that lies inside the input, for one spatial dim.
//
// Output position o looks at input positions o * stride - pad + t * dilation for taps t in [0, kernel). Those inside
// [0, size) are a contiguous range of taps.
#pragma once
#include "kernels/pack.h"

namespace ingot::kernel {

struct Taps {
  int64_t first, last;  // taps [first, last) are inside
  int64_t origin;       // input position of tap 0, may be negative
};
INGOT_INLINE Taps taps_inside(int64_t o, int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
  int64_t origin = o * stride - pad;
  int64_t first = origin < 0 ? min_of(kernel, div_up(-origin, dilation)) : 0;
  int64_t last = origin < size ? min_of(kernel, div_up(size - origin, dilation)) : 0;
  return {first, max_of(first, last), origin};
}

// Output positions [first, last) of a dim for which taps are inside.
struct Interior {
  int64_t first, last;
};
// Taps first_tap to last_tap.
INGOT_INLINE Interior interior_of_taps(int64_t out, int64_t size, int64_t first_tap, int64_t last_tap, int64_t stride,
                                       int64_t dilation, int64_t pad) {
  int64_t before = pad - first_tap * dilation;          // how far the first tap of position 0 is outside
  int64_t room = size - 1 - last_tap * dilation + pad;  // the last origin that fits, plus pad
  int64_t first = before <= 0 ? 0 : min_of(out, div_up(before, stride));
  int64_t last = room < 0 ? 0 : min_of(out, room / stride + 1);
  return {first, max_of(first, last)};
}
// All taps.
INGOT_INLINE Interior interior(int64_t out, int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                               int64_t pad) {
  return interior_of_taps(out, size, 0, kernel - 1, stride, dilation, pad);
}

}  // namespace ingot::kernel
