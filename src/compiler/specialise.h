// Which kernels a library needs that is compiled before anybody runs it.
#pragma once
#include <vector>

#include "codegen/codegen.h"
#include "graph/graph.h"

namespace ingot {

// The specialised kernels of a graph, each once. Sizes are no constants in them, but which of its variants a step takes
// may depend on sizes (few rows, a batch of one): where dims are free, the graph is lowered for small and large ones.
// A step that is later met with a variant that was not foreseen runs the native build.
std::vector<KernelRequest> foreseen_kernels(const std::shared_ptr<const Graph>&);

}  // namespace ingot
