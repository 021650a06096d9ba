// A graph cut at its host operators (OpDef::host): stretches of nodes that are planned as wholes, and single host
// nodes.
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

// In an order in which they can run. A graph without host nodes is one part, the graph itself.
std::vector<Part> cut(const std::shared_ptr<const Graph>&);

}  // namespace ingot
