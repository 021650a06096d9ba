// Which outputs of a graph are inputs of its next run.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "planner/plan.h"

namespace ingot {

// Names of an input and of the output that becomes it.
using StateNames = std::vector<std::pair<std::string, std::string>>;

// The pairs that these names are. Without names: those a graph shows by itself, where an output is the Concat of an
// input and something new, or where "past" or "past_key_values" in the name of an input and "present" in that of an
// output is all they differ in. InvalidInput where there are none, where a name is none of the graph's, is used twice,
// or where both cannot be the same tensor.
std::vector<Tied> state_pairs(const Graph&, const StateNames&);

// The Concat that makes the output by adding to the input; null where none does.
const Node* adds_to(const Graph&, const Uses&, const Tied&);

}  // namespace ingot
