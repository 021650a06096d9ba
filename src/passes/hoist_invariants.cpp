// What does not change from turn to turn is read from outside a loop, and made there:
//   a constant that a body captures            -> a constant of the body
//   a state that the body hands on as it is    -> a captured value, which the loop's result then is
//   a node that reads nothing of its own turn  -> a node before the loop
// Exporters of TensorFlow and Paddle pass weights as states. Once they are constants of the body they are folded and
// packed there like all others.
#include <algorithm>
#include <set>

#include "base/unique_names.h"
#include "ops/host.h"
#include "passes/constants.h"
#include "passes/passes.h"
#include "passes/simplify.h"
#include "planner/cut.h"

namespace ingot {
namespace {

bool is_loop(const Node& n) { return n.is("Loop") || n.is("Scan"); }

template <class F>
void for_bodies(Node& n, const F& f) {
  for (auto& [attr, value] : n.attrs)
    if (auto* body = std::get_if<GraphPtr>(&value)) f(*body);
}

bool has_body(const Node& n) { return traits(n).control_flow || n.has("captures"); }

// The captured tensor in place `from_end` of the node's operands, counted from their end, is a constant of the bodies.
void share_constant(const Graph& g, Node& n, size_t from_end) {
  const TensorId outer = *(n.inputs.end() - static_cast<std::ptrdiff_t>(from_end));
  for_bodies(n, [&](GraphPtr& body) {
    const auto at = body->inputs.end() - static_cast<std::ptrdiff_t>(from_end);
    body->info(*at) = g.info(outer);
    body->inputs.erase(at);
  });
  n.inputs.erase(n.inputs.end() - static_cast<std::ptrdiff_t>(from_end));
  n.attrs["captures"] = n.get_int("captures", 0) - 1;
}

void share_constants(const Graph& g, Node& n) {
  for (size_t from_end = static_cast<size_t>(n.get_int("captures", 0)); from_end > 0; from_end--) {
    const TensorId t = n.inputs[n.inputs.size() - from_end];
    if (t != kNoTensor && g.info(t).constant) share_constant(g, n, from_end);
  }
}

// Where the states of a Loop or Scan stand among its operands and inputs, and among its body's outputs.
struct States {
  size_t count, first_in, first_out;
  explicit States(const Node& n) {
    const bool loop = n.is("Loop");
    const size_t others = loop ? 2 : static_cast<size_t>(std::max<int64_t>(0, n.get_int("num_scan_inputs", 0)));
    count = own_inputs(n) > others ? own_inputs(n) - others : 0;
    first_in = loop ? 2 : 0;
    first_out = loop ? 1 : 0;
  }
};

// The tensor of which t is a copy, in a body.
TensorId source_of(const Graph& body, const Uses& uses, TensorId t) {
  for (int p; (p = uses.producer[static_cast<size_t>(t)]) >= 0;) {
    const Node& n = body.nodes[static_cast<size_t>(p)];
    if (!n.is("Identity")) break;
    t = n.inputs[0];
  }
  return t;
}

template <class T>
T take(std::vector<T>& list, size_t i) {
  const T out = list[i];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
  return out;
}

// States that never change become captured values; `out` gets what gives the node's results for them.
void share_states(Node& n, std::vector<Node>& out) {
  Graph& body = *n.get_graph("body");
  const States s(n);
  const Uses uses(body);
  for (size_t i = s.count; i-- > 0;) {
    const TensorId inner = body.inputs[s.first_in + i];
    if (source_of(body, uses, body.outputs[s.first_out + i]) != inner || !n.has_input(s.first_in + i)) continue;
    take(body.outputs, s.first_out + i);
    body.inputs.push_back(take(body.inputs, s.first_in + i));
    const TensorId outer = take(n.inputs, s.first_in + i), result = take(n.outputs, i);
    n.inputs.push_back(outer);
    n.attrs["captures"] = n.get_int("captures", 0) + 1;
    if (result != kNoTensor)
      out.push_back({.op = "Identity", .name = n.name + "/state", .inputs = {outer}, .outputs = {result}});
  }
}

// The body runs at least once.
bool surely_runs(const Graph& g, const Node& n) {
  auto known = [&](size_t i, auto accept) {
    const auto v = integer_values(g.info(n.inputs[i]));
    return v && v->size() == 1 && accept((*v)[0]);
  };
  if (n.is("Loop"))
    return (!n.has_input(0) || known(0, [](int64_t v) { return v > 0; })) &&
           (!n.has_input(1) || known(1, [](int64_t v) { return v != 0; }));
  const auto& scanned = g.info(n.inputs[own_inputs(n) - 1]).shape;
  return scanned && is_const(*scanned) && product(*scanned).value() > 0;
}

bool broadcasts(const Shape& a, const Shape& b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); i++) {
    const Dim &x = a[a.size() - i], &y = b[b.size() - i];
    if (!(x == y) && !x.is(1) && !y.is(1)) return false;
  }
  return true;
}

