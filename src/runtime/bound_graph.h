// The graph that a state runs: rows that grow lie in memory with room for more (ops/rows.h), other pairs in memory that
// the output may take over from the input.
#pragma once
#include <memory>
#include <vector>

#include "runtime/region.h"

namespace ingot {

// What became of a pair of an input and an output.
struct BoundPair {
  int64_t axis = -1;        // along which the output is longer than the input; -1: it is not, or nobody knows
  bool in_room = false;     // input and output are memory with room along the axis
  bool overwrites = false;  // in which old rows may be written over
  size_t length_input = 0;  // in_room: the input [1] that says how many rows there are
  size_t rows_output = 0;   // in_room: the output [1] that says how many there are now
};

// Inputs and outputs are those of the graph, then the lengths. Pairs of which the graph knows that they are equally
// long share theirs.
struct BoundGraph {
  std::shared_ptr<const Graph> graph;
  std::vector<BoundPair> pairs;
  std::unique_ptr<Region> region;
};
std::unique_ptr<BoundGraph> bind_graph(const std::shared_ptr<const Graph>&, const std::vector<Tied>&,
                                       const RegionOptions&);

// How a pair grows in any graph, bound or not: BoundPair::axis.
int64_t growing_axis(const Graph&, const Uses&, const Tied&);

}  // namespace ingot
