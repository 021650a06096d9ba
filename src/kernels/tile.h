// The register tile of a product: how many rows and columns of the result are summed in registers at once. Panels,
// packed weights and scratch follow from it. Host code asks with the lanes of a target (base/target.h), kernels with
// kLanes.
//
//   lanes  registers  accumulators  columns of a panel (rows of a tile)
//     4       16          12        16 (3), 24 (2)
//     8       16          12        16 (6), 24 (4)
//    16       32          24        16 (8), 32 (8), 48 (8), 64 (6)
// The other registers hold a row of the panel and one element of the left-hand side.
#pragma once
#include "kernels/vec.h"

namespace ingot::kernel {

INGOT_INLINE constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
INGOT_INLINE constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
INGOT_INLINE constexpr int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

inline constexpr int64_t kMostTileRows = 8;  // more pointers to rows would not stay in registers
INGOT_INLINE constexpr int64_t tile_accumulators(int64_t lanes) { return lanes == 16 ? 24 : 12; }
INGOT_INLINE constexpr int64_t tile_rows(int64_t lanes, int64_t panel) {
  return min_of(kMostTileRows, tile_accumulators(lanes) * lanes / panel);
}

// The same where a product is added to its accumulator by a second instruction: beside the accumulators and a row of
// the panel there is one element of the left-hand side, a product, and a register that LLVM needs to not spill.
INGOT_INLINE constexpr int64_t tile_rows_of_two_steps(int64_t lanes, int64_t panel) {
  const int64_t registers = lanes == 16 ? 32 : 16, vectors = panel / lanes;
  return min_of(kMostTileRows, (registers - vectors - 3) / vectors);
}
static_assert(tile_rows_of_two_steps(4, 24) == 1 && tile_rows_of_two_steps(8, 24) == 3);

// Rows of the tallest tile where m rows are cut into tiles of nearly equal height.
INGOT_INLINE constexpr int64_t tallest_tile(int64_t m, int64_t max_rows) {
  return max_of(1, div_up(m, max_of(1, div_up(m, max_rows))));
}

// A width of a panel, and what a column of it costs: wide panels read less for each multiply-add.
struct PanelWidth {
  int64_t columns, cost;
};
// Of 4 and 8 lanes, and of 16; 0 columns: none.
inline constexpr int kPanels = 4;
inline constexpr PanelWidth kPanelWidths[2][kPanels] = {{{24, 50}, {16, 51}, {0, 0}, {0, 0}},
                                                        {{48, 100}, {64, 102}, {32, 106}, {16, 135}}};
INGOT_INLINE constexpr bool is_panel(int64_t lanes, int64_t columns) {
  for (const PanelWidth& w : kPanelWidths[lanes == 16])
    if (w.columns == columns && columns > 0) return true;
  return false;
}
// The width with which a matrix of n columns costs least: padding counts.
INGOT_INLINE constexpr int64_t best_panel(int64_t lanes, int64_t n) {
  const PanelWidth(&widths)[kPanels] = kPanelWidths[lanes == 16];
  PanelWidth best = widths[0];
  for (const PanelWidth& w : widths)
    if (w.columns && div_up(n, w.columns) * w.columns * w.cost < div_up(n, best.columns) * best.columns * best.cost)
      best = w;
  return best.columns;
}

// Calls body(Width<columns>) for the run-time width of a panel; folds to one call when it is a constant. Every: widths
// of every target, for host code that packs; otherwise those of this build. Plans have only widths for which is_panel
// is true, and those are all here, since both read the same table.
template <int64_t Columns>
struct Width {
  static constexpr int value = int(Columns);
};
template <bool Wide, int I = 0, class Body>
INGOT_INLINE bool with_panel_of(int64_t columns, const Body& body) {
  if constexpr (I < kPanels) {
    constexpr int64_t kColumns = kPanelWidths[Wide][I].columns;
    if constexpr (kColumns > 0)
      if (columns == kColumns) return body(Width<kColumns>()), true;
    return with_panel_of<Wide, I + 1>(columns, body);
  }
  return false;
}
inline constexpr bool kEveryPanel = true;
template <bool Every = false, class Body>
INGOT_INLINE void with_panel(int64_t columns, const Body& body) {
  const bool found = with_panel_of<kLanes == 16>(columns, body);
  if constexpr (Every)
    if (!found) with_panel_of<kLanes != 16>(columns, body);
}

}  // namespace ingot::kernel
