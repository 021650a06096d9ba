#include "quantizer/narrow.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/unique_names.h"
#include "loader/schema.h"
#include "ops/op.h"

namespace ingot {
namespace {

constexpr float kMostF16 = 65504;

// Numbers that may leave the range of f16 on the way, although the results would not.
constexpr std::array kLarge = {"Pow",        "Exp",       "ReduceSumSquare", "ReduceL2",
                               "ReduceProd", "ReduceL1",  "ReduceLogSum",    "ReduceLogSumExp",
                               "Softplus",   "ReduceSum", "LpNormalization"};
// What makes numbers of ordinary size of them again.
constexpr std::array kTaming = {"Sqrt",
                                "Log",
                                "Div",
                                "Softmax",
                                "LogSoftmax",
                                "Tanh",
                                "Sigmoid",
                                "Erf",
                                "Reciprocal",
                                "LayerNormalization",
                                "RMSNormalization",
                                "Less",
                                "Greater",
                                "Equal",
                                "Sign"};
// Many numbers added up one after the other, or positions.
constexpr std::array kExact = {"CumSum", "CumProd", "Range", "DFT", "STFT", "MelWeightMatrix"};

template <class List>
bool contains(const List& list, const std::string& op) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

uint16_t to_bf16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// To nearest, ties to even; finite numbers are at most kMostF16. In integers: processors without the instruction for it
// would call a function for each number.
uint16_t to_f16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  constexpr uint32_t kInfinity = 0x7f800000, kLeastNormal = 113u << 23, kRebias = 112u << 23;
  if (size >= kInfinity) return static_cast<uint16_t>(sign | (size > kInfinity ? 0x7e00 : 0x7c00));
  if (size < kLeastNormal) {  // 0.5 has its last bit where a subnormal number has it
    const float aligned = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = size >> 13 & 1;
  return static_cast<uint16_t>(sign | (size - kRebias + 0xfff + odd) >> 13);
}

class Narrower {
 public:
  Narrower(Graph& g, const NarrowOptions& o) : g_(g), o_(o) {
    for (const Tensor& t : g.tensors) names_.take(t.name);
    for (const Node& n : g.nodes) node_names_.take(n.name);
  }

  NarrowReport run() {
    if (!o_.keep_io)
      for (TensorId t : g_.inputs)
        if (is_f32(t)) become_narrow(t);
    const std::vector<Node> before = std::move(g_.nodes);
    g_.nodes.clear();
    for (const Node& n : before) {
      const std::string why = against(n);
      if (why.empty())
        narrow_node(n);
      else
        wide_node(n, why);
    }
    if (o_.keep_io)
      for (TensorId& t : g_.outputs) t = widened_output(t);
    remove_dead(g_);
    return std::move(report_);
  }

 private:
  bool is_f32(TensorId t) const {
    return t != kNoTensor && g_.info(t).dtype == DType::F32 && g_.info(t).form == Form::Tensor;
  }
  bool is_narrow(TensorId t) const { return t != kNoTensor && narrow_.contains(t); }
  bool is_float(TensorId t) const { return is_f32(t) || is_narrow(t); }

  const OpSchema::Operand* formal(const std::vector<OpSchema::Operand>& list, size_t i) const {
    return list.empty() ? nullptr : &list[std::min(i, list.size() - 1)];
  }

