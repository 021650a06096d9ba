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
INGOT_INLINE void gemm_few_of_type(const KernelCall* call, int64_t entry, int64_t, bool fresh, int64_t first,
                                   int64_t last) {
  const GemmParams& p = gemm_params(call);
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
  return each_block(call,
                    [](auto width, auto... at) INGOT_INLINED { gemm_few_of_type<decltype(width)::value>(at...); });
}
