// Convolution of channels-last activations with a fused epilogue, fp32, up to three spatial dims (a dim that does not
// exist has size 1, kernel 1, stride 1):
//   Y[n][o][c] = epilogue( sum over taps t and channels i of  X[n][o * stride - pad + t * dilation][g(c)][i] *
//                          W[c][i][t] ),   row = output pixel (n, od, oh, ow), col = output channel c,
// where X is zero outside the image and g(c) is the group of c.
//
// ingot_conv_f32: an implicit matrix product on the register tile of kernels/microkernel.h. A row is an output pixel; K
// runs over segments, stretches of input that are contiguous for every pixel: the channels of one tap, or
// (merge_width) all taps of one kernel row. For a block of pixels a table holds one pointer per segment and pixel: into
// the image, to a buffer of zeros outside it, or, for a merged segment that crosses the border, to a copy with zeros.
//   Operands: X, packed W, Y, extra operands of the epilogue.
//   Units: pixel_blocks x groups x panels, panels fastest.
// A 1x1 convolution of stride 1 without padding and groups is a GEMM with M = batch * pixels: use that.
//
// ingot_conv_few_f32: the same for few output channels in a group, where a panel would be mostly empty. Vectors run
// along the segments, so panels have one column: the packed weights of an output channel are contiguous.
//   Units: pixel_blocks.
//
// ingot_conv_depthwise_f32: groups of G = 1, 2 or 4 input and as many output channels; vectors run over channels. G = 1
// is the depthwise convolution. Otherwise a vector of inputs is multiplied G times, with one channel of each group in
// all lanes of the group:
//   lanes of X          a0 a1 | b0 b1 | c0 c1 | ...        y += [a0 a0 | b0 b0 | ...] * w[t][0]
//   (G = 2)                                                y += [a1 a1 | b1 b1 | ...] * w[t][1]
//   Operands: X, W as [tap][channel of the group][output channel], Y, extra operands of the epilogue.
//   Units: rows of output pixels, batch * out[0] * out[1].
#pragma once
#include "kernels/abi.h"
#include "kernels/hooks.h"
#include "kernels/pack.h"
#include "kernels/sizes.h"
#include "kernels/window.h"

namespace ingot::kernel {

inline constexpr int64_t kConvFewChannels = 64;  // up to so many are constants in specialised code

struct ConvParams {
  int64_t panel;         // columns (kernels/tile.h); of the depthwise kernel: G. It uses no other of this first part
  int64_t merge_width;   // 1: segments are kernel rows; needs groups == 1 and dilation[2] == 1
  int64_t last_vectors;  // of the last panel of a group, those that have columns; the others are not computed
  int64_t tile_rows;     // rows of the tallest tiles, the others have one less; also of the depthwise kernel
  int64_t split;         // every segment is summed in this many pieces; must divide its length
  int64_t chunk;         // pieces summed per pass over the pixels
  int64_t chunk_outer;   // 1: all panels of a chunk before the next chunk
  int64_t pixel_blocks;  // blocks of rows of the implicit matrix
  int64_t batch, groups, in_channels, out_channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];  // pad: in front; what is behind follows from out
  int64_t extras;                                                    // operands of the epilogue
  EpilogueOperand extra[kMaxEpilogueOperands];
};
inline constexpr SizeField kConvSizes[] = {
    INGOT_SIZE(ConvParams, split),
    INGOT_SIZE(ConvParams, chunk),
    INGOT_SIZE(ConvParams, chunk_outer),
    INGOT_SIZE(ConvParams, pixel_blocks),
    INGOT_SIZE(ConvParams, batch),
    INGOT_SIZE_ABOVE(1, ConvParams, groups),
    INGOT_SIZE_ABOVE(16, ConvParams, out_channels),
    INGOT_SIZE_ABOVE(kConvFewChannels, ConvParams, in_channels),
    INGOT_SIZE(ConvParams, in),
    INGOT_SIZE(ConvParams, out),
    INGOT_SIZE(ConvParams, stride),
    INGOT_SIZE(ConvParams, dilation),
    INGOT_SIZE(ConvParams, pad),
    INGOT_SIZE_ABOVE(1, ConvParams, extra),
};
inline constexpr SizeField kConvDepthwiseSizes[] = {
    INGOT_SIZE(ConvParams, split),       INGOT_SIZE(ConvParams, chunk),
    INGOT_SIZE(ConvParams, chunk_outer), INGOT_SIZE(ConvParams, pixel_blocks),
    INGOT_SIZE(ConvParams, merge_width), INGOT_SIZE(ConvParams, last_vectors),
    INGOT_SIZE(ConvParams, batch),       INGOT_SIZE(ConvParams, groups),
    INGOT_SIZE(ConvParams, in_channels), INGOT_SIZE(ConvParams, out_channels),
    INGOT_SIZE(ConvParams, in),          INGOT_SIZE(ConvParams, out),
    INGOT_SIZE(ConvParams, pad),         INGOT_SIZE_ABOVE(1, ConvParams, extra),
};
static_assert(sizeof(ConvParams) == (31 + 2 * kMaxEpilogueOperands) * 8);

