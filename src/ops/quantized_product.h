// Products of 8-bit integers as steps of ingot_gemm_i8_*, and how their constant operands are packed
// ahead (planner/pack_weights.cpp).
#pragma once
#include <optional>
#include <string_view>

#include "base/target.h"
#include "kernels/gemm_i8.h"
#include "ops/window.h"

namespace ingot {

// A filter [M, C/group, kernel...] over an image channels last, as a matrix: rows of taps that lie next to each other
// in memory are one run.
struct FilterRuns {
  int64_t runs[3], run_bytes;
  bool taps_joined;  // the taps of the last spatial dim are part of the run
};
FilterRuns filter_runs(const Window&, int64_t groups, const std::vector<int64_t>& w);

// Is a convolution with these weights a matrix product for each group? A depthwise one has a kernel of its own
// (kernels/depthwise_i8.h); what is in between has none.
bool is_grouped_product(int64_t groups, const std::vector<int64_t>& w);
bool is_depthwise(int64_t groups, const std::vector<int64_t>& w);

// How a constant B is packed ahead. Attribute "packed_form" of MatMulInteger and ConvInteger has the name: "chained",
// "pairs", "rows", "dot", "tiles" (kernels/gemm_i8.h), or "depthwise" (kernels/depthwise_i8.h), which ConvInteger alone
// has.
enum class PackedForm : int64_t {
  Depthwise = 0,
  Chained = kernel::kI8Chained,
  Pairs = kernel::kI8Pairs,
  Rows = kernel::kI8Rows,
  Dot = kernel::kI8Dot,
  Tiles = kernel::kI8Tiles,
};
std::string_view name(PackedForm);
std::optional<PackedForm> packed_form_from_name(std::string_view);
// That of a node; nothing where B is not packed. Throws InvalidModel where the name is none of the above.
std::optional<PackedForm> packed_form(const Node&);

// The form with columns in the lanes that the target has, for any operands.
std::optional<kernel::I8Form> i8_panel_form(const Target&);
// Fills in what follows from the form, the sizes and the target.
void complete(kernel::GemmI8Params&, const Target&);

}  // namespace ingot
