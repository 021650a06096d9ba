// The walk over one graph: infers and expands its nodes in order.
#pragma once
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "expansions/expander.h"

namespace ingot {

class GraphExpansion {
 public:
  explicit GraphExpansion(Graph&);
  void run();

 private:
  friend class Expander;
  // Appends the node, or what it expands to, to `out`.
  void add(Node, std::vector<Node>& out);
  void enter_subgraphs(const Node&);
  TensorId new_tensor(const std::string& wish, TensorInfo = {});
  std::string node_name(const std::string& wish);
  TensorInfo& info(TensorId t) { return known_[static_cast<size_t>(t)]; }

  Graph& graph_;
  std::vector<TensorInfo> known_;  // by tensor, while the walk lasts
  bool expanded_ = false;
  std::optional<UniqueNames> tensor_names_, node_names_;  // made when first needed: most graphs expand nothing
  std::vector<Node> todo_, done_;
};

}  // namespace ingot
