#include "quantizer/refine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "passes/editor.h"
#include "quantizer/products.h"
#include "quantizer/twins.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

bool smoothable(const Graph& g, const Node& n) {
  if (!n.is("MatMul") && !(n.is("Gemm") && n.get_int("transA", 0) == 0)) return false;
  return !g.info(n.inputs[0]).constant && g.info(n.inputs[1]).constant &&
         g.info(n.inputs[1]).constant->dims.size() == 2;
}

// Index of the input channel of element i of a weight [K, N] or [N, K].
struct InputChannel {
  int64_t axis, columns;
  size_t operator()(int64_t i) const { return static_cast<size_t>(axis == 0 ? i / columns : i % columns); }
};
InputChannel input_channel(const Node& n, const Constant& w) { return {*reduced_axis(n, w.dims), w.dims[1]}; }

}  // namespace

int64_t smooth(Graph& graph, const Selection& selection, double alpha, const Samples& samples,
               const ProgressFn& progress) {
  std::set<std::string> chosen;
  for (const SelectedNode& s : selection.nodes) chosen.insert(s.name);
  std::map<TensorId, std::vector<size_t>> readers;  // activation -> nodes
  for (size_t i = 0; i < graph.nodes.size(); i++)
    if (chosen.contains(graph.nodes[i].name) && smoothable(graph, graph.nodes[i]))
      readers[graph.nodes[i].inputs[0]].push_back(i);
  std::vector<std::string> names;
  for (const auto& [t, nodes] : readers) names.push_back(graph.tensor(t).name);
  if (names.empty()) return 0;
  auto maxima = channel_maxima(graph, names, samples, progress);

  Editor e(graph);
  for (const auto& [t, nodes] : readers) {
    const std::string name = e.graph.tensor(t).name;
    const std::vector<float>& most = maxima[name];
    std::vector<float> weight(most.size(), 0);
    bool fits = !most.empty();
    for (size_t i : nodes) {
      const Node& n = e.node(static_cast<Handle>(i));
      const Constant& w = *e.info(n.inputs[1]).constant;
      const InputChannel channel = input_channel(n, w);
      fits = fits && w.dims[static_cast<size_t>(channel.axis)] == static_cast<int64_t>(most.size());
      if (!fits) break;
      const auto data = w.as<float>();
      for (size_t k = 0; k < data.size(); k++) {
        float& m = weight[channel(static_cast<int64_t>(k))];
        m = std::max(m, std::abs(data[k]));
      }
    }
    if (!fits) continue;
    std::vector<float> s(most.size(), 1), inverse;
    for (size_t c = 0; c < s.size(); c++) {
      const double f = std::pow(most[c], alpha) / std::pow(weight[c], 1 - alpha);
      if (std::isfinite(f) && f > 1e-5) s[c] = static_cast<float>(f);
      inverse.push_back(1 / s[c]);
    }
    const auto channels = static_cast<int64_t>(s.size());
    const TensorId factor = e.add_constant(name + "_smooth_factor", make_constant(DType::F32, {channels}, inverse));
    const TensorId smoothed = e.add_value(name + "_smooth", DType::F32, e.info(t).shape);
    Node mul{.op = "Mul", .name = name + "_smooth"};
    mul.inputs = {t, factor};
    mul.outputs = {smoothed};
    e.add(std::move(mul));
    for (size_t i : nodes) {
      const auto h = static_cast<Handle>(i);
      const Node n = e.node(h);
      const ConstantPtr w = e.info(n.inputs[1]).constant;
      const InputChannel channel = input_channel(n, *w);
      std::vector<float> scaled(w->as<float>().begin(), w->as<float>().end());
      for (size_t k = 0; k < scaled.size(); k++) scaled[k] *= s[channel(static_cast<int64_t>(k))];
      const std::string wish = e.graph.tensor(n.inputs[1]).name + "_smooth";
      e.set_input(h, 1, e.add_constant(wish, make_constant(DType::F32, w->dims, scaled)));
      e.set_input(h, 0, smoothed);
    }
  }
  e.finish();
  return static_cast<int64_t>(names.size());
}

