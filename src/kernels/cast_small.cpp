#include "kernels/cast_small.h"

#include "kernels/abi.h"
#include "kernels/any_number.h"

namespace ingot::kernel {

extern "C" KernelStatus ingot_cast_small(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const CastSmallParams*>(call->param);
  const int64_t end = call->end * kCastChunk < p.count ? call->end * kCastChunk : p.count;
  for (int64_t i = call->begin * kCastChunk; i < end; i++)
    write_number(static_cast<DType>(p.to), p.saturate, p.round, call->operand[1], i,
                 read_number(static_cast<DType>(p.from), call->operand[0], i));
  return kOk;
}

}  // namespace ingot::kernel
