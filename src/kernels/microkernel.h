// The register tile under GEMM, convolution and attention.
//
// A tile is MR rows by NR = NV * kLanes columns of the result:  acc[i][:] += sum_k a[i][k] * b[k][:].
// b is a panel (kernels/pack.h); the rows of a are pointers, so they may lie anywhere: a matrix, pixels of an image,
// a buffer of zeros. Its size is derived in kernels/tile.h.
//
// Rows are cut into tiles of nearly equal height (6s and 5s, or 4s and 3s): a remainder tile of one or two rows would
// run at the latency of its few accumulators.
#pragma once
#include "kernels/hooks.h"
#include "kernels/integer.h"
#include "kernels/narrow.h"
#include "kernels/pack.h"

#define INGOT_INLINED __attribute__((always_inline))  // for lambdas

namespace ingot::kernel {

inline constexpr int kAccumulators = int(tile_accumulators(kLanes));
static_assert(kAccumulators + kAccumulators / 4 <= kRegisters);
inline constexpr int kUnroll = 8;      // k-steps per iteration of the inner loop
inline constexpr int kCacheLine = 64;  // bytes

template <int NR>
inline constexpr int kTileRows = int(tile_rows(kLanes, NR));

// Rows [0, m) cut into `count` tiles: the first `tall` tiles have rows + 1 rows, the others `rows`.
struct Tiling {
  int64_t count, rows, tall;
};
INGOT_INLINE Tiling cut_rows(int64_t m, int64_t max_rows) {
  int64_t count = max_of(1, div_up(m, max_rows));
  return {count, m / count, m % count};
}
// The same, whose heights are constants where that of the tallest tile is: tallest_tile(m, max_rows).
INGOT_INLINE Tiling cut_rows(int64_t m, int64_t max_rows, int64_t tallest) {
  int64_t count = max_of(1, div_up(m, max_rows));
  return {count, tallest - 1, m - count * (tallest - 1)};
}
INGOT_INLINE int64_t tile_start(const Tiling& t, int64_t tile) { return tile * t.rows + min_of(tile, t.tall); }

// A stream of cache lines to bring into L2 while computing: `lines` of them every kUnroll k-steps.
struct Prefetch {
  static constexpr int kLocality = 2;
  const char* at;
  int64_t lines;
};
// The same for what is read once, a little ahead of where it is read.
struct PrefetchOnce {
  static constexpr int kLocality = 0;
  const char* at;
  int64_t lines;
};
inline constexpr int64_t kPrefetchAhead = 2048;  // bytes

template <class P>
INGOT_INLINE void advance(P& prefetch) {
  for (int64_t q = 0; q < prefetch.lines; q++, prefetch.at += kCacheLine)
    __builtin_prefetch(prefetch.at, 0, P::kLocality);
}

// Both at once: the next panel, and the next rows of A, where those come from far away too.
struct PrefetchBoth {
  Prefetch panel, rows;
};
INGOT_INLINE void advance(PrefetchBoth& prefetch) {
  advance(prefetch.panel);
  advance(prefetch.rows);
}

// The lines per kUnroll k-steps with which `tiles` tiles of any K cover a panel of the same K.
INGOT_INLINE int64_t prefetch_lines(int64_t row_bytes, int64_t tiles) {
  return div_up(div_up(kUnroll * row_bytes, kCacheLine), max_of(1, tiles));
}

template <int MR, int NV>
INGOT_INLINE void clear(VF (&acc)[MR][NV]) {
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] = VF(0.f);
}

template <int MR, int NV, class B>
INGOT_INLINE void step(VF (&acc)[MR][NV], const float* const (&a)[MR], int64_t k, const B* b) {
  VF row[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) row[j] = widen(b + j * kLanes);
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    VF x = VF(a[i][k]);
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x * row[j];
  }
  end_step(acc[MR - 1]);
}

