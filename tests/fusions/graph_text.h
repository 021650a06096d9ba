// A small notation for graphs, for tests:
//
//   h = Mul(x, 0.5)
//   y = Mul(h, Add(Erf(Div(x, 1.41421356)), 1.0))
//   a, b = Split(y) {axis: -1, num_outputs: 2}
//
// Calls nest. 0.5 is an f32 scalar, 3 too; [1, 2] a vector of i64; true a bool; _ an absent operand. ingot.MatMul names
// the domain. What a file declares as inputs and weights is known by name.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ingot::test {

// "x: f32[2, seq, 64]", the type and shape of an input or a weight.
void declare_input(Graph&, const std::string& text);
void declare_weight(Graph&, const std::string& text);  // filled with numbers that differ from each other
// Adds the nodes of the text; the names assigned on the last line are the outputs.
void parse_nodes(Graph&, const std::string& text);
// Nodes as lines in the same notation, types and shapes left out. Values inside are renamed by order; constants of few
// elements are written out.
std::string print_nodes(const Graph&);

}  // namespace ingot::test
