// Nodes of any opset -> the current operator set.
//
// Every node of the graph becomes what opset 28 would have written: attributes that became operands, defaults that
// changed, operators that were renamed or removed. Operators of com.microsoft that are a spelling of standard ones are
// translated too. What is current already, or not known, stays as it is. Later stages know one version of each
// operator.
#pragma once
#include <map>
#include <string>

#include "graph/graph.h"

namespace ingot {

// In place; subgraphs in attributes are not entered (the loader extracts each graph with its own opsets). Ranks that
// the tensors' types tell are used where they make the result simpler.
void extract(Graph&, const std::map<std::string, int64_t>& opsets);

}  // namespace ingot
