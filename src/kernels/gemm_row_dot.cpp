// One row of A in digits and a B of 4-bit numbers, as ingot_gemm_few computes it, with the sums of vpdpbusd: this file
// is compiled for targets that have it. The same bits, in half as many operations for each product.
#include "kernels/gemm_few.h"

extern "C" ingot::KernelStatus ingot_gemm_row_dot(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  return each_block(call, [](auto width, const ingot::KernelCall* c, int64_t entry, int64_t, bool fresh, int64_t first,
                             int64_t last) INGOT_INLINED {
    gemm_few<decltype(width)::value, kPanelU4, VI, true>(c, gemm_params(c), entry, fresh, first, last);
  });
}
