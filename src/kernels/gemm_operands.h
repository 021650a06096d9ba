// The matrices of a product as its kernels find them (kernels/gemm.h).
#pragma once
#include "kernels/gemm.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {

// One batch entry: its matrices and the row of the whole result at which it begins.
struct GemmMatrices {
  const float* a;
  const float* b;
  float* c;
  int64_t first_row;
};

INGOT_INLINE GemmMatrices gemm_matrices(const KernelCall* call, const GemmParams& p, int64_t entry) {
  int64_t i2 = entry % p.batch[2], i1 = entry / p.batch[2] % p.batch[1], i0 = entry / (p.batch[2] * p.batch[1]);
  auto at = [&](const int64_t (&stride)[3])
                __attribute__((always_inline)) { return i0 * stride[0] + i1 * stride[1] + i2 * stride[2]; };
  return {static_cast<const float*>(call->operand[0]) + at(p.a_batch),
          static_cast<const float*>(call->operand[1]) + at(p.b_batch),
          static_cast<float*>(call->operand[2]) + at(p.c_batch), entry * p.m};
}

INGOT_INLINE const GemmParams& gemm_params(const KernelCall* call) {
  return *reinterpret_cast<const GemmParams*>(call->param);
}

// Calls run(Width<columns of a panel>, call, batch entry, block of rows, fresh, first panel, last panel) for each block
// in the call's range (for_groups).
template <class Run>
INGOT_INLINE KernelStatus each_block(const KernelCall* call, const Run& run) {
  const GemmParams& p = gemm_params(call);
  with_panel(p.panel, [&](auto width) INGOT_INLINED {
    for_groups(call, div_up(p.n, decltype(width)::value), p.m_blocks,
               [&](int64_t entry, int64_t block, bool fresh, int64_t first, int64_t last)
                   INGOT_INLINED { run(width, call, entry, block, fresh, first, last); });
  });
  return kOk;
}

INGOT_INLINE Epilogue gemm_epilogue(const KernelCall* call, const GemmParams& p) {
  return {call->operand + 3, p.extra, call->program, p.extras};
}

}  // namespace ingot::kernel
