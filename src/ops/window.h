// Sliding windows: what convolutions and poolings share. Along one spatial dim a window of `kernel` taps, `dilation`
// apart, moves by `stride` over the input with pads at both ends:
//   out = floor((in + pad_begin + pad_end - extent) / stride) + 1,   extent = (kernel - 1) * dilation + 1
// ceil_mode rounds up, but a window that would start in the end padding is left out.
// auto_pad SAME_UPPER, SAME_LOWER: out = ceil(in / stride), the pads as even as can be, the odd one at the end or
// start.
#pragma once
#include "ops/op.h"

namespace ingot {

struct Window {
  std::vector<int64_t> kernel, stride, dilation;
  std::vector<int64_t> begin, end;  // pads; of SAME only once the input's size is known
  bool same = false, same_lower = false, ceil = false;

  size_t rank() const { return kernel.size(); }
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
};

// From the attributes; `kernel` are the sizes the weights have, used where there is no kernel_shape.
// Errors name the attribute: a length that is not `rank`, a size below 1.
Window window_of(const Node&, size_t rank, const std::vector<int64_t>& kernel = {});
// Fills in the pads of SAME for this input.
void resolve_pads(Window&, const std::vector<int64_t>& in);
Dim window_count(const Window&, size_t d, const Dim& in);

// Where the parts of an image tensor are: [N, C, spatial...] or, channels last, [N, spatial..., C].
struct ImageLayout {
  size_t rank;
  bool last;
  size_t channel() const { return last ? rank - 1 : 1; }
  size_t spatial(size_t d) const { return d + (last ? 1 : 2); }
  size_t spatial_rank() const { return rank - 2; }
};
inline bool channels_last(const Node& node) { return node.get_int("channels_last", 0) != 0; }

// Three spatial dims, missing ones in front as `fill`.
void spread(int64_t (&to)[3], const std::vector<int64_t>& from, int64_t fill);

}  // namespace ingot