// acc += a[:][0..len) * b[0..len)[:], rows of b ldb elements apart, which are floats or of a narrower type. Each
// kUnroll elements of a row are contiguous and a_step floats from the next: kUnroll for a plain row, MR * kUnroll for
// packed rows (pack_rows below). A low tile (MR = 1 for a matrix-vector product) keeps several partial sums per
// element, over k modulo partial_sums, to have enough independent chains. Parts: as a tile of another height sums.
INGOT_INLINE constexpr int partial_sums(int64_t rows, int64_t vectors) {
  const int64_t chains = kAccumulators / (rows * vectors);
  return chains >= 4 ? 4 : chains >= 2 ? 2 : 1;
}
template <int Parts = 0, int MR, int NV, class B, class P>
INGOT_INLINE void accumulate(VF (&acc)[MR][NV], const float* const (&a)[MR], int64_t a_step, const B* b, int64_t ldb,
                             int64_t len, P& prefetch) {
  constexpr int parts = Parts ? Parts : partial_sums(MR, NV);
  VF part[parts][MR][NV];
  INGOT_UNROLL for (int p = 1; p < parts; p++) clear(part[p]);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) part[0][i][j] = acc[i][j];
  int64_t k = 0, at = 0;
  for (; k + kUnroll <= len; k += kUnroll, at += a_step, b += kUnroll * ldb) {
    advance(prefetch);
    INGOT_UNROLL for (int u = 0; u < kUnroll; u++) step(part[u % parts], a, at + u, b + u * ldb);
  }
  for (; k < len; k++, at++, b += ldb) step(part[0], a, at, b);
  INGOT_UNROLL for (int p = 1; p < parts; p++) INGOT_UNROLL for (int i = 0; i < MR; i++)
      INGOT_UNROLL for (int j = 0; j < NV; j++) part[0][i][j] += part[p][i][j];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] = part[0][i][j];
}

// Packs `rows` rows of A for a tile, element (i, k) at src[i * row_stride + k * col_stride]:
//
//   [ceil(len / kUnroll)][rows][kUnroll]      row 0       row 1       ...   | row 0       row 1
//                                             k0 ... k7   k0 ... k7         | k8 ... k15  k8 ... k15
INGOT_INLINE void pack_rows(float* dst, const float* src, int64_t rows, int64_t len, int64_t row_stride,
                            int64_t col_stride) {
  int64_t k = 0;
  for (; k + kUnroll <= len; k += kUnroll)
    for (int64_t i = 0; i < rows; i++, dst += kUnroll) {
      const float* from = src + i * row_stride + k * col_stride;
      if (col_stride == 1)
        __builtin_memcpy(dst, from, kUnroll * sizeof(float));
      else
        INGOT_UNROLL for (int j = 0; j < kUnroll; j++) dst[j] = from[j * col_stride];
    }
  for (int64_t i = 0; i < rows; i++, dst += kUnroll)
    for (int64_t j = 0; j < len - k; j++) dst[j] = src[i * row_stride + (k + j) * col_stride];
}

struct Epilogue {
  void* const* extra;
  const EpilogueOperand* strides;
  const ExprProgram* program;
  int64_t extras;
};
INGOT_INLINE VF apply(const Epilogue& e, VF v, int64_t row, int64_t col, int64_t lanes) {
  return ingot_hook_epilogue(v, e.extra, e.strides, row, col, lanes, e.program);
}

// The same for a tile, of which the first `columns` columns exist. The interpreter of the native build takes it at
// once: every instruction of an expression has its price, however few elements it is for.
template <int MR, int NV>
INGOT_INLINE void apply_to_tile(const Epilogue& e, VF (&acc)[MR][NV], int64_t row, int64_t col, int64_t columns) {
#if defined(INGOT_NATIVE)
  if (!e.program) return;
  float tile[MR][NV * kLanes];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store(tile[i] + j * kLanes, acc[i][j]);
  interpret_tile(tile[0], MR, columns, NV * kLanes, e.extra, e.strides, row, col, e.program);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      load(tile[i] + j * kLanes);
#else
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      apply(e, acc[i][j], row + i, col + j * kLanes, min_of(kLanes, columns - j * kLanes));
#endif
}

// Stores a tile in memory, rows `stride` floats apart, to c, rows ldc floats apart. e: its epilogue, or null.
INGOT_INLINE void store_tile(const Epilogue* e, float* tile, int64_t rows, int64_t columns, int64_t stride, int64_t row,
                             int64_t col, float* c, int64_t ldc) {
#if defined(INGOT_NATIVE)
  if (e) interpret_tile(tile, rows, columns, stride, e->extra, e->strides, row, col, e->program);
  e = nullptr;
#endif
#pragma clang loop unroll(disable)
  for (int64_t i = 0; i < rows; i++)
#pragma clang loop unroll(disable)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t lanes = min_of(kLanes, columns - j);
      VF v = load(tile + i * stride + j);
      if (e) v = apply(*e, v, row + i, col + j, lanes);
      store_partial(c + i * ldc + j, v, lanes);
    }
}