namespace {

// Where the bias of a product lies: an operand of its own, or of the addition behind a MatMul.
struct BiasPlace {
  Handle node = Editor::kNone;
  size_t operand = 0;
  bool present = false;
};

BiasPlace bias_place(const Editor& e, Handle product, int64_t channels) {
  const Node& n = e.node(product);
  auto vector = [&](const Node& at, size_t i) {
    if (!at.has_input(i) || !e.is_constant(at.inputs[i])) return false;
    const Constant& c = *e.info(at.inputs[i]).constant;
    return c.dtype == DType::F32 && c.elements() == channels && (c.dims.empty() || c.dims.back() == channels);
  };
  if (!n.is("MatMul")) {
    if (!n.has_input(2)) return {product, 2, false};
    return vector(n, 2) ? BiasPlace{product, 2, true} : BiasPlace{};
  }
  if (!e.single_use(n.outputs[0])) return {};
  const Handle next = e.consumers(n.outputs[0])[0];
  if (!e.node(next).is("Add")) return {};
  const size_t other = e.node(next).inputs[0] == n.outputs[0] ? 1 : 0;
  return vector(e.node(next), other) ? BiasPlace{next, other, true} : BiasPlace{};
}

}  // namespace

int64_t correct_bias(Graph& graph, const Selection& selection, const QuantizationFacts& facts, const Samples& samples,
                     const ProgressFn& progress) {
  const Twins twins = make_twins(graph, selection, facts);
  std::map<std::string, const Node*> nodes;
  for (const Node& n : graph.nodes) nodes.emplace(n.name, &n);
  std::vector<std::vector<double>> error(twins.nodes.size());
  std::vector<double> counts(twins.nodes.size());
  each_pair(twins, samples, samples.count, progress, "measuring biases",
            [&](size_t i, const Constant& exact, const Constant& rounded) {
              if (exact.dims != rounded.dims || exact.dims.empty() || exact.elements() == 0) return;
              const Node& n = *nodes.at(selection.nodes[twins.nodes[i]].name);
              const auto axis = static_cast<size_t>(result_axis(n, static_cast<int64_t>(exact.dims.size())));
              int64_t inner = 1;
              for (size_t d = axis + 1; d < exact.dims.size(); d++) inner *= exact.dims[d];
              const int64_t channels = exact.dims[axis];
              error[i].resize(static_cast<size_t>(channels));
              const auto a = exact.as<float>(), b = rounded.as<float>();
              for (size_t k = 0; k < a.size(); k++)
                error[i][static_cast<size_t>(static_cast<int64_t>(k) / inner % channels)] += b[k] - a[k];
              counts[i] += static_cast<double>(a.size()) / static_cast<double>(channels);
            });
  int64_t changed = 0;
  Editor e(graph);
  std::map<std::string, Handle> handles;
  for (Handle h = 0; h < e.size(); h++) handles.emplace(e.node(h).name, h);
  for (size_t i = 0; i < twins.nodes.size(); i++) {
    if (counts[i] == 0) continue;
    const Handle h = handles.at(selection.nodes[twins.nodes[i]].name);
    const auto channels = static_cast<int64_t>(error[i].size());
    const BiasPlace place = bias_place(e, h, channels);
    const Node n = e.node(h);
    const float beta = n.is("Gemm") ? n.get_float("beta", 1.f) : 1.f;
    if (place.node == Editor::kNone || beta == 0) continue;
    std::vector<float> bias(error[i].size(), 0);
    std::vector<int64_t> dims = {channels};
    std::string wish = n.name + "_bias";
    if (place.present) {
      const TensorId old = e.node(place.node).inputs[place.operand];
      const auto values = e.info(old).constant->as<float>();
      bias.assign(values.begin(), values.end());
      dims = e.info(old).constant->dims;
      wish = e.graph.tensor(old).name + "_corrected";
    }
    for (size_t c = 0; c < bias.size(); c++) bias[c] -= static_cast<float>(error[i][c] / counts[i] / beta);
    e.set_input(place.node, place.operand, e.add_constant(wish, make_constant(DType::F32, dims, bias)));
    changed++;
  }
  e.finish();
  return changed;
}

}  // namespace ingot
