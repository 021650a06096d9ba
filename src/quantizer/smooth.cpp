#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "passes/constants.h"
#include "passes/editor.h"
#include "quantizer/products.h"
#include "quantizer/refine.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;
using Floats = std::vector<float>;

constexpr std::array kAlphas = {0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
constexpr double kWorthwhile = 0.5;  // of the noise may be left
constexpr float kReach = 4;          // how far a normalized value reaches, in standard deviations

bool smoothable(const Editor& e, const Node& n) {
  if (!n.is("MatMul") && !(n.is("Gemm") && n.get_int("transA", 0) == 0)) return false;
  return !e.is_constant(n.inputs[0]) && e.is_constant(n.inputs[1]) && e.info(n.inputs[1]).constant->dims.size() == 2;
}

// A weight seen as [K, N].
struct Weight {
  std::span<const float> data;
  int64_t k, n, row, column;  // sizes and strides

  Weight(const Node& node, const Constant& c) : data(c.as<float>()) {
    const bool transposed = reduced_axis(node, c.dims) == 1;
    k = c.dims[transposed ? 1 : 0], n = c.dims[transposed ? 0 : 1];
    row = transposed ? 1 : c.dims[1], column = transposed ? c.dims[1] : 1;
  }
  float at(int64_t i, int64_t j) const { return data[static_cast<size_t>(i * row + j * column)]; }
};

// The elements of a constant vector of f32; none for any other tensor.
Floats constant_vector(const Editor& e, TensorId t) {
  if (!e.is_constant(t) || e.info(t).dtype != DType::F32 || e.info(t).constant->dims.size() != 1) return {};
  const auto values = e.info(t).constant->as<float>();
  return {values.begin(), values.end()};
}

// What the LayerNormalization that makes t says of its channels.
std::optional<ChannelStatistics> from_norm(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "LayerNormalization");
  if (!n || n->inputs.size() < 2 || !e.is_constant(n->inputs[1])) return std::nullopt;
  const auto scale = constant_vector(e, n->inputs[1]);
  const auto bias = n->has_input(2) ? constant_vector(e, n->inputs[2]) : Floats(scale.size(), 0);
  if (scale.empty() || bias.size() != scale.size()) return std::nullopt;
  ChannelStatistics c;
  for (size_t j = 0; j < scale.size(); j++) {
    c.least.push_back(std::min(0.f, bias[j] - kReach * std::abs(scale[j])));
    c.most.push_back(std::max(0.f, bias[j] + kReach * std::abs(scale[j])));
    c.mean_square.push_back(static_cast<double>(scale[j]) * scale[j] + static_cast<double>(bias[j]) * bias[j]);
  }
  return c;
}

class Smoother {
 public:
  Smoother(Graph& g, const std::set<std::string>& chosen, bool per_channel) : e_(g), per_channel_(per_channel) {
    for (Handle h = 0; h < e_.size(); h++)
      if (chosen.contains(e_.node(h).name) && smoothable(e_, e_.node(h))) readers_[e_.node(h).inputs[0]].push_back(h);
  }

  int64_t run(std::optional<double> alpha, const std::unordered_map<std::string, ChannelStatistics>& measured) {
    int64_t count = 0;
    for (const auto& [t, nodes] : readers_) {
      auto it = measured.find(e_.graph.tensor(t).name);
      const auto channels = it != measured.end() ? std::optional(it->second) : from_norm(e_, t);
      if (!channels) continue;
      const std::vector<Weight> weights = weights_of(nodes);
      const auto k = static_cast<int64_t>(channels->most.size());
      if (std::any_of(weights.begin(), weights.end(), [&](const Weight& w) { return w.k != k; })) continue;
      Floats s = alpha ? factors(*channels, weights, *alpha) : best_factors(*channels, weights);
      if (s.empty()) continue;
      apply(t, nodes, s);
      count++;
    }
    e_.finish();
    return count;
  }

 private:
  std::vector<Weight> weights_of(const std::vector<Handle>& nodes) const {
    std::vector<Weight> out;
    out.reserve(nodes.size());
    for (Handle h : nodes) out.emplace_back(e_.node(h), *e_.info(e_.node(h).inputs[1]).constant);
    return out;
  }

  static Floats factors(const ChannelStatistics& x, const std::vector<Weight>& weights, double alpha) {
    Floats s(x.most.size(), 1);
    for (size_t j = 0; j < s.size(); j++) {
      float most = 0;
      for (const Weight& w : weights)
        for (int64_t n = 0; n < w.n; n++) most = std::max(most, std::abs(w.at(static_cast<int64_t>(j), n)));
      const double reach = std::max(-x.least[j], x.most[j]);
      const double f = std::pow(reach, alpha) / std::pow(most, 1 - alpha);
      if (std::isfinite(f) && f > 1e-5) s[j] = static_cast<float>(f);
    }
    return s;
  }

