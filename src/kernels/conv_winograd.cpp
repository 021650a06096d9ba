#include "kernels/conv_winograd.h"

#include "kernels/microkernel.h"

namespace ingot::kernel {

// B^T d and A^T v along one dimension (conv_winograd.h). The rows of the points a and -a share their even and odd
// parts.
INGOT_INLINE void winograd_input(const VF (&d)[4], VF (&v)[4]) {
  v[0] = d[2] - d[0];
  v[1] = d[2] + d[1];
  v[2] = d[2] - d[1];
  v[3] = d[3] - d[1];
}
INGOT_INLINE void winograd_output(const VF (&v)[4], VF (&y)[2]) {
  y[0] = v[0] + (v[1] + v[2]);
  y[1] = v[3] + (v[1] - v[2]);
}
INGOT_INLINE void winograd_input(const VF (&d)[6], VF (&v)[6]) {
  constexpr float p = float(kWinogradP), q = float(kWinogradQ), pp = float(kWinogradPP), qq = float(kWinogradQQ);
  const VF even_p = d[4] - qq * d[2], odd_p = d[3] - qq * d[1];
  const VF even_q = d[4] - pp * d[2], odd_q = d[3] - pp * d[1];
  v[0] = (d[4] - (pp + qq) * d[2]) + pp * qq * d[0];
  v[1] = even_p + p * odd_p;
  v[2] = even_p - p * odd_p;
  v[3] = even_q + q * odd_q;
  v[4] = even_q - q * odd_q;
  v[5] = (d[5] - (pp + qq) * d[3]) + pp * qq * d[1];
}
INGOT_INLINE void winograd_output(const VF (&v)[6], VF (&y)[4]) {
  constexpr float p = float(kWinogradP), q = float(kWinogradQ), pp = float(kWinogradPP), qq = float(kWinogradQQ);
  const VF sum_p = v[1] + v[2], sum_q = v[3] + v[4], difference_p = v[1] - v[2], difference_q = v[3] - v[4];
  y[0] = v[0] + (sum_p + sum_q);
  y[1] = p * difference_p + q * difference_q;
  y[2] = pp * sum_p + qq * sum_q;
  y[3] = (v[5] + p * pp * difference_p) + q * qq * difference_q;
}

// Tiles [first, first + count) and where their V and M are.
struct WinogradBlock {
  int64_t first, count;
  const float* zeros;
  float *v, *m;
  int64_t v_plane, m_plane;  // floats
};

// Where a tile is: image, and the first of its output pixels.
struct WinogradTile {
  int64_t image, y, x;
};
INGOT_INLINE WinogradTile winograd_tile(const WinogradParams& p, int64_t m, int64_t tile) {
  const int64_t wide = div_up(p.out[1], m), high = div_up(p.out[0], m);
  return {tile / (wide * high), tile / wide % high * m, tile % wide * m};
}

// V of `lanes` channels of one tile, whose pixels are at `at` + channel.
template <int N>
INGOT_INLINE void winograd_v_lanes(const float* const (&at)[N][N], int64_t channel, int64_t lanes, float* to,
                                   int64_t plane) {
  VF half[N][N];
  INGOT_UNROLL for (int x = 0; x < N; x++) {
    VF d[N], v[N];
    INGOT_UNROLL for (int y = 0; y < N; y++) d[y] = load_partial(at[y][x] + channel, lanes);
    winograd_input(d, v);
    INGOT_UNROLL for (int y = 0; y < N; y++) half[y][x] = v[y];
  }
  INGOT_UNROLL for (int y = 0; y < N; y++) {
    VF v[N];
    winograd_input(half[y], v);
    INGOT_UNROLL for (int x = 0; x < N; x++) store(to + (y * N + x) * plane + channel, v[x]);
  }
}

template <int M>
INGOT_INLINE void winograd_v(const KernelCall* call, const WinogradParams& p, const WinogradBlock& b) {
  constexpr int N = M + 2;
  const float* x = static_cast<const float*>(call->operand[0]);
  const int64_t channels = p.in_channels, row = winograd_v_row(p), whole = channels / kLanes * kLanes;
  for (int64_t i = 0; i < b.count; i++) {
    const WinogradTile tile = winograd_tile(p, M, b.first + i);
    const float* at[N][N];
    INGOT_UNROLL for (int h = 0; h < N; h++) INGOT_UNROLL for (int w = 0; w < N; w++) {
      const int64_t in_y = tile.y - p.pad[0] + h, in_x = tile.x - p.pad[1] + w;
      const bool inside = in_y >= 0 && in_y < p.in[0] && in_x >= 0 && in_x < p.in[1];
      at[h][w] = inside ? x + ((tile.image * p.in[0] + in_y) * p.in[1] + in_x) * channels : b.zeros;
    }
    float* to = b.v + i * row;
    for (int64_t c = 0; c < whole; c += kLanes) winograd_v_lanes<N>(at, c, kLanes, to, b.v_plane);
    if (whole < channels) winograd_v_lanes<N>(at, whole, channels - whole, to, b.v_plane);
  }
}

// One register tile of one plane of M, from rows of V and a panel of U. Channels are summed in pieces.
template <int NR, int MR>
INGOT_LATE void winograd_register_tile(const WinogradParams& p, const float* v, const float* u, float* to,
                                       Prefetch& prefetch) {
  const int64_t v_row = winograd_v_row(p), m_row = winograd_m_row(p), piece = winograd_piece(p);
  for (int64_t k = 0; k < p.in_channels; k += piece) {
    VF acc[MR][NR / kLanes];
    clear(acc);
    const float* rows[MR];
    INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = v + i * v_row + k;
    accumulate(acc, rows, kUnroll, u + k * NR, NR, min_of(piece, p.in_channels - k), prefetch);
    finish_full(acc, Destination{to, m_row, 0, 0, NR, k == 0, false}, Epilogue{});
  }
}

// M = V U, plane by plane.
template <int NR>
INGOT_INLINE void winograd_products(const KernelCall* call, const WinogradParams& p, const WinogradBlock& b) {
  const float* u = static_cast<const float*>(call->operand[1]);
  const int64_t panels = div_up(p.out_channels, NR), panel_floats = p.in_channels * NR,
                last = winograd_planes(p) * panels;
  const Tiling tiling = cut_rows(b.count, kTileRows<NR>);
  const int64_t lines = prefetch_lines(NR * int64_t(sizeof(float)), tiling.count);
  for (int64_t i = 0; i < last; i++, u += panel_floats) {
    const float* v = b.v + i / panels * b.v_plane;
    float* to = b.m + i / panels * b.m_plane + i % panels * NR;
    Prefetch prefetch{reinterpret_cast<const char*>(i + 1 < last ? u + panel_floats : u), lines};
    for_tiles<kTileRows<NR>>(tiling, 0, tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
      const int64_t row = tile_start(tiling, tile);
      winograd_register_tile<NR, decltype(h)::value>(p, v + row * winograd_v_row(p), u, to + row * winograd_m_row(p),
                                                     prefetch);
    });
  }
}

