// Which nodes can work on NHWC instead of NCHW, and what changes in them. One rule per operator.
#pragma once
#include "passes/editor.h"

namespace ingot {

struct LayoutMove {
  size_t rank = 0;               // of the data: [N, C, spatial...]
  std::vector<size_t> operands;  // inputs that move with the node
  bool results_move = true;      // false: a reduction whose results have no layout any more
  bool wants = false;            // faster in NHWC, not only able to
  // Permutes attributes and the operands that speak of axes. The node's data operands have moved already.
  void (*rewrite)(Editor&, Node&, size_t rank) = nullptr;
};

// Nothing for a node that must stay as it is.
std::optional<LayoutMove> layout_move(const Editor&, const Node&);

std::vector<int64_t> to_channels_last(size_t rank);   // 0, 2, 3, 1
std::vector<int64_t> to_channels_first(size_t rank);  // 0, 3, 1, 2

}  // namespace ingot
