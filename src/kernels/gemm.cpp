#include "kernels/gemm.h"

#include "kernels/microkernel.h"

namespace ingot::kernel {

// One batch entry: its matrices and the row of the whole result at which it begins.
struct GemmMatrices {
  const float* a;
  const float* b;
  float* c;
  int64_t first_row;
};

INGOT_INLINE GemmMatrices gemm_matrices(const KernelCall* call, const GemmParams& p, int64_t entry) {
  int64_t i2 = entry % p.batch[2], i1 = entry / p.batch[2] % p.batch[1], i0 = entry / (p.batch[2] * p.batch[1]);
  auto at = [&](const int64_t (&stride)[3])
                __attribute__((always_inline)) { return i0 * stride[0] + i1 * stride[1] + i2 * stride[2]; };
  return {static_cast<const float*>(call->operand[0]) + at(p.a_batch),
          static_cast<const float*>(call->operand[1]) + at(p.b_batch),
          static_cast<float*>(call->operand[2]) + at(p.c_batch), entry * p.m};
}

// The rows of one block of A, and the part of K that is being summed.
struct GemmSlice {
  Tiling tiling;
  int64_t first_tile, last_tile;
  int64_t k0, len;
  bool first, last;
};

// A slice of a block of A packed tile by tile; tile rows [row, row + h) begin at (row - first row) * padded length.
INGOT_INLINE int64_t padded_length(int64_t len) { return div_up(len, kUnroll) * kUnroll; }
INGOT_INLINE void gemm_pack_a(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, float* scratch) {
  for (int64_t tile = s.first_tile; tile < s.last_tile; tile++) {
    int64_t row = tile_start(s.tiling, tile), rows = tile_start(s.tiling, tile + 1) - row;
    pack_rows(scratch, x.a + row * p.a_row + s.k0 * p.a_col, rows, s.len, p.a_row, p.a_col);
    scratch += rows * padded_length(s.len);
  }
}

// A slice of a panel of B: its rows are ld floats apart.
struct PanelOfB {
  const float* at;
  int64_t ld;
};
template <int NR>
INGOT_INLINE PanelOfB gemm_panel_of_b(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, int64_t panel,
                                      float* scratch) {
  if (p.b_type != kPanelF32) {
    NarrowPanels narrow = gemm_narrow(p);
    const char* bytes = reinterpret_cast<const char*>(x.b) + panel * narrow_panel_bytes(narrow);
    expand_panel<NR>(scratch, narrow, bytes, s.k0, s.len, float(p.b_zero));
    return {scratch, NR};
  }
  if (p.b_packed) return {x.b + (panel * p.k + s.k0) * NR, NR};
  const float* src = x.b + s.k0 * p.b_row + panel * NR * p.b_col;
  int64_t cols = p.n - panel * NR;
  // Packing costs about as much as two tiles, so few rows read a row-major B where it is.
  if (p.b_col == 1 && cols >= NR && s.last_tile - s.first_tile <= 2) return {src, p.b_row};
  pack_panel<NR>(scratch, src, s.len, cols, p.b_row, p.b_col);
  return {scratch, NR};
}

// Where a packed B is read next: the same slice of the next panel, or the next slice of the first.
template <int NR>
INGOT_INLINE const char* gemm_next_panel(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, int64_t first,
                                         int64_t last, int64_t panel) {
  const char* b = reinterpret_cast<const char*>(x.b);
  bool within = panel + 1 < last;
  int64_t to = within ? panel + 1 : first, k = within ? s.k0 : s.k0 + s.len;
  if (p.b_type == kPanelF32) return b + (to * p.k + k) * NR * int64_t(sizeof(float));
  NarrowPanels narrow = gemm_narrow(p);
  return b + to * narrow_panel_bytes(narrow) + k * narrow_row_bytes(narrow);  // without scales: near enough
}

template <int NR, int MR>
INGOT_LATE void gemm_tile(const GemmParams& p, const GemmMatrices& x, const GemmSlice& s, const float* packed_a,
                          PanelOfB b, int64_t panel, int64_t tile, bool first_use, Prefetch& prefetch,
                          const Epilogue& epilogue) {
  int64_t row = tile_start(s.tiling, tile), row_in_block = row - tile_start(s.tiling, s.first_tile);
  const float* first = p.a_packing ? packed_a + row_in_block * padded_length(s.len) : x.a + row * p.a_row + s.k0;
  int64_t stride = p.a_packing ? kUnroll : p.a_row;
  const float* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = first + i * stride;
  int64_t col = panel * NR;
  Destination d{x.c + row * p.c_row + col, p.c_row, x.first_row + row, col, p.n - col, s.first, s.last};
  prefetch_destination<MR>(d, epilogue);
  VF acc[MR][NR / kLanes];
  clear(acc);
  // Rows of a dense A follow each other: the next tile's, when A is read for the first time.
  const bool dense = !p.a_packing && p.a_row == p.k && s.len == p.k;
  constexpr int64_t kRowLines = div_up(MR * kUnroll * int64_t(sizeof(float)), kCacheLine);
  PrefetchBoth both{prefetch,
                    {reinterpret_cast<const char*>(first + MR * p.a_row), dense && first_use ? kRowLines : 0}};
  accumulate(acc, rows, p.a_packing ? MR * kUnroll : kUnroll, b.at, b.ld, s.len, both);
  prefetch = both.panel;
  finish(acc, d, epilogue);
}

// Panels [first_panel, last_panel) of one block of rows.
template <int NR>
INGOT_INLINE void gemm_block(const KernelCall* call, const GemmParams& p, int64_t entry, int64_t block,
                             int64_t first_panel, int64_t last_panel) {
  Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  GemmMatrices x = gemm_matrices(call, p, entry);
  float* scratch = static_cast<float*>(call->scratch);
  float* panel_scratch = scratch + gemm_a_scratch_floats(p);
  GemmSlice s;
  s.tiling = cut_rows(p.m, kTileRows<NR>, p.tile_rows);
  s.first_tile = s.tiling.count * block / p.m_blocks;
  s.last_tile = s.tiling.count * (block + 1) / p.m_blocks;
  int64_t slices = max_of(1, div_up(p.k, p.k_slice));
  int64_t row_bytes = p.b_type == kPanelF32 ? NR * int64_t(sizeof(float)) : narrow_row_bytes(gemm_narrow(p));
  // A panel that is read once is one stream, which the processor prefetches better by itself.
  bool reused = s.last_tile - s.first_tile > 1;
  int64_t lines = p.b_packed && reused ? prefetch_lines(row_bytes, s.tiling.count / p.m_blocks) : 0;
  for (int64_t i = 0; i < slices; i++) {
    s.k0 = i * p.k_slice;
    s.len = p.k % p.k_slice == 0 ? min_of(p.k_slice, p.k) : min_of(p.k_slice, p.k - s.k0);
    s.first = i == 0;
    s.last = i == slices - 1;
    if (p.a_packing) gemm_pack_a(p, x, s, scratch);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
      PanelOfB b = gemm_panel_of_b<NR>(p, x, s, panel, panel_scratch);
      Prefetch prefetch{gemm_next_panel<NR>(p, x, s, first_panel, last_panel, panel), lines};
      for_tiles<kTileRows<NR>>(s.tiling, s.first_tile, s.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        gemm_tile<NR, decltype(h)::value>(p, x, s, scratch, b, panel, tile, panel == first_panel, prefetch, epilogue);
      });
    }
  }
}

