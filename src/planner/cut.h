// A graph cut at its host operators (OpDef::host) and at nodes whose results are as large as data say: stretches of
// nodes that are planned as wholes, and single nodes. A plan with such a node in it would serve one set of data only:
// alone, it is soon planned again.
#pragma once
#include <memory>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// A tensor whose elements are numbers: not a sequence, not optional, not of strings.
bool is_numbers(const TensorInfo&);

// The node runs on whole values, between planned parts.
bool is_host(const Graph&, const Node&);

struct Part {
  std::shared_ptr<const Graph> region;    // planned nodes as a graph of their own; null for a host node
  size_t node = 0;                        // the host node
  std::vector<TensorId> inputs, outputs;  // of the region, as tensors of the whole graph
};

// In an order in which they can run. A graph without nodes to cut at is one part, the graph itself. `is_body`: outputs
// that are inputs, constants or other outputs are no part's outputs once more; whoever runs the parts hands them on
// without a copy.
std::vector<Part> cut(const std::shared_ptr<const Graph>&, bool is_body = false);

}  // namespace ingot
