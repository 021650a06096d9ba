#include "writer/downgrade.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "expansions/graph_expansion.h"
#include "loader/onnx_loader.h"
#include "loader/schema.h"
#include "ops/via_f32.h"
#include "writer/onnx_graph.h"

namespace ingot {
namespace {

// Integers of fewer bits give the same results in i32, cast back.
constexpr std::array kModular = {"Add", "Sub", "Mul", "Div", "Relu", "Abs", "Neg", "Sum"};

std::optional<DType> wider(const Node& n, DType t) {
  if (is_half(t)) return DType::F32;
  const bool modular = std::find(kModular.begin(), kModular.end(), n.op) != kModular.end();
  if (modular && is_integer(t) && (bits(t) == 8 || bits(t) == 16)) return DType::I32;
  if (t == DType::Bool && n.op.starts_with("Reduce")) return DType::I32;
  return std::nullopt;
}

// The same node between Casts.
void widened(Expander& e) {
  std::vector<TensorId> inputs = e.node.inputs;
  for (TensorId& t : inputs)
    if (t != kNoTensor)
      if (const auto to = wider(e.node, e.dtype(t))) t = e.cast(t, *to);
  std::vector<DType> types;
  for (TensorId t : e.node.outputs) types.push_back(t == kNoTensor ? DType::Undefined : e.dtype(t));
  Node wide = e.node;
  if (const DType type = static_cast<DType>(wide.get_int("dtype", 0)); is_half(type))
    wide.attrs["dtype"] = static_cast<int64_t>(DType::F32);
  const std::vector<TensorId> made = e.emit_copy(wide, inputs);
  for (size_t i = 0; i < made.size(); i++)
    if (made[i] != kNoTensor) e.result(i, e.cast(made[i], types[i]));
}

bool is_default(const Attribute& value, const std::string& text) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i) == text;
  const auto* s = std::get_if<std::string>(&value);
  return s && *s == text;
}

class OpsetChoice : public NodeChoice {
 public:
  explicit OpsetChoice(int64_t opset) : opset_(opset) {}

  ExpandFn choose(const Graph& g, Node& node, const std::vector<TensorInfo>& known) const override {
    if (!first_opset(node) || !node.domain.empty()) return nullptr;  // of another domain: it keeps its version
    Node spelled = node;
    const OlderNode older{g, spelled, known, opset_};
    respell(older);
    std::string why = against_meaning(older);
    drop_defaults(spelled);
    if (why.empty()) why = against_schema(older);
    if (why.empty()) {
      node = std::move(spelled);
      return nullptr;
    }
    if (ExpandFn formula = find_formula({g, node, known, opset_})) return formula;
    if (ExpandFn expansion = ExpansionRegistry::get().find(node)) return expansion;
    const std::string wrong_type = against_types(spelled, known);
    if (wrong_type == why && !node.is("Cast") && can_be_widened(spelled, known)) return widened;
    unsupported("{}: cannot be written in opset {}, {}", node.label(), opset_, why);
  }

 private:
  // Attributes that the opset does not know, and that say what they say when absent.
  void drop_defaults(Node& node) const {
    const OpSchema *old = find_schema(node, opset_), *now = find_schema(node);
    if (!old || !now) return;
    for (const OpSchema::Attr& a : now->attributes) {
      auto it = node.attrs.find(a.name);
      if (it == node.attrs.end() || !a.fallback || has(*old, a.name)) continue;
      if (is_default(it->second, *a.fallback)) node.attrs.erase(it);
    }
  }
  static bool has(const OpSchema& s, const std::string& attribute) {
    return std::any_of(s.attributes.begin(), s.attributes.end(), [&](const auto& a) { return a.name == attribute; });
  }

