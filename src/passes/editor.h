// A graph while it is rewritten. Producers and consumers stay current through every edit, so a pass may look at what
// an earlier rewrite left behind without scanning the graph. Nodes are named by handles that survive edits; order and
// dead nodes are settled once, by finish().
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace ingot {

class Editor {
 public:
  using Handle = int;
  static constexpr Handle kNone = -1;

  // Precondition: the graph verifies. Until finish() is called, graph.nodes is empty.
  explicit Editor(Graph&);
  ~Editor();
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  Graph& graph;

  // Handles run from 0; those below size() at construction are in topological order.
  Handle size() const { return static_cast<Handle>(nodes_.size()); }
  bool alive(Handle h) const { return alive_[static_cast<size_t>(h)]; }
  const Node& node(Handle h) const { return nodes_[static_cast<size_t>(h)]; }
  // For attributes, op and origins. Operands and results change through set_input and replace only.
  Node& edit(Handle h) { return nodes_[static_cast<size_t>(h)]; }

  // The reference holds until a tensor is added.
  const TensorInfo& info(TensorId t) const { return graph.info(t); }
  Handle producer(TensorId t) const { return t == kNoTensor ? kNone : producer_[static_cast<size_t>(t)]; }
  // The node that makes t, or nullptr for inputs, constants and kNoTensor.
  const Node* maker(TensorId t) const { return producer(t) == kNone ? nullptr : &node(producer(t)); }
  // The node that makes t when it is this operator of ai.onnx, else nullptr.
  const Node* maker(TensorId t, std::string_view op) const;
  // One entry per use; in no particular order.
  const std::vector<Handle>& consumers(TensorId t) const { return consumers_[static_cast<size_t>(t)]; }
  bool is_output(TensorId t) const { return is_output_[static_cast<size_t>(t)]; }
  bool is_constant(TensorId t) const { return t != kNoTensor && info(t).constant != nullptr; }
  // Read once, and not by the caller of the graph.
  bool single_use(TensorId t) const { return !is_output(t) && consumers(t).size() == 1; }

  // New tensors; `base` is a hint for the name.
  TensorId add_value(const std::string& base, DType, std::optional<Shape>);
  TensorId add_constant(const std::string& base, ConstantPtr);
  TensorId add_ints(const std::string& base, const std::vector<int64_t>&);  // a vector of i64
  // Adds a node. Its results must not have a living producer.
  Handle add(Node);
  // A node with one new result, whose tensor is returned. Origins are those of `from`.
  TensorId emit(const Node& from, const std::string& op, std::vector<TensorId> inputs,
                std::map<std::string, Attribute> attrs, DType, std::optional<Shape>, const std::string& domain = "");
  // `with` takes the place, the results and the name of node h.
  Handle replace(Handle h, Node with);
  void erase(Handle);
  void set_input(Handle, size_t index, TensorId);
  void set_inputs(Handle, std::vector<TensorId>);
  // Reads of `from` become reads of `to`. A graph output keeps its name: it moves to `to` where it can, else an
  // Identity stays behind. False when nothing changed.
  bool replace_uses(TensorId from, TensorId to);

  // Moves nodes back into the graph in topological order, without dead nodes and tensors. Ends the editing.
  void finish();
  bool changed() const { return changed_; }

 private:
  void link(Handle);
  void unlink(Handle);
  void add_use(TensorId, Handle, size_t input);
  std::string fresh(const std::string& base);
  void grow();

  std::deque<Node> nodes_;  // references to nodes survive additions
  std::vector<bool> alive_;
  std::vector<Handle> producer_;
  // Of each tensor, by use: the node, and which of its inputs it is. Of each node, by input: where that use stands.
  // A use is taken out in one step, however many there are.
  std::vector<std::vector<Handle>> consumers_;
  std::vector<std::vector<uint32_t>> consumer_inputs_, places_;
  std::vector<bool> is_output_, is_input_;
  std::unordered_set<std::string> names_;
  bool changed_ = false, finished_ = false;
};

}  // namespace ingot
