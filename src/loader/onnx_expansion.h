// How large a model becomes when its functions are inlined, known before a node is read.
#pragma once
#include "loader/onnx_graph.h"

namespace ingot {

// InvalidModel when functions call themselves or each other in a circle, are nested too deeply, or when the graph with
// every call replaced by its body would have more than `most` nodes.
void check_expansion(const OnnxModel&, int64_t most);

}  // namespace ingot
