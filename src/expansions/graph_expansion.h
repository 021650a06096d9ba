// The walk over one graph: infers its nodes in order, and expands those that a rule chooses.
#pragma once
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "expansions/expander.h"

namespace ingot {

// What a walk does with a node whose operands and results have their types. Without one, every node with a registered
// expansion is expanded.
class NodeChoice {
 public:
  virtual ~NodeChoice() = default;
  // What takes the place of the node; nullptr: it stays, spelled as the choice likes. What stays is not looked at
  // again.
  virtual ExpandFn choose(const Graph&, Node&, const std::vector<TensorInfo>& known) const = 0;
};

class GraphExpansion {
 public:
  explicit GraphExpansion(Graph&, const NodeChoice* = nullptr);
  // Once. The graph keeps its nodes when it throws.
  void run();

 private:
  friend class Expander;
  // Appends the node, or what it expands to, to `out`.
  void add(Node, std::vector<Node>& out);
  void apply(ExpandFn, const Node&, std::vector<Node>& out);
  void infer(const Node&);
  void enter_subgraphs(const Node&);
  TensorId new_tensor(const std::string& wish, TensorInfo = {});
  std::string node_name(const std::string& wish);
  TensorInfo& info(TensorId t) { return known_[static_cast<size_t>(t)]; }

  Graph& graph_;
  const NodeChoice* choice_;
  std::vector<TensorInfo> known_;  // by tensor, while the walk lasts
  bool expanded_ = false;
  std::optional<UniqueNames> tensor_names_, node_names_;  // made when first needed: most graphs expand nothing
  std::vector<Node> done_;
};

}  // namespace ingot
