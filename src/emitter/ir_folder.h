// An Engine IR folder: graph.yaml and weights.bin (ir/folder.h reads it).
#pragma once
#include <string>

#include "graph/graph.h"

namespace ingot {

// Written beside and renamed.
void save_ir(const Graph&, const std::string& folder);
// The yaml alone, as inspect and the golden tests print it.
std::string to_yaml(const Graph&);

}  // namespace ingot