// Where a tile goes: c points at its first element, rows ldc floats apart; row and col are its place in the whole
// result; only the first `cols` columns exist. K is summed in slices: all but the first add to c, the last applies
// the epilogue.
struct Destination {
  float* c;
  int64_t ldc, row, col, cols;
  bool first, last;
};

// Brings the lines of the tile into cache while it is being computed: c to be written, the extra operands to L2 only,
// because rows a multiple of 4 KB apart share few sets of L1.
template <int MR>
INGOT_INLINE void prefetch_destination(const Destination& d, const Epilogue& e) {
  INGOT_UNROLL for (int i = 0; i < MR; i++) __builtin_prefetch(d.c + i * d.ldc, 1, 3);
  if (!d.last) return;
  for (int64_t x = 0; x < e.extras; x++) {
    if (e.strides[x].row_stride == 0 || e.strides[x].col_stride == 0) continue;
    const float* extra = static_cast<const float*>(e.extra[x]) + d.row * e.strides[x].row_stride + d.col;
    INGOT_UNROLL for (int i = 0; i < MR; i++) __builtin_prefetch(extra + i * e.strides[x].row_stride, 0, 2);
  }
}

// All loads before all stores: rows that are a multiple of 4 KB apart would otherwise wait for each other. Each
// question is asked once for the tile: asked for each vector, it splits the code so often that LLVM spills sums in the
// loop over K.
template <int MR, int NV>
INGOT_INLINE void finish_full(VF (&acc)[MR][NV], const Destination& d, const Epilogue& e) {
  if (!d.first)
    INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] +=
        load(d.c + i * d.ldc + j * kLanes);
  if (d.last) apply_to_tile(e, acc, d.row, d.col, NV * kLanes);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store(d.c + i * d.ldc + j * kLanes, acc[i][j]);
}

// The last panel, when it is not full. Rare, so it goes through memory: one call of the hook instead of MR * NV.
template <int MR, int NV>
INGOT_INLINE void finish_tail(const VF (&acc)[MR][NV], const Destination& d, const Epilogue& e) {
  float tile[MR][NV * kLanes];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++)
      store(tile[i] + j * kLanes, acc[i][j]);
  if (!d.first)
#pragma clang loop unroll(disable)
    for (int64_t i = 0; i < MR; i++)
#pragma clang loop unroll(disable)
      for (int64_t j = 0; j < d.cols; j += kLanes) {
        const VF before = load_partial(d.c + i * d.ldc + j, min_of(kLanes, d.cols - j));
        store(tile[i] + j, load(tile[i] + j) + before);
      }
  store_tile(d.last ? &e : nullptr, tile[0], MR, d.cols, NV * kLanes, d.row, d.col, d.c, d.ldc);
}

template <int MR, int NV>
INGOT_INLINE void finish(VF (&acc)[MR][NV], const Destination& d, const Epilogue& e) {
  if (d.cols >= NV * kLanes)
    finish_full(acc, d, e);
  else
    finish_tail(acc, d, e);
}

// Calls body(Height<h>) for the run-time height h in [1, Max]; folds to one call when h is a constant.
template <int H>
struct Height {
  static constexpr int value = H;
};
template <int Max, class Body>
INGOT_INLINE void with_height(int64_t h, const Body& body) {
  if constexpr (Max > 0) {
    if (h == Max)
      body(Height<Max>());
    else
      with_height<Max - 1>(h, body);
  }
}

// Calls body(Height<h>, tile) for the tiles [first, last), all tall ones before the others.
template <int Max, class Body>
INGOT_INLINE void for_tiles(const Tiling& t, int64_t first, int64_t last, const Body& body) {
  for (int64_t i = first; i < last; i++)
    with_height<Max>(i < t.tall ? t.rows + 1 : t.rows, [&](auto h) INGOT_INLINED { body(h, i); });
}

// Calls run(entry, group, fresh, first panel, last panel) for each group of rows in the range of the call. Not fresh:
// the thread's last range of this step ended within the group, and its scratch is as it was left.
template <class Run>
INGOT_INLINE void for_groups(const KernelCall* call, int64_t panels, int64_t groups, const Run& run) {
  int64_t taken = call->done > 0 ? (call->done - 1) / panels : -1;
  for (int64_t unit = call->begin; unit < call->end;) {
    const int64_t first = unit % panels, last = min_of(panels, first + call->end - unit), at = unit / panels;
    run(at / groups, at % groups, at != taken, first, last);
    taken = at;
    unit += last - first;
  }
}

}  // namespace ingot::kernel
