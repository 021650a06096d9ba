#include "quantizer/choose_facts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "quantizer/products.h"

namespace ingot {
namespace {

// A bias of this many steps of the product's scale still fits an int32, with room for the sum.
constexpr double kMostBiasSteps = 1 << 30;

class FactChooser {
 public:
  FactChooser(const Graph& g, const Selection& s, const Statistics& seen, const QuantizeOptions& o)
      : g_(g), selection_(s), seen_(seen), o_(o) {
    for (const Node& n : g.nodes) nodes_.emplace(n.name, &n);
  }

  QuantizationFacts run() {
    facts_.bias = o_.select.bias;
    for (const SelectedNode& s : selection_.nodes) {
      facts_.nodes[s.name] = {s.operands};
      for (size_t k : s.operands) {
        const TensorId t = nodes_.at(s.name)->inputs[k];
        if (g_.info(t).constant)
          want_constant(*nodes_.at(s.name), k);
        else
          activation(t);
      }
    }
    for (TensorId t : selection_.everywhere) activation(t).everywhere = true;
    for (const auto& [name, want] : constants_) facts_.tensors[name] = constant(want);
    if (facts_.bias == BiasRecipe::Int32)
      for (const SelectedNode& s : selection_.nodes) make_room_for_bias(*nodes_.at(s.name));
    return std::move(facts_);
  }

 private:
  struct Want {
    TensorId tensor = kNoTensor;
    std::set<std::optional<int64_t>> axes;
    bool weight = true;
  };

  RangeOptions activation_options() const {
    RangeOptions r;
    r.method = o_.method;
    r.percentile = o_.percentile;
    r.dtype = o_.activation;
    r.symmetric = o_.symmetric;
    return r;
  }

  TensorFacts& activation(TensorId t) {
    auto [it, added] = facts_.tensors.try_emplace(g_.tensor(t).name);
    if (!added) return it->second;
    if (o_.select.mode == QuantizeMode::Dynamic) {
      it->second.dynamic = true;
      return it->second;
    }
    ValueStatistics all;
    auto group = [&](TensorId x) {
      auto found = selection_.group_of.find(x);
      return found == selection_.group_of.end() ? x : root(x);
    };
    for (const auto& [member, parent] : selection_.group_of)
      if (group(member) == group(t)) merge(all, member);
    if (all.empty()) merge(all, t);
    it->second = choose_range(all, activation_options());
    return it->second;
  }
  TensorId root(TensorId t) const {
    for (auto it = selection_.group_of.find(t); it != selection_.group_of.end() && it->second != t;
         it = selection_.group_of.find(t))
      t = it->second;
    return t;
  }
  void merge(ValueStatistics& into, TensorId t) const {
    if (auto it = seen_.find(g_.tensor(t).name); it != seen_.end()) into.merge(it->second);
  }

  void want_constant(const Node& n, size_t operand) {
    const TensorId t = n.inputs[operand];
    Want& want = constants_[g_.tensor(t).name];
    want.tensor = t;
    want.weight = is_product(n) || n.is("Gather");
    std::optional<int64_t> axis;
    const auto& dims = g_.info(t).constant->dims;
    if (is_product(n) && operand == 1) {
      if (o_.block)
        axis = reduced_axis(n, dims);
      else if (o_.per_channel)
        axis = channel_axis(n, dims);
    }
    const bool rows = n.is("Gather") && n.get_int("axis", 0) == 0 && dims.size() == 2;
    if (rows && o_.per_channel && is_signed(o_.weight)) axis = 0;
    want.axes.insert(axis);
  }

  TensorFacts constant(const Want& want) const {
    RangeOptions r;
    r.dtype = want.weight ? o_.weight : o_.activation;
    r.symmetric = want.weight ? is_signed(o_.weight) : o_.symmetric;
    r.reduce_range = want.weight && o_.reduce_range;
    // Read along different axes by different nodes: one scale serves them all.
    const auto axis = want.axes.size() == 1 ? *want.axes.begin() : std::nullopt;
    const Constant& c = *g_.info(want.tensor).constant;
    for (float v : c.as<float>())
      if (!std::isfinite(v)) invalid_model("weight '{}' holds {}", g_.tensor(want.tensor).name, v);
    return weight_facts(c, axis, axis ? o_.block : 0, r);
  }

  // A bias that is large beside its channel's weights would overflow int32: that channel gets a coarser scale.
  void make_room_for_bias(const Node& n) {
    if (!has_bias(n) || !g_.info(n.inputs[2]).constant || !g_.info(n.inputs[1]).constant) return;
    auto x = facts_.tensors.find(g_.tensor(n.inputs[0]).name), w = facts_.tensors.find(g_.tensor(n.inputs[1]).name);
    if (x == facts_.tensors.end() || w == facts_.tensors.end() || x->second.dynamic) return;
    std::vector<float>& scale = w->second.scale;
    const Constant& bias = *g_.info(n.inputs[2]).constant;
    if (bias.dtype != DType::F32) return;
    const auto values = bias.as<float>();
    for (size_t c = 0; c < values.size(); c++) {
      float& s = scale[c % scale.size()];
      s = std::max(s, static_cast<float>(std::abs(values[c]) / (x->second.scale[0] * kMostBiasSteps)));
    }
  }

  const Graph& g_;
  const Selection& selection_;
  const Statistics& seen_;
  const QuantizeOptions& o_;
  std::unordered_map<std::string, const Node*> nodes_;
  std::map<std::string, Want> constants_;
  QuantizationFacts facts_;
};

}  // namespace

std::vector<std::string> activations(const Graph& g, const Selection& selection) {
  std::set<TensorId> wanted(selection.everywhere.begin(), selection.everywhere.end());
  std::unordered_map<std::string, const Node*> nodes;
  for (const Node& n : g.nodes) nodes.emplace(n.name, &n);
  for (const SelectedNode& s : selection.nodes)
    for (size_t k : s.operands)
      if (const TensorId t = nodes.at(s.name)->inputs[k]; !g.info(t).constant) wanted.insert(t);
  std::vector<std::string> out;
  out.reserve(wanted.size());
  for (TensorId t : wanted) out.push_back(g.tensor(t).name);
  return out;
}

QuantizationFacts choose_facts(const Graph& graph, const Selection& selection, const Statistics& seen,
                               const QuantizeOptions& options) {
  return FactChooser(graph, selection, seen, options).run();
}

}  // namespace ingot
