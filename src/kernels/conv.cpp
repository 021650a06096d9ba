#include "kernels/conv_table.h"

namespace ingot::kernel {

// One chunk of K of one panel: pieces [first, last), weights at w.
struct ConvChunk {
  int64_t first, last;
  const float* w;
  int64_t channel;  // first input channel of the group
};

// A tile of the first NV vectors of a panel.
template <int NR, int MR, int NV>
INGOT_LATE void conv_tile(const ConvParams& p, const ConvBlock& b, const ConvChunk& chunk, int64_t row,
                          const Destination& d, Prefetch& prefetch, const Epilogue& epilogue) {
  int64_t piece_length = conv_segment_length(p) / p.split;
  prefetch_destination<MR>(d, epilogue);
  VF acc[MR][NV];
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
  ConvBlock b = conv_block(call, p, cut_rows(conv_pixels(p), kTileRows<NR>, p.tile_rows), block);
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
    int64_t col = group * conv_group_out(p) + in_group, cols = conv_group_out(p) - in_group;
    with_height<NR / kLanes>(cols < NR ? p.last_vectors : NR / kLanes, [&](auto vectors) INGOT_INLINED {
      for_tiles<kTileRows<NR>>(b.tiling, b.first_tile, b.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        int64_t row = tile_start(b.tiling, tile);
        Destination d{y + row * p.out_channels + col, p.out_channels, row, col, cols, now.chunk == 0,
                      now.chunk == chunks - 1};
        conv_tile<NR, decltype(h)::value, decltype(vectors)::value>(p, b, chunk, row - b.first_row, d, prefetch,
                                                                    epilogue);
      });
    });
  }
}

template <int NR>
INGOT_LATE void conv(const KernelCall* call, const ConvParams& p) {
  conv_clear_zeros(call, p);
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
