#include "quantizer/refine.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "passes/editor.h"
#include "quantizer/products.h"
#include "quantizer/twins.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

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
