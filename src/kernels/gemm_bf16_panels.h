// What both forms of a product of bf16 do (kernels/gemm_bf16.h): finding rows and panels, and finishing sums.
#pragma once
#include "kernels/gemm_bf16.h"
#include "kernels/word_panels.h"

namespace ingot::kernel {

// One batch entry, its group of rows at hand, and what is the same for the whole call.
struct Bf16Call {
  const GemmBf16Params& p;
  Epilogue epilogue;
  const uint16_t *a, *b;
  void* c;
  int64_t entry, c_offset;  // c_offset: elements
  int64_t first_row, rows;  // of the group
  const uint8_t* at;        // the group's first row, where it is or copied
  int64_t stride;           // bytes between rows
  float* sums;
  uint8_t* copy;
  uint16_t* own_panel;
};

// Copies the rows of the group, each padded with zeros.
INGOT_INLINE void copy_group(const Bf16Call& x) {
  const GemmBf16Params& p = x.p;
  const int64_t stride = bf16_copy_stride(p), depth = bf16_padded_depth(p.form, p.k);
  for (int64_t i = 0; i < x.rows; i++) {
    const uint16_t* from = x.a + (x.first_row + i) * p.a_row;
    auto* to = reinterpret_cast<uint16_t*>(x.copy + i * stride);
    if (p.a_col == 1)
      __builtin_memcpy(to, from, size_t(p.k) * sizeof(uint16_t));
    else
      for (int64_t k = 0; k < p.k; k++) to[k] = from[k * p.a_col];
    for (int64_t k = p.k; k < depth; k++) to[k] = 0;
  }
}

// Panels [first, last) of each group of rows in the range of the call: run(x, panel, its words, the next panel).
template <class Run>
INGOT_INLINE void for_bf16_panels(const KernelCall* call, const GemmBf16Params& p, const Run& run) {
  const Bf16Scratch s = bf16_scratch(p);
  auto* scratch = static_cast<uint8_t*>(call->scratch);
  Bf16Call x{p,
             {call->operand + 3, p.extra, call->program, p.extras},
             nullptr,
             nullptr,
             call->operand[2],
             0,
             0,
             0,
             0,
             nullptr,
             p.a_packing ? bf16_copy_stride(p) : 2 * p.a_row,
             reinterpret_cast<float*>(scratch + s.sums),
             scratch + s.copy,
             reinterpret_cast<uint16_t*>(scratch + s.panel)};
  const int64_t panel_elements = p.panel * bf16_padded_depth(p.form, p.k);
  for_groups(call, div_up(p.n, p.panel), p.m_blocks,
             [&](int64_t entry, int64_t group, bool fresh, int64_t first, int64_t last) INGOT_INLINED {
               x.entry = entry;
               x.a = static_cast<const uint16_t*>(call->operand[0]) + batch_offset(p.batch, p.a_batch, entry);
               x.b = static_cast<const uint16_t*>(call->operand[1]);
               if (!p.b_packed) x.b += batch_offset(p.batch, p.b_batch, entry);
               x.c_offset = batch_offset(p.batch, p.c_batch, entry);
               x.first_row = group * group_rows(p.m, p.m_blocks);
               x.rows = group_rows(p.m, p.m_blocks, group);
               if (p.a_packing && fresh) copy_group(x);
               x.at = p.a_packing ? x.copy : reinterpret_cast<const uint8_t*>(x.a + x.first_row * p.a_row);
               for (int64_t panel = first; panel < last; panel++) {
                 const uint16_t* words = x.b + panel * panel_elements;
                 if (!p.b_packed) {
                   words = x.own_panel;
                   bf16_pack_panel(x.own_panel, x.b + panel * p.panel * p.b_col, p.form, p.panel, p.k,
                                   p.n - panel * p.panel, p.b_row, p.b_col);
                 }
                 run(x, panel, reinterpret_cast<const uint8_t*>(words),
                     reinterpret_cast<const char*>(words + panel_elements));
               }
             });
}

// Finishes `lanes` sums of a row: the epilogue, and C in its type.
INGOT_INLINE void finish_bf16(const Bf16Call& x, VF sum, int64_t row, int64_t column, int64_t lanes) {
  const int64_t at = x.c_offset + row * x.p.c_row + column;
  const VF y = apply(x.epilogue, sum, x.entry * x.p.m + row, column, lanes);
  if (x.p.c_half)
    store_partial(static_cast<uint16_t*>(x.c) + at, f32_to_bf16(y), lanes);
  else
    store_partial(static_cast<float*>(x.c) + at, y, lanes);
}

// Rows whose sums are at `sums`: a loop over rows keeps the epilogue's constants in registers.
template <int NR>
INGOT_INLINE void finish_bf16_rows(const Bf16Call& x, const float* sums, int64_t row, int64_t rows, int64_t column) {
  const int64_t columns = x.p.n - column;
#pragma clang loop unroll(disable)
  for (int64_t i = 0; i < rows; i++, sums += NR) {
    if (columns >= NR)
      INGOT_UNROLL for (int j = 0; j < NR; j += kLanes) finish_bf16(x, load(sums + j), row + i, column + j, kLanes);
    else
#pragma clang loop unroll(disable)
      for (int64_t j = 0; j < columns; j += kLanes)
        finish_bf16(x, load(sums + j), row + i, column + j, min_of(kLanes, columns - j));
  }
}

}  // namespace ingot::kernel
