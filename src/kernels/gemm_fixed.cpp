// kGemmFixed: rows of A, rounded to 16 bits, and 4- or 8-bit numbers (kernels/fixed.h). For each tile and run the sums
// are integers in registers; then they are scaled and added to the tile's floats.
//
// Loops of a call: block of rows, slice of K, panel, tile, run. A block of A is packed once, a slice of a panel once
// for all tiles of the block.
#include "kernels/gemm_operands.h"
#include "kernels/isa/integer_step.h"

namespace ingot::kernel {

template <int NR>
inline constexpr int kFixedRows = int(tile_rows_of_two_steps(kLanes, NR));

struct FixedCall {
  const GemmParams& p;
  NarrowPanels narrow;
  Epilogue epilogue;
  GemmMatrices x;
  int64_t runs;           // of all K
  int64_t first_row = 0;  // of the block
  // Scratch (FixedScratch)
  int16_t *numbers, *words;
  float *factors, *sums, *scales, *zeros, *tile;
  int64_t* loose;
};

INGOT_INLINE FixedCall fixed_call(const KernelCall* call, const GemmParams& p, int64_t entry) {
  FixedCall c{p, gemm_narrow(p), gemm_epilogue(call, p), gemm_matrices(call, p, entry)};
  const FixedScratch s = fixed_scratch(c.narrow, gemm_most_block_rows(p), p.k_slice);
  auto* scratch = static_cast<char*>(call->scratch);
  c.runs = fixed_runs(c.narrow);
  c.numbers = reinterpret_cast<int16_t*>(scratch + s.numbers);
  c.words = reinterpret_cast<int16_t*>(scratch + s.words);
  c.factors = reinterpret_cast<float*>(scratch + s.factors);
  c.sums = reinterpret_cast<float*>(scratch + s.sums);
  c.scales = reinterpret_cast<float*>(scratch + s.scales);
  c.zeros = reinterpret_cast<float*>(scratch + s.zeros);
  c.tile = reinterpret_cast<float*>(scratch + s.tile);
  c.loose = reinterpret_cast<int64_t*>(scratch + s.loose);
  return c;
}

// Elements of A that a run has: fewer than its rows at the end of K.
INGOT_INLINE int64_t elements_of_run(const FixedCall& c, const NarrowRun& run) {
  return max_of(0, min_of(run.count, c.p.k - run.group * c.p.b_block - run.from));
}

INGOT_INLINE void pack_fixed_rows(const FixedCall& c, int64_t rows) {
  const GemmParams& p = c.p;
  *c.loose = 0;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t t = 0; t < c.runs; t++) {
      const NarrowRun run = fixed_run(c.narrow, t);
      const int64_t count = elements_of_run(c, run), at = i * c.runs + t;
      const float* from = c.x.a + (c.first_row + i) * p.a_row + (run.group * p.b_block + run.from) * p.a_col;
      float own[kRunRows];
      if (p.a_col != 1 || count < kRunRows) {
        for (int64_t k = 0; k < kRunRows; k++) own[k] = k < count ? from[k * p.a_col] : 0.f;
        from = own;
      }
      *c.loose |=
          !write_run(from, p.b_type, c.numbers + at * kRunRows, c.factors + at, p.b_zeros ? c.sums + at : nullptr);
    }
}

template <int NR>
INGOT_INLINE void expand_fixed_panel(const FixedCall& c, const char* panel, int64_t first_run, int64_t last_run) {
  const GemmParams& p = c.p;
  const Shorts zero = Shorts(int16_t(p.b_zeros ? 0 : p.b_zero));
  for (int64_t t = first_run; t < last_run; t++) {
    const NarrowRun run = fixed_run(c.narrow, t);
    const NarrowGroup group = narrow_group(c.narrow, panel, run.group);
    int16_t* to = c.words + (t - first_run) * kRunRows * NR;
    if (p.b_type == kPanelU4)
      expand_nibble_pairs<NR>(to, reinterpret_cast<const uint32_t*>(group.rows) + run.from / kNibbles * NR, run.count,
                              zero);
    else
      expand_byte_pairs<NR>(to, reinterpret_cast<const int8_t*>(group.rows) + run.from * NR, run.count, zero);
    INGOT_UNROLL for (int j = 0; j < NR; j += kLanes) {
      store(c.scales + (t - first_run) * NR + j, load_scale(c.narrow, group, j));
      if (p.b_zeros) store(c.zeros + (t - first_run) * NR + j, load(group.zero + j));
    }
  }
}

