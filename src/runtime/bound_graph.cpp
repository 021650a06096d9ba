#include "runtime/bound_graph.h"

#include <algorithm>
#include <map>

#include "runtime/state_pairs.h"

namespace ingot {
namespace {

// Operands of ingot.Attention.
constexpr size_t kPast = 4, kLength = 6;

bool is_attention(const Node& n) { return n.is("Attention", "ingot"); }

// The one axis along which two shapes are not known to be equal; -1 where there is none or more.
int64_t differing_axis(const TensorInfo& a, const TensorInfo& b) {
  int64_t axis = -1;
  if (!a.shape || !b.shape || a.shape->size() != b.shape->size()) return axis;
  for (size_t d = 0; d < a.shape->size(); d++) {
    if ((*a.shape)[d] == (*b.shape)[d]) continue;
    if (axis >= 0) return -1;
    axis = static_cast<int64_t>(d);
  }
  return axis;
}

// Finds the pairs that can lie in memory with room, and rewrites the graph for them.
class Binder {
 public:
  Binder(const Graph& g, const std::vector<Tied>& tied) : g_(g), uses_(g), tied_(tied), pairs_(tied.size()) {
    for (size_t p = 0; p < tied.size(); p++) {
      pairs_[p].axis = growing_axis(g, uses_, tied[p]);
      paths_.push_back(path(p));
      pairs_[p].in_room = !paths_[p].empty() && readers_allow(p);
      pairs_[p].overwrites = pairs_[p].in_room && !g.nodes[paths_[p][0]].is("Concat");
    }
    // Attention takes keys and values with room only together.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t p = 0; p < tied.size(); p++)
        if (pairs_[p].in_room && !partners_agree(p)) changed = true, pairs_[p].in_room = false;
    }
  }

  std::unique_ptr<BoundGraph> bind(const std::shared_ptr<const Graph>& graph, RegionOptions options) {
    auto bound = std::make_unique<BoundGraph>();
    bound->graph = graph;
    if (std::any_of(pairs_.begin(), pairs_.end(), [](const BoundPair& p) { return p.in_room; })) {
      auto copy = std::make_shared<Graph>(*graph);
      rewrite(*copy);
      bound->graph = copy;
    }
    bound->pairs = pairs_;
    options.tied = tied_;
    for (const auto& [symbol, input] : lengths_) options.decisive.push_back(input);
    bound->region = std::make_unique<Region>(bound->graph, options);
    return bound;
  }

 private:
  TensorId in(size_t p) const { return g_.inputs[tied_[p].input]; }
  TensorId out(size_t p) const { return g_.outputs[tied_[p].output]; }

  // The nodes that make the output of the input: a Concat, or a Pad and what scatters into it. None where others take
  // part, or the tensors are more than input and output.
  std::vector<size_t> path(size_t p) const {
    std::vector<size_t> nodes;
    if (pairs_[p].axis < 0 || uses_.is_output[static_cast<size_t>(in(p))] ||
        std::count(g_.outputs.begin(), g_.outputs.end(), out(p)) != 1)
      return {};
    for (TensorId t = out(p); t != in(p);) {
      const int maker = uses_.producer[static_cast<size_t>(t)];
      if (maker < 0) return {};
      const Node& n = g_.nodes[static_cast<size_t>(maker)];
      const bool adds = (n.is("Concat") && n.inputs.size() == 2) || n.is("Pad");
      if (!n.has_input(0) || (adds ? n.inputs[0] != in(p) : !n.is("ScatterElements"))) return {};
      if (n.is("Pad") && n.get_string("mode", "constant") != "constant") return {};
      nodes.insert(nodes.begin(), static_cast<size_t>(maker));
      t = n.inputs[0];
    }
    const Node& first = g_.nodes[nodes.at(0)];
    return first.is("Concat") == (nodes.size() == 1) && !first.is("ScatterElements") ? nodes : std::vector<size_t>();
  }

  // Tensors on the path are read by its nodes, by attention (the past only where it stays as it is), and by those who
  // ask for dims, which are known before anything runs.
  bool readers_allow(size_t p) const {
    const std::vector<size_t>& path = paths_[p];
    auto allow = [&](TensorId t, bool attention) {
      const auto& readers = uses_.consumers[static_cast<size_t>(t)];
      return std::all_of(readers.begin(), readers.end(), [&](int reader) {
        const Node& n = g_.nodes[static_cast<size_t>(reader)];
        if (std::find(path.begin(), path.end(), static_cast<size_t>(reader)) != path.end())
          return n.inputs[0] == t && std::count(n.inputs.begin(), n.inputs.end(), t) == 1;
        return n.is("Shape") || n.is("Size") || (attention && is_attention(n));
      });
    };
    const bool concat = g_.nodes[path[0]].is("Concat");
    return allow(in(p), concat) && allow(out(p), true) &&
           std::all_of(path.begin(), path.end() - 1, [&](size_t n) { return allow(g_.nodes[n].outputs[0], false); });
  }

