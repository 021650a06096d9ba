#include "kernels/quantize.h"

#include "kernels/any_number.h"

namespace ingot::kernel {
namespace {

double rounded(double x, DType t) {
  if (t == DType::F32) return double(float(x));
  return decode_float(encode_float(x, float_format(t), false), float_format(t));
}

// The range of an integer type of up to 16 bits.
struct Range {
  double low, high;
};
Range range_of(DType t) {
  const int width = t == DType::U2 || t == DType::I2   ? 2
                    : t == DType::U4 || t == DType::I4 ? 4
                    : t == DType::U8 || t == DType::I8 ? 8
                                                       : 16;
  const bool is_signed = t == DType::I2 || t == DType::I4 || t == DType::I8 || t == DType::I16;
  const double values = double(1 << width);
  return is_signed ? Range{-values / 2, values / 2 - 1} : Range{0, values - 1};
}

bool is_minifloat(DType t) {
  return t == DType::F4E2M1 || t == DType::F8E8M0 || (t >= DType::F8E4M3FN && t <= DType::F8E5M2FNUZ);
}

int64_t scale_index(const QuantizeParams& p, int64_t i) {
  const int64_t row = i / p.inner;
  return row / p.n * p.s_outer + row % p.n / p.block * p.s_block + i % p.inner * p.s_inner;
}

Number quantized(const QuantizeParams& p, double x, double s, double z) {
  const DType precision = static_cast<DType>(p.precision), to = static_cast<DType>(p.y_type);
  const double q = rounded(rounded(x, precision) / rounded(s, precision), precision);
  if (is_minifloat(to)) return real(rounded(q + z, precision));
  const Range r = range_of(to);
  const double y = __builtin_rint(q) + z;
  return whole(int64_t(y >= r.high ? r.high : y > r.low ? y : r.low));
}

// f(x, s, z) for each element of the call's units, z as a number of type `quantized_type`.
template <class F>
void for_elements(const KernelCall* call, const QuantizeParams& p, DType quantized_type, F f) {
  const int64_t end = call->end * kQuantizeChunk < p.count ? call->end * kQuantizeChunk : p.count;
  for (int64_t i = call->begin * kQuantizeChunk; i < end; i++) {
    const int64_t at = scale_index(p, i);
    const double x = read_number(static_cast<DType>(p.x_type), call->operand[0], i).f;
    const double s = read_number(static_cast<DType>(p.s_type), call->operand[1], at).f;
    const double z = call->operand[2] ? read_number(quantized_type, call->operand[2], at).f : 0;
    write_number(static_cast<DType>(p.y_type), p.saturate, kRoundUp, call->operand[3], i, f(x, s, z));
  }
}

}  // namespace

extern "C" KernelStatus ingot_quantize(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const QuantizeParams*>(call->param);
  for_elements(call, p, static_cast<DType>(p.y_type),
               [&](double x, double s, double z) { return quantized(p, x, s, z); });
  return kOk;
}

extern "C" KernelStatus ingot_dequantize(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const QuantizeParams*>(call->param);
  for_elements(call, p, static_cast<DType>(p.x_type),
               [](double x, double s, double z) { return real(double(float(x - z) * float(s))); });
  return kOk;
}

}  // namespace ingot::kernel
