// kBf16Tiles: products of bf16 with AMX.
#include "kernels/gemm_bf16_panels.h"
#if defined(__AMX_BF16__)
#include "kernels/isa/amx.h"
#define INGOT_TILES
#endif
#if defined(INGOT_TILES)
#include "kernels/amx_panels.h"

namespace ingot::kernel {

template <bool Two>
INGOT_INLINE void multiply_bf16_rows(const Bf16Call& x, const RowTiles& t, const uint8_t* b, float* sums,
                                     Prefetch& prefetch) {
  clear_tile<0>();
  clear_tile<1>();
  if constexpr (Two) {
    clear_tile<2>();
    clear_tile<3>();
  }
  multiply_run<Bf16Tiles, Two>(t, 0, b, 2 * bf16_padded_depth(kBf16Tiles, x.p.k), prefetch);
  store_sums<Two>(t, sums);
}

INGOT_INLINE void bf16_tiles(const KernelCall* call, const GemmBf16Params& p) {
  ShapeInUse shape;
  for_bf16_panels(call, p, [&](const Bf16Call& x, int64_t panel, const uint8_t* b, const char* next) INGOT_INLINED {
    Prefetch prefetch{next, p.b_packed ? tile_prefetch_lines(x.rows) : 0};
    const auto sums = [&](int64_t which) INGOT_INLINED { return x.sums + which * 32 * kTilePanel; };
    for_row_tiles(
        x.rows, shape,
        [&](int64_t row) INGOT_INLINED {
          RowTiles t = cut_row_tiles(x.rows - row, x.stride);
          t.at[0] = x.at + row * x.stride;
          t.at[1] = t.at[0] + t.rows[0] * x.stride;
          return t;
        },
        [&](const RowTiles& t, int64_t which) INGOT_INLINED {
          t.rows[1] ? multiply_bf16_rows<true>(x, t, b, sums(which), prefetch)
                    : multiply_bf16_rows<false>(x, t, b, sums(which), prefetch);
        },
        [&](int64_t row, int64_t rows, int64_t which) INGOT_INLINED {
          finish_bf16_rows<kTilePanel>(x, sums(which), x.first_row + row, rows, panel * kTilePanel);
        });
  });
  release_tiles();
}

}  // namespace ingot::kernel
#endif

// Elsewhere it is never chosen, and does not exist.
extern "C" ingot::KernelStatus ingot_gemm_bf16_tiles([[maybe_unused]] const ingot::KernelCall* call) {
#if defined(INGOT_TILES)
  ingot::kernel::bf16_tiles(call, *reinterpret_cast<const ingot::kernel::GemmBf16Params*>(call->param));
  return ingot::kOk;
#else
  return ingot::kBadValue;
#endif
}
