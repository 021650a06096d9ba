// Work on a graph that stays in ONNX's vocabulary: what load_onnx gives and write_onnx takes.
#pragma once
#include "graph/graph.h"

namespace ingot {

// A copy that shares constants, but no subgraph.
Graph deep_copy(const Graph&);

// Gives every tensor of the graph the type that inference finds. Operators that are defined by others are inferred
// through those.
void infer_types(Graph&);

// Infers types, then the clean-up that leaves nothing but standard operators: what is computed from constants becomes a
// constant, normalizations and paddings become part of the convolution beside them, local rules. In a model that holds
// quantized constants these stay as they are.
void clean_up(Graph&);

}  // namespace ingot