  std::string group(size_t p) const { return (*g_.info(in(p)).shape)[static_cast<size_t>(pairs_[p].axis)].str(); }
  // The pair in room of which `t` is the input (or the output), in the same group as p.
  bool beside(size_t p, TensorId t, bool input) const {
    for (size_t q = 0; q < pairs_.size(); q++)
      if (pairs_[q].in_room && (input ? in(q) : out(q)) == t) return group(p) == group(q);
    return false;
  }
  bool partners_agree(size_t p) const {
    for (const Node& n : g_.nodes) {
      if (!is_attention(n) || !n.has_input(n.has_input(kPast) ? kPast + 1 : 2)) continue;
      const auto reads = [&](TensorId t) { return std::count(n.inputs.begin(), n.inputs.end(), t) > 0; };
      const bool past = n.has_input(kPast);
      const size_t first = past ? kPast : 1;
      if (reads(in(p)) && !(past && beside(p, n.inputs[first], true) && beside(p, n.inputs[first + 1], true)))
        return false;
      if (reads(out(p)) && !(!past && beside(p, n.inputs[first], false) && beside(p, n.inputs[first + 1], false)))
        return false;
      for (size_t i = 0; i < n.inputs.size(); i++)  // nowhere else
        if ((n.inputs[i] == in(p) || n.inputs[i] == out(p)) && i != first && i != first + 1) return false;
    }
    return true;
  }

  // input x             -> inputs memory, length;  x = Rows(memory, length)
  // y = Concat(x, new)  -> memory' = Append(memory, length, new)
  // y = f(Pad(x))       -> memory' = f(Extend(memory, length, RowCount(Pad(x))))
  // Attention of x      -> of memory, with length;  of y -> of memory', with RowCount(y)
  // output y            -> outputs memory', RowCount(y)
  // What made y stays for those who ask for its dims.
  void rewrite(Graph& g) {
    std::vector<Node> before, after;
    std::map<TensorId, std::pair<TensorId, TensorId>> memory;  // of inputs and outputs, and how many rows it has
    for (size_t p = 0; p < pairs_.size(); p++)
      if (pairs_[p].in_room) before.push_back(replace_input(g, p, memory));
    const size_t rewritten = g.nodes.size();
    std::map<size_t, size_t> made_by;  // pairs, by the node that makes the output
    for (size_t p = 0; p < pairs_.size(); p++)
      if (pairs_[p].in_room) made_by[paths_[p].back()] = p;
    std::map<size_t, std::vector<Node>> behind;  // by node
    for (const auto& [maker, p] : made_by) behind[maker] = replace_output(g, p, memory);
    std::vector<Node> nodes = std::move(before);
    for (size_t i = 0; i < rewritten; i++) {
      Node& n = g.nodes[i];
      if (is_attention(n)) read_memory(n, memory);
      nodes.push_back(std::move(n));
      if (auto it = behind.find(i); it != behind.end()) nodes.insert(nodes.end(), it->second.begin(), it->second.end());
    }
    g.nodes = std::move(nodes);
  }

  static Node node(Graph& g, const Node& like, const char* op, std::vector<TensorId> inputs, TensorId output,
                   int64_t axis) {
    Node n;
    n.op = op;
    n.domain = "ingot";
    n.name = g.fresh_name(like.name + "/" + op);
    n.inputs = std::move(inputs);
    n.outputs = {output};
    n.attrs = {{"axis", axis}};
    n.origins = like.origins;
    return n;
  }

  Node replace_input(Graph& g, size_t p, std::map<TensorId, std::pair<TensorId, TensorId>>& memory) {
    const TensorId rows = in(p);
    auto [it, fresh] = lengths_.try_emplace(group(p), g.inputs.size());
    pairs_[p].length_input = it->second;
    if (fresh) {
      TensorInfo info;
      info.dtype = DType::I64;
      info.shape = Shape{1};
      g.inputs.push_back(g.add_tensor(g.fresh_name(g.tensor(rows).name + "/length"), info));
    }
    TensorInfo info = g.info(rows);
    const std::string name = g.tensor(rows).name;
    (*info.shape)[static_cast<size_t>(pairs_[p].axis)] = Dim::symbol(name + "/room");
    g.tensor(rows).name = g.fresh_name(name + "/rows");
    const TensorId held = g.add_tensor(name, info), length = g.inputs[it->second];
    g.inputs[tied_[p].input] = held;
    memory[rows] = {held, length};
    return node(g, g.nodes[paths_[p][0]], "Rows", {held, length}, rows, pairs_[p].axis);
  }

