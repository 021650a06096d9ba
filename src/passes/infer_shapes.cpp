#include "base/error.h"
#include "base/stop.h"
#include "ops/host.h"
#include "ops/op.h"
#include "passes/passes.h"

namespace ingot {
namespace {

// What a subgraph is given when it runs: the operands of its node, for Loop and Scan behind or without what they make
// themselves. A shape is kept only where every run has it.
struct BodyInput {
  TensorInfo info;
  bool shape_holds = true;
};

TensorInfo scalar(DType dtype) { return {dtype, Shape{}, std::nullopt, nullptr}; }

TensorInfo typed(const TensorInfo& info) {
  TensorInfo out;
  out.dtype = info.dtype;
  out.shape = info.shape;
  out.form = info.form;
  return out;
}

std::vector<BodyInput> formal_inputs(const Node& n, const std::vector<TensorInfo>& known) {
  std::vector<BodyInput> out;
  auto operand = [&](size_t i) {
    return n.has_input(i) ? typed(known[static_cast<size_t>(n.inputs[i])]) : TensorInfo{};
  };
  const size_t own = own_inputs(n);
  if (n.is("Loop")) {
    out.push_back({scalar(DType::I64)});
    out.push_back({scalar(DType::Bool)});
    for (size_t i = 2; i < own; i++) out.push_back({operand(i), false});
  } else if (n.is("SequenceMap")) {
    for (size_t i = 0; i < own; i++) {
      out.push_back({operand(i), operand(i).form == Form::Tensor});
      out.back().info.form = Form::Tensor;
    }
  } else if (n.is("Scan")) {
    const auto scanned = static_cast<size_t>(n.get_int("num_scan_inputs", 0));
    const auto axes = n.get_ints("scan_input_axes");
    for (size_t i = 0; i < own; i++) {
      BodyInput input{operand(i)};
      if (i + scanned >= own && input.info.shape) {
        const size_t k = i + scanned - own;
        const auto rank = static_cast<int64_t>(input.info.shape->size());
        int64_t axis = k < axes.size() ? axes[k] : 0;
        if (axis < 0) axis += rank;
        if (axis < 0 || axis >= rank) invalid_model("{}: operand {} has no axis {}", n.label(), i, axis);
        input.info.shape->erase(input.info.shape->begin() + axis);
      }
      out.push_back(std::move(input));
    }
  }
  return out;
}

// The shape that state `i` of a loop is taken to have in every turn is made weaker where its body gives another; true
// when it was. A dim that differs gets a name of its own.
bool weaken(Graph& body, size_t i) {
  const Tensor& state = body.tensor(body.inputs[i + 2]);
  std::optional<Shape>& taken = body.info(body.inputs[i + 2]).shape;
  const std::optional<Shape>& made = body.info(body.outputs[i + 1]).shape;
  if (!taken) return false;
  if (!made || made->size() != taken->size()) {
    taken.reset();
    return true;
  }
  bool weaker = false;
  for (size_t d = 0; d < taken->size(); d++) {
    const Dim own = Dim::symbol("?" + state.name + "." + std::to_string(d));
    if ((*taken)[d] == own || (*taken)[d] == (*made)[d]) continue;
    (*taken)[d] = own;
    weaker = true;
  }
  return weaker;
}

// A state of a Loop has the shape of its operand in the first turn, and in all others if, taken to have it, the body
// gives it back with the same. bind_body left their shapes open.
void infer_loop_body(const Node& n, Graph& body, const std::vector<TensorInfo>& known) {
  const size_t states = own_inputs(n) - std::min<size_t>(own_inputs(n), 2);
  if (body.outputs.size() <= states) return infer_shapes(body);
  for (size_t i = 0; i < states; i++) {
    TensorInfo& info = body.info(body.inputs[i + 2]);
    if (n.has_input(i + 2) && info.form == Form::Tensor) info.shape = known[static_cast<size_t>(n.inputs[i + 2])].shape;
  }
  constexpr int kMostRounds = 8;
  for (int round = 0; round < kMostRounds; round++) {
    bool weaker = false;
    try {
      infer_shapes(body);
    } catch (const Error& e) {
      if (is_stop(e)) throw;
      break;  // shapes of the first turn that do not fit the others
    }
    for (size_t i = 0; i < states; i++) weaker |= weaken(body, i);
    if (!weaker) return;
  }
  bind_body(n, body, known);
  infer_shapes(body);
}

}  // namespace

void bind_body(const Node& n, Graph& body, const std::vector<TensorInfo>& known) {
  std::vector<BodyInput> given = formal_inputs(n, known);
  for (size_t i = own_inputs(n); i < n.inputs.size(); i++) {
    const TensorId t = n.inputs[i];
    given.push_back({t == kNoTensor ? TensorInfo{} : typed(known[static_cast<size_t>(t)])});
  }
  if (given.size() != body.inputs.size() && (n.is("If") || n.is("Loop") || n.is("Scan")))
    invalid_model("{}: its graph '{}' takes {} inputs, {} are given", n.label(), body.name, body.inputs.size(),
                  given.size());
  for (size_t i = 0; i < std::min(given.size(), body.inputs.size()); i++) {
    TensorInfo& info = body.info(body.inputs[i]);
    if (given[i].info.dtype != DType::Undefined) info.dtype = given[i].info.dtype;
    info.form = given[i].info.form;
    // Not what the body says itself, nor what was found for another round of infer_loop_body.
    info.shape = info.form == Form::Tensor && given[i].shape_holds ? given[i].info.shape : std::nullopt;
  }
}

void infer_shapes(Graph& graph) {
  std::vector<TensorInfo> known;
  known.reserve(graph.tensors.size());
  for (Tensor& t : graph.tensors) known.push_back(std::move(t.info));
  auto give_back = [&] {
    for (size_t i = 0; i < known.size(); i++) graph.tensors[i].info = std::move(known[i]);
  };
  try {
    for (const Node& node : graph.nodes) {
      check_stop();
      for (const auto& [attr, value] : node.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value)) {
          bind_body(node, **body, known);
          in_body(node, [&] {
            if (node.is("Loop"))
              infer_loop_body(node, **body, known);
            else
              infer_shapes(**body);
          });
        }
      std::vector<TensorInfo> out = infer_node(graph, node, known, false);
      for (size_t i = 0; i < node.outputs.size(); i++)
        if (node.outputs[i] != kNoTensor) known[static_cast<size_t>(node.outputs[i])] = std::move(out[i]);
    }
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

}  // namespace ingot