// --- few rows and a narrow B ---

// Rows of a tile. The native build, which runs only what was not foreseen, has one: four types of B times six heights
// would be most of a small library.
#if defined(INGOT_NATIVE)
template <int NR>
inline constexpr int kFewTileRows = 1;
#else
template <int NR>
inline constexpr int kFewTileRows = kTileRows<NR>;
#endif

// A and the panels of B. A group g of B (kernels/narrow.h) adds to C[i][j]
//   scale[g][j] * ( sum_k a[i][k] q[k][j]  -  zero * sum_k a[i][k] )          k: the rows of the group
// whose second sum does not depend on the column. It is computed once, and the first one begins with it:
//   start[i][g] = -zero * sum_k a[i][k]      one zero point for all of B
//   sums[i][g]  = sum_k a[i][k]              zero points of each group and column, which are multiplied in begin_group
// start also has the 8 a[7] of each word that 4-bit numbers met as floats lack.
struct FewRows {
  NarrowPanels narrow;
  const float* a;  // rows a_row floats apart
  int64_t a_row;
  const float *start, *sums;  // [m][groups]; null where not needed
  int64_t groups;
  // The row in digits, with a factor for each run; null where it is met as floats.
  const int8_t* digits;
  const float* factors;
  Tiling tiling;
};