  // Why the node computes in f32; empty when it need not.
  std::string against(const Node& n) const {
    if (std::none_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) { return is_float(t); })) return "-";
    if (!n.domain.empty()) return "is of another domain";
    const OpSchema* schema = find_schema(n, o_.opset);
    if (!schema) return "is not in the opset";
    if (n.op == "Cast") return "-";
    if (n.has("captures")) return "has graphs inside";
    if (n.op.find("Quantize") != std::string::npos || n.op.starts_with("QLinear")) return "is quantized";
    if (contains(kExact, n.op)) return "needs exact numbers";
    if (o_.to == DType::F16 && contains(kLarge, n.op)) return "may leave the range of f16";
    if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) { return large_.contains(t); }))
      return "reads numbers that may leave the range of f16";
    bool any = false;
    for (size_t i = 0; i < n.inputs.size(); i++)
      any |= is_float(n.inputs[i]) && formal(schema->operands, i)->takes(o_.to);
    if (!any) return fmt::format("takes no {} in opset {}", name(o_.to), o_.opset);
    // What only moves elements stays in the type they have.
    if (traits(n).movement >= Movement::kSome && moves_wide(n)) return "-";
    return "";
  }
  bool moves_wide(const Node& n) const {
    const size_t data = n.is("Concat") ? n.inputs.size() : 1;
    bool narrow = false;
    for (size_t i = 0; i < data; i++) narrow |= is_narrow(n.inputs[i]) || g_.info(n.inputs[i]).constant != nullptr;
    return !narrow;
  }

  void narrow_node(Node n) {
    const OpSchema& schema = *find_schema(n, o_.opset);
    std::set<std::string> variables;
    for (size_t i = 0; i < n.inputs.size(); i++) {
      if (!is_float(n.inputs[i])) continue;
      const OpSchema::Operand& operand = *formal(schema.operands, i);
      if (operand.takes(o_.to)) variables.insert(operand.which);
      n.inputs[i] = operand.takes(o_.to) ? narrowed(n.inputs[i]) : widened(n.inputs[i]);
    }
    for (size_t i = 0; i < n.outputs.size(); i++)
      if (is_f32(n.outputs[i]) && variables.contains(formal(schema.results, i)->which)) become_narrow(n.outputs[i]);
    g_.nodes.push_back(std::move(n));
    report_.changed++;
  }

  // `why` of "-" is not worth telling.
  void wide_node(Node n, const std::string& why) {
    if (why != "-") report_.stays.push_back({n.origins.empty() ? n.name : n.origins[0], n.op, why});
    const bool reads_large =
        std::any_of(n.inputs.begin(), n.inputs.end(), [&](TensorId t) { return large_.contains(t); });
    if (o_.to == DType::F16 && (contains(kLarge, n.op) || (reads_large && !contains(kTaming, n.op))))
      large_.insert(n.outputs.begin(), n.outputs.end());
    for (TensorId& t : n.inputs)
      if (is_narrow(t)) t = widened(t);
    g_.nodes.push_back(std::move(n));
  }

  void become_narrow(TensorId t) {
    g_.info(t).dtype = o_.to;
    narrow_.insert(t);
  }

  TensorId cast(TensorId t, DType to) {
    TensorInfo info{to, g_.info(t).shape, std::nullopt, nullptr};
    const TensorId out = g_.add_tensor(names_.make(g_.tensor(t).name + "_" + std::string(name(to))), std::move(info));
    Node n{.op = "Cast", .domain = "", .name = node_names_.make(g_.tensor(out).name + "/Cast")};
    n.inputs = {t};
    n.outputs = {out};
    n.attrs["to"] = static_cast<int64_t>(to);
    g_.nodes.push_back(std::move(n));
    return out;
  }

  TensorId narrowed(TensorId t) {
    if (is_narrow(t)) return t;
    auto [it, fresh] = narrow_of_.try_emplace(t, kNoTensor);
    if (!fresh) return it->second;
    if (const ConstantPtr c = g_.info(t).constant)
      return narrow_of_[t] = g_.add_constant(names_.make(g_.tensor(t).name + "_" + std::string(name(o_.to))),
                                             narrow_constant(*c, g_.tensor(t).name));
    const TensorId made = cast(t, o_.to);
    return narrow_of_[t] = made;
  }
  TensorId widened(TensorId t) {
    if (!is_narrow(t)) return t;
    if (auto it = wide_of_.find(t); it != wide_of_.end()) return it->second;
    const TensorId made = cast(t, DType::F32);
    return wide_of_[t] = made;
  }

  ConstantPtr narrow_constant(const Constant& c, const std::string& tensor) {
    std::byte* data = nullptr;
    ConstantPtr out = make_constant(o_.to, c.dims, &data);
    auto* to = reinterpret_cast<uint16_t*>(data);
    const auto values = c.as<float>();
    int64_t clamped = 0;
    for (size_t i = 0; i < values.size(); i++) {
      float v = values[i];
      if (o_.to == DType::BF16) {
        to[i] = to_bf16(v);
        continue;
      }
      if (std::abs(v) > kMostF16 && !std::isinf(v)) {
        v = std::copysign(kMostF16, v);
        clamped++;
      }
      to[i] = to_f16(v);
    }
    if (clamped > 0)
      report_.notes.push_back(fmt::format("'{}': {} of {} numbers are beyond {} and were clamped", tensor, clamped,
                                          values.size(), kMostF16));
    return out;
  }

  // The output keeps its name and its type.
  TensorId widened_output(TensorId t) {
    if (!is_narrow(t)) return t;
    const std::string name = g_.tensor(t).name;
    g_.tensor(t).name = names_.make(name + "_narrow");
    const TensorId wide = cast(t, DType::F32);
    g_.tensor(wide).name = name;
    return wide;
  }

  Graph& g_;
  const NarrowOptions& o_;
  UniqueNames names_, node_names_;
  std::set<TensorId> narrow_, large_;
  std::unordered_map<TensorId, TensorId> narrow_of_, wide_of_;
  NarrowReport report_;
};

}  // namespace

NarrowReport narrow(Graph& graph, const NarrowOptions& options) { return Narrower(graph, options).run(); }

}  // namespace ingot
