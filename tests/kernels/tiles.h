// Tiles for tests of the kernels that use them: the processor's where the test is compiled with AMX, else tiles in
// memory with the names of kernels/isa/amx.h. What an instruction reads and writes follows from the configured shapes,
// as the processor does it: rows that a shape does not have become zero, and shapes that do not fit each other are an
// error.
#pragma once
#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>

// Linux gives tiles to those who ask.
static const bool kTilesAsked = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/vec.h"
#define INGOT_TILES

namespace ingot::kernel {

struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct SoftwareTiles {
  TileShapes shapes;
  bool configured = false;
  uint8_t at[8][16][64] = {};
};
inline SoftwareTiles software_tiles;

inline void set_tiles(const TileShapes& shapes) {
  software_tiles = {};
  software_tiles.shapes = shapes;
  software_tiles.configured = true;
  for (int t = 0; t < 8; t++) {
    ASSERT_TRUE(shapes.rows[t] >= 1 && shapes.rows[t] <= 16) << int(shapes.rows[t]) << " rows in tile " << t;
    ASSERT_TRUE(shapes.row_bytes[t] % 4 == 0 && shapes.row_bytes[t] <= 64);
  }
}
inline void release_tiles() { software_tiles.configured = false; }
template <int Tile>
void clear_tile() {
  ASSERT_TRUE(software_tiles.configured);
  std::memset(software_tiles.at[Tile], 0, sizeof software_tiles.at[Tile]);
}
template <int Tile>
void load_tile(const void* from, int64_t row_stride) {
  clear_tile<Tile>();
  for (int64_t r = 0; r < software_tiles.shapes.rows[Tile]; r++)
    std::memcpy(software_tiles.at[Tile][r], static_cast<const uint8_t*>(from) + r * row_stride,
                software_tiles.shapes.row_bytes[Tile]);
}
template <int Tile>
void store_tile(void* to, int64_t row_stride) {
  ASSERT_TRUE(software_tiles.configured);
  for (int64_t r = 0; r < software_tiles.shapes.rows[Tile]; r++)
    std::memcpy(static_cast<uint8_t*>(to) + r * row_stride, software_tiles.at[Tile][r],
                software_tiles.shapes.row_bytes[Tile]);
}

// c[i][j] += the products of word k of row i of A and of column j of B: add(sum, word of A, word of B).
template <int C, int A, int B, class Sum, class Add>
void multiply_software_tiles(const Add& add) {
  const TileShapes& s = software_tiles.shapes;
  ASSERT_TRUE(software_tiles.configured);
  ASSERT_EQ(s.rows[C], s.rows[A]);
  ASSERT_EQ(s.row_bytes[C], s.row_bytes[B]);
  ASSERT_EQ(s.row_bytes[A] / 4, s.rows[B]);
  for (int i = 0; i < s.rows[C]; i++)
    for (int j = 0; j < s.row_bytes[C] / 4; j++) {
      Sum sum;
      std::memcpy(&sum, software_tiles.at[C][i] + 4 * j, 4);
      for (int k = 0; k < s.rows[B]; k++)
        sum = add(sum, software_tiles.at[A][i] + 4 * k, software_tiles.at[B][k] + 4 * j);
      std::memcpy(software_tiles.at[C][i] + 4 * j, &sum, 4);
    }
}
struct ByteTiles {
  template <int C, int A, int B>
  static void multiply() {
    multiply_software_tiles<C, A, B, int32_t>([](int32_t sum, const uint8_t* a, const uint8_t* b) {
      for (int p = 0; p < 4; p++) sum += int32_t(a[p]) * int32_t(int8_t(b[p]));
      return sum;
    });
  }
};
struct Bf16Tiles {
  template <int C, int A, int B>
  static void multiply() {
    multiply_software_tiles<C, A, B, float>([](float sum, const uint8_t* a, const uint8_t* b) {
      for (int p = 0; p < 2; p++) {
        const auto wide = [&](const uint8_t* from) {
          uint16_t bits;
          std::memcpy(&bits, from + 2 * p, 2);
          return __builtin_bit_cast(float, uint32_t(bits) << 16);
        };
        sum += wide(a) * wide(b);
      }
      return sum;
    });
  }
};

}  // namespace ingot::kernel
#endif
