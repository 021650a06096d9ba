// Calls of model-local functions: kept as one node until the caller is extracted, then replaced by the function's body.
#pragma once
#include "base/unique_names.h"
#include "graph/graph.h"

namespace ingot {

// The domain of a call until it is inlined. Extractors know no operator in it.
inline constexpr const char* kCallDomain = "ingot.call";

// Appends the body's nodes to `caller`, in place of `call`. body.inputs correspond to call.inputs (kNoTensor where an
// operand is absent), body.outputs to call.outputs.
void splice(Graph& caller, const Node& call, const Graph& body, UniqueNames& tensor_names, UniqueNames& node_names);

}  // namespace ingot