template <int MR, int NV>
INGOT_INLINE void pair_step(VI (&acc)[MR][NV], const int16_t* const (&a)[MR], int64_t at, const int16_t* b) {
  Shorts row[NV];
  INGOT_UNROLL for (int j = 0; j < NV; j++) row[j] = load_as<Shorts>(b + j * 2 * kLanes);
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    const Shorts pair = __builtin_bit_cast(Shorts, VI(word_at(a[i] + at)));
    INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] += multiply_shorts(pair, row[j]);
  }
  end_integer_step(acc);
}

// Adds to the sums of one row what runs [first_run, last_run) without a factor are in floats.
template <int NR>
static __attribute__((noinline)) void add_loose_runs(const FixedCall& c, int64_t row, int64_t first_run,
                                                     int64_t last_run, float* sums) {
  for (int64_t t = first_run; t < last_run; t++) {
    if (c.factors[row * c.runs + t] != 0) continue;
    const NarrowRun run = fixed_run(c.narrow, t);
    const float* a = c.x.a + (c.first_row + row) * c.p.a_row + (run.group * c.p.b_block + run.from) * c.p.a_col;
    const int16_t* words = c.words + (t - first_run) * kRunRows * NR;
    const int64_t count = elements_of_run(c, run);
    for (int i = 0; i < kRunRows; i++) {
      const int k = fixed_row(c.p.b_type, i);
      if (k >= count) continue;
      const float x = a[k * c.p.a_col];
      for (int64_t j = 0; j < NR; j++) {
        const float zero = c.p.b_zeros ? c.zeros[(t - first_run) * NR + j] : 0.f;
        sums[j] += x * (c.scales[(t - first_run) * NR + j] * (float(words[(i / 2 * NR + j) * 2 + i % 2]) - zero));
      }
    }
  }
}

// Runs [first, last) of K.
struct FixedSlice {
  int64_t first, last;
};

template <int NR, int MR>
INGOT_LATE void fixed_tile(const FixedCall& c, const FixedSlice& s, int64_t panel, int64_t row, Prefetch& prefetch) {
  constexpr int NV = NR / kLanes, kSteps = 4;
  const GemmParams& p = c.p;
  const int64_t row_in_block = row - c.first_row, col = panel * NR, at = row_in_block * c.runs;
  Destination d{
      c.x.c + row * p.c_row + col, p.c_row, c.x.first_row + row, col, p.n - col, s.first == 0, s.last == c.runs};
  prefetch_destination<MR>(d, c.epilogue);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NR; j += kLanes)
      store(c.tile + i * NR + j, VF(0.f));
  const int16_t *rows[MR], *b = c.words;
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = c.numbers + (at + i * c.runs) * kRunRows;
#pragma clang loop unroll(disable)
  for (int64_t t = s.first; t < s.last; t++, b += kRunRows * NR) {
    advance(prefetch);
    const int64_t pairs = div_up(fixed_run(c.narrow, t).count, 2);
    VI sum[MR][NV] = {};
    int64_t pair = 0;
#pragma clang loop unroll(disable)
    for (; pair + kSteps <= pairs; pair += kSteps)
      INGOT_UNROLL for (int u = 0; u < kSteps; u++)
          pair_step(sum, rows, t * kRunRows + 2 * (pair + u), b + (pair + u) * 2 * NR);
#pragma clang loop unroll(disable)
    for (; pair < pairs; pair++) pair_step(sum, rows, t * kRunRows + 2 * pair, b + pair * 2 * NR);
    const float *scales = c.scales + (t - s.first) * NR, *zeros = c.zeros + (t - s.first) * NR;
    INGOT_UNROLL for (int i = 0; i < MR; i++) {
      const VF factor = VF(c.factors[at + i * c.runs + t]);
      const VF less = p.b_zeros ? VF(c.sums[at + i * c.runs + t]) : VF(0.f);
      INGOT_UNROLL for (int j = 0; j < NV; j++) {
        float* to = c.tile + i * NR + j * kLanes;
        VF part = __builtin_convertvector(sum[i][j], VF) * factor;
        if (p.b_zeros) part -= less * load(zeros + j * kLanes);
        store(to, load(to) + load(scales + j * kLanes) * part);
      }
    }
  }
  if (*c.loose)
    for (int64_t i = 0; i < MR; i++) add_loose_runs<NR>(c, row_in_block + i, s.first, s.last, c.tile + i * NR);
  VF acc[MR][NV];
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) acc[i][j] =
      load(c.tile + i * NR + j * kLanes);
  finish(acc, d, c.epilogue);
}

