// Operators that ONNX defines by other operators -> those operators.
//
// Shapes are inferred on the way, so an expansion knows the element types and ranks of its operands, unlike an
// extractor, which sees the graph as written. What an expansion emits is inferred and, where it has an expansion
// itself, expanded at once: afterwards no node is left that has one.
#pragma once
#include "graph/graph.h"

namespace ingot {

// In place, with the graphs in attributes. Gives every tensor its inferred type: infer_shapes need not run before it
// nor after it. Unsupported, naming the node, when an expansion needs a type or a rank that is not known.
void expand(Graph&);

}  // namespace ingot
