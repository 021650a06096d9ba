// Tiles: eight registers of up to 16 rows of 64 bytes, and the instructions that multiply two of them:
//   bytes  c[16][16] i32 += a[16][64] u8   * b, where b[16][16][4] i8 has the 4 neighbours along K of a column together
//   bf16   c[16][16] f32 += a[16][32] bf16 * b, where b[16][16][2] bf16 has 2 of them; denormals count as 0
// A file that includes this is compiled with AMX and runs only where a target has it.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

// What the system keeps for a thread: how many rows and bytes of a row each register has.
struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

INGOT_INLINE void set_tiles(const TileShapes& shapes) { __builtin_ia32_tile_loadconfig(&shapes); }
INGOT_INLINE void release_tiles() { __builtin_ia32_tilerelease(); }
// The register is named when the code is compiled.
template <int Tile>
INGOT_INLINE void clear_tile() {
  __builtin_ia32_tilezero(Tile);
}
template <int Tile>
INGOT_INLINE void load_tile(const void* from, int64_t row_stride) {
  __builtin_ia32_tileloadd64(Tile, from, size_t(row_stride));
}
template <int Tile>
INGOT_INLINE void store_tile(void* to, int64_t row_stride) {
  __builtin_ia32_tilestored64(Tile, to, size_t(row_stride));
}
#if defined(__AMX_INT8__)
struct ByteTiles {
  template <int C, int A, int B>
  INGOT_INLINE void multiply() {
    __builtin_ia32_tdpbusd(C, A, B);
  }
};
#endif
#if defined(__AMX_BF16__)
struct Bf16Tiles {
  template <int C, int A, int B>
  INGOT_INLINE void multiply() {
    __builtin_ia32_tdpbf16ps(C, A, B);
  }
};
#endif

}  // namespace ingot::kernel
