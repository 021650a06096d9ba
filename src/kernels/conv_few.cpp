#include "kernels/conv_table.h"

namespace ingot::kernel {

// MR pixels by NC output channels: lanes run along the segments, their sums are added up at the end.
template <int MR, int NC>
INGOT_LATE void conv_few_tile(const ConvParams& p, const ConvBlock& b, const float* w, int64_t channel, int64_t row,
                              float* y, int64_t col, const Epilogue& epilogue) {
  const int64_t length = conv_segment_length(p), segments = conv_segments(p), k_floats = segments * length;
  VF acc[MR][NC];
  clear(acc);
  for (int64_t s = 0; s < segments; s++, w += length) {
    const float* const* at = b.at + s * b.rows + row;
    const float* rows[MR];
    INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = at[i] + channel;
    auto step = [&](int64_t k, int64_t lanes) INGOT_INLINED {
      VF tap[NC];
      INGOT_UNROLL for (int c = 0; c < NC; c++) tap[c] = load_partial(w + c * k_floats + k, lanes);
      INGOT_UNROLL for (int i = 0; i < MR; i++) {
        const VF x = load_partial(rows[i] + k, lanes);
        INGOT_UNROLL for (int c = 0; c < NC; c++) acc[i][c] += x * tap[c];
      }
    };
    int64_t k = 0;
    for (; k + kLanes <= length; k += kLanes) step(k, kLanes);
    if (k < length) step(k, length - k);
  }
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    VF sums = VF(0.f);
    INGOT_UNROLL for (int c = 0; c < NC; c++) sums[c] = sum_lanes<float>(acc[i][c]);
    const int64_t pixel = b.first_row + row + i;
    store_partial(y + pixel * p.out_channels + col, apply(epilogue, sums, pixel, col, NC), NC);
  }
}

template <int NC>
INGOT_INLINE void conv_few(const KernelCall* call, const ConvParams& p) {
  constexpr int kRows = int(conv_few_rows(kLanes, NC));
  conv_clear_zeros(call, p);
  const Tiling tiling = cut_rows(conv_pixels(p), kRows, p.tile_rows);
  const Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  const int64_t group_floats = conv_taps(p) * conv_group_in(p) * NC;
  for (int64_t block = call->begin; block < call->end; block++) {
    const ConvBlock b = conv_block(call, p, tiling, block);
    for (int64_t g = 0; g < p.groups; g++)
      for_tiles<kRows>(b.tiling, b.first_tile, b.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        conv_few_tile<decltype(h)::value, NC>(p, b, static_cast<const float*>(call->operand[1]) + g * group_floats,
                                              g * conv_group_in(p), tile_start(tiling, tile) - b.first_row,
                                              static_cast<float*>(call->operand[2]), g * NC, epilogue);
      });
  }
}

INGOT_INLINE KernelStatus conv_few_body(const KernelCall* call) {
  const ConvParams& p = *reinterpret_cast<const ConvParams*>(call->param);
  with_height<int(kConvFewOutputs)>(conv_group_out(p),
                                    [&](auto columns) INGOT_INLINED { conv_few<decltype(columns)::value>(call, p); });
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_conv_few_f32(const ingot::KernelCall* call) {
  return ingot::kernel::conv_few_body(call);
}