// Y of kLanes channels of one tile before the epilogue, from M at `from`.
template <int M>
INGOT_INLINE void winograd_y_lanes(const float* from, int64_t plane, float (&to)[M][M][kLanes]) {
  constexpr int N = M + 2;
  VF half[M][N];
  INGOT_UNROLL for (int x = 0; x < N; x++) {
    VF v[N], y[M];
    INGOT_UNROLL for (int h = 0; h < N; h++) v[h] = load(from + (h * N + x) * plane);
    winograd_output(v, y);
    INGOT_UNROLL for (int h = 0; h < M; h++) half[h][x] = y[h];
  }
  INGOT_UNROLL for (int h = 0; h < M; h++) {
    VF y[M];
    winograd_output(half[h], y);
    INGOT_UNROLL for (int w = 0; w < M; w++) store(to[h][w], y[w]);
  }
}

// The pixels of a tile go through memory: one call of the hook instead of M * M, and only for those that exist.
template <int M>
INGOT_INLINE void winograd_y(const KernelCall* call, const WinogradParams& p, const WinogradBlock& b) {
  const Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  float* y = static_cast<float*>(call->operand[2]);
  const int64_t row = winograd_m_row(p);
  for (int64_t i = 0; i < b.count; i++) {
    const WinogradTile tile = winograd_tile(p, M, b.first + i);
    const int64_t high = min_of(M, p.out[0] - tile.y), wide = min_of(M, p.out[1] - tile.x);
    for (int64_t c = 0; c < p.out_channels; c += kLanes) {
      float pixels[M][M][kLanes];
      winograd_y_lanes<M>(b.m + i * row + c, b.m_plane, pixels);
      const int64_t lanes = min_of(kLanes, p.out_channels - c);
#pragma clang loop unroll(disable)
      for (int64_t h = 0; h < high; h++) {
        const int64_t pixel = (tile.image * p.out[0] + tile.y + h) * p.out[1] + tile.x;
        store_tile(&epilogue, pixels[h][0], wide, lanes, kLanes, pixel, c, y + pixel * p.out_channels + c,
                   p.out_channels);
      }
    }
  }
}

// Calls body(Side<m>) for the run-time side of a tile; folds to one call when it is a constant.
template <int M>
struct Side {
  static constexpr int value = M;
};
template <class Body>
INGOT_INLINE void with_side(int64_t m, const Body& body) {
  if (m == 4)
    body(Side<4>());
  else
    body(Side<2>());
}

INGOT_INLINE KernelStatus winograd_body(const KernelCall* call) {
  const WinogradParams& p = *reinterpret_cast<const WinogradParams*>(call->param);
  float* zeros = static_cast<float*>(call->scratch);
  for (int64_t i = 0; i < winograd_v_row(p); i++) zeros[i] = 0.f;
  const int64_t tiles = winograd_tiles(p), most = winograd_block_tiles(p);
  WinogradBlock b;
  b.zeros = zeros;
  b.v_plane = winograd_plane_floats(most, winograd_v_row(p));
  b.m_plane = winograd_plane_floats(most, winograd_m_row(p));
  b.v = zeros + winograd_v_row(p);
  b.m = b.v + winograd_planes(p) * b.v_plane;
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    b.first = tiles * unit / p.blocks;
    b.count = tiles * (unit + 1) / p.blocks - b.first;
    if (b.count == 0) continue;
    with_side(p.m, [&](auto side) INGOT_INLINED { winograd_v<decltype(side)::value>(call, p, b); });
    with_panel(p.panel, [&](auto width) INGOT_INLINED { winograd_products<decltype(width)::value>(call, p, b); });
    with_side(p.m, [&](auto side) INGOT_INLINED { winograd_y<decltype(side)::value>(call, p, b); });
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_conv_winograd_f32(const ingot::KernelCall* call) {
  return ingot::kernel::winograd_body(call);
}