// False where the row cannot be written in digits.
template <int Digits>
INGOT_INLINE bool gemm_write_digits(const GemmParams& p, float* a, int64_t groups, int8_t* digits, float* factors) {
  const int64_t rows = narrow_group_rows(gemm_narrow(p));
  for (int64_t g = 0; g < groups; g++)
    for (int64_t k = 0; k < rows; k += kDigitRows, factors++) {
      const int64_t at = g * rows + k, count = min_of(min_of(kDigitRows, rows - k), gemm_few_row_floats(p) - at);
      *factors = 0;
      if (count > 0 && !write_digits<Digits>(a + at, count, digits + at * Digits, factors)) return false;
    }
  return true;
}

// Fills in f: A where it is, or copied to scratch and prepared. is_there: the call for the range of units before this
// one left it in scratch.
INGOT_INLINE void gemm_few_rows_of_a(const GemmParams& p, const GemmMatrices& x, FewRows& f, float* scratch,
                                     bool is_there) {
  const bool nibbles = p.b_type == kPanelU4, start = nibbles || (has_scales(p.b_type) && !p.b_zeros && p.b_zero != 0);
  f.a = x.a, f.a_row = p.a_row, f.start = f.sums = f.factors = nullptr, f.digits = nullptr;
  if (p.a_col == 1 && !p.b_zeros && !start) return;
  const int64_t length = gemm_few_row_floats(p);
  auto* in_digits = reinterpret_cast<int64_t*>(scratch);
  scratch += kFewRowsHead;
  float *starts = scratch + p.m * length, *sums = starts + p.m * f.groups, *factors = sums + p.m * f.groups;
  auto* digits = reinterpret_cast<int8_t*>(factors + f.groups * gemm_digit_runs(p));
  for (int64_t i = 0; i < p.m && !is_there; i++) {
    const float* from = x.a + i * p.a_row;
    float* to = scratch + i * length;
    if (p.a_col == 1)
      __builtin_memcpy(to, from, size_t(p.k) * sizeof(float));
    else
      for (int64_t k = 0; k < p.k; k++) to[k] = from[k * p.a_col];
    for (int64_t k = p.k; k < length; k++) to[k] = 0;
    *in_digits = gemm_in_digits(p) && (p.a_digits == 2 ? gemm_write_digits<2>(p, to, f.groups, digits, factors)
                                                       : gemm_write_digits<3>(p, to, f.groups, digits, factors));
    const bool floats = nibbles && !*in_digits;
    // The factor of each element, by its row in a word: -zero, and 8 more for row 7, which is met as q - 8 among
    // floats.
    Octet begin = Octet(p.b_zeros ? 0.f : -float(p.b_zero));
    if (floats) begin[kNibbles - 1] += 8;
    for (int64_t g = 0; (start || p.b_zeros) && g < f.groups; g++) {
      const float* group = to + g * p.b_block;
      const int64_t count = min_of(p.b_block, p.k - g * p.b_block);
      if (start) starts[i * f.groups + g] = weighted_sum(group, count, begin);
      if (p.b_zeros) sums[i * f.groups + g] = weighted_sum(group, count, Octet(1.f));
    }
    if (floats) weigh_for_nibbles(to, length);
  }
  f.a = scratch, f.a_row = length;
  if (gemm_in_digits(p) && *in_digits) f.digits = digits, f.factors = factors;
  if (start) f.start = starts;
  if (p.b_zeros) f.sums = sums;
}

