#include "passes/editor.h"

#include <algorithm>
#include <new>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/unique_names.h"

namespace ingot {

Editor::Editor(Graph& g)
    : graph(g),
      nodes_(std::make_move_iterator(g.nodes.begin()), std::make_move_iterator(g.nodes.end())),
      alive_(nodes_.size(), true) {
  g.nodes.clear();
  grow();
  for (Handle h = 0; h < size(); h++) link(h);
  for (TensorId t : g.outputs) is_output_[static_cast<size_t>(t)] = true;
  for (TensorId t : g.inputs) is_input_[static_cast<size_t>(t)] = true;
}

Editor::~Editor() {
  // An exception on the way: give the nodes back so that the graph stays whole enough to be destroyed or printed.
  if (finished_) return;
  try {
    for (size_t i = 0; i < nodes_.size(); i++)
      if (alive_[i]) graph.nodes.push_back(std::move(nodes_[i]));
  } catch (const std::bad_alloc&) {  // more nodes than there were, and no memory for them: the graph can be destroyed
  }
}

void Editor::grow() {
  producer_.resize(graph.tensors.size(), kNone);
  consumers_.resize(graph.tensors.size());
  consumer_inputs_.resize(graph.tensors.size());
  is_output_.resize(graph.tensors.size());
  is_input_.resize(graph.tensors.size());
}

void Editor::link(Handle h) {
  for (TensorId t : node(h).outputs)
    if (t != kNoTensor) producer_[static_cast<size_t>(t)] = h;
  places_.resize(nodes_.size());
  places_[static_cast<size_t>(h)].resize(node(h).inputs.size());
  for (size_t i = 0; i < node(h).inputs.size(); i++)
    if (node(h).inputs[i] != kNoTensor) add_use(node(h).inputs[i], h, i);
}

void Editor::add_use(TensorId t, Handle h, size_t input) {
  const auto at = static_cast<size_t>(t);
  places_[static_cast<size_t>(h)][input] = static_cast<uint32_t>(consumers_[at].size());
  consumers_[at].push_back(h);
  consumer_inputs_[at].push_back(static_cast<uint32_t>(input));
}

void Editor::unlink(Handle h) {
  for (TensorId t : node(h).outputs)
    if (t != kNoTensor && producer_[static_cast<size_t>(t)] == h) producer_[static_cast<size_t>(t)] = kNone;
  for (size_t i = 0; i < node(h).inputs.size(); i++) {
    if (node(h).inputs[i] == kNoTensor) continue;
    const auto t = static_cast<size_t>(node(h).inputs[i]);
    const uint32_t place = places_[static_cast<size_t>(h)][i];  // the last use moves here
    places_[static_cast<size_t>(consumers_[t].back())][consumer_inputs_[t].back()] = place;
    consumers_[t][place] = consumers_[t].back();
    consumer_inputs_[t][place] = consumer_inputs_[t].back();
    consumers_[t].pop_back();
    consumer_inputs_[t].pop_back();
  }
}

const Node* Editor::maker(TensorId t, std::string_view op) const {
  const Node* n = maker(t);
  return n && n->is(op) ? n : nullptr;
}

std::string Editor::fresh(const std::string& base) {
  if (names_.empty())
    for (const Tensor& t : graph.tensors) names_.insert(t.name);
  if (names_.insert(base).second) return base;
  for (int i = 1;; i++)
    if (std::string name = base + "_" + std::to_string(i); names_.insert(name).second) return name;
}

TensorId Editor::add_value(const std::string& base, DType dtype, std::optional<Shape> shape) {
  TensorId t = graph.add_tensor(fresh(base), {dtype, std::move(shape), std::nullopt, nullptr});
  grow();
  return t;
}

TensorId Editor::add_constant(const std::string& base, ConstantPtr constant) {
  TensorId t = graph.add_constant(fresh(base), std::move(constant));
  grow();
  return t;
}

TensorId Editor::add_ints(const std::string& base, const std::vector<int64_t>& values) {
  return add_constant(base, make_constant(DType::I64, {static_cast<int64_t>(values.size())}, values));
}

Editor::Handle Editor::add(Node n) {
  changed_ = true;
  nodes_.push_back(std::move(n));
  alive_.push_back(true);
  link(size() - 1);
  return size() - 1;
}

TensorId Editor::emit(const Node& from, const std::string& op, std::vector<TensorId> inputs,
                      std::map<std::string, Attribute> attrs, DType dtype, std::optional<Shape> shape,
                      const std::string& domain) {
  Node n{.op = op, .domain = domain, .inputs = std::move(inputs), .attrs = std::move(attrs), .origins = from.origins};
  n.name = from.name + "/" + op;
  TensorId t = add_value(n.name.size() > 200 ? op : n.name, dtype, std::move(shape));
  n.outputs = {t};
  add(std::move(n));
  return t;
}

Editor::Handle Editor::replace(Handle h, Node with) {
  Node& old = edit(h);
  with.outputs = old.outputs;
  if (with.name.empty()) with.name = old.name;
  if (with.origins.empty()) with.origins = old.origins;
  erase(h);
  return add(std::move(with));
}

void Editor::erase(Handle h) {
  if (!alive(h)) return;
  changed_ = true;
  unlink(h);
  alive_[static_cast<size_t>(h)] = false;
}

void Editor::set_input(Handle h, size_t index, TensorId t) {
  std::vector<TensorId> inputs = node(h).inputs;
  if (index >= inputs.size()) inputs.resize(index + 1, kNoTensor);
  inputs[index] = t;
  set_inputs(h, std::move(inputs));
}

void Editor::set_inputs(Handle h, std::vector<TensorId> inputs) {
  changed_ = true;
  unlink(h);
  edit(h).inputs = std::move(inputs);
  link(h);
}

bool Editor::replace_uses(TensorId from, TensorId to) {
  bool any = !consumers(from).empty();
  if (from == to) return false;
  const std::vector<Handle> users = std::exchange(consumers_[static_cast<size_t>(from)], {});
  const std::vector<uint32_t> inputs = std::exchange(consumer_inputs_[static_cast<size_t>(from)], {});
  for (size_t i = 0; i < users.size(); i++) {
    edit(users[i]).inputs[inputs[i]] = to;
    add_use(to, users[i], inputs[i]);
  }
  changed_ |= any;
  if (!is_output(from)) return any;

  const bool movable = producer(to) != kNone && !is_output(to) && !is_input_[static_cast<size_t>(to)];
  if (movable) {
    std::swap(graph.tensor(from).name, graph.tensor(to).name);
    std::replace(graph.outputs.begin(), graph.outputs.end(), from, to);
    is_output_[static_cast<size_t>(from)] = false;
    is_output_[static_cast<size_t>(to)] = true;
    return changed_ = true;
  }
  Handle old = producer(from);
  if (old == kNone || (node(old).is("Identity") && node(old).inputs[0] == to)) return any;
  if (node(old).outputs.size() > 1) return any;  // its other results are still wanted
  replace(old, Node{.op = "Identity", .inputs = {to}});
  return true;
}

// Kahn's algorithm; among ready nodes the one with the smallest place comes first, which keeps the old order where
// it still holds. A new node takes the place of the last of its operands' makers.
void Editor::finish() {
  if (!changed_) {
    graph.nodes.assign(std::make_move_iterator(nodes_.begin()), std::make_move_iterator(nodes_.end()));
    finished_ = true;
    return remove_dead(graph);
  }
  std::vector<int> waiting(nodes_.size(), 0);
  for (Handle h = 0; h < size(); h++) {
    if (!alive(h)) continue;
    for (TensorId t : node(h).inputs)
      if (producer(t) != kNone) waiting[static_cast<size_t>(h)]++;
  }
  std::priority_queue<Handle, std::vector<Handle>, std::greater<>> ready;
  for (Handle h = 0; h < size(); h++)
    if (alive(h) && waiting[static_cast<size_t>(h)] == 0) ready.push(h);
  std::vector<Node> ordered;
  size_t living = static_cast<size_t>(std::count(alive_.begin(), alive_.end(), true));
  ordered.reserve(living);
  std::vector<Handle> order;
  while (!ready.empty()) {
    Handle h = ready.top();
    ready.pop();
    order.push_back(h);
    for (TensorId t : node(h).outputs)
      if (t != kNoTensor)
        for (Handle user : consumers(t))
          if (--waiting[static_cast<size_t>(user)] == 0) ready.push(user);
  }
  if (order.size() != living) fail(ErrorKind::Internal, "a rewrite made a cycle in graph '{}'", graph.name);
  UniqueNames names;  // several new nodes may take their name from one old one
  for (Handle h : order) {
    ordered.push_back(std::move(nodes_[static_cast<size_t>(h)]));
    ordered.back().name = names.make(ordered.back().name);
  }
  graph.nodes = std::move(ordered);
  finished_ = true;
  remove_dead(graph);
}

}  // namespace ingot