// The node has a result whatever its operands are. If the loop has no turn, nobody may notice that the node was run.
bool cannot_fail(const Graph& g, const Node& n) {
  static const std::set<std::string_view> any_shape = {"Identity", "Transpose", "Shape", "Softmax", "LogSoftmax"};
  static const std::set<std::string_view> fixed_shape = {
      "Concat",    "Conv",      "Expand",    "Flatten",    "Gemm",    "MatMul", "LayerNormalization",
      "ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "Reshape", "Slice",  "Split",
      "Squeeze",   "Tile",      "Unsqueeze", "Pad"};
  if (!n.domain.empty()) return false;
  bool fixed = true;
  std::vector<const Shape*> shapes;
  for (const auto* list : {&n.inputs, &n.outputs})
    for (TensorId t : *list) {
      if (t == kNoTensor) continue;
      if (!g.info(t).shape) return false;
      fixed &= is_const(*g.info(t).shape);
      if (list == &n.inputs) shapes.push_back(&*g.info(t).shape);
    }
  if (any_shape.contains(n.op)) return true;
  if (fixed_shape.contains(n.op) && fixed) return true;
  if (n.op == "MatMul") return shapes[1]->size() == 2 && !shapes[0]->empty() && shapes[0]->back() == shapes[1]->front();
  if (!is_elementwise(n)) return false;
  if ((n.op == "Div" || n.op == "Mod") && !is_float(g.info(n.inputs[0]).dtype)) return false;
  for (const Shape* a : shapes)
    for (const Shape* b : shapes)
      if (!broadcasts(*a, *b)) return false;
  return true;
}

// Moves nodes of a loop's body before it.
class Hoist {
 public:
  Hoist(Graph& g, Node& loop, UniqueNames& tensors, UniqueNames& nodes)
      : g_(g), loop_(loop), body_(*loop.get_graph("body")), tensors_(tensors), nodes_(nodes) {
    outer_.resize(body_.tensors.size(), kNoTensor);
    const size_t captures = static_cast<size_t>(loop.get_int("captures", 0));
    for (size_t i = 1; i <= captures; i++)
      outer_[static_cast<size_t>(body_.inputs[body_.inputs.size() - i])] = loop.inputs[loop.inputs.size() - i];
  }

  void run(std::vector<Node>& before) {
    const bool any = surely_runs(g_, loop_);
    std::vector<Node> kept;
    std::vector<TensorId> made;
    for (Node& n : body_.nodes) {
      if (!unchanging(n) || !(any || cannot_fail(body_, n))) {
        kept.push_back(std::move(n));
        continue;
      }
      made.insert(made.end(), n.outputs.begin(), n.outputs.end());
      before.push_back(moved(std::move(n)));
    }
    body_.nodes = std::move(kept);
    capture(made);
  }

 private:
  // It reads captured values and constants alone. What reads constants alone is folded where it is.
  bool unchanging(const Node& n) const {
    if (traits(n).random || has_body(n) || is_host(body_, n)) return false;
    bool any = false;
    for (TensorId t : n.inputs) {
      if (t == kNoTensor || body_.info(t).constant) continue;
      if (outer_[static_cast<size_t>(t)] == kNoTensor) return false;
      any = true;
    }
    return any;
  }
  Node moved(Node n) {
    n.name = nodes_.make(n.name);
    for (auto* list : {&n.inputs, &n.outputs})
      for (TensorId& t : *list) {
        if (t == kNoTensor) continue;
        TensorId& outer = outer_[static_cast<size_t>(t)];
        if (outer == kNoTensor) outer = g_.add_tensor(tensors_.make(body_.tensor(t).name), body_.info(t));
        t = outer;
      }
    return n;
  }
  // Those of the moved results that the body still reads.
  void capture(const std::vector<TensorId>& made) {
    const Uses uses(body_);
    for (TensorId t : made) {
      if (t == kNoTensor) continue;
      const auto i = static_cast<size_t>(t);
      if (uses.consumers[i].empty() && !uses.is_output[i]) continue;
      body_.inputs.push_back(t);
      loop_.inputs.push_back(outer_[i]);
      loop_.attrs["captures"] = loop_.get_int("captures", 0) + 1;
    }
  }

  Graph& g_;
  Node& loop_;
  Graph& body_;
  UniqueNames &tensors_, &nodes_;
  std::vector<TensorId> outer_;  // of a tensor of the body that is one of the outer graph
};

}  // namespace

void forward_outputs(Graph& body) {
  const Uses uses(body);
  for (TensorId& t : body.outputs) t = source_of(body, uses, t);
  remove_dead(body);
}

void hoist_invariants(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), has_body)) return;
  UniqueNames tensors, names;
  for (const Tensor& t : graph.tensors) tensors.take(t.name);
  for (const Node& n : graph.nodes) names.take(n.name);
  std::vector<Node> nodes = std::move(graph.nodes), out;
  graph.nodes.clear();
  for (Node& n : nodes) {
    if (!has_body(n)) {
      out.push_back(std::move(n));
      continue;
    }
    for_bodies(n, [](GraphPtr& body) { body = std::make_shared<Graph>(*body); });
    if (is_loop(n)) {
      share_states(n, out);
      share_constants(graph, n);
      Hoist(graph, n, tensors, names).run(out);
    } else {
      share_constants(graph, n);
    }
    for_bodies(n, [](GraphPtr& body) { remove_dead(*body); });
    out.push_back(std::move(n));
  }
  graph.nodes = std::move(out);
  remove_dead(graph);
}

}  // namespace ingot
