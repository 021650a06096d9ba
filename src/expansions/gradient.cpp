// ai.onnx.preview.training.Gradient: dy/dx for each tensor x named in "xs", of the part of the graph that leads from
// "xs" and "zs" to "y", at the values that are the node's operands. Found backwards from y, node by node, by the rules
// of gradient_rules.cpp; of a y with several elements the sum is differentiated.
#include <algorithm>
#include <unordered_set>

#include "expansions/gradient_rules.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "ai.onnx.preview.training";

class Differentiation {
 public:
  explicit Differentiation(Expander& e) : e(e) {
    xs_ = named("xs");
    leaves_ = xs_;
    for (TensorId z : named("zs")) leaves_.push_back(z);
    e.require(leaves_.size() == e.node.inputs.size(), "has {} operands for the {} tensors that 'xs' and 'zs' name",
              e.node.inputs.size(), leaves_.size());
    y_ = find(e.node.get_string("y", ""));
  }

  void run() {
    make_forward();
    const TensorId y = moved_.contains(y_) ? moved_.at(y_) : y_;
    if (depends_.contains(y)) {
      gradients_[y] = e.emit("Expand", {e.scalar(1, e.dtype(y)), e.emit("Shape", {y})});
      for (auto node = forward_.rbegin(); node != forward_.rend(); node++) go_back(*node);
    }
    for (size_t i = 0; i < xs_.size(); i++) {
      const TensorId x = values_[i];
      const auto found = gradients_.find(x);
      e.result(i, found != gradients_.end() ? found->second
                                            : e.emit("Expand", {e.scalar(0, e.dtype(x)), e.emit("Shape", {x})}));
    }
  }

 private:
  TensorId find(const std::string& name) const {
    const TensorId t = e.find(name);
    e.require(t != kNoTensor, "no tensor of the graph is named '{}'", name);
    return t;
  }
  std::vector<TensorId> named(const char* attr) const {
    std::vector<TensorId> out;
    for (const std::string& name : e.node.get_strings(attr)) out.push_back(find(name));
    return out;
  }

  // The nodes that depend on the leaves, reading the operands in place of the tensors named; as they stand in the graph
  // where nothing is replaced.
  void make_forward() {
    for (size_t i = 0; i < leaves_.size(); i++) {
      // One value for two tensors is two variables all the same.
      const auto& earlier = e.node.inputs;
      const bool again = std::find(earlier.begin(), earlier.begin() + std::ptrdiff_t(i), e.in(i)) !=
                         earlier.begin() + std::ptrdiff_t(i);
      values_.push_back(again ? e.emit("Identity", {e.in(i)}) : e.in(i));
      moved_[leaves_[i]] = values_[i];
      if (i < xs_.size()) depends_.insert(values_[i]);
    }
    for (const Node& original : needed()) {
      Node n = original;
      bool replaced = false;
      for (TensorId& t : n.inputs)
        if (const auto it = moved_.find(t); it != moved_.end()) {
          replaced |= it->second != t;
          t = it->second;
        }
      if (replaced) {
        const auto is_graph = [](const auto& attr) { return std::holds_alternative<GraphPtr>(attr.second); };
        if (std::any_of(n.attrs.begin(), n.attrs.end(), is_graph))
          e.fail(ErrorKind::Unsupported, "cannot evaluate {} at other values", n.label());
        n.outputs = e.emit_copy(n, n.inputs);
        for (size_t k = 0; k < n.outputs.size(); k++) moved_[original.outputs[k]] = n.outputs[k];
      }
      if (!std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) { return depends_.contains(t); })) continue;
      // Whole numbers and booleans do not change with what they were made from, but in steps.
      for (TensorId t : n.outputs)
        if (t != kNoTensor && is_float(e.dtype(t))) depends_.insert(t);
      forward_.push_back(std::move(n));
    }
  }

  // The nodes between the leaves and y, in order.
  std::vector<Node> needed() const {
    std::unordered_set<TensorId> reads = {y_};
    std::vector<Node> out;
    const auto& before = e.nodes_before();
    for (auto n = before.rbegin(); n != before.rend(); n++) {
      auto leads_to_y = [&](TensorId t) {
        return t != kNoTensor && reads.contains(t) && std::find(leaves_.begin(), leaves_.end(), t) == leaves_.end();
      };
      if (!std::any_of(n->outputs.begin(), n->outputs.end(), leads_to_y)) continue;
      reads.insert(n->inputs.begin(), n->inputs.end());
      out.push_back(*n);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  void go_back(const Node& node) {
    std::vector<TensorId> gradients;
    for (TensorId t : node.outputs) {
      const auto it = gradients_.find(t);
      gradients.push_back(it == gradients_.end() ? kNoTensor : it->second);
    }
    if (std::all_of(gradients.begin(), gradients.end(), [](TensorId t) { return t == kNoTensor; })) return;
    const GradientRule rule = gradient_rule(node);
    if (!rule) e.fail(ErrorKind::Unsupported, "there is no rule to differentiate {}", node.label());
    if (node.op != "Split" && gradients[0] == kNoTensor)
      e.fail(ErrorKind::Unsupported, "only the first result of {} can be differentiated", node.label());
    Backward step(
        e, node, std::move(gradients), [&](TensorId t) { return depends_.contains(t); },
        [&](TensorId operand, TensorId gradient) {
          TensorId& sum = gradients_.try_emplace(operand, kNoTensor).first->second;
          sum = sum == kNoTensor ? gradient : e.emit("Add", {sum, gradient});
        });
    rule(step);
  }

  Expander& e;
  std::vector<TensorId> xs_, leaves_;  // as named: "xs", and with them "zs"
  std::vector<TensorId> values_;       // of the leaves
  TensorId y_ = kNoTensor;
  std::unordered_map<TensorId, TensorId> moved_;      // tensors of the graph -> what stands for them
  std::unordered_set<TensorId> depends_;              // on the operands that "xs" names
  std::vector<Node> forward_;                         // in order
  std::unordered_map<TensorId, TensorId> gradients_;  // by tensor, of y
};

void expand_gradient(Expander& e) { Differentiation(e).run(); }

}  // namespace

void register_gradient(ExpansionRegistry& r) { r.add("Gradient", expand_gradient, kDomain); }

}  // namespace ingot
