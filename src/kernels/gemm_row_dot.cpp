// One row of A in digits and a B of 4-bit numbers, as ingot_gemm_few computes it, with the sums of vpdpbusd: this file
// is compiled for targets that have it. The same bits, in half as many operations for each product.
#include "kernels/gemm_few.h"

extern "C" ingot::KernelStatus ingot_gemm_row_dot(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  const auto& p = *reinterpret_cast<const GemmParams*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED {
    constexpr int NR = decltype(width)::value;
    for_groups(call, div_up(p.n, NR), 1,
               [&](int64_t entry, int64_t, bool fresh, int64_t first, int64_t last)
                   INGOT_INLINED { gemm_few<NR, kPanelU4, VI, true>(call, p, entry, fresh, first, last); });
  });
  return ingot::kOk;
}
