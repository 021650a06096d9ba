// The current operator set -> an older one: what extractors/ does, the other way.
//
// ONNX's schemas (loader/schema.h) tell whether a node can stand in an opset: operator, attributes, operands, types.
// One that cannot is spelled as the opset spells it (writer/spellings.cpp), or said in other operators: by a formula of
// writer/formulas.cpp, by its expansion (expansions/), or in wider types between Casts. What these emit goes the same
// way, until everything fits.
#pragma once
#include "expansions/expander.h"
#include "graph/graph.h"

namespace ingot {

inline constexpr int64_t kOldestWrittenOpset = 11;

// In place, with the graphs in attributes. Unsupported, naming the node, its operator and the oldest opset that serves,
// for what the opset cannot say.
void downgrade(Graph&, int64_t opset);
// The oldest opset from `least` on that downgrade() can say the graph in.
std::optional<int64_t> oldest_opset(const Graph&, int64_t least);

// One node on its way to an older opset, with what is known of the tensors of its graph.
struct OlderNode {
  const Graph& graph;
  Node& node;
  const std::vector<TensorInfo>& known;
  int64_t opset;

  const TensorInfo& info(TensorId t) const { return known[static_cast<size_t>(t)]; }
  // Operand i, if it is there.
  const TensorInfo* operand(size_t i) const { return node.has_input(i) ? &info(node.inputs[i]) : nullptr; }
  std::optional<int64_t> rank(size_t i) const;
};

// The node as the opset spells it, where it spells it differently. Constants among its operands become attributes.
void respell(OlderNode);
// What the schemas do not tell: a meaning that changed, a value of an attribute that came later. Empty when nothing
// speaks against the node.
std::string against_meaning(const OlderNode&);
// The operator by others that are older; nullptr when there is none that helps.
ExpandFn find_formula(const OlderNode&);

}  // namespace ingot