// What the sums of a group begin with: minus its zero points times the sums of a (FewRows).
template <int MR, int NV>
INGOT_INLINE void begin_group(VF (&part)[MR][NV], const FewRows& f, const NarrowGroup& group, int64_t index,
                              int64_t row) {
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    const int64_t at = (row + i) * f.groups + index;
    VF start = f.start ? VF(f.start[at]) : VF(0.f);
    INGOT_UNROLL for (int j = 0; j < NV; j++) part[i][j] =
        f.sums ? start - load(group.zero + j * kLanes) * VF(f.sums[at]) : start;
  }
}
template <int MR, int NV>
INGOT_INLINE void end_group(VF (&acc)[MR][NV], const VF (&part)[MR][NV], const FewRows& f, const NarrowGroup& group) {
  INGOT_UNROLL for (int j = 0; j < NV; j++) {
    VF scale = load_scale(f.narrow, group, j * kLanes);
    INGOT_UNROLL for (int i = 0; i < MR; i++) acc[i][j] += scale * part[i][j];
  }
}

template <int Digits, int NV>
INGOT_INLINE void accumulate_group_digits(VF (&part)[NV], const GemmParams& p, const FewRows& f, const char* rows,
                                          int64_t group, int64_t len) {
  const int64_t runs = gemm_digit_runs(p), first = group * narrow_group_rows(f.narrow);
  for (int64_t r = 0, k = 0; k < len; r++, k += kDigitRows)
    accumulate_digits<Digits>(part, {f.digits + (first + k) * Digits, f.factors[group * runs + r]},
                              reinterpret_cast<const uint32_t*>(rows) + k / kNibbles * NV * kLanes,
                              min_of(kDigitRows, len - k));
}

template <int NR, int MR, int Type>
INGOT_LATE void gemm_few_tile(const GemmParams& p, const GemmMatrices& x, const FewRows& f, const char* bytes,
                              int64_t panel, int64_t row, const Epilogue& epilogue) {
  int64_t col = panel * NR;
  PrefetchOnce prefetch{bytes + kPrefetchAhead, row == 0 ? prefetch_lines(narrow_row_bytes(f.narrow), 1) : 0};
  Destination d{x.c + row * p.c_row + col, p.c_row, x.first_row + row, col, p.n - col, true, true};
  VF acc[MR][NR / kLanes];
  clear(acc);
  const float* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = f.a + (row + i) * f.a_row;
  if constexpr (Type == kPanelBF16) {
    accumulate(acc, rows, kUnroll, reinterpret_cast<const BF16*>(bytes), NR, p.k, prefetch);
  } else if constexpr (Type == kPanelF16) {
    accumulate(acc, rows, kUnroll, reinterpret_cast<const F16*>(bytes), NR, p.k, prefetch);
  } else {
    for (int64_t g = 0; g < f.groups; g++) {
      NarrowGroup group = narrow_group(f.narrow, bytes, g);
      int64_t len = min_of(p.b_block, p.k - g * p.b_block);
      prefetch.at = group.rows + kPrefetchAhead;
      VF part[MR][NR / kLanes];
      begin_group(part, f, group, g, row);
      if (Type == kPanelU4 && MR == 1 && f.digits) {
        // A group at once, and further ahead: 4-bit numbers are used up no faster than memory brings them.
        PrefetchOnce ahead{group.rows + 2 * kPrefetchAhead, div_up(narrow_group_bytes(f.narrow), kCacheLine)};
        advance(ahead);
        const int64_t rounded = div_up(len, kNibbles) * kNibbles;
        if (p.a_digits == 2)
          accumulate_group_digits<2>(part[0], p, f, group.rows, g, rounded);
        else
          accumulate_group_digits<3>(part[0], p, f, group.rows, g, rounded);
      } else if constexpr (Type == kPanelU4)
        accumulate_nibbles(part, rows, reinterpret_cast<const uint32_t*>(group.rows), div_up(len, kNibbles) * kNibbles,
                           prefetch);
      else
        accumulate(part, rows, kUnroll, reinterpret_cast<const int8_t*>(group.rows), NR, len, prefetch);
      end_group(acc, part, f, group);
      INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] += p.b_block;
    }
  }
  finish(acc, d, epilogue);
}

