#include "kernels/ewise.h"

#include "kernels/hooks.h"
#include "kernels/interpreter.h"

namespace ingot::kernel {
namespace {

// Operand addresses at the start of a row, in elements from the operand's base.
INGOT_INLINE void row_offsets(const EwiseParams& p, int64_t row, int64_t* offset) {
  const int64_t operands = p.inputs + p.results;
  for (int64_t o = 0; o < operands; o++) offset[o] = 0;
  for (int64_t d = p.rank - 2; d >= 0; d--) {
    const int64_t index = row % p.dims[d];
    row /= p.dims[d];
    for (int64_t o = 0; o < operands; o++) offset[o] += index * p.strides[o][d];
  }
}

}  // namespace

extern "C" KernelStatus ingot_ewise(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const EwiseParams*>(call->param);
  const int64_t inner = p.dims[p.rank - 1];
  int64_t offset[kEwiseMaxOperands];
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    const int64_t start = unit % p.chunks * kEwiseChunk;
    const int64_t n = inner - start < kEwiseChunk ? inner - start : kEwiseChunk;
    row_offsets(p, unit / p.chunks, offset);
#ifdef INGOT_NATIVE
    interpret_row(call->operand, offset, p, start, n, call->program, call->scratch);
#else
    int64_t i = start;
    for (; i + kLanes <= start + n; i += kLanes) ingot_hook_ewise(call->operand, offset, &p, i, kLanes);
    if (i < start + n) ingot_hook_ewise(call->operand, offset, &p, i, start + n - i);
#endif
  }
  return kOk;
}

}  // namespace ingot::kernel