INGOT_INLINE int64_t conv_taps(const ConvParams& p) { return p.kernel[0] * p.kernel[1] * p.kernel[2]; }
INGOT_INLINE int64_t conv_pixels(const ConvParams& p) { return p.batch * p.out[0] * p.out[1] * p.out[2]; }
INGOT_INLINE int64_t conv_group_in(const ConvParams& p) { return p.in_channels / p.groups; }
INGOT_INLINE int64_t conv_group_out(const ConvParams& p) { return p.out_channels / p.groups; }
INGOT_INLINE int64_t conv_panels(const ConvParams& p) { return p.groups * div_up(conv_group_out(p), p.panel); }
INGOT_INLINE int64_t conv_segments(const ConvParams& p) {
  return p.merge_width ? p.kernel[0] * p.kernel[1] : conv_taps(p);
}
INGOT_INLINE int64_t conv_segment_length(const ConvParams& p) {
  return conv_group_in(p) * (p.merge_width ? p.kernel[2] : 1);
}
INGOT_INLINE int64_t conv_units(const ConvParams& p) {
  return conv_pixels(p) == 0 ? 0 : p.pixel_blocks * conv_panels(p);
}
INGOT_INLINE int64_t conv_few_units(const ConvParams& p) { return conv_pixels(p) == 0 ? 0 : p.pixel_blocks; }
INGOT_INLINE int64_t conv_depthwise_units(const ConvParams& p) { return p.batch * p.out[0] * p.out[1]; }

// Scratch of ingot_conv_f32: zeros, then the pointers of a block, then copies of merged segments. None for depthwise.
INGOT_INLINE int64_t conv_block_rows(const ConvParams& p) {
  return conv_pixels(p) / p.pixel_blocks + 2 * kMostTileRows + 1;
}
INGOT_INLINE int64_t conv_zero_floats(const ConvParams& p) {
  return div_up(p.merge_width ? conv_segment_length(p) : p.in_channels, 16) * 16;
}
INGOT_INLINE int64_t conv_table_bytes(const ConvParams& p) {
  return div_up(conv_block_rows(p) * conv_segments(p) * int64_t(sizeof(const float*)), 64) * 64;
}
INGOT_INLINE int64_t conv_scratch_bytes(const ConvParams& p) {
  int64_t copies = p.merge_width ? conv_block_rows(p) * conv_segments(p) * conv_segment_length(p) : 0;
  return (conv_zero_floats(p) + copies) * int64_t(sizeof(float)) + conv_table_bytes(p);
}

// Packed weights: [group][panel][tap][group input channel][panel columns], from W[c][i][t] as ONNX stores it: in each
// group panels as kernels/pack.h has them, of a matrix whose rows are taps x input channels and whose columns are
// output channels. A panel of 16 columns of a 3x3 filter with 8 input channels:
//
//   tap (0, 0)                                     tap (0, 1)                      tap (2, 2)
//   i = 0          i = 1        ...  i = 7       | i = 0        ...        | ... | ...  i = 7
//   c0 ... c15     c0 ... c15        c0 ... c15  | c0 ... c15                          c0 ... c15
INGOT_INLINE int64_t conv_packed_floats(const ConvParams& p) {
  return conv_panels(p) * conv_taps(p) * conv_group_in(p) * p.panel;
}
// Panels [first, last); panels are independent, threads may share the work.
INGOT_INLINE void conv_pack_weights(float* packed, const float* w, const ConvParams& p, int64_t first, int64_t last) {
  int64_t taps = conv_taps(p), in = conv_group_in(p), out = conv_group_out(p), k = taps * in;
  int64_t panels = div_up(out, p.panel);
  for (int64_t i = first; i < last; i++) {
    int64_t c0 = i % panels * p.panel, cols = min_of(p.panel, out - c0);
    const float* src = w + (i / panels * out + c0) * k;
    float* dst = packed + i * k * p.panel;
    for (int64_t c = 0; c < in; c++)
      for (int64_t t = 0; t < taps; t++)
        for (int64_t j = 0; j < p.panel; j++)
          dst[(t * in + c) * p.panel + j] = j < cols ? src[j * k + c * taps + t] : 0.f;
  }
}
// W[c][i][t] -> [t][i][c] for the depthwise kernel.
INGOT_INLINE int64_t conv_depthwise_floats(const ConvParams& p) {
  return conv_taps(p) * conv_group_in(p) * p.out_channels;
}
INGOT_INLINE void conv_pack_depthwise(float* packed, const float* w, const ConvParams& p) {
  int64_t taps = conv_taps(p), in = conv_group_in(p);
  for (int64_t t = 0; t < taps; t++)
    for (int64_t i = 0; i < in; i++)
      for (int64_t c = 0; c < p.out_channels; c++)
        packed[(t * in + i) * p.out_channels + c] = w[(c * in + i) * taps + t];
}