// Panels [first_panel, last_panel), all rows.
template <int NR, int Type>
INGOT_LATE void gemm_few(const KernelCall* call, const GemmParams& p, int64_t entry, int64_t first_panel,
                         int64_t last_panel) {
  const int64_t panels = div_up(p.n, NR), done = call->done > 0 ? (call->done - 1) / panels : -1;
  Epilogue epilogue{call->operand + 3, p.extra, call->program, p.extras};
  GemmMatrices x = gemm_matrices(call, p, entry);
  FewRows f;
  f.narrow = gemm_narrow(p);
  f.narrow.type = Type, f.narrow.panel = NR;
  f.groups = narrow_groups(f.narrow);
  f.tiling = cut_rows(p.m, kFewTileRows<NR>, min_of(p.tile_rows, kFewTileRows<NR>));
  const bool is_there = entry == done && entry == call->begin / panels;
  gemm_few_rows_of_a(p, x, f, static_cast<float*>(call->scratch), is_there);
  int64_t bytes = narrow_panel_bytes(f.narrow);
  const char* at = reinterpret_cast<const char*>(x.b) + first_panel * bytes;
  for (int64_t panel = first_panel; panel < last_panel; panel++, at += bytes)
    for_tiles<kFewTileRows<NR>>(f.tiling, 0, f.tiling.count, [&](auto h, int64_t tile) INGOT_INLINED {
      gemm_few_tile<NR, decltype(h)::value, Type>(p, x, f, at, panel, tile_start(f.tiling, tile), epilogue);
    });
}

template <int NR>
INGOT_INLINE void gemm_few_of_type(const KernelCall* call, const GemmParams& p, int64_t entry, int64_t first,
                                   int64_t last) {
  if (p.b_type == kPanelBF16)
    gemm_few<NR, kPanelBF16>(call, p, entry, first, last);
  else if (p.b_type == kPanelF16)
    gemm_few<NR, kPanelF16>(call, p, entry, first, last);
  else if (p.b_type == kPanelI8)
    gemm_few<NR, kPanelI8>(call, p, entry, first, last);
  else
    gemm_few<NR, kPanelU4>(call, p, entry, first, last);
}

template <int NR>
INGOT_LATE void gemm(const KernelCall* call, const GemmParams& p) {
  int64_t panels = div_up(p.n, NR);
  for (int64_t unit = call->begin; unit < call->end;) {
    int64_t first = unit % panels, last = min_of(panels, first + call->end - unit), group = unit / panels;
    if (p.few_rows)  // one block of rows
      gemm_few_of_type<NR>(call, p, group, first, last);
    else
      gemm_block<NR>(call, p, group / p.m_blocks, group % p.m_blocks, first, last);
    unit += last - first;
  }
}

INGOT_INLINE KernelStatus gemm_body(const KernelCall* call) {
  const GemmParams& p = *reinterpret_cast<const GemmParams*>(call->param);
  with_panel(p.panel, [&](auto width) INGOT_INLINED { gemm<decltype(width)::value>(call, p); });
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_gemm_f32(const ingot::KernelCall* call) { return ingot::kernel::gemm_body(call); }
