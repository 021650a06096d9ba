// kBf16Dot: a tile of rows by a panel of columns in registers, one vdpbf16ps for 2 products of a lane.
#include "kernels/gemm_bf16_panels.h"

// The native code of a build that no target with vdpbf16ps takes would never run.
#if !defined(INGOT_NATIVE) || defined(__AVX512BF16__)
#define INGOT_BF16_DOT
#endif

#if defined(INGOT_BF16_DOT)
namespace ingot::kernel {

template <int NR, int MR>
INGOT_LATE void bf16_dot_tile(const Bf16Call& x, const uint8_t* b, int64_t row, Prefetch& prefetch) {
  constexpr int NV = NR / kLanes;
  const uint8_t* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = x.at + (row + i) * x.stride;
  VF acc[MR][NV];
  clear(acc);
  dot_run(acc, rows, b, 2 * bf16_padded_depth(kBf16Dot, x.p.k), prefetch);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store(x.sums + i * NR + j * kLanes, acc[i][j]);
}

template <int NR>
INGOT_LATE void bf16_dot(const KernelCall* call, const GemmBf16Params& p) {
  constexpr int64_t kLines = 16 * NR / kCacheLine;  // of B, between two prefetches
  for_bf16_panels(call, p, [&](const Bf16Call& x, int64_t panel, const uint8_t* b, const char* next) INGOT_INLINED {
    const Tiling tiling = cut_rows(x.rows, kTileRows<NR>);
    // The next panel, bit by bit while the tiles use this one; a little ahead in this one, if it is used once.
    const bool once = tiling.count == 1;
    Prefetch prefetch{once ? reinterpret_cast<const char*>(b) + kPrefetchAhead : next,
                      p.b_packed ? div_up(kLines, tiling.count) : 0};
    for_tiles<kTileRows<NR>>(tiling, 0, tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
      const int64_t row = tile_start(tiling, tile);
      bf16_dot_tile<NR, decltype(h)::value>(x, b, row, prefetch);
      finish_bf16_rows<NR>(x, x.sums, x.first_row + row, decltype(h)::value, panel * NR);
    });
  });
}

}  // namespace ingot::kernel
#endif

extern "C" ingot::KernelStatus ingot_gemm_bf16_dot([[maybe_unused]] const ingot::KernelCall* call) {
#if defined(INGOT_BF16_DOT)
  using namespace ingot::kernel;
  const auto& p = *reinterpret_cast<const GemmBf16Params*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED { bf16_dot<decltype(width)::value>(call, p); });
  return ingot::kOk;
#else
  return ingot::kBadValue;
#endif
}
