#include "kernels/value_range.h"

#include "kernels/pack.h"
#include "kernels/reduce_ops.h"

namespace ingot::kernel {
namespace {

struct Range {
  float low, high;
};

}  // namespace

extern "C" KernelStatus ingot_value_range(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ValueRangeParams*>(call->param);
  auto* out = static_cast<Range*>(call->operand[1]);
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const float* x = static_cast<const float*>(call->operand[0]) + unit * kRangeChunk;
    const int64_t n = min_of(kRangeChunk, p.count - unit * kRangeChunk);
    out[unit] = {reduce_block<kReduceMin, kPreNone, float>(x, n, VF(0.f)),
                 reduce_block<kReduceMax, kPreNone, float>(x, n, VF(0.f))};
  }
  return kOk;
}

extern "C" KernelStatus ingot_value_range_scale(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const ValueRangeParams*>(call->param);
  const auto* ranges = static_cast<const Range*>(call->operand[0]);
  Range all{0, 0};
  for (int64_t i = 0; i < div_up(p.count, kRangeChunk); i++)
    all = {combine<kReduceMin>(all.low, ranges[i].low), combine<kReduceMax>(all.high, ranges[i].high)};
  const float step = (all.high - all.low) / 255.f, scale = step == 0.f ? 1.f : step;
  const float zero = __builtin_rintf(-all.low / scale);
  *static_cast<float*>(call->operand[1]) = scale;
  *static_cast<uint8_t*>(call->operand[2]) = zero >= 255.f ? 255 : zero > 0.f ? uint8_t(zero) : 0;
  return kOk;
}

}  // namespace ingot::kernel
