#include "kernels/roi.h"

#include "kernels/abi.h"
#include "kernels/element.h"
#include "kernels/number.h"

namespace ingot::kernel {
namespace {

constexpr int64_t kMaxSamples = 1 << 20;  // in a bin; a region of any size must not run for ever

struct Corner {
  int64_t at[4];
  double weight[4];
};

// The four elements around (y, x) and their weights; all zero outside the image.
INGOT_INLINE Corner corners(double y, double x, const RoiParams& p) {
  Corner c{};
  const auto height = static_cast<double>(p.in_height), width = static_cast<double>(p.in_width);
  if (!(y >= -1 && y <= height && x >= -1 && x <= width)) return c;
  auto axis = [](double v, int64_t n, int64_t* low, int64_t* high) {
    v = v > 0 ? v : 0;
    *low = static_cast<int64_t>(v);
    if (*low >= n - 1) {
      *low = *high = n - 1;
      return 0.0;
    }
    *high = *low + 1;
    return v - static_cast<double>(*low);
  };
  int64_t y0, y1, x0, x1;
  const double ly = axis(y, p.in_height, &y0, &y1), lx = axis(x, p.in_width, &x0, &x1);
  const int64_t w = p.in_width;
  return {{y0 * w + x0, y0 * w + x1, y1 * w + x0, y1 * w + x1},
          {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
}

struct Region {
  double y, x, bin_height, bin_width;
  int64_t rows, columns;  // samples in a bin
};

template <class T>
INGOT_INLINE double align_bin(const T* in, const Region& r, int64_t ph, int64_t pw, const RoiParams& p) {
  double result = 0;
  bool first = true;
  for (int64_t i = 0; i < r.rows; i++) {
    const double y = r.y + static_cast<double>(ph) * r.bin_height +
                     (static_cast<double>(i) + 0.5) * r.bin_height / static_cast<double>(r.rows);
    for (int64_t j = 0; j < r.columns; j++) {
      const double x = r.x + static_cast<double>(pw) * r.bin_width +
                       (static_cast<double>(j) + 0.5) * r.bin_width / static_cast<double>(r.columns);
      const Corner c = corners(y, x, p);
      for (int k = 0; k < 4; k++) {
        const double v = c.weight[k] * static_cast<double>(widen(in[c.at[k]]));
        result = !p.max ? result + v : first || v > result ? v : result;
        first = false;
      }
    }
  }
  const int64_t samples = r.rows * r.columns;
  return p.max || samples == 0 ? result : result / static_cast<double>(samples);
}

template <class T>
INGOT_INLINE KernelStatus roi_align(const KernelCall* call, const RoiParams& p) {
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const T* roi = static_cast<const T*>(call->operand[1]) + unit / p.channels * 4;
    const int64_t batch = static_cast<const int64_t*>(call->operand[2])[unit / p.channels];
    if (batch < 0 || batch >= p.batch) return kIndexOutOfRange;
    double edge[4];
    for (int k = 0; k < 4; k++) edge[k] = static_cast<double>(widen(roi[k])) * p.scale - p.offset;
    double height = edge[3] - edge[1], width = edge[2] - edge[0];
    if (p.offset == 0) height = height > 1 ? height : 1, width = width > 1 ? width : 1;
    Region r{edge[1],    edge[0],   height / static_cast<double>(p.height), width / static_cast<double>(p.width),
             p.sampling, p.sampling};
    if (p.sampling <= 0) {
      const double rows = __builtin_ceil(r.bin_height), columns = __builtin_ceil(r.bin_width);
      if (!(rows < kMaxSamples && columns < kMaxSamples)) return kBadValue;
      r.rows = rows > 0 ? static_cast<int64_t>(rows) : 0;
      r.columns = columns > 0 ? static_cast<int64_t>(columns) : 0;
    }
    if (r.rows * r.columns > kMaxSamples) return kBadValue;
    const T* in =
        static_cast<const T*>(call->operand[0]) + (batch * p.channels + unit % p.channels) * p.in_height * p.in_width;
    T* out = static_cast<T*>(call->operand[3]) + unit * p.height * p.width;
    for (int64_t ph = 0; ph < p.height; ph++)
      for (int64_t pw = 0; pw < p.width; pw++) *out++ = narrow<T>(static_cast<Wide<T>>(align_bin(in, r, ph, pw, p)));
  }
  return kOk;
}

// Pixels [from, to) of bin i of `bins`, over a region of `length` pixels that starts at `start`, inside an image of n.
INGOT_INLINE void bin_range(int64_t i, int64_t bins, double start, double length, int64_t n, int64_t* from,
                            int64_t* to) {
  const double bin = length / static_cast<double>(bins);
  auto inside = [n](double v) { return v > 0 ? (v < static_cast<double>(n) ? static_cast<int64_t>(v) : n) : 0; };
  *from = inside(__builtin_floor(static_cast<double>(i) * bin) + start);
  *to = inside(__builtin_ceil(static_cast<double>(i + 1) * bin) + start);
}

template <class T>
INGOT_INLINE KernelStatus max_roi_pool(const KernelCall* call, const RoiParams& p) {
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const T* roi = static_cast<const T*>(call->operand[1]) + unit / p.channels * 5;
    const auto given = static_cast<double>(widen(roi[0]));
    if (!(given >= 0 && given < static_cast<double>(p.batch))) return kIndexOutOfRange;
    double edge[4];
    for (int k = 0; k < 4; k++) edge[k] = __builtin_round(static_cast<double>(widen(roi[k + 1])) * p.scale);
    const double height = edge[3] - edge[1] + 1, width = edge[2] - edge[0] + 1;
    const T* in = static_cast<const T*>(call->operand[0]) +
                  (static_cast<int64_t>(given) * p.channels + unit % p.channels) * p.in_height * p.in_width;
    T* out = static_cast<T*>(call->operand[2]) + unit * p.height * p.width;
    for (int64_t ph = 0; ph < p.height; ph++)
      for (int64_t pw = 0; pw < p.width; pw++) {
        int64_t y, y1, x0, x1;
        bin_range(ph, p.height, edge[1], height > 1 ? height : 1, p.in_height, &y, &y1);
        bin_range(pw, p.width, edge[0], width > 1 ? width : 1, p.in_width, &x0, &x1);
        const bool empty = y >= y1 || x0 >= x1;
        Wide<T> best = empty ? 0 : widen(in[y * p.in_width + x0]);
        for (; !empty && y < y1; y++)
          for (int64_t x = x0; x < x1; x++) {
            const Wide<T> v = widen(in[y * p.in_width + x]);
            best = v > best ? v : best;
          }
        *out++ = narrow<T>(best);
      }
  }
  return kOk;
}

// f.template operator()<T>() for the floating type.
template <class F>
INGOT_INLINE KernelStatus with_float_type(int64_t dtype, F f) {
  switch (static_cast<DType>(dtype)) {
    case DType::F64:
      return f.template operator()<double>();
    case DType::F16:
      return f.template operator()<F16>();
    case DType::BF16:
      return f.template operator()<BF16>();
    default:
      return f.template operator()<float>();
  }
}

}  // namespace

extern "C" KernelStatus ingot_roi_align(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RoiParams*>(call->param);
  return with_float_type(p.dtype, [&]<class T>() { return roi_align<T>(call, p); });
}

extern "C" KernelStatus ingot_max_roi_pool(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RoiParams*>(call->param);
  return with_float_type(p.dtype, [&]<class T>() { return max_roi_pool<T>(call, p); });
}

}  // namespace ingot::kernel