// Calls body(Height<h>, row) for the tiles [first, last). The native build, which runs what is not compiled yet, has
// two heights of them, not all.
template <int NR, class Body>
INGOT_INLINE void for_fixed_tiles(const Tiling& t, int64_t first, int64_t last, const Body& body) {
  constexpr int kRows = kFixedRows<NR>;
#if defined(INGOT_NATIVE)
  int64_t row = tile_start(t, first);
  for (; row + kRows <= tile_start(t, last); row += kRows) body(Height<kRows>(), row);
  for (; row < tile_start(t, last); row++) body(Height<1>(), row);
#else
  for_tiles<kRows>(t, first, last, [&](auto h, int64_t tile) INGOT_INLINED { body(h, tile_start(t, tile)); });
#endif
}

template <int NR>
INGOT_LATE void gemm_fixed(const KernelCall* call, int64_t entry, int64_t block, bool fresh, int64_t first_panel,
                           int64_t last_panel) {
  const GemmParams& p = gemm_params(call);
  FixedCall c = fixed_call(call, p, entry);
  const Tiling tiling = cut_rows(p.m, kFixedRows<NR>, p.tile_rows);
  const int64_t first_tile = tiling.count * block / p.m_blocks, last_tile = tiling.count * (block + 1) / p.m_blocks;
  c.first_row = tile_start(tiling, first_tile);
  if (fresh) pack_fixed_rows(c, tile_start(tiling, last_tile) - c.first_row);
  const int64_t bytes = narrow_panel_bytes(c.narrow), in_slice = p.k_slice / kRunRows;
  // The next panel is prefetched run by run while this one is used.
  const int64_t tiles = last_tile - first_tile, lines = tiles > 1 ? div_up(bytes, c.runs * tiles * kCacheLine) : 0;
  for (FixedSlice s{0, 0}; s.first < c.runs; s.first = s.last) {
    s.last = min_of(c.runs, s.first + in_slice);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
      const char* at = reinterpret_cast<const char*>(c.x.b) + panel * bytes;
      expand_fixed_panel<NR>(c, at, s.first, s.last);
      const int64_t group = fixed_run(c.narrow, s.first).group;
      Prefetch prefetch{at + bytes + group * narrow_group_bytes(c.narrow), lines};
      for_fixed_tiles<NR>(tiling, first_tile, last_tile, [&](auto h, int64_t row) INGOT_INLINED {
        fixed_tile<NR, decltype(h)::value>(c, s, panel, row, prefetch);
      });
    }
  }
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_fixed(const ingot::KernelCall* call) {
  using namespace ingot::kernel;
  return each_block(call, [](auto width, auto... at) INGOT_INLINED { gemm_fixed<decltype(width)::value>(at...); });
}
