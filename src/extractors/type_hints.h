// Ranks and element types that follow from an operator's definition alone, for rules that need them before inference
// has run: an old graph rarely says the rank of what it adds a bias to, but the convolution before it does.
#pragma once
#include "graph/graph.h"

namespace ingot {

// Fills in what the node's first result must have, where nothing is known of it yet.
void propagate_hints(Graph&, const Node&);

}  // namespace ingot
