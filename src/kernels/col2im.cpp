#include "kernels/col2im.h"

#include "base/dtype.h"
#include "kernels/abi.h"
#include "kernels/vec.h"

namespace ingot::kernel {
namespace {

// The input whose tap t lands on result o, or -1.
INGOT_INLINE int64_t source(const Col2imParams& p, int d, int64_t o, int64_t t) {
  const int64_t reach = o + p.pad[d] - t * p.dilation[d];
  if (reach < 0 || reach % p.stride[d] != 0) return -1;
  return reach / p.stride[d] < p.in[d] ? reach / p.stride[d] : -1;
}

// The inputs [first, last) of a row whose tap lands inside the result, `shift` from where they are times the stride.
struct Inputs {
  int64_t first, last;
};
INGOT_INLINE Inputs inputs_inside(const Col2imParams& p, int64_t shift) {
  const int64_t stride = p.stride[2], room = p.out[2] - 1 - shift;
  const int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t last = room < 0 ? 0 : room / stride + 1;
  return {first, last < p.in[2] ? last : p.in[2]};
}

template <class T>
INGOT_INLINE void add_row(const Col2imParams& p, const T* col, int64_t shift, T* y) {
  const Inputs in = inputs_inside(p, shift);
  for (int64_t i = in.first; i < in.last; i++) y[i * p.stride[2] + shift] += col[i];
}

template <class T>
void rows(const KernelCall* call, const Col2imParams& p) {
  const int64_t taps = p.kernel[0] * p.kernel[1] * p.kernel[2], pixels = p.in[0] * p.in[1] * p.in[2];
  auto* bias = static_cast<const T*>(call->operand[1]);
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t b = u % p.out[1], a = u / p.out[1] % p.out[0], plane = u / (p.out[0] * p.out[1]);
    const T* col = static_cast<const T*>(call->operand[0]) + plane * taps * pixels;
    T* y = static_cast<T*>(call->operand[2]) + u * p.out[2];
    for (int64_t o = 0; o < p.out[2]; o++) y[o] = bias ? bias[plane % p.channels] : T(0);
    for (int64_t s = 0; s < p.kernel[0]; s++)
      for (int64_t t = 0; t < p.kernel[1]; t++) {
        const int64_t z = source(p, 0, a, s), v = source(p, 1, b, t);
        if (z < 0 || v < 0) continue;
        for (int64_t w = 0; w < p.kernel[2]; w++)
          add_row<T>(p,
                     col + (((s * p.kernel[1] + t) * p.kernel[2] + w) * p.in[0] + z) * p.in[1] * p.in[2] + v * p.in[2],
                     w * p.dilation[2] - p.pad[2], y);
      }
  }
}

// The windows of one row of inputs that reach a row of results, of one group: col is tap 0 of the width of its first
// input, y the first pixel.
INGOT_INLINE void add_pixels(const Col2imParams& p, const float* col, int64_t taps, int64_t channels, float* y) {
  for (int64_t w = 0; w < p.kernel[2]; w++) {
    const int64_t shift = w * p.dilation[2] - p.pad[2];
    const Inputs in = inputs_inside(p, shift);
    for (int64_t i = in.first; i < in.last; i++) {
      const float* from = col + (i * taps + w) * channels;
      float* to = y + (i * p.stride[2] + shift) * p.channels;
      int64_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) store(to + c, load(to + c) + load(from + c));
      for (; c < channels; c++) to[c] += from[c];
    }
  }
}

}  // namespace

extern "C" KernelStatus ingot_col2im_last(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const Col2imParams*>(call->param);
  const int64_t taps = p.kernel[0] * p.kernel[1] * p.kernel[2], pixels = p.in[0] * p.in[1] * p.in[2];
  const int64_t channels = p.channels / p.groups;
  auto* bias = static_cast<const float*>(call->operand[1]);
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t b = u % p.out[1], a = u / p.out[1] % p.out[0], n = u / (p.out[0] * p.out[1]);
    float* y = static_cast<float*>(call->operand[2]) + u * p.out[2] * p.channels;
    for (int64_t o = 0; o < p.out[2]; o++)
      for (int64_t c = 0; c < p.channels; c++) y[o * p.channels + c] = bias ? bias[c] : 0.f;
    for (int64_t s = 0; s < p.kernel[0]; s++)
      for (int64_t t = 0; t < p.kernel[1]; t++) {
        const int64_t z = source(p, 0, a, s), v = source(p, 1, b, t);
        if (z < 0 || v < 0) continue;
        const int64_t pixel = n * pixels + (z * p.in[1] + v) * p.in[2], tap = (s * p.kernel[1] + t) * p.kernel[2];
        for (int64_t g = 0; g < p.groups; g++)
          add_pixels(
              p, static_cast<const float*>(call->operand[0]) + ((g * p.batch * pixels + pixel) * taps + tap) * channels,
              taps, channels, y + g * channels);
      }
  }
  return kOk;
}

extern "C" KernelStatus ingot_col2im(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const Col2imParams*>(call->param);
  if (static_cast<DType>(p.dtype) == DType::F64)
    rows<double>(call, p);
  else if (static_cast<DType>(p.dtype) == DType::I32)
    rows<int32_t>(call, p);
  else
    rows<float>(call, p);
  return kOk;
}

}  // namespace ingot::kernel
