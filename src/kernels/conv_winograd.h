// Convolution of channels-last images with 3x3 filters, stride 1, by Winograd's minimal filtering F(m x m), fp32 with a
// fused epilogue: what ingot_conv_f32 (kernels/conv.h) computes, with 4 (m = 4) or 2.25 (m = 2) times fewer multiplies.
//
// In one dimension m outputs of a filter g of 3 taps need n = m + 2 inputs d. Outputs are the coefficients of a product
// of polynomials read backwards (the transpose of Cook and Toom's algorithm), which its values at n points determine:
//   y = A^T [ (G g) * (B^T d) ],   * element by element, for the points a_0 ... a_{n-2} and infinity:
//   G:   row i: (1, a_i, a_i^2) / N_i, N_i the product over j != i of (a_i - a_j); the last row: (0, 0, 1)
//   B^T: row i: the coefficients of the product over j != i of (x - a_j); the last row: of the product over all j
//   A^T: row k: a_0^k ... a_{n-2}^k, and for infinity 1 in the last row, 0 in the others
// m = 2: points 0, 1, -1.  m = 4: points 0, p, -p, q, -q with p = 5/8, q = 3/2, whose error is half that of 1 and 2 and
// which fp32 holds exactly. In two dimensions the transforms are applied along both: V = B^T d B, U = G g G^T,
// Y = A^T M A, where each of the n * n planes of M sums V * U over input channels: a matrix product over tiles of m x m
// output pixels.
//
//   Operands: X, packed U, Y, extra operands of the epilogue (row = output pixel, col = output channel).
//   Units: blocks of tiles. For each: V of the block, then all products, then Y. V and M of a block stay in L2:
//     V [plane][tile][input channel]    M [plane][tile][output channel]
#pragma once
#include "kernels/abi.h"
#include "kernels/hooks.h"
#include "kernels/pack.h"
#include "kernels/sizes.h"

