// The rows of a convolution's implicit matrix (kernels/conv.h): for a block of output pixels, where each segment of
// each pixel begins in memory.
#pragma once
#include "kernels/conv.h"
#include "kernels/microkernel.h"
#include "kernels/window.h"

namespace ingot::kernel {

// A block of output pixels: where each of its segments begins in memory, segment by segment.
struct ConvBlock {
  Tiling tiling;
  int64_t first_tile, last_tile;
  int64_t first_row, rows;
  const float** at;  // [segment][row]
};

// A row of the image as a window sees it that begins at column `origin` and crosses the border: a copy with zeros.
INGOT_INLINE const float* conv_merged_segment(const ConvParams& p, const float* image_row, int64_t origin,
                                              float*& copies) {
  int64_t width = p.kernel[2], channels = p.in_channels;
  float* copy = copies;
  copies += width * channels;
  for (int64_t t = 0; t < width; t++)
    for (int64_t c = 0; c < channels; c++) {
      bool inside = origin + t >= 0 && origin + t < p.in[2];
      copy[t * channels + c] = inside ? image_row[(origin + t) * channels + c] : 0.f;
    }
  return copy;
}

// Neighbouring output pixels of one row, [first, last) of its width.
struct ConvPixels {
  int64_t first, last;
};

// Pointers of one segment of these pixels in a row of the image, tap `tap` of the width or (merge_width) all taps: a
// stride apart where they are inside.
INGOT_INLINE void conv_segment_pointers(const ConvParams& p, const float* image_row, int64_t tap, ConvPixels pixels,
                                        const float* zeros, const float** at, float*& copies) {
  const int64_t last_tap = p.merge_width ? p.kernel[2] - 1 : tap;
  const Interior inside = interior_of_taps(p.out[2], p.in[2], tap, last_tap, p.stride[2], p.dilation[2], p.pad[2]);
  const int64_t first = max_of(pixels.first, min_of(inside.first, pixels.last));
  const int64_t last = max_of(first, min_of(inside.last, pixels.last));
  auto border = [&](int64_t o) INGOT_INLINED {
    return p.merge_width ? conv_merged_segment(p, image_row, o * p.stride[2] - p.pad[2], copies) : zeros;
  };
  for (int64_t o = pixels.first; o < first; o++) *at++ = border(o);
  const int64_t step = p.stride[2] * p.in_channels, start = (tap * p.dilation[2] - p.pad[2]) * p.in_channels;
  for (int64_t o = first; o < last; o++) *at++ = image_row + start + o * step;
  for (int64_t o = last; o < pixels.last; o++) *at++ = border(o);
}

// All pointers of these pixels, whose windows begin at row y and plane z of the image; segments are `rows` entries
// apart in the table.
INGOT_INLINE void conv_pointers(const ConvParams& p, const float* image, int64_t z, int64_t y, ConvPixels pixels,
                                const float* zeros, const float** at, int64_t rows, float*& copies) {
  const int64_t taps = p.merge_width ? 1 : p.kernel[2];
  for (int64_t d = 0; d < p.kernel[0]; d++, z += p.dilation[0])
    for (int64_t h = 0; h < p.kernel[1]; h++) {
      const int64_t row = y + h * p.dilation[1];
      const bool inside = z >= 0 && z < p.in[0] && row >= 0 && row < p.in[1];
      const float* image_row = image + (z * p.in[1] + row) * p.in[2] * p.in_channels;
      for (int64_t t = 0; t < taps; t++, at += rows)
        if (inside)
          conv_segment_pointers(p, image_row, t, pixels, zeros, at, copies);
        else
          for (int64_t i = 0; i < pixels.last - pixels.first; i++) at[i] = zeros;
    }
}

// Block `block` of all pixels, cut into tiles.
INGOT_INLINE ConvBlock conv_block(const KernelCall* call, const ConvParams& p, const Tiling& tiling, int64_t block) {
  ConvBlock b;
  b.tiling = tiling;
  b.first_tile = b.tiling.count * block / p.pixel_blocks;
  b.last_tile = b.tiling.count * (block + 1) / p.pixel_blocks;
  b.first_row = tile_start(b.tiling, b.first_tile);
  b.rows = tile_start(b.tiling, b.last_tile) - b.first_row;

  float* zeros = static_cast<float*>(call->scratch);
  auto* table = reinterpret_cast<char*>(zeros + conv_zero_floats(p));
  auto* copies = reinterpret_cast<float*>(table + conv_table_bytes(p));
  b.at = reinterpret_cast<const float**>(table);
  const float* x = static_cast<const float*>(call->operand[0]);
  int64_t image_floats = p.in[0] * p.in[1] * p.in[2] * p.in_channels;
  for (int64_t i = 0; i < b.rows;) {
    int64_t pixel = b.first_row + i, w = pixel % p.out[2], rest = pixel / p.out[2];
    int64_t h = rest % p.out[1], d = rest / p.out[1] % p.out[0], n = rest / (p.out[1] * p.out[0]);
    ConvPixels pixels{w, min_of(p.out[2], w + b.rows - i)};
    conv_pointers(p, x + n * image_floats, d * p.stride[0] - p.pad[0], h * p.stride[1] - p.pad[1], pixels, zeros,
                  b.at + i, b.rows, copies);
    i += pixels.last - pixels.first;
  }
  return b;
}

// The buffer of zeros at the beginning of scratch.
INGOT_INLINE void conv_clear_zeros(const KernelCall* call, const ConvParams& p) {
  float* zeros = static_cast<float*>(call->scratch);
  for (int64_t i = 0; i < conv_zero_floats(p); i++) zeros[i] = 0.f;
}

}  // namespace ingot::kernel
