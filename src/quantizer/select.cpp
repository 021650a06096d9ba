#include "quantizer/select.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"
#include "passes/constants.h"
#include "quantizer/products.h"

namespace ingot {
namespace {

struct Candidate {
  const char* op;
  bool by_default;
};
constexpr Candidate kCandidates[] = {{"MatMul", true},       {"Gemm", true},
                                     {"Conv", true},         {"ConvTranspose", true},
                                     {"Gather", true},       {"Reshape", true},
                                     {"Transpose", true},    {"Squeeze", true},
                                     {"Unsqueeze", true},    {"Flatten", true},
                                     {"Identity", true},     {"Slice", true},
                                     {"Split", true},        {"Concat", true},
                                     {"MaxPool", true},      {"DepthToSpace", true},
                                     {"SpaceToDepth", true}, {"Resize", true},
                                     {"Add", true},          {"Mul", true},
                                     {"Relu", true},         {"Clip", true},
                                     {"LeakyRelu", true},    {"Sigmoid", true},
                                     {"AveragePool", true},  {"GlobalAveragePool", true},
                                     {"Sub", false},         {"HardSigmoid", false},
                                     {"HardSwish", false},   {"Tanh", false},
                                     {"ReduceMean", false},  {"Softmax", false}};
constexpr int64_t kLeastTable = 4096;  // elements from which a table that rows are gathered from is worth it

const Candidate* candidate(const std::string& op) {
  for (const Candidate& c : kCandidates)
    if (op == c.op) return &c;
  return nullptr;
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

class Selector {
 public:
  Selector(const Graph& g, const SelectOptions& o) : g_(g), o_(o), uses_(g), chosen_(g.nodes.size()) {}

  Selection run() {
    check_names();
    for (size_t i = 0; i < g_.nodes.size(); i++) consider(i);
    note_subgraphs(g_);
    absorb();
    if (o_.mode == QuantizeMode::Static) prune();
    collect();
    return std::move(out_);
  }

 private:
  const TensorInfo& info(TensorId t) const { return g_.info(t); }
  bool constant(TensorId t) const { return t != kNoTensor && info(t).constant != nullptr; }
  int producer(TensorId t) const { return uses_.producer[static_cast<size_t>(t)]; }
  const std::vector<int>& readers(TensorId t) const { return uses_.consumers[static_cast<size_t>(t)]; }
  bool is_output(TensorId t) const { return uses_.is_output[static_cast<size_t>(t)]; }

  // The user named this operator type or this very node: neighbours do not matter then.
  bool wanted(const Node& n) const {
    return contains(o_.op_types, n.op) ||
           std::any_of(o_.nodes.begin(), o_.nodes.end(), [&](const auto& p) { return matches_pattern(p, n.name); });
  }

  void check_names() const {
    auto any_node = [&](const std::string& pattern) {
      return std::any_of(g_.nodes.begin(), g_.nodes.end(),
                         [&](const Node& n) { return matches_pattern(pattern, n.name); });
    };
    for (const auto* list : {&o_.nodes, &o_.exclude_nodes})
      for (const std::string& pattern : *list)
        if (!any_node(pattern))
          throw Error(ErrorKind::InvalidInput, fmt::format("no node is named '{}'", pattern),
                      "names are those of the ONNX file; patterns may use * and ?");
    for (const std::string& op : o_.op_types)
      if (!candidate(op))
        throw Error(ErrorKind::InvalidInput, fmt::format("'{}' is not an operator that is quantized", op), known());
    for (const std::string& op : o_.exclude_op_types)
      if (!candidate(op))
        throw Error(ErrorKind::InvalidInput, fmt::format("'{}' is not an operator that is quantized", op), known());
  }
  static std::string known() {
    std::string out = "these are: ";
    for (const Candidate& c : kCandidates) out += (c.op == kCandidates[0].op ? "" : ", ") + std::string(c.op);
    return out;
  }

  std::string reason_against(const Node& n, const Candidate& c) const {
    auto named = [&](const std::vector<std::string>& patterns) {
      return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches_pattern(p, n.name); });
    };
    if (named(o_.exclude_nodes)) return "excluded by name";
    if (contains(o_.exclude_op_types, n.op)) return "operator type excluded";
    if (!o_.nodes.empty() && !named(o_.nodes)) return "not among the nodes named";
    if (!o_.op_types.empty() && !contains(o_.op_types, n.op)) return "not among the operator types named";
    if (o_.op_types.empty() && !c.by_default && !named(o_.nodes)) return "operator type is quantized on request only";
    if (!n.has_input(0)) return "has no operand";
    if (info(n.inputs[0]).dtype != DType::F32) return fmt::format("works on {}", name(info(n.inputs[0]).dtype));
    return is_product(n) ? against_product(n) : against_other(n);
  }

