// Which kernels of a graph to compile, and for which known parameters.
#pragma once
#include <vector>

#include "codegen/codegen.h"
#include "graph/graph.h"

namespace ingot {

// Lowers the graph for sample shapes and keeps as constants what does not change between them. A kernel that turns out
// not to fit the shapes of a later run costs speed, never correctness: the plan then takes the native build.
std::vector<KernelRequest> choose_kernels(const std::shared_ptr<const Graph>&);

}  // namespace ingot
