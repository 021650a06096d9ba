#include "kernels/gemm_few.h"

namespace ingot::kernel {

// The native build, which runs only what was not foreseen, has tiles of one row: four types of B times six heights
// would be most of a small library.
#if defined(INGOT_NATIVE)
inline constexpr bool kRowByRow = true;
#else
inline constexpr bool kRowByRow = false;
#endif

template <int NR>
INGOT_INLINE void gemm_few_of_type(const KernelCall* call, const GemmParams& p, int64_t entry, bool fresh,
                                   int64_t first, int64_t last) {
  if (p.b_type == kPanelBF16)
    gemm_few<NR, kPanelBF16, Shorts, kRowByRow>(call, p, entry, fresh, first, last);
  else if (p.b_type == kPanelF16)
    gemm_few<NR, kPanelF16, Shorts, kRowByRow>(call, p, entry, fresh, first, last);
  else if (p.b_type == kPanelI8)
    gemm_few<NR, kPanelI8, Shorts, kRowByRow>(call, p, entry, fresh, first, last);
  else
    gemm_few<NR, kPanelU4, Shorts, kRowByRow>(call, p, entry, fresh, first, last);
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_few(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  const auto& p = *reinterpret_cast<const GemmParams*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED {
    constexpr int NR = decltype(width)::value;
    for_groups(call, div_up(p.n, NR), 1,
               [&](int64_t entry, int64_t, bool fresh, int64_t first, int64_t last)
                   INGOT_INLINED { gemm_few_of_type<NR>(call, p, entry, fresh, first, last); });
  });
  return ingot::kOk;
}
