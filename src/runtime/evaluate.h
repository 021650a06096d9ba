// Runs a node whose inputs are all constant, with the native kernels: constant folding is execution.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace ingot {

// The node's results as constants (nullptr for absent ones). False when the node cannot be evaluated: a non-constant
// input, a size that is not known, results above `max_bytes`. Errors of the node itself are thrown.
bool evaluate(const Graph&, const Node&, std::vector<ConstantPtr>& results, int64_t max_bytes);

}  // namespace ingot