  std::string against_schema(const OlderNode& older) const {
    const Node& node = older.node;
    const OpSchema* schema = find_schema(node, opset_);
    if (!schema) return "which does not have the operator";
    for (const auto& [key, value] : node.attrs)
      if (key != "captures" && !has(*schema, key)) return fmt::format("which does not have its attribute '{}'", key);
    const auto operands = node.inputs.size() - static_cast<size_t>(node.get_int("captures", 0));
    if (operands < schema->min_operands || operands > schema->max_operands)
      return fmt::format("where it has {} to {} operands, not {}", schema->min_operands, schema->max_operands,
                         operands);
    if (node.outputs.size() > schema->max_results)
      return fmt::format("where it has {} results, not {}", schema->max_results, node.outputs.size());
    return against_types(node, older.known);
  }

  std::string against_types(const Node& node, const std::vector<TensorInfo>& known) const {
    const OpSchema* schema = find_schema(node, opset_);
    if (!schema) return "";
    const auto operands = node.inputs.size() - static_cast<size_t>(node.get_int("captures", 0));
    auto wrong = [&](const std::vector<TensorId>& list, size_t count, const std::vector<OpSchema::Operand>& formal,
                     const char* what) -> std::string {
      for (size_t i = 0; i < count && !formal.empty(); i++) {
        if (list[i] == kNoTensor) continue;
        const DType t = known[static_cast<size_t>(list[i])].dtype;
        if (t != DType::Undefined && !formal[std::min(i, formal.size() - 1)].takes(t))
          return fmt::format("where its {} {} cannot be {}", what, i, name(t));
      }
      return "";
    };
    std::string why = wrong(node.inputs, operands, schema->operands, "operand");
    return why.empty() ? wrong(node.outputs, node.outputs.size(), schema->results, "result") : why;
  }

  bool can_be_widened(Node node, std::vector<TensorInfo> known) const {
    if (std::any_of(node.attrs.begin(), node.attrs.end(),
                    [](const auto& a) { return std::holds_alternative<GraphPtr>(a.second); }))
      return false;
    for (const auto* list : {&node.inputs, &node.outputs})
      for (TensorId t : *list)
        if (t != kNoTensor) {
          TensorInfo& info = known[static_cast<size_t>(t)];
          info.dtype = wider(node, info.dtype).value_or(info.dtype);
        }
    return against_types(node, known).empty();
  }

  int64_t opset_;
};

void check_tensor_types(const Graph& g, int64_t opset) {
  for (const auto* list : {&g.inputs, &g.outputs})
    for (TensorId t : *list)
      if (g.info(t).form != Form::Tensor && opset < 15 && g.info(t).form != Form::Sequence)
        unsupported("'{}' is optional, which opset {} does not have", g.tensor(t).name, opset);
}

void lower_to(Graph& graph, int64_t opset) {
  std::vector<TensorInfo> promised;
  for (TensorId t : graph.outputs) promised.push_back(graph.info(t));
  check_tensor_types(graph, opset);
  const OpsetChoice choice(opset);
  GraphExpansion(graph, &choice).run();
  for (size_t i = 0; i < graph.outputs.size(); i++) {
    TensorInfo& info = graph.info(graph.outputs[i]);
    if (!info.shape) info.shape = promised[i].shape;
  }
}

}  // namespace

std::optional<int64_t> oldest_opset(const Graph& graph, int64_t least) {
  for (int64_t opset = least; opset <= kNewestOpset; opset++) {
    Graph copy = deep_copy(graph);
    try {
      lower_to(copy, opset);
      return opset;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unsupported) throw;
    }
  }
  return std::nullopt;
}

void downgrade(Graph& graph, int64_t opset) {
  Graph copy = deep_copy(graph);
  try {
    lower_to(copy, opset);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Unsupported) throw;
    const auto works = oldest_opset(graph, opset + 1);
    throw Error(e.kind(), e.message(),
                works ? fmt::format("opset {} is the oldest that can say it", *works) : e.hint());
  }
  graph = std::move(copy);
}

}  // namespace ingot
