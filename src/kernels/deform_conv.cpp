#include "kernels/deform_conv.h"

#include "base/dtype.h"
#include "kernels/vec.h"

namespace ingot::kernel {
namespace {

// One dim of a place between pixels: the lower of its two neighbours and the weight of the upper one.
struct Between {
  int64_t low;
  double part;
};

struct Place {
  bool inside;
  Between dim[3];
};

template <class T>
Place place_of(const DeformConvParams& p, const T* offset, int64_t positions, const int64_t (&o)[3],
               const int64_t (&t)[3]) {
  Place out{true, {}};
  for (int d = 0; d < 3; d++) {
    double at = double(o[d] * p.stride[d] - p.pad[d] + t[d] * p.dilation[d]);
    if (d >= 3 - p.rank) at += double(offset[(d - (3 - p.rank)) * positions]);
    if (!(at > -1 && at < double(p.in[d]))) return {false, {}};
    const double low = __builtin_floor(at);
    out.dim[d] = {int64_t(low), at - low};
  }
  return out;
}

template <class T>
double sample(const DeformConvParams& p, const T* x, const Place& place) {
  double sum = 0;
  for (int corner = 0; corner < 8; corner++) {
    double weight = 1;
    int64_t at = 0;
    bool inside = true;
    for (int d = 0; d < 3; d++) {
      const int up = corner >> d & 1;
      const int64_t i = place.dim[d].low + up;
      weight *= up ? place.dim[d].part : 1 - place.dim[d].part;
      inside &= i >= 0 && i < p.in[d];
      at = at * p.in[d] + i;
    }
    if (inside && weight != 0) sum += weight * double(x[at]);
  }
  return sum;
}

// All channels of y at one place.
template <class T>
void one(const KernelCall* call, const DeformConvParams& p, int64_t n, int64_t position) {
  const int64_t pixels = p.in[0] * p.in[1] * p.in[2], positions = p.out[0] * p.out[1] * p.out[2];
  const int64_t taps = p.kernel[0] * p.kernel[1] * p.kernel[2], per_group = p.in_channels / p.groups;
  const int64_t out_per_group = p.out_channels / p.groups, per_offset = p.in_channels / p.offset_groups;
  const int64_t o[3] = {position / (p.out[1] * p.out[2]), position / p.out[2] % p.out[1], position % p.out[2]};
  const auto *x = static_cast<const T*>(call->operand[0]) + n * p.in_channels * pixels,
             *w = static_cast<const T*>(call->operand[1]),
             *offset = static_cast<const T*>(call->operand[2]) + n * p.offset_groups * taps * p.rank * positions,
             *b = static_cast<const T*>(call->operand[3]), *mask = static_cast<const T*>(call->operand[4]);
  if (mask) mask += n * p.offset_groups * taps * positions;
  auto* sum = static_cast<double*>(call->scratch);
  for (int64_t c = 0; c < p.out_channels; c++) sum[c] = b ? double(b[c]) : 0;
  for (int64_t g = 0; g < p.offset_groups; g++)
    for (int64_t tap = 0; tap < taps; tap++) {
      const int64_t t[3] = {tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1], tap % p.kernel[2]};
      const int64_t at = g * taps + tap;
      const Place place = place_of(p, offset + at * p.rank * positions + position, positions, o, t);
      if (!place.inside) continue;
      const double scale = mask ? double(mask[at * positions + position]) : 1;
      for (int64_t i = g * per_offset; i < (g + 1) * per_offset; i++) {
        const double v = scale * sample(p, x + i * pixels, place);
        const int64_t group = i / per_group, mine = i % per_group;
        for (int64_t c = group * out_per_group; c < (group + 1) * out_per_group; c++)
          sum[c] += v * double(w[(c * per_group + mine) * taps + tap]);
      }
    }
  T* y = static_cast<T*>(call->operand[5]) + n * p.out_channels * positions + position;
  for (int64_t c = 0; c < p.out_channels; c++) y[c * positions] = T(sum[c]);
}

}  // namespace

extern "C" KernelStatus ingot_deform_conv(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const DeformConvParams*>(call->param);
  const int64_t positions = p.out[0] * p.out[1] * p.out[2];
  for (int64_t u = call->begin; u < call->end; u++)
    if (static_cast<DType>(p.dtype) == DType::F64)
      one<double>(call, p, u / positions, u % positions);
    else
      one<float>(call, p, u / positions, u % positions);
  return kOk;
}

}  // namespace ingot::kernel
