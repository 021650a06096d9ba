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

// Row `x_row` of the image seen by a pixel whose window begins at column `origin`: in place, or copied with zeros.
INGOT_INLINE const float* conv_merged_segment(const ConvParams& p, const float* image_row, int64_t origin,
                                              float*& copies) {
  int64_t width = p.kernel[2], channels = p.in_channels;
  if (origin >= 0 && origin + width <= p.in[2]) return image_row + origin * channels;
  float* copy = copies;
  copies += width * channels;
  for (int64_t t = 0; t < width; t++)
    for (int64_t c = 0; c < channels; c++) {
      bool inside = origin + t >= 0 && origin + t < p.in[2];
      copy[t * channels + c] = inside ? image_row[(origin + t) * channels + c] : 0.f;
    }
  return copy;
}

// The pointers of one pixel: its segments are `rows` entries apart in the table.
INGOT_INLINE void conv_pixel(const ConvParams& p, const float* image, const int64_t (&o)[3], const float* zeros,
                             const float** at, int64_t rows, float*& copies) {
  int64_t origin[3];
  INGOT_UNROLL for (int i = 0; i < 3; i++) origin[i] = o[i] * p.stride[i] - p.pad[i];
  for (int64_t d = 0; d < p.kernel[0]; d++)
    for (int64_t h = 0; h < p.kernel[1]; h++) {
      int64_t z = origin[0] + d * p.dilation[0], y = origin[1] + h * p.dilation[1];
      bool inside = z >= 0 && z < p.in[0] && y >= 0 && y < p.in[1];
      const float* image_row = image + (z * p.in[1] + y) * p.in[2] * p.in_channels;
      if (p.merge_width) {
        *at = inside ? conv_merged_segment(p, image_row, origin[2], copies) : zeros;
        at += rows;
        continue;
      }
      for (int64_t w = 0; w < p.kernel[2]; w++, at += rows) {
        int64_t x = origin[2] + w * p.dilation[2];
        *at = inside && x >= 0 && x < p.in[2] ? image_row + x * p.in_channels : zeros;
      }
    }
}

template <int NR>
INGOT_INLINE ConvBlock conv_block(const KernelCall* call, const ConvParams& p, int64_t block) {
  ConvBlock b;
  b.tiling = cut_rows(conv_pixels(p), kTileRows<NR>, p.tile_rows);
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
  for (int64_t i = 0; i < b.rows; i++) {
    int64_t pixel = b.first_row + i, w = pixel % p.out[2], rest = pixel / p.out[2];
    int64_t h = rest % p.out[1], d = rest / p.out[1] % p.out[0], n = rest / (p.out[1] * p.out[0]);
    conv_pixel(p, x + n * image_floats, {d, h, w}, zeros, b.at + i, b.rows, copies);
  }
  return b;
}

// One chunk of K of one panel: pieces [first, last), weights at w.
struct ConvChunk {
  int64_t first, last;
  const float* w;
  int64_t channel;  // first input channel of the group
};

template <int NR, int MR>
INGOT_LATE void conv_tile(const ConvParams& p, const ConvBlock& b, const ConvChunk& chunk, int64_t row,
                          const Destination& d, Prefetch& prefetch, const Epilogue& epilogue) {
  int64_t piece_length = conv_segment_length(p) / p.split;
  prefetch_destination<MR>(d, epilogue);
  VF acc[MR][NR / kLanes];
  clear(acc);
  const float* w = chunk.w;
  for (int64_t piece = chunk.first; piece < chunk.last; piece++, w += piece_length * NR) {
    const float* const* at = b.at + piece / p.split * b.rows + row;
    const float* rows[MR];
    INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = at[i] + chunk.channel + piece % p.split * piece_length;
    accumulate(acc, rows, kUnroll, w, NR, piece_length, prefetch);
  }
  finish(acc, d, epilogue);
}

// Panels [first, last) of one block of pixels.
template <int NR>
INGOT_INLINE void conv_panels_of_block(const KernelCall* call, const ConvParams& p, int64_t block, int64_t first,
                                       int64_t last) {
  Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  ConvBlock b = conv_block<NR>(call, p, block);
  const float* weights = static_cast<const float*>(call->operand[1]);
  float* y = static_cast<float*>(call->operand[2]);
  int64_t group_panels = div_up(conv_group_out(p), NR), piece_length = conv_segment_length(p) / p.split;
  int64_t pieces = conv_segments(p) * p.split, chunks = max_of(1, div_up(pieces, p.chunk)), panels = last - first;
  int64_t panel_floats = pieces * piece_length * NR, chunk_floats = p.chunk * piece_length * NR;
  int64_t lines = prefetch_lines(NR * int64_t(sizeof(float)), b.tiling.count / p.pixel_blocks);
  auto place = [&](int64_t i) INGOT_INLINED {
    struct Place {
      int64_t panel, chunk;
    };
    return p.chunk_outer ? Place{first + i % panels, i / panels} : Place{first + i / chunks, i % chunks};
  };
  for (int64_t i = 0; i < panels * chunks; i++) {
    auto now = place(i), next = place(min_of(i + 1, panels * chunks - 1));
    int64_t group = now.panel / group_panels, in_group = now.panel % group_panels * NR;
    ConvChunk chunk{now.chunk * p.chunk, min_of((now.chunk + 1) * p.chunk, pieces),
                    weights + now.panel * panel_floats + now.chunk * chunk_floats, group * conv_group_in(p)};
    Prefetch prefetch{reinterpret_cast<const char*>(weights + next.panel * panel_floats + next.chunk * chunk_floats),
                      lines};
    int64_t col = group * conv_group_out(p) + in_group;
    for_tiles<kTileRows<NR>>(b.tiling, b.first_tile, b.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
      int64_t row = tile_start(b.tiling, tile);
      Destination d{
          y + row * p.out_channels + col, p.out_channels, row, col, conv_group_out(p) - in_group, now.chunk == 0,
          now.chunk == chunks - 1};
      conv_tile<NR, decltype(h)::value>(p, b, chunk, row - b.first_row, d, prefetch, epilogue);
    });
  }
}

template <int NR>
INGOT_LATE void conv(const KernelCall* call, const ConvParams& p) {
  float* zeros = static_cast<float*>(call->scratch);
  for (int64_t i = 0; i < conv_zero_floats(p); i++) zeros[i] = 0.f;
  int64_t panels = p.groups * div_up(conv_group_out(p), NR);
  for (int64_t unit = call->begin; unit < call->end;) {
    int64_t first = unit % panels, last = min_of(panels, first + call->end - unit);
    conv_panels_of_block<NR>(call, p, unit / panels, first, last);
    unit += last - first;
  }
}

INGOT_INLINE KernelStatus conv_body(const KernelCall* call) {
  const ConvParams& p = *reinterpret_cast<const ConvParams*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED { conv<decltype(width)::value>(call, p); });
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_conv_f32(const ingot::KernelCall* call) { return ingot::kernel::conv_body(call); }