namespace ingot::kernel {

struct WinogradParams {
  int64_t panel;   // columns (kernels/tile.h)
  int64_t m;       // side of a tile of output pixels, 2 or 4
  int64_t blocks;  // of tiles
  int64_t batch, in_channels, out_channels;
  int64_t in[2], out[2], pad[2];  // pad: in front; what is behind follows from out
  int64_t extras;                 // operands of the epilogue
  EpilogueOperand extra[kMaxEpilogueOperands];
};
inline constexpr SizeField kWinogradSizes[] = {
    INGOT_SIZE(WinogradParams, blocks),      INGOT_SIZE(WinogradParams, batch),
    INGOT_SIZE(WinogradParams, in_channels), INGOT_SIZE(WinogradParams, out_channels),
    INGOT_SIZE(WinogradParams, in),          INGOT_SIZE(WinogradParams, out),
    INGOT_SIZE(WinogradParams, pad),         INGOT_SIZE_ABOVE(1, WinogradParams, extra),
};
static_assert(sizeof(WinogradParams) == (13 + 2 * kMaxEpilogueOperands) * 8);

INGOT_INLINE int64_t winograd_planes(const WinogradParams& p) { return (p.m + 2) * (p.m + 2); }
INGOT_INLINE int64_t winograd_tiles(const WinogradParams& p) {
  return p.batch * div_up(p.out[0], p.m) * div_up(p.out[1], p.m);
}
INGOT_INLINE int64_t winograd_panels(const WinogradParams& p) { return div_up(p.out_channels, p.panel); }
// Channels summed at a time, a multiple of 8: short sums that are then added up err less, and A^T magnifies what they
// err. The pieces of a sum are about equal.
INGOT_INLINE int64_t winograd_piece(const WinogradParams& p) {
  const int64_t pieces = div_up(p.in_channels, p.m == 4 ? 24 : 128);
  return div_up(div_up(p.in_channels, max_of(1, pieces)), 8) * 8;
}
INGOT_INLINE int64_t winograd_units(const WinogradParams& p) { return winograd_tiles(p) == 0 ? 0 : p.blocks; }

// Scratch: zeros for pixels outside the image, then V, then M. Rows are whole cache lines and whole panels; a plane
// takes an odd number of cache lines, so that the same place in all planes falls into different sets of the cache.
INGOT_INLINE int64_t winograd_v_row(const WinogradParams& p) { return div_up(p.in_channels, 16) * 16; }
INGOT_INLINE int64_t winograd_m_row(const WinogradParams& p) { return div_up(winograd_panels(p) * p.panel, 16) * 16; }
INGOT_INLINE int64_t winograd_block_tiles(const WinogradParams& p) { return div_up(winograd_tiles(p), p.blocks); }
INGOT_INLINE int64_t winograd_plane_floats(int64_t tiles, int64_t row) { return (tiles * row / 16 | 1) * 16; }
INGOT_INLINE int64_t winograd_scratch_bytes(const WinogradParams& p) {
  const int64_t tiles = winograd_block_tiles(p), v = winograd_v_row(p);
  const int64_t planes = winograd_plane_floats(tiles, v) + winograd_plane_floats(tiles, winograd_m_row(p));
  return (v + winograd_planes(p) * planes) * int64_t(sizeof(float));
}

// How G weighs the taps: row i of the plane's row or column.
struct WinogradRow {
  double tap[3];
};
inline constexpr WinogradRow kWinogradG2[4] = {{-1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
inline constexpr double kWinogradP = 0.625, kWinogradQ = 1.5;
inline constexpr double kWinogradPP = kWinogradP * kWinogradP, kWinogradQQ = kWinogradQ * kWinogradQ;
INGOT_INLINE constexpr WinogradRow winograd_g_row(double point, double n) {
  return {{1 / n, point / n, point * point / n}};
}
inline constexpr double kWinogradNP = 2 * kWinogradPP * (kWinogradPP - kWinogradQQ),
                        kWinogradNQ = 2 * kWinogradQQ * (kWinogradQQ - kWinogradPP);
inline constexpr WinogradRow kWinogradG4[6] = {
    winograd_g_row(0, kWinogradPP* kWinogradQQ), winograd_g_row(kWinogradP, kWinogradNP),
    winograd_g_row(-kWinogradP, kWinogradNP),    winograd_g_row(kWinogradQ, kWinogradNQ),
    winograd_g_row(-kWinogradQ, kWinogradNQ),    {{0, 0, 1}}};

// Packed weights: U as [plane][panel][input channel][panel columns], from W[c][i][3][3] as ONNX stores it; in double,
// rounded once.
INGOT_INLINE int64_t winograd_packed_floats(const WinogradParams& p) {
  return winograd_planes(p) * winograd_panels(p) * p.in_channels * p.panel;
}
// Panels [first, last) of all planes; panels are independent, threads may share the work.
INGOT_INLINE void winograd_pack_weights(float* packed, const float* w, const WinogradParams& p, int64_t first,
                                        int64_t last) {
  const WinogradRow* g = p.m == 2 ? kWinogradG2 : kWinogradG4;
  const int64_t n = p.m + 2, panel_floats = p.in_channels * p.panel, plane_floats = winograd_panels(p) * panel_floats;
  for (int64_t panel = first; panel < last; panel++)
    for (int64_t i = 0; i < p.in_channels; i++)
      for (int64_t j = 0; j < p.panel; j++) {
        const int64_t c = panel * p.panel + j;
        const float* tap = w + (c * p.in_channels + i) * 9;
        float* to = packed + panel * panel_floats + i * p.panel + j;
        for (int64_t plane = 0; plane < n * n; plane++, to += plane_floats) {
          double sum = 0;
          for (int64_t t = 0; t < 9 && c < p.out_channels; t++)
            sum += g[plane / n].tap[t / 3] * g[plane % n].tap[t % 3] * double(tap[t]);
          *to = float(sum);
        }
      }
}

// Fills in `panel` and `blocks`. A block's V and M shall stay in L2, of which CPUs with vectors of 16 lanes have at
// least 1 MB, others from 512 KB on, and threads shall have blocks to share; but every block reads all weights, so it
// shall have rows for a few register tiles.
inline constexpr int64_t kWinogradBlockTiles = 24, kWinogradSharedBlocks = 8;
INGOT_INLINE void winograd_choose(WinogradParams& p, int64_t lanes) {
  p.panel = lanes == 16 ? best_panel(lanes, p.out_channels) : 16;
  const int64_t most = lanes == 16 ? 1000 << 10 : 400 << 10, tiles = winograd_tiles(p);
  const int64_t tile_bytes = winograd_planes(p) * (winograd_v_row(p) + winograd_m_row(p)) * int64_t(sizeof(float));
  const int64_t wanted = max_of(kWinogradSharedBlocks, div_up(tiles * tile_bytes, most));
  p.blocks = max_of(1, min_of(wanted, tiles / kWinogradBlockTiles));
}

// Which form a 3x3 convolution takes: m, or 0 for the direct kernel. Sizes of the image that are not known are
// kUnknownSide: m = 2 then, which costs little where images turn out small.
//  - Weights of m = 4 are 4 times, those of m = 2 1.8 times as large as those of the direct kernel: with many channels
//  and
//    small images they come from memory and take longer than the multiplies they save.
//  - Small images waste parts of tiles; with very few channels the transforms take longer than the products.
//  - With fewer than 32 terms in a sum the error of m = 4 is three times that of the direct kernel, otherwise twice.
inline constexpr int64_t kUnknownSide = 16;
INGOT_INLINE constexpr int64_t winograd_best(int64_t in_channels, int64_t out_channels, int64_t height, int64_t width) {
  const int64_t fewest = min_of(in_channels, out_channels), most = max_of(in_channels, out_channels);
  const int64_t side = min_of(height, width);
  if (side >= 20 && in_channels >= 32 && fewest >= 16 && most <= 192) return 4;
  if (side >= 10 && fewest >= 8 && most <= 320) return 2;
  return 0;
}

INGOT_KERNEL(ingot_conv_winograd_f32);

}  // namespace ingot::kernel