  std::string against_product(const Node& n) const {
    if (!n.has_input(1)) return "has no weight";
    const TensorId w = n.inputs[1];
    if (info(w).dtype != DType::F32) return fmt::format("its weight is {}", name(info(w).dtype));
    if (reads_quantized(n)) return "is quantized already";
    const bool both = n.is("MatMul") && o_.mode == QuantizeMode::Static;
    if (!constant(w) && !both) return "its weight is not constant";
    if (constant(n.inputs[0]) && constant(w)) return "is constant";
    if (constant(w) && info(w).constant->elements() == 0) return "its weight is empty";
    if (o_.mode == QuantizeMode::Dynamic && n.is("ConvTranspose")) return "ConvTranspose has no integer operator";
    if (o_.mode == QuantizeMode::WeightOnly && !reduced_axis(n, info(w).constant->dims))
      return "only weights of MatMul and Gemm";
    return "";
  }
  bool reads_quantized(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) {
      return t != kNoTensor && producer(t) >= 0 && g_.nodes[static_cast<size_t>(producer(t))].is("DequantizeLinear");
    });
  }

  std::string against_other(const Node& n) const {
    if (n.is("Gather") && constant(n.inputs[0])) {
      if (o_.mode == QuantizeMode::WeightOnly) return "only weights of MatMul and Gemm";
      if (info(n.inputs[0]).constant->elements() < kLeastTable) return "its table is small";
      for (int r : readers(n.inputs[0]))
        if (!g_.nodes[static_cast<size_t>(r)].is("Gather")) return "its table is read by other operators too";
      return "";
    }
    if (o_.mode != QuantizeMode::Static) return "gains nothing without calibrated scales";
    if (constant(n.inputs[0])) return "is constant";
    if (n.is("Sigmoid"))
      for (int r : readers(n.outputs[0]))
        if (g_.nodes[static_cast<size_t>(r)].is("Mul") && contains_operand(r, n.inputs[0]) && !wanted(n))
          return "part of x * sigmoid(x)";
    if (n.is("Mul") || n.is("Add"))
      for (TensorId t : n.inputs)
        if (constant(t) && info(t).constant->elements() > 1 && !wanted(n)) return "one operand is a constant vector";
    if (n.is("Resize") && n.get_string("mode", "nearest") != "nearest") return "interpolates";
    return "";
  }

  bool contains_operand(int node, TensorId t) const {
    const auto& in = g_.nodes[static_cast<size_t>(node)].inputs;
    return std::find(in.begin(), in.end(), t) != in.end();
  }

  void consider(size_t i) {
    const Node& n = g_.nodes[i];
    const Candidate* c = n.domain.empty() ? candidate(n.op) : nullptr;
    if (!c && is_work_in_f32(n)) out_.skipped.push_back({n.name, n.op, "operator is not quantized"});
    if (!c) return;
    const std::string reason = reason_against(n, *c);
    chosen_[i] = reason.empty();
    if (!reason.empty() && (is_product(n) || contains(o_.op_types, n.op)))
      out_.skipped.push_back({n.name, n.op, reason});
  }

  void note_subgraphs(const Graph& g) {
    for (const Node& n : g.nodes)
      for (const auto& [key, value] : n.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value)) {
          for (const Node& inner : (*body)->nodes)
            if (is_product(inner))
              out_.skipped.push_back({inner.name, inner.op, fmt::format("inside {} of {}", key, n.label())});
          note_subgraphs(**body);
        }
  }

  // MatMul -> Add of a vector; product or addition -> Relu, Clip.
  void absorb() {
    owner_.assign(g_.nodes.size(), -1);
    result_.assign(g_.nodes.size(), kNoTensor);
    for (size_t i = 0; i < g_.nodes.size(); i++) {
      const Node& n = g_.nodes[i];
      if (n.outputs.empty()) continue;
      result_[i] = n.outputs[0];
      if (!chosen_[i] || owner_[i] >= 0 || keeps_scale(n)) continue;
      if (n.is("MatMul")) extend(i, [&](const Node& next) { return adds_bias(next, result_[i]); });
      extend(i, [](const Node& next) { return next.is("Relu") || next.is("Clip"); });
    }
  }
  template <class Fits>
  void extend(size_t i, const Fits& fits) {
    const TensorId t = result_[i];
    if (is_output(t) || readers(t).size() != 1) return;
    const auto next = static_cast<size_t>(readers(t)[0]);
    if (!g_.nodes[next].domain.empty() || g_.nodes[next].inputs.empty() || !fits(g_.nodes[next])) return;
    owner_[next] = static_cast<int>(i);
    chosen_[next] = false;
    result_[i] = g_.nodes[next].outputs[0];
  }
  bool adds_bias(const Node& n, TensorId product) const {
    if (!n.is("Add")) return false;
    const TensorId other = n.inputs[0] == product ? n.inputs[1] : n.inputs[0];
    if (!constant(other) || info(other).dtype != DType::F32) return false;
    const auto& dims = info(other).constant->dims;
    return info(other).constant->elements() == (dims.empty() ? 1 : dims.back());
  }

  std::vector<size_t> data_operands(const Node& n) const {
    std::vector<size_t> out = {0};
    if (is_product(n) || n.is("Add") || n.is("Mul") || n.is("Sub")) out = {0, 1};
    if (n.is("Concat")) {
      out.resize(n.inputs.size());
      std::iota(out.begin(), out.end(), 0);
    }
    return out;
  }

  // The chosen node whose result t is, or -1.
  int maker(TensorId t) const {
    int p = producer(t);
    if (p < 0) return -1;
    if (owner_[static_cast<size_t>(p)] >= 0) p = owner_[static_cast<size_t>(p)];
    const bool is_result = result_[static_cast<size_t>(p)] == t || contains_output(p, t);
    return chosen_[static_cast<size_t>(p)] && is_result ? p : -1;
  }
  bool contains_output(int p, TensorId t) const {
    const auto& outs = g_.nodes[static_cast<size_t>(p)].outputs;
    return outs.size() > 1 && std::find(outs.begin(), outs.end(), t) != outs.end();
  }
  bool read_in_integers(TensorId t) const {
    return std::any_of(readers(t).begin(), readers(t).end(), [&](int r) { return chosen_[static_cast<size_t>(r)]; });
  }
  bool is_table(const Node& n) const { return n.is("Gather") && constant(n.inputs[0]); }

  // Until every node that is not a product stands between quantized ones.
  void prune() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < g_.nodes.size(); i++) {
        const Node& n = g_.nodes[i];
        if (!chosen_[i] || is_product(n) || is_table(n) || wanted(n)) continue;
        bool fits = false;
        for (TensorId t : results(i)) fits |= read_in_integers(t);
        bool any = false;
        for (size_t k : data_operands(n)) {
          if (!n.has_input(k)) continue;
          const bool here = maker(n.inputs[k]) >= 0;
          any |= here;
          fits &= here || constant(n.inputs[k]);
        }
        if (fits && any) continue;
        chosen_[i] = false;
        changed = true;
      }
    }
  }
  std::vector<TensorId> results(size_t i) const {
    const auto& outs = g_.nodes[i].outputs;
    if (outs.size() <= 1) return {result_[i]};
    std::vector<TensorId> out;
    for (TensorId t : outs)
      if (t != kNoTensor && info(t).dtype == DType::F32) out.push_back(t);
    return out;
  }

  TensorId group(TensorId t) {
    auto it = out_.group_of.find(t);
    return it == out_.group_of.end() || it->second == t ? t : it->second = group(it->second);
  }
  void join(TensorId a, TensorId b) {
    a = group(a), b = group(b);
    out_.group_of[a] = a;
    out_.group_of[b] = a;
  }

  void collect() {
    for (size_t i = 0; i < g_.nodes.size(); i++) {
      if (!chosen_[i]) continue;
      const Node& n = g_.nodes[i];
      SelectedNode s{n.name, n.op, {}, result_[i]};
      for (size_t k : data_operands(n))
        if (n.has_input(k) && reads_in_integers(n, k)) s.operands.push_back(k);
      out_.nodes.push_back(s);
      if (o_.mode != QuantizeMode::Static || is_table(n)) continue;
      for (TensorId t : results(i)) {
        const bool trailing = is_product(n) && o_.bias == BiasRecipe::Fp32Trailing;
        // Other engines run a convolution in integers only if its result is one.
        const bool convolution = (n.is("Conv") || n.is("ConvTranspose")) && !readers(t).empty();
        if (read_in_integers(t) || trailing || convolution) out_.everywhere.push_back(t);
        if (keeps_scale(n))
          for (size_t k : s.operands) join(n.inputs[k], t);
      }
    }
  }
  bool reads_in_integers(const Node& n, size_t operand) const {
    if (o_.mode == QuantizeMode::WeightOnly) return operand == 1;
    return true;
  }

  const Graph& g_;
  const SelectOptions& o_;
  Uses uses_;
  std::vector<bool> chosen_;
  std::vector<int> owner_;        // of an absorbed node: whose part it is
  std::vector<TensorId> result_;  // of a node with what it absorbed
  Selection out_;
};

}  // namespace

bool matches_pattern(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      p++, t++;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') p++;
  return p == pattern.size();
}

Selection select_nodes(const Graph& graph, const SelectOptions& options) { return Selector(graph, options).run(); }

}  // namespace ingot