  // Expected squared error of the products: the activation's step times the weights, the weights' steps times the
  // activation.
  double noise(const ChannelStatistics& x, const std::vector<Weight>& weights, const Floats& s) const {
    double least = 0, most = 0, power = 0;
    for (size_t j = 0; j < s.size(); j++) {
      least = std::min<double>(least, x.least[j] / s[j]);
      most = std::max<double>(most, x.most[j] / s[j]);
      power += x.mean_square[j] / s[j] / s[j];
    }
    const double step = (most - least) / 255;
    double sum = 0;
    for (const Weight& w : weights) {
      double squares = 0, widest = 0, steps = 0;
      for (int64_t n = 0; n < w.n; n++) {
        double reach = 0;
        for (int64_t j = 0; j < w.k; j++) {
          const double v = static_cast<double>(w.at(j, n)) * s[static_cast<size_t>(j)];
          squares += v * v;
          reach = std::max(reach, std::abs(v));
        }
        steps += reach * reach;
        widest = std::max(widest, reach);
      }
      if (!per_channel_) steps = widest * widest * static_cast<double>(w.n);
      sum += squares * step * step + power * steps / (127.0 * 127.0);
    }
    return sum;
  }

  Floats best_factors(const ChannelStatistics& x, const std::vector<Weight>& weights) const {
    double least = noise(x, weights, Floats(x.most.size(), 1)) * kWorthwhile;
    Floats best;
    for (double alpha : kAlphas) {
      Floats s = factors(x, weights, alpha);
      const double now = noise(x, weights, s);
      if (now < least) least = now, best = std::move(s);
    }
    return best;
  }

  void apply(TensorId t, const std::vector<Handle>& nodes, const Floats& s) {
    Floats inverse;
    for (float f : s) inverse.push_back(1 / f);
    const TensorId smoothed = fold_into_norm(t, nodes, inverse) ? t : multiplied(t, inverse);
    for (Handle h : nodes) {
      const Node n = e_.node(h);
      const ConstantPtr c = e_.info(n.inputs[1]).constant;
      const Weight w(n, *c);
      Floats scaled(w.data.begin(), w.data.end());
      for (int64_t j = 0; j < w.k; j++)
        for (int64_t i = 0; i < w.n; i++)
          scaled[static_cast<size_t>(j * w.row + i * w.column)] *= s[static_cast<size_t>(j)];
      const std::string wish = e_.graph.tensor(n.inputs[1]).name + "_smooth";
      e_.set_input(h, 1, e_.add_constant(wish, make_constant(DType::F32, c->dims, scaled)));
      e_.set_input(h, 0, smoothed);
    }
  }

  bool fold_into_norm(TensorId t, const std::vector<Handle>& nodes, const Floats& inverse) {
    const Handle norm = e_.producer(t);
    if (e_.is_output(t) || e_.consumers(t).size() != nodes.size() || !e_.maker(t, "LayerNormalization")) return false;
    const Node n = e_.node(norm);
    for (size_t i = 1; i < n.inputs.size(); i++)
      if (n.has_input(i) && constant_vector(e_, n.inputs[i]).size() != inverse.size()) return false;
    for (size_t i = 1; i < n.inputs.size(); i++) {
      if (!n.has_input(i)) continue;
      Floats values = constant_vector(e_, n.inputs[i]);
      for (size_t j = 0; j < values.size(); j++) values[j] *= inverse[j];
      const std::string wish = e_.graph.tensor(n.inputs[i]).name + "_smooth";
      const auto size = static_cast<int64_t>(values.size());
      e_.set_input(norm, i, e_.add_constant(wish, make_constant(DType::F32, {size}, values)));
    }
    return true;
  }

  TensorId multiplied(TensorId t, const Floats& inverse) {
    const std::string name = e_.graph.tensor(t).name;
    const auto size = static_cast<int64_t>(inverse.size());
    Node mul{.op = "Mul", .name = name + "_smooth"};
    mul.inputs = {t, e_.add_constant(name + "_smooth_factor", make_constant(DType::F32, {size}, inverse))};
    mul.outputs = {e_.add_value(name + "_smooth", DType::F32, e_.info(t).shape)};
    const TensorId out = mul.outputs[0];
    e_.add(std::move(mul));
    return out;
  }

  Editor e_;
  bool per_channel_;  // scales of weights
  std::map<TensorId, std::vector<Handle>> readers_;
};

}  // namespace

int64_t smooth(Graph& graph, const Selection& selection, std::optional<double> alpha, bool per_channel,
               const Samples& samples, const ProgressFn& progress) {
  std::set<std::string> chosen, names;
  for (const SelectedNode& s : selection.nodes) chosen.insert(s.name);
  for (const Node& n : graph.nodes)
    if (chosen.contains(n.name) && (n.is("MatMul") || n.is("Gemm")) && !graph.info(n.inputs[0]).constant &&
        graph.info(n.inputs[1]).constant)
      names.insert(graph.tensor(n.inputs[0]).name);
  if (names.empty()) return 0;
  std::unordered_map<std::string, ChannelStatistics> measured;
  if (samples.count > 0) measured = channel_statistics(graph, {names.begin(), names.end()}, samples, progress);
  return Smoother(graph, chosen, per_channel).run(alpha, measured);
}

}  // namespace ingot
