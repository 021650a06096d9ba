#include "kernels/conv_any.h"

#include "kernels/abi.h"
#include "kernels/conv.h"

namespace ingot::kernel {
namespace {

// y[o] += sum over the taps of a kernel row of w[t] * x[o * stride + t * dilation - pad]
template <class T>
INGOT_INLINE void add_row(const ConvAnyParams& p, const T* x, const T* w, T* y) {
  for (int64_t t = 0; t < p.kernel[2]; t++) {
    const int64_t shift = t * p.dilation[2] - p.pad[2], room = p.in[2] - 1 - shift;
    const int64_t first = shift >= 0 ? 0 : (-shift + p.stride[2] - 1) / p.stride[2];
    const int64_t last = room < 0 ? 0 : min_of(room / p.stride[2] + 1, p.out[2]);
    for (int64_t o = first; o < last; o++) y[o * p.y_step] += w[t] * x[(o * p.stride[2] + shift) * p.x_step];
  }
}

template <class T>
void rows(const KernelCall* call, const ConvAnyParams& p) {
  const int64_t group_in = p.in_channels / p.groups, group_out = p.out_channels / p.groups;
  const int64_t taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
  const int64_t in_pixels = p.in[0] * p.in[1] * p.in[2], out_pixels = p.out[0] * p.out[1] * p.out[2];
  for (int64_t u = call->begin; u < call->end; u++) {
    int64_t rest = u;
    const int64_t b = rest % p.out[1];
    rest /= p.out[1];
    const int64_t a = rest % p.out[0];
    rest /= p.out[0];
    const int64_t c = rest % p.out_channels, n = rest / p.out_channels;
    const T* x = static_cast<const T*>(call->operand[0]) + n * p.in_channels * in_pixels +
                 c / group_out * group_in * p.x_channel;
    const T* w = static_cast<const T*>(call->operand[1]) + c * group_in * taps;
    T* y = static_cast<T*>(call->operand[2]) + n * p.out_channels * out_pixels + c * p.y_channel +
           (a * p.out[1] + b) * p.out[2] * p.y_step;
    for (int64_t o = 0; o < p.out[2]; o++) y[o * p.y_step] = T(0);
    for (int64_t i = 0; i < group_in; i++)
      for (int64_t s = 0; s < p.kernel[0]; s++)
        for (int64_t t = 0; t < p.kernel[1]; t++) {
          const int64_t z = a * p.stride[0] + s * p.dilation[0] - p.pad[0];
          const int64_t v = b * p.stride[1] + t * p.dilation[1] - p.pad[1];
          if (z < 0 || z >= p.in[0] || v < 0 || v >= p.in[1]) continue;
          add_row<T>(p, x + i * p.x_channel + (z * p.in[1] + v) * p.in[2] * p.x_step,
                     w + ((i * p.kernel[0] + s) * p.kernel[1] + t) * p.kernel[2], y);
        }
  }
}

}  // namespace

extern "C" KernelStatus ingot_conv_f64(const KernelCall* call) {
  rows<double>(call, *reinterpret_cast<const ConvAnyParams*>(call->param));
  return kOk;
}

// Unsigned: signed sums have the same bits, and these may wrap.
extern "C" KernelStatus ingot_conv_i32(const KernelCall* call) {
  rows<uint32_t>(call, *reinterpret_cast<const ConvAnyParams*>(call->param));
  return kOk;
}

extern "C" KernelStatus ingot_conv_pack(const KernelCall* call) {
  conv_pack_weights(static_cast<float*>(call->operand[1]), static_cast<const float*>(call->operand[0]),
                    *reinterpret_cast<const ConvParams*>(call->param), call->begin, call->end);
  return kOk;
}

extern "C" KernelStatus ingot_conv_pack_depthwise(const KernelCall* call) {
  conv_pack_depthwise(static_cast<float*>(call->operand[1]), static_cast<const float*>(call->operand[0]),
                      *reinterpret_cast<const ConvParams*>(call->param));
  return kOk;
}

}  // namespace ingot::kernel
