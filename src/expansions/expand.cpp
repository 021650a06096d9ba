#include "expansions/expand.h"

#include <algorithm>
#include <utility>

#include "expansions/graph_expansion.h"
#include "loader/schema.h"
#include "ops/op.h"
#include "passes/passes.h"

namespace ingot {
namespace {

bool has_expandable(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    if (ExpansionRegistry::get().find(n)) return true;
    return std::any_of(n.attrs.begin(), n.attrs.end(), [](const auto& attr) {
      auto* sub = std::get_if<GraphPtr>(&attr.second);
      return sub && *sub && has_expandable(**sub);
    });
  });
}

// Replaces all nodes of a body by one that fails with this message when it runs.
void say_when_run(Graph& body, const std::string& what) {
  Node raise{.op = "Raise", .domain = "ingot", .name = body.name, .attrs = {{"message", what}}};
  for (const Node& n : body.nodes)
    for (TensorId t : n.outputs)
      if (std::find(body.outputs.begin(), body.outputs.end(), t) != body.outputs.end()) raise.outputs.push_back(t);
  body.nodes = {std::move(raise)};
  remove_dead(body);
}

// Expands the nodes of a body. A branch of an If that breaks the rules of its operators, for example with shapes that
// do not fit, may be one that never runs. It cannot be expanded, and operators that are only defined by an expansion
// have no kernel, so it cannot be left as it is either (as in_body does): it becomes a node that fails with the same
// message if the branch is taken.
void expand_body(const Node& node, Graph& body) {
  try {
    expand(body);
  } catch (const Error& e) {
    if (!node.is("If") || e.kind() != ErrorKind::InvalidModel) throw;
    say_when_run(body, e.message());
  }
}

}  // namespace

const ExpansionRegistry& ExpansionRegistry::get() {
  static const ExpansionRegistry registry = [] {
    ExpansionRegistry r;
    for (size_t i = 0; ingot_expansions_registrars[i]; i++) ingot_expansions_registrars[i](r);
    return r;
  }();
  return registry;
}

void ExpansionRegistry::add(const std::string& op, ExpandFn fn, const std::string& domain) {
  if (!expansions_.emplace(domain + ":" + op, fn).second)
    ingot::fail(ErrorKind::Internal, "the expansion of {} is registered twice", op);
}

ExpandFn ExpansionRegistry::find(const Node& node) const {
  auto it = expansions_.find(node.domain + ":" + node.op);
  return it == expansions_.end() ? nullptr : it->second;
}

GraphExpansion::GraphExpansion(Graph& graph, const NodeChoice* choice) : graph_(graph), choice_(choice) {
  known_.reserve(graph.tensors.size());
  for (Tensor& t : graph.tensors) known_.push_back(std::move(t.info));
}

void GraphExpansion::run() {
  auto give_back = [&] {
    for (size_t i = 0; i < known_.size(); i++) graph_.tensors[i].info = std::move(known_[i]);
  };
  done_.reserve(graph_.nodes.size());
  try {
    for (const Node& node : graph_.nodes) add(node, done_);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
  graph_.nodes = std::move(done_);
  if (expanded_) remove_dead(graph_);
}

void GraphExpansion::add(Node node, std::vector<Node>& out) {
  check_operand_types(graph_, node, known_);
  if (!choice_)
    if (ExpandFn expansion = ExpansionRegistry::get().find(node)) return apply(expansion, node, out);
  infer(node);
  if (choice_)
    if (ExpandFn expansion = choice_->choose(graph_, node, known_)) return apply(expansion, node, out);
  out.push_back(std::move(node));
}

void GraphExpansion::apply(ExpandFn expansion, const Node& node, std::vector<Node>& out) {
  expanded_ = true;
  Expander e(*this, node);
  expansion(e);
  e.finish(out);
}

// The types of its results; of an operator that has no rule for them by what it expands to.
void GraphExpansion::infer(const Node& node) {
  if (ExpandFn expansion = ExpansionRegistry::get().find(node)) {
    std::vector<Node> dropped;
    const NodeChoice* kept = std::exchange(choice_, nullptr);
    apply(expansion, node, dropped);
    choice_ = kept;
    return;
  }
  enter_subgraphs(node);
  std::vector<TensorInfo> made = infer_node(graph_, node, known_, false);
  for (size_t i = 0; i < node.outputs.size(); i++)
    if (node.outputs[i] != kNoTensor) info(node.outputs[i]) = std::move(made[i]);
}

void GraphExpansion::enter_subgraphs(const Node& node) {
  for (const auto& [key, value] : node.attrs) {
    auto* sub = std::get_if<GraphPtr>(&value);
    if (!sub) continue;
    bind_body(node, **sub, known_);
    if (choice_)
      GraphExpansion(**sub, choice_).run();
    else if (has_expandable(**sub))
      expand_body(node, **sub);
    else
      in_body(node, [&] { infer_shapes(**sub); });
  }
}

TensorId GraphExpansion::new_tensor(const std::string& wish, TensorInfo type) {
  if (!tensor_names_) {
    tensor_names_.emplace();
    for (const Tensor& t : graph_.tensors) tensor_names_->take(t.name);
  }
  known_.push_back(std::move(type));
  return graph_.add_tensor(tensor_names_->make(wish));
}

std::string GraphExpansion::node_name(const std::string& wish) {
  if (!node_names_) {
    node_names_.emplace();
    for (const Node& n : graph_.nodes) node_names_->take(n.name);
  }
  return node_names_->make(wish);
}

void expand(Graph& graph) { GraphExpansion(graph).run(); }

}  // namespace ingot