// Fills the first part of the params from the sizes, for vectors of `lanes` floats. Tuned on Zen 3 (32 KB of L1, 512 KB
// of L2).
inline constexpr int64_t kConvBlockBytes = 256 << 10, kConvChunk = 384;
// Taps of a kernel row are merged where one tap alone would be a short segment: below so many channels, or where all
// taps together are no longer than so many floats.
inline constexpr int64_t kConvMergedChannels = 16, kConvMergedLength = 64;
INGOT_INLINE int64_t conv_last_vectors(const ConvParams& p, int64_t lanes) {
  const int64_t left = conv_group_out(p) % p.panel;
  return div_up(left == 0 ? p.panel : left, lanes);
}
// Panels of 16 columns, or of 24 where that leaves no last panel of 8: of 24, 40, 72 outputs. Six sums are too few to
// hide the latency of one.
INGOT_INLINE constexpr int64_t conv_panel(int64_t lanes, int64_t outputs) {
  if (lanes == 16) return best_panel(lanes, outputs);
  const int64_t eights = div_up(outputs, 8);
  return eights % 2 == 1 && eights % 3 != 1 ? 24 : 16;
}
INGOT_INLINE void conv_choose(ConvParams& p, int64_t lanes) {
  p.panel = conv_panel(lanes, conv_group_out(p));
  p.last_vectors = conv_last_vectors(p, lanes);
  p.merge_width = p.groups == 1 && p.dilation[2] == 1 && p.kernel[2] > 1 &&
                  (p.in_channels < kConvMergedChannels || p.in_channels * p.kernel[2] <= kConvMergedLength);
  int64_t length = max_of(1, conv_segment_length(p));
  p.split = 1;
  while (length / p.split > kConvChunk && length % (p.split * 2) == 0) p.split *= 2;
  p.chunk = max_of(1, kConvChunk / (length / p.split));
  p.chunk_outer = 0;
  int64_t bytes = p.batch * p.in[0] * p.in[1] * p.in[2] * p.in_channels * int64_t(sizeof(float));
  p.pixel_blocks = max_of(1, min_of(div_up(bytes, kConvBlockBytes), conv_pixels(p) / 48));
  p.tile_rows = tallest_tile(conv_pixels(p), tile_rows(lanes, p.panel));
}
// Is this one for ingot_conv_few_f32? It needs segments of a few vectors, and sums that are long beside the adding up
// of their lanes. length: floats of a segment; terms: of a sum.
inline constexpr int64_t kConvFewOutputs = 4, kConvFewLength = 32;
INGOT_INLINE constexpr int64_t conv_few_rows(int64_t lanes, int64_t outputs) {
  return min_of(kMostTileRows, tile_accumulators(lanes) / outputs);
}
INGOT_INLINE constexpr bool conv_is_few(int64_t group_outputs, int64_t length, int64_t terms) {
  return group_outputs <= kConvFewOutputs && length >= kConvFewLength && terms >= kConvFewLength * group_outputs;
}
INGOT_INLINE void conv_choose_few(ConvParams& p, int64_t lanes) {
  p.panel = 1;
  p.merge_width = p.groups == 1 && p.dilation[2] == 1 && p.kernel[2] > 1;
  p.split = p.chunk = 1;
  p.last_vectors = p.chunk_outer = 0;
  p.tile_rows = tallest_tile(conv_pixels(p), conv_few_rows(lanes, conv_group_out(p)));
}
inline constexpr int kDepthwiseColumns = 16;  // channels per step: a cache line
// Is this one for ingot_conv_depthwise_f32? in, out: channels of a group.
INGOT_INLINE constexpr bool conv_is_depthwise(int64_t groups, int64_t in, int64_t out) {
  return groups > 1 && in == out && (in == 1 || in == 2 || in == 4);
}
INGOT_INLINE void conv_choose_depthwise(ConvParams& p, int64_t lanes) {
  p.panel = conv_group_in(p);
  p.tile_rows = tallest_tile(p.out[2], tile_rows(lanes, kDepthwiseColumns));
}

INGOT_KERNEL(ingot_conv_depthwise_f32);
INGOT_KERNEL(ingot_conv_f32);
INGOT_KERNEL(ingot_conv_few_f32);

}  // namespace ingot::kernel