  std::vector<Node> replace_output(Graph& g, size_t p, std::map<TensorId, std::pair<TensorId, TensorId>>& memory) {
    const auto [held, length] = memory.at(in(p));
    const TensorId y = out(p);
    const Node first = g.nodes[paths_[p][0]];
    auto add = [&](const char* what) { return g.add_tensor(g.fresh_name(g.tensor(y).name + what), g.info(held)); };
    std::vector<Node> made;
    TensorId now = add("/memory");
    const TensorId count = row_count(g, p, made);
    if (first.is("Concat")) {
      made.push_back(node(g, first, "Append", {held, length, first.inputs[1]}, now, pairs_[p].axis));
    } else {
      made.push_back(node(g, first, "Extend", {held, length, count, first.has_input(2) ? first.inputs[2] : kNoTensor},
                          now, pairs_[p].axis));
      for (size_t i = 1; i < paths_[p].size(); i++) {
        Node scatter = g.nodes[paths_[p][i]];
        scatter.inputs[0] = now;
        scatter.outputs = {now = add("/memory")};
        made.push_back(std::move(scatter));
      }
    }
    g.outputs[tied_[p].output] = now;
    memory[y] = {now, count};
    return made;
  }

  // How many rows the output has. Where as many were added to as many, a pair before has told.
  TensorId row_count(Graph& g, size_t p, std::vector<Node>& made) {
    const Node first = g.nodes[paths_[p][0]];
    const auto axis = static_cast<size_t>(pairs_[p].axis);
    std::string known;
    if (first.is("Concat"))
      if (const auto& added = g_.info(first.inputs[1]).shape; added && !added->at(axis).is_unknown())
        known = group(p) + " + " + added->at(axis).str();
    const auto found = known.empty() ? counts_.end() : counts_.find(known);
    pairs_[p].rows_output = found == counts_.end() ? g.outputs.size() : found->second;
    if (found != counts_.end()) return g.outputs[found->second];
    if (!known.empty()) counts_[known] = g.outputs.size();
    TensorInfo info;
    info.dtype = DType::I64;
    g.outputs.push_back(g.add_tensor(g.fresh_name(g.tensor(out(p)).name + "/count"), info));
    made.push_back(node(g, first, "RowCount", {out(p)}, g.outputs.back(), pairs_[p].axis));
    return g.outputs.back();
  }

  static void read_memory(Node& attention, const std::map<TensorId, std::pair<TensorId, TensorId>>& memory) {
    const size_t first = attention.has_input(kPast) ? kPast : 1;
    const auto found = memory.find(attention.inputs[first]);
    if (found == memory.end()) return;
    attention.inputs[first + 1] = memory.at(attention.inputs[first + 1]).first;
    attention.inputs[first] = found->second.first;
    attention.inputs.resize(kLength + 1, kNoTensor);
    attention.inputs[kLength] = found->second.second;
  }

  const Graph& g_;
  const Uses uses_;
  const std::vector<Tied>& tied_;
  std::vector<BoundPair> pairs_;
  std::vector<std::vector<size_t>> paths_;
  std::map<std::string, size_t> lengths_;  // inputs, by the name that the graph gives the dim
  std::map<std::string, size_t> counts_;   // outputs, by the dim before and that of what is added
};

}  // namespace

int64_t growing_axis(const Graph& g, const Uses& uses, const Tied& pair) {
  const TensorInfo &in = g.info(g.inputs[pair.input]), &out = g.info(g.outputs[pair.output]);
  if (const Node* concat = adds_to(g, uses, pair); concat && in.shape) {
    const int64_t axis = concat->get_int("axis", 0);
    return axis < 0 ? axis + static_cast<int64_t>(in.shape->size()) : axis;
  }
  return differing_axis(in, out);
}

std::unique_ptr<BoundGraph> bind_graph(const std::shared_ptr<const Graph>& graph, const std::vector<Tied>& pairs,
                                       const RegionOptions& options) {
  return Binder(*graph, pairs).bind(graph, options);
}

}  // namespace ingot
