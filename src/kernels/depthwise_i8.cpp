#include "kernels/depthwise_i8.h"

namespace ingot::kernel {

template <size_t... J>
INGOT_INLINE auto interleave(Vec<uint8_t> x, Vec<uint8_t> y, std::index_sequence<J...>) {
  return __builtin_shufflevector(x, y, int(J / 2 + J % 2 * kLanes)...);
}
// Two taps of kLanes channels, interleaved and widened.
INGOT_INLINE Shorts interleaved(const uint8_t* a, const uint8_t* b, int64_t lanes, bool is_signed) {
  Vec<uint8_t> x = load_partial(a, lanes), y = load_partial(b, lanes);
  auto both = interleave(x, y, std::make_index_sequence<2 * kLanes>());
  using Signed = int8_t __attribute__((ext_vector_type(2 * kLanes)));
  return is_signed ? __builtin_convertvector(__builtin_bit_cast(Signed, both), Shorts)
                   : __builtin_convertvector(both, Shorts);
}

struct Depthwise {
  const DepthwiseI8Params& p;
  SumsTarget target;
  const int32_t* sums;
  const int16_t* weights;
  int32_t x_zero;
  int64_t taps;
  int64_t offset[kMaxDepthwiseTaps + 1];
};

// The sums of NV vectors of channels of a pixel; `lanes` of a single vector.
template <int NV>
INGOT_INLINE void add_taps(const Depthwise& d, const uint8_t* x, int64_t c, int64_t lanes, VI (&acc)[NV]) {
  const DepthwiseI8Params& p = d.p;
  const int64_t padded = depthwise_padded(p.channels);
  INGOT_UNROLL for (int j = 0; j < NV; j++) acc[j] = VI(0);
  for (int64_t pair = 0; pair < depthwise_pairs(d.taps); pair++) INGOT_UNROLL for (int j = 0; j < NV; j++) {
      const int64_t at = c + j * kLanes;
      const Shorts both = interleaved(x + d.offset[2 * pair] + at, x + d.offset[2 * pair + 1] + at, lanes, p.x_signed);
      acc[j] += multiply_shorts(both, load_as<Shorts>(d.weights + (pair * padded + at) * 2));
    }
  INGOT_UNROLL for (int j = 0; p.x_zero != kNoZero && j < NV; j++) acc[j] -= load(d.sums + c + j * kLanes) * d.x_zero;
}

INGOT_INLINE void depthwise_pixel(const Depthwise& d, const uint8_t* x, int64_t pixel) {
  constexpr int NV = 4;
  const int64_t channels = d.p.channels, at = pixel * channels;
  int64_t c = 0;
  for (; c + NV * kLanes <= channels; c += NV * kLanes) {
    VI acc[NV];
    add_taps(d, x, c, kLanes, acc);
    store_sums(d.target, acc, at + c, pixel, c);
  }
  for (; c < channels; c += kLanes) {
    const int64_t lanes = min_of(kLanes, channels - c);
    VI acc[1];
    add_taps(d, x, c, lanes, acc);
    store_sums(d.target, acc[0], at + c, pixel, c, lanes);
  }
}

INGOT_INLINE KernelStatus depthwise_i8(const KernelCall* call) {
  const DepthwiseI8Params& p = *reinterpret_cast<const DepthwiseI8Params*>(call->param);
  const auto* w = static_cast<const uint8_t*>(call->operand[1]);
  Depthwise d{p,
              {call->operand[2], call->operand + 4, p.extra, call->program, p.c_bytes},
              reinterpret_cast<const int32_t*>(w),
              reinterpret_cast<const int16_t*>(w + depthwise_padded(p.channels) * 4),
              zero_at(call->operand[3], p.x_zero, 0, p.x_signed),
              p.kernel[0] * p.kernel[1] * p.kernel[2],
              {}};
  for (int64_t t = 0; t < d.taps; t++)
    d.offset[t] = t / (p.kernel[1] * p.kernel[2]) * p.tap[0] + t / p.kernel[2] % p.kernel[1] * p.tap[1] +
                  t % p.kernel[2] * p.tap[2];
  d.offset[d.taps] = d.offset[d.taps - 1];  // the odd one's partner, whose weights are 0
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t h = unit % p.out[1], depth = unit / p.out[1] % p.out[0], n = unit / (p.out[1] * p.out[0]);
    const uint8_t* row =
        static_cast<const uint8_t*>(call->operand[0]) + n * p.image + depth * p.step[0] + h * p.step[1];
    for (int64_t ox = 0; ox < p.out[2]; ox++) depthwise_pixel(d, row + ox * p.step[2], unit * p.out[2] + ox);
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_depthwise_i8(const ingot::KernelCall* call) {
  return ingot::kernel::depthwise_i8(call);
}
