// Sums (or means, least, greatest) of the leaves that decision trees lead each row of x to:
//   y[row][t] = base[t] + aggregate over trees of the votes for t of the leaf reached
// Operands: x [rows, features]; nodes (i32 [n, 4]); thresholds (f64 [n]); roots (i32); vote targets (i32); vote weights
// (f64); base (f64 [targets]); y (f32 or f64). A node is {test, feature, yes, no}: the next node by test(x[feature],
// threshold), `no` for NaN unless kTreeMissing is set. Those are later nodes, so a walk ends. A leaf is {kTreeLeaf, -,
// first vote, number of votes}. A unit is kTreeBlock rows. Scratch: tree_scratch_doubles.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

enum TreeTest : int32_t { kTreeLe, kTreeLt, kTreeGe, kTreeGt, kTreeEq, kTreeNe, kTreeLeaf };
inline constexpr int32_t kTreeMissing = 8;
enum TreeAggregate : int64_t { kTreeAverage, kTreeSum, kTreeMin, kTreeMax };

inline constexpr int64_t kTreeBlock = 16;

struct TreeParams {
  int64_t x_type, y_type, aggregate;
  int64_t rows, features, targets;
  int64_t nodes, roots, votes;
};

inline int64_t tree_scratch_doubles(int64_t features, int64_t targets) { return kTreeBlock * (features + targets); }

INGOT_KERNEL(ingot_tree_ensemble);

}  // namespace ingot
